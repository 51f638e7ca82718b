//! Checked → raw, every default included, as `lessor check` prints it. The output has no password. It can be parsed, and
//! means the same otherwise.

use super::{AuthConfig, Config, SharedStore, StoreConfig, Upstream};
use lessor_access::{IdentityPattern, Issuer};
use lessor_ledger::limit_text::RawLimit;
use lessor_ledger::rule_text::{RawRule, Timespan};
use lessor_protocol::NodeName;
use lessor_tls::{ServerFiles, Tls};
use serde::Serialize;
use std::fmt;

/// The part of a window from which on its margin is worth a comment.
const COSTLY_PART: u32 = 20;

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(f, "clock_drift_ppm", &self.clocks.drift_ppm())?;
        writeln!(f, "\n[server]")?;
        line(f, "listen", &self.server.listen.to_string())?;
        line(f, "connections_max", &self.server.connections_max)?;
        line(f, "connections_per_address_max", &self.server.connections_per_address_max)?;
        some(f, "memory_max", self.server.memory_max.as_ref())?;
        some(f, "node", self.server.node.as_ref().map(NodeName::as_str).as_ref())?;
        line(f, "hosts", &self.server.hosts)?;
        let upstreams: Vec<&str> = self.server.upstreams.iter().map(Upstream::as_str).collect();
        line(f, "upstreams", &upstreams)?;
        if let Some(files) = &self.server.tls {
            server_tls(f, files)?;
        }
        line(f, "change_factor_max", &self.server.change_factor_max)?;
        line(f, "insecure", &self.server.insecure)?;
        if let Some(admin) = &self.admin {
            writeln!(f, "\n[admin]")?;
            line(f, "listen", &admin.listen.to_string())?;
            if let Some(files) = &admin.tls {
                server_tls(f, files)?;
            }
            line(f, "insecure", &admin.insecure)?;
            line(f, "metrics", &admin.metrics)?;
        }
        if let Some(tls) = &self.upstream_tls {
            upstream_tls(f, tls)?;
        }
        if let Some(file) = &self.upstream_token {
            writeln!(f, "\n[upstream_auth]")?;
            line(f, "token_file", file)?;
        }
        if let Some(audit) = &self.audit {
            writeln!(f, "\n[audit]")?;
            line(f, "path", &audit.path)?;
            line(f, "bytes_max", &audit.bytes_max)?;
            line(f, "files_max", &audit.files_max)?;
        }
        if let Some(auth) = &self.auth {
            access(f, auth)?;
        }
        writeln!(f, "\n[store]")?;
        line(f, "kind", &self.server.store.kind())?;
        match &self.server.store {
            StoreConfig::Embedded { path: Some(path) } => line(f, "path", path)?,
            StoreConfig::Embedded { path: None } | StoreConfig::Memory => {}
            StoreConfig::Shared(shared) => shared_store(f, shared)?,
        }
        for limit in &self.limits {
            writeln!(f, "\n[[limit]]")?;
            raw_limit(f, &limit.raw())?;
        }
        Ok(())
    }
}

/// Prints the names of the files.
fn server_tls(f: &mut fmt::Formatter<'_>, files: &ServerFiles) -> fmt::Result {
    let mut parts = vec![
        format!("certificate = {}", inline(&files.certificate)?),
        format!("key = {}", inline(&files.key)?),
    ];
    if let Some(client_ca) = &files.client_ca {
        parts.push(format!("client_ca = {}", inline(client_ca)?));
    }
    writeln!(f, "tls = {{ {} }}", parts.join(", "))
}

fn upstream_tls(f: &mut fmt::Formatter<'_>, tls: &Tls) -> fmt::Result {
    writeln!(f, "\n[upstream_tls]")?;
    some(f, "ca", tls.ca_file().as_ref())?;
    if let Some((certificate, key)) = tls.certificate_files() {
        line(f, "certificate", &certificate)?;
        line(f, "key", &key)?;
    }
    Ok(())
}

fn access(f: &mut fmt::Formatter<'_>, auth: &AuthConfig) -> fmt::Result {
    writeln!(f, "\n[auth]")?;
    line(f, "exchanges_per_second_max", &auth.exchanges_per_second_max)?;
    if let Some(tokens) = &auth.tokens {
        line(f, "tokens", &tokens.text())?;
    }
    if let Some((keys, Issuer { issuer, audience })) = &auth.jwt {
        let (keys, issuer, audience) = (inline(keys)?, inline(issuer)?, inline(audience)?);
        writeln!(f, "jwt = {{ keys = {keys}, issuer = {issuer}, audience = {audience} }}")?;
    }
    for role in &auth.roles {
        writeln!(f, "\n[[role]]")?;
        line(f, "name", &role.name)?;
        line(f, "identities", &role.identities.iter().map(IdentityPattern::to_string).collect::<Vec<_>>())?;
        for (name, patterns) in [
            ("lease", &role.lease),
            ("as", &role.nodes),
            ("read", &role.read),
            ("operate", &role.operate),
            ("admin", &role.admin),
        ] {
            if !patterns.is_empty() {
                line(f, name, &patterns.texts().collect::<Vec<_>>())?;
            }
        }
        if !role.lease.is_empty() {
            line(f, "observe", &role.observe)?;
        }
        if !role.operate.is_empty() {
            line(f, "top_up_max", &role.top_up_max)?;
        }
        line(f, "metrics", &role.metrics)?;
    }
    Ok(())
}

/// Prints everything but a password in the URL. A user without a password has no effect, and may be a password in a wrong
/// place, so it is not printed either.
fn shared_store(f: &mut fmt::Formatter<'_>, shared: &SharedStore) -> fmt::Result {
    let url = &shared.cells.url;
    let is_unused = url.has_user_alone() && shared.password_file.is_none();
    line(f, "url", &if is_unused { url.without_user() } else { url.without_password() })?;
    some(f, "password_file", shared.password_file.as_ref())?;
    line(f, "prefix", &shared.cells.prefix)?;
    line(f, "replicas", &shared.cells.replicas)?;
    line(f, "synced", &shared.cells.synced)?;
    line(f, "timeout", &Timespan(shared.cells.timeout))?;
    line(f, "version", &shared.version)
}

fn raw_limit(f: &mut fmt::Formatter<'_>, limit: &RawLimit) -> fmt::Result {
    line(f, "name", &limit.name)?;
    some(f, "upstream", limit.upstream.as_ref())?;
    if let Some(of_limit) = &limit.rules {
        rules(f, of_limit)?;
    }
    some(f, "parent", limit.parent.as_ref())?;
    line(f, "keyed", &limit.keyed)?;
    some(f, "keys_max", limit.keys_max.as_ref())?;
    some(f, "names_max", limit.names_max.as_ref())?;
    line(f, "lessees_max", &limit.lessees_max)?;
    line(f, "weights", &limit.weights)?;
    line(f, "priorities", &limit.priorities)?;
    line(f, "guaranteed", &limit.guaranteed)?;
    line(f, "reserve", &limit.reserve)?;
    some(f, "safe", limit.safe.as_ref())?;
    line(f, "lease_max", &limit.lease_max)?;
    line(f, "term", &limit.term)?;
    line(f, "vendor", &limit.vendor)?;
    line(f, "ease_off", &limit.ease_off)?;
    line(f, "shadow", &limit.shadow)?;
    line(f, "fallback", &limit.fallback)?;
    for of_key in &limit.overrides {
        writeln!(f, "\n[[limit.override]]")?;
        line(f, "key", &of_key.key)?;
        rules(f, &of_key.rules)?;
    }
    Ok(())
}

fn rules(f: &mut fmt::Formatter<'_>, rules: &[RawRule]) -> fmt::Result {
    writeln!(f, "rules = [")?;
    for rule in rules {
        writeln!(f, "    {},{}", inline(rule)?, cost_of_margin(rule).unwrap_or_default())?;
    }
    writeln!(f, "]")
}

/// Returns a comment with the cost of a short window's margin, if that is a twentieth of the window or more.
fn cost_of_margin(rule: &RawRule) -> Option<String> {
    let (limit, Timespan(per), Timespan(margin)) = (rule.limit?.0, rule.per?, rule.margin?);
    if margin < per / COSTLY_PART || limit == 0 {
        return None;
    }
    let left = u128::from(limit) * per.as_nanos() / (per + margin).as_nanos().max(1);
    let span = inline(&Timespan(per)).ok()?;
    let left = if left == 0 { "less than 1".to_owned() } else { left.to_string() };
    Some(format!(" # the margin leaves {left} per {}", span.trim_matches('"')))
}

/// Prints `name = value` in one line, whatever the value is.
fn line(f: &mut fmt::Formatter<'_>, name: &str, value: &impl Serialize) -> fmt::Result {
    writeln!(f, "{name} = {}", inline(value)?)
}

/// Prints `name = value` if there is a value.
fn some(f: &mut fmt::Formatter<'_>, name: &str, value: Option<&impl Serialize>) -> fmt::Result {
    value.map_or(Ok(()), |value| line(f, name, value))
}

fn inline(value: &impl Serialize) -> Result<String, fmt::Error> {
    let mut text = String::new();
    value.serialize(toml::ser::ValueSerializer::new(&mut text)).map_err(|_| fmt::Error)?;
    Ok(text)
}
