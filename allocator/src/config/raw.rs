//! The raw configuration, before it is checked: the only types here that know serde. They are read from TOML.

use super::error::one_line;
use super::{ConfigError, place, store};
use lessor_ledger::limit_text::{RULES_EXAMPLE, RawLimit};
use lessor_ledger::rule_text::{Count, RawRule, Timespan};
use serde::Deserialize;
use serde_path_to_error::{Path, Segment};

/// Keys of the design that this version does not have. An operator who copies them from there is told so.
const LATER: [&str; 1] = ["priority"];

/// Keys without a default, each with an example.
const NEEDED: [(&str, &str); 12] = [
    ("name", "\"vendor/rest\""),
    ("rules", RULES_EXAMPLE),
    ("kind", "\"sliding_window\""),
    ("key", "\"acme\""),
    ("certificate", "\"server.crt\""),
    ("listen", "\"127.0.0.1:7401\""),
    ("over", "\"10s\""),
    ("identities", "[\"token:billing\"]"),
    ("keys", "\"jwks.json\""),
    ("issuer", "\"https://login.example.com\""),
    ("audience", "\"lessor\""),
    ("token_file", "\"upstream.token\""),
];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawConfig {
    pub clock_drift_ppm: Option<Count>,
    #[serde(default)]
    pub server: RawServer,
    pub admin: Option<RawAdmin>,
    pub upstream_tls: Option<RawTls>,
    pub upstream_auth: Option<RawUpstreamAuth>,
    pub auth: Option<RawAuth>,
    pub audit: Option<RawAudit>,
    #[serde(default)]
    pub role: Vec<RawRole>,
    #[serde(default)]
    pub store: RawStore,
    #[serde(default)]
    pub limit: Vec<RawLimit>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawServer {
    pub listen: Option<String>,
    pub connections_max: Option<Count>,
    pub connections_per_address_max: Option<Count>,
    pub memory_max: Option<Count>,
    pub node: Option<String>,
    #[serde(default)]
    pub hosts: Vec<String>,
    #[serde(default)]
    pub upstreams: Vec<String>,
    pub tls: Option<RawServerTls>,
    pub change_factor_max: Option<Count>,
    #[serde(default)]
    pub insecure: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawAdmin {
    pub listen: String,
    pub tls: Option<RawServerTls>,
    #[serde(default)]
    pub insecure: bool,
    #[serde(default = "yes")]
    pub metrics: bool,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawServerTls {
    pub certificate: String,
    pub key: String,
    pub client_ca: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTls {
    pub ca: Option<String>,
    pub certificate: Option<String>,
    pub key: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawUpstreamAuth {
    pub token_file: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawAuth {
    pub exchanges_per_second_max: Option<Count>,
    pub tokens: Option<String>,
    pub jwt: Option<RawJwt>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawJwt {
    pub keys: String,
    pub issuer: String,
    pub audience: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawAudit {
    pub path: String,
    pub bytes_max: Option<Count>,
    pub files_max: Option<Count>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRole {
    pub name: String,
    pub identities: Vec<String>,
    #[serde(default)]
    pub lease: Vec<String>,
    #[serde(default, rename = "as")]
    pub nodes: Vec<String>,
    pub observe: Option<bool>,
    #[serde(default)]
    pub read: Vec<String>,
    #[serde(default)]
    pub operate: Vec<String>,
    pub top_up_max: Option<Count>,
    #[serde(default)]
    pub admin: Vec<String>,
    #[serde(default)]
    pub metrics: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawStore {
    pub kind: Option<String>,
    pub path: Option<String>,
    pub url: Option<String>,
    pub password_file: Option<String>,
    pub prefix: Option<String>,
    pub replicas: Option<Count>,
    pub synced: Option<bool>,
    pub timeout: Option<Timespan>,
    pub version: Option<Count>,
}

/// Reads `text` into raw structs. A value of a wrong type is an error with the line and the key.
pub(super) fn read(text: &str) -> Result<RawConfig, ConfigError> {
    let document = toml::Deserializer::parse(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        let line = text.lines().nth(ConfigError::at(text, offset, "").line() - 1).unwrap_or_default();
        ConfigError::at(text, offset, format!("{}, in: {}", error.message(), quoted(line)))
    })?;
    serde_path_to_error::deserialize(document).map_err(|error| {
        let key = key(error.path());
        let error = error.into_inner();
        let problem = match key.starts_with("store") && store::may_be_url(error.message()) {
            true => format!("{key} is {}: use store.url", store::shown(error.message())),
            false => problem(&key, error.message()),
        };
        match (key.is_empty(), error.span()) {
            (true, Some(span)) => ConfigError::at(text, span.start, problem),
            (true, None) | (false, _) => ConfigError::at(text, place::offset(text, &key), problem),
        }
    })
}

/// Longest quote of a line, in characters.
const QUOTED_MAX: usize = 200;

/// Quotes `line`. The value is left out if it may be a password, or the URL of a store with a password in it.
fn quoted(line: &str) -> String {
    let line = line.trim();
    let shown: String = line.chars().take(QUOTED_MAX).collect();
    if !["url", "://", "password"].iter().any(|word| line.contains(word)) {
        return shown;
    }
    let key = shown.split_once('=').map_or("", |(key, _)| key.trim_end());
    format!("{key} = …")
}

/// Makes a problem with `key` of the error `said` of serde.
fn problem(key: &str, said: &str) -> String {
    let last = key.rsplit('.').next().unwrap_or_default();
    if said.starts_with("unknown field") && LATER.contains(&last) {
        return format!("{key} is not available in this version: leave it out");
    }
    let missing = said.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`'));
    if let Some((name, example)) = missing.and_then(|name| NEEDED.iter().find(|(needed, _)| *needed == name))
    {
        let dot = if key.is_empty() { "" } else { "." };
        // The same word names a file with a private key, and what a limit counts by.
        let is_file = *name == "key" && last.ends_with("tls");
        let example = if is_file { "\"server.key\"" } else { example };
        return format!("{key}{dot}{name} is missing: say for example {name} = {example}");
    }
    if ["limit", "role", "override"].contains(&last)
        && said.starts_with("invalid type: map, expected a sequence")
    {
        let table =
            key.split('.').map(|step| step.split('[').next().unwrap_or(step)).collect::<Vec<_>>().join(".");
        return format!("{key} is one table: write [[{table}]], with two brackets, for each {last}");
    }
    let colon = if key.is_empty() { "" } else { ": " };
    format!("{key}{colon}{said}")
}

/// Reads a list of rules from JSON. A value of a wrong type is an error that begins with the key.
pub(super) fn read_rules(text: &str) -> Result<Vec<RawRule>, String> {
    let document = &mut serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(document).map_err(|error| {
        let key = key(error.path());
        let error = error.into_inner();
        // The position within a piece of a line is of no use to an operator.
        let place = format!(" at line {} column {}", error.line(), error.column());
        let said = error.to_string();
        one_line(&problem(&format!("rules{key}"), said.strip_suffix(&place).unwrap_or(&said)))
    })
}

/// Formats `path` as operators write it.
fn key(path: &Path) -> String {
    let mut key = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => key.push_str(&format!("[{index}]")),
            Segment::Map { key: name } => {
                let dot = if key.is_empty() { "" } else { "." };
                key.push_str(&format!("{dot}{name}"));
            }
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    key
}
