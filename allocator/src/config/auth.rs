//! Identities and their rights, raw → checked. No file is read here.

use super::StoreConfig;
use super::raw::{RawAudit, RawAuth, RawJwt, RawRole, RawUpstreamAuth};
use lessor_access::{IdentityPattern, Issuer, Patterns, Role};
use lessor_ledger::rule_text::Count;
use lessor_protocol::PERMITS_MAX;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The identities that are let in, with their rights. Without an [`AuthConfig`] each peer that reaches an address may
/// do all that is served there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthConfig {
    /// Where the tokens are kept; `None` if there are none.
    pub tokens: Option<TokensAt>,
    /// The file with the keys of an identity provider, and the issuer whose tokens are accepted; `None` without a
    /// provider.
    pub jwt: Option<(PathBuf, Issuer)>,
    /// Most exchanges of one identity, per second.
    pub exchanges_per_second_max: u32,
    /// The roles, at least one.
    pub roles: Vec<Arc<Role>>,
}

/// The default of [`AuthConfig::exchanges_per_second_max`]: the rate of a few thousand busy nodes.
const EXCHANGES_PER_SECOND_MAX: u32 = 10_000;

/// Where tokens are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokensAt {
    /// In a file.
    File(PathBuf),
    /// In the store that several allocators share.
    Store,
}

impl TokensAt {
    /// The text that means the store. A file of that name is written `./store`.
    pub(crate) const STORE: &str = "store";

    /// # Errors
    /// If `text` names no file, or is `store` and the store is not shared.
    fn read(text: &str, store: &StoreConfig) -> Result<Self, String> {
        match (text, store) {
            (Self::STORE, StoreConfig::Shared(_)) => Ok(TokensAt::Store),
            (Self::STORE, StoreConfig::Memory | StoreConfig::Embedded { .. }) => Err(format!(
                "auth.tokens is \"store\", and store.kind is {:?}, which no other allocator shares: use \"redis\", \"postgres\" or \"etcd\" there, or name a file",
                store.kind()
            )),
            (file, _) => Ok(TokensAt::File(named_file("auth.tokens", file)?)),
        }
    }

    /// Returns the file, if the tokens are in one.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            TokensAt::File(file) => Some(file),
            TokensAt::Store => None,
        }
    }

    /// Returns the text of the configuration.
    pub(super) fn text(&self) -> Cow<'_, str> {
        match self {
            TokensAt::File(file) => file.to_string_lossy(),
            TokensAt::Store => Cow::Borrowed(Self::STORE),
        }
    }
}

/// Where decisions of operators are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditConfig {
    /// The current file. Older ones end in `.1`, `.2` and so on.
    pub path: PathBuf,
    /// Largest size of a file, in bytes.
    pub bytes_max: u64,
    /// Most files that are kept.
    pub files_max: u64,
}

/// Defaults of [`AuditConfig::bytes_max`] and [`AuditConfig::files_max`].
const AUDIT_BYTES_MAX: u64 = 64 << 20;
const AUDIT_FILES_MAX: u64 = 8;

/// Checks where decisions of operators are written.
pub(super) fn audit(raw: &RawAudit) -> Result<AuditConfig, String> {
    let path = named_file("audit.path", &raw.path)?;
    let number = |key: &str, raw: Option<Count>, default: u64, (least, most): (u64, u64)| {
        let number = raw.map_or(default, |count| count.0);
        if (least..=most).contains(&number) {
            return Ok(number);
        }
        Err(format!("audit.{key} is {number}: use a number from {least} to {most}"))
    };
    // The lower bound leaves room for an entry, which may hold two configurations of a limit.
    let bytes_max = number("bytes_max", raw.bytes_max, AUDIT_BYTES_MAX, (1 << 20, 1 << 40))?;
    Ok(AuditConfig {
        path,
        bytes_max,
        files_max: number("files_max", raw.files_max, AUDIT_FILES_MAX, (1, 1_000))?,
    })
}

/// Checks `auth` and `roles`; `None` if neither is there. `by_certificates` says whether certificates prove identities,
/// and `store` may keep tokens.
pub(super) fn auth(
    auth: Option<&RawAuth>,
    roles: &[RawRole],
    by_certificates: bool,
    store: &StoreConfig,
) -> Result<Option<AuthConfig>, String> {
    if auth.is_none() && roles.is_empty() {
        return Ok(None);
    }
    let tokens =
        auth.and_then(|auth| auth.tokens.as_deref()).map(|text| TokensAt::read(text, store)).transpose()?;
    let jwt = auth.and_then(|auth| auth.jwt.as_ref()).map(jwt).transpose()?;
    if roles.is_empty() {
        return Err(
            "auth is set, but there is no [[role]]: no identity may do anything, add at least one".to_owned()
        );
    }
    if tokens.is_none() && jwt.is_none() && !by_certificates {
        return Err(
            "role is set, but no identity can be proven: set tokens or jwt in [auth], or client_ca in tls"
                .to_owned(),
        );
    }
    let mut checked: Vec<Arc<Role>> = vec![];
    for (index, raw) in roles.iter().enumerate() {
        let role = role(raw).map_err(|problem| format!("role[{index}].{problem}"))?;
        if checked.iter().any(|other| other.name == role.name) {
            return Err(format!(
                "role[{index}].name is {:?}, which is there twice: put both into one",
                role.name
            ));
        }
        checked.push(Arc::new(role));
    }
    let exchanges_per_second_max = exchanges_per_second(auth.and_then(|auth| auth.exchanges_per_second_max))?;
    Ok(Some(AuthConfig { tokens, jwt, exchanges_per_second_max, roles: checked }))
}

fn exchanges_per_second(raw: Option<Count>) -> Result<u32, String> {
    let number = raw.map_or(EXCHANGES_PER_SECOND_MAX.into(), |count| count.0);
    let in_range = u32::try_from(number).ok().filter(|number| (1..=1_000_000).contains(number));
    in_range
        .ok_or_else(|| format!("auth.exchanges_per_second_max is {number}: use a number from 1 to 1000000"))
}

/// Checks the keys of an identity provider, and the issuer of the tokens that they sign.
fn jwt(raw: &RawJwt) -> Result<(PathBuf, Issuer), String> {
    let keys = named_file("auth.jwt.keys", &raw.keys)?;
    for (key, text) in [("issuer", &raw.issuer), ("audience", &raw.audience)] {
        if text.is_empty() {
            return Err(format!("auth.jwt.{key} is \"\": say what tokens must have"));
        }
    }
    Ok((keys, Issuer { issuer: raw.issuer.clone(), audience: raw.audience.clone() }))
}

/// Checks the file of the token that this allocator shows to its upstreams.
pub(super) fn upstream_token(raw: &RawUpstreamAuth) -> Result<PathBuf, String> {
    named_file("upstream_auth.token_file", &raw.token_file)
}

fn named_file(key: &str, name: &str) -> Result<PathBuf, String> {
    if name.is_empty() { Err(format!("{key} is \"\": name a file")) } else { Ok(PathBuf::from(name)) }
}

fn role(raw: &RawRole) -> Result<Role, String> {
    let patterns = |key: &str, texts: &[String]| {
        Patterns::try_new(texts.iter().map(String::as_str)).map_err(|problem| format!("{key} has {problem}"))
    };
    if raw.name.is_empty() {
        return Err("name is \"\": give the role a name".to_owned());
    }
    if raw.identities.is_empty() {
        return Err("identities is empty: use for example identities = [\"token:billing\"]".to_owned());
    }
    let identities = raw.identities.iter().map(|text| IdentityPattern::try_new(text));
    let role = Role {
        name: raw.name.clone(),
        identities: identities
            .collect::<Result<_, _>>()
            .map_err(|problem| format!("identities has {problem}"))?,
        lease: patterns("lease", &raw.lease)?,
        nodes: patterns("as", &raw.nodes)?,
        observe: raw.observe.unwrap_or(!raw.lease.is_empty()),
        read: patterns("read", &raw.read)?,
        operate: patterns("operate", &raw.operate)?,
        top_up_max: raw.top_up_max.map_or(0, |max| max.0),
        admin: patterns("admin", &raw.admin)?,
        metrics: raw.metrics,
    };
    if role.lease.is_empty() != role.nodes.is_empty() {
        let (said, missing) = if role.nodes.is_empty() { ("lease", "as") } else { ("as", "lease") };
        return Err(format!(
            "{said} is set without {missing}: list limits in lease, and the names of nodes in as"
        ));
    }
    if raw.observe.is_some() && role.lease.is_empty() {
        return Err("observe is set without lease: list the limits there".to_owned());
    }
    if role.top_up_max > PERMITS_MAX {
        return Err(format!("top_up_max is {}: use at most {PERMITS_MAX}", role.top_up_max));
    }
    if role.top_up_max > 0 && role.operate.is_empty() {
        return Err("top_up_max is set without operate: list the limits there".to_owned());
    }
    Ok(role)
}

#[cfg(test)]
mod tests {
    use super::TokensAt;
    use crate::config::Config;
    use crate::samples::LIMIT;

    fn problem(text: &str) -> String {
        Config::parse(&format!("{text}\n{LIMIT}")).expect_err(text).to_string()
    }

    #[test]
    fn what_is_printed_of_roles_means_the_same() {
        let text = r#"
            [auth]
            tokens = "tokens.toml"
            jwt = { keys = "jwks.json", issuer = "https://login", audience = "lessor" }
            [[role]]
            name = "billing"
            identities = ["token:billing", "certificate:spiffe://prod/billing/*", "jwt:billing"]
            lease = ["vendor/*"]
            as = ["billing-*"]
            observe = false
            [[role]]
            name = "on call"
            identities = ["token:on-call"]
            read = ["*"]
            operate = ["vendor/rest"]
            top_up_max = 100
            [[role]]
            name = "all"
            identities = ["token:root"]
            admin = ["*"]
            metrics = true
            [upstream_auth]
            token_file = "up.token"
            [audit]
            path = "audit.jsonl"
            files_max = 3
        "#;
        let config = Config::parse(&format!("{text}\n{LIMIT}")).expect("good");
        let auth = config.auth.as_ref().expect("it is said");
        assert_eq!(auth.roles.len(), 3);
        assert_eq!((auth.roles[0].observe, auth.roles[1].top_up_max), (false, 100));
        assert_eq!(Config::parse(&config.to_string()), Ok(config));
        assert_eq!(Config::parse(LIMIT).expect("good").auth, None);
        for (tokens, at) in [("store", TokensAt::Store), ("./store", TokensAt::File("./store".into()))] {
            let store = "[store]\nkind = \"redis\"\nurl = \"redis://h\"";
            let role = "[[role]]\nname = \"r\"\nidentities = [\"token:a\"]\nread = [\"a\"]";
            let text = format!("[auth]\ntokens = {tokens:?}\n{store}\n{role}\n{LIMIT}");
            let config = Config::parse(&text).expect("good");
            assert_eq!(config.auth.as_ref().expect("it is said").tokens, Some(at));
            assert_eq!(Config::parse(&config.to_string()), Ok(config));
        }
    }

    #[test]
    fn what_is_wrong_with_a_role_is_named() {
        let role = |more: &str| {
            problem(&format!(
                "[auth]\ntokens = \"t\"\n[[role]]\nname = \"r\"\nidentities = [\"token:a\"]\n{more}\n"
            ))
        };
        for (more, said) in [
            ("lease = [\"a\"]", "role[0].lease is set without as"),
            ("as = [\"a\"]", "role[0].as is set without lease"),
            ("read = [\"a*b\"]", "role[0].read has \"a*b\""),
            ("observe = true", "role[0].observe is set without lease"),
            ("top_up_max = 7", "role[0].top_up_max is set without operate"),
            ("operate = [\"a\"]\ntop_up_max = 9007199254740992", "role[0].top_up_max is 9007199254740992"),
            ("write = [\"a\"]", "write"),
            ("[[role]]\nname = \"r\"\nidentities = [\"token:b\"]", "role[1].name is \"r\""),
        ] {
            let problem = role(more);
            assert!(problem.contains(said), "{more}: {problem}");
        }
        let identities = |text: &str| {
            problem(&format!(
                "[auth]\ntokens = \"t\"\n[[role]]\nname = \"r\"\nidentities = {text}\nread = [\"a\"]\n"
            ))
        };
        assert!(identities("[]").contains("role[0].identities is empty"));
        assert!(identities("[\"billing\"]").contains("role[0].identities has \"billing\""));
        assert!(problem("[auth]\ntokens = \"t\"").contains("no [[role]]"));
        let proven = "[[role]]\nname = \"r\"\nidentities = [\"token:a\"]\nread = [\"a\"]";
        assert!(problem(proven).contains("no identity can be proven"));
        assert!(problem("[auth]\ntokens = \"\"").contains("auth.tokens is \"\""));
        for kind in ["embedded", "memory"] {
            let problem = problem(&format!("[auth]\ntokens = \"store\"\n[store]\nkind = {kind:?}\n{proven}"));
            let said = format!("auth.tokens is \"store\", and store.kind is {kind:?}");
            assert!(problem.contains(&said), "{problem}");
        }
        assert!(problem("[audit]\npath = \"\"").contains("audit.path is \"\""));
        assert!(problem("[audit]\npath = \"a\"\nfiles_max = 0").contains("audit.files_max is 0"));
        assert!(problem("[audit]\npath = \"a\"\nbytes_max = 7").contains("audit.bytes_max is 7"));
        assert!(problem("[server]\nchange_factor_max = 0").contains("server.change_factor_max is 0"));
    }
}
