//! The configuration of an operator: TOML text → raw structs → checked types. The binary parses it before anything is
//! bound; after [`Config::parse`] nothing is checked twice. It reads no environment, and no files but those of TLS that
//! the URL of a store names.

mod auth;
mod check;
mod error;
mod exposure;
mod listen;
mod one;
mod paths;
mod place;
mod raw;
mod show;
mod store;
#[cfg(test)]
mod tests;
mod tls;
mod upstream;

pub use auth::{AuditConfig, AuthConfig, TokensAt};
pub use error::ConfigError;
pub(crate) use error::one_line;
pub use exposure::Exposure;
pub use lessor_ledger::named::{NAMES_MAX, Named, Names, named_for};
pub use lessor_ledger::registry::{
    ByNode, DEPTH_MAX, KEYS_MAX, Keyed, LESSEES_MAX, LimitConfig, Upstream, key_above,
};
use lessor_ledger::{limit_text, rule_text};
pub use listen::Listen;
pub(crate) use one::limit_from_decision;
pub use one::limit_from_json;

use crate::cells::CellsConfig;
use lessor_ledger::Rule;
use lessor_ledger::rule::SlidingWindow;
use lessor_protocol::{ClockBounds, NodeName};
use lessor_tls::{ServerFiles, Tls};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Default of the connections that are open at once; further ones wait to be accepted. A node keeps one or two. Each
/// takes a file and some 20 kB: more would need a raised `ulimit -n`.
pub(crate) const CONNECTIONS_MAX: usize = 4_096;

/// Default of the connections of one address: three quarters of all. A fleet behind one proxy has enough of them, and
/// an address that takes its whole share leaves some for others.
pub(crate) fn per_address(connections_max: usize) -> usize {
    connections_max - connections_max / 4
}

/// Default factor up to which a limit changes without a confirmation.
pub(crate) const CHANGE_FACTOR_MAX: u64 = 10;

/// Default address: reachable from this machine only.
pub(crate) const LISTEN: &str = "127.0.0.1:7400";

/// Everything that an operator decides. Its `Display` prints it as TOML, every default included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The bounds that clocks are assumed to keep.
    pub clocks: ClockBounds,
    /// How the service is reached.
    pub server: ServerConfig,
    /// The separate service for operators; `None` if nodes and operators share an address.
    pub admin: Option<AdminConfig>,
    /// TLS towards upstreams with `https://`; `None` if it is not configured.
    pub upstream_tls: Option<Tls>,
    /// The file of the token that is shown to upstreams; `None` if they are shown none.
    pub upstream_token: Option<PathBuf>,
    /// Where decisions of operators are written; `None` leaves them to the log.
    pub audit: Option<AuditConfig>,
    /// The identities that are let in, with their rights; `None` if each peer may do all.
    pub auth: Option<AuthConfig>,
    /// The limits, at least one, no two of the same name.
    pub limits: Vec<LimitConfig>,
}

/// How the service is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// The address to listen on.
    pub listen: Listen,
    /// Most connections that are open at once.
    pub connections_max: usize,
    /// Most connections of one address. Further ones are closed at once.
    pub connections_per_address_max: usize,
    /// Memory, in bytes, beyond which no new key is accepted; `None` sets no bound.
    pub memory_max: Option<u64>,
    /// The name of this allocator at its upstreams; `None` gives each process its own name.
    pub node: Option<NodeName>,
    /// Names with a dot by which operators reach it, in small letters. Their requests under others are refused.
    pub hosts: BTreeSet<String>,
    /// Upstreams that limits put over the API may name, besides those that the file leases limits from.
    pub upstreams: BTreeSet<Upstream>,
    /// The files of certificates; `None` if connections are not encrypted.
    pub tls: Option<ServerFiles>,
    /// Factor up to which an operator may change a limit, up or down, without a confirmation.
    pub change_factor_max: u64,
    /// Whether other machines may reach it even if it lets in any peer.
    pub insecure: bool,
    /// Where the books outlive the process.
    pub store: StoreConfig,
}

/// The separate service for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminConfig {
    /// The address to listen on.
    pub listen: Listen,
    /// The files of certificates; `None` if connections are not encrypted.
    pub tls: Option<ServerFiles>,
    /// Whether other machines may reach it even if it lets in any peer.
    pub insecure: bool,
    /// Whether `/metrics` is served here instead of with the requests of nodes.
    pub metrics: bool,
}

/// Where the books outlive the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreConfig {
    /// Nowhere: a new process waits until all permits that may be out have ended.
    Memory,
    /// In a file that only this process uses.
    Embedded {
        /// The path; `None` leaves it to the program that starts the process.
        path: Option<PathBuf>,
    },
    /// In a server from which several allocators lease.
    Shared(Box<SharedStore>),
}

/// A store that several allocators share. Equality ignores the password.
#[derive(Clone, Debug)]
pub struct SharedStore {
    /// The address of the store, and its options.
    pub cells: CellsConfig,
    /// The file with the password, for the program that starts the process; `None` without one.
    pub password_file: Option<PathBuf>,
    /// The version of the configuration. If two allocators have different rules, the higher version wins.
    pub version: u64,
}

impl StoreConfig {
    /// All kinds, as in configurations.
    pub const KINDS: [&str; 5] = ["embedded", "memory", "redis", "postgres", "etcd"];

    /// The default file.
    pub const FILE: &str = "lessor.redb";

    /// Returns the kind, as in configurations.
    pub fn kind(&self) -> &'static str {
        match self {
            StoreConfig::Embedded { .. } => Self::KINDS[0],
            StoreConfig::Memory => Self::KINDS[1],
            StoreConfig::Shared(shared) => shared.kind(),
        }
    }
}

impl Config {
    /// Parses and checks `text`. Relative paths in it count from the working directory.
    ///
    /// # Errors
    /// If `text` is wrong. The error is the first problem, in one line.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        Self::parse_in(text, Path::new(""))
    }

    /// Parses and checks the `text` of a file in `folder`. Relative paths in it count from there.
    ///
    /// # Errors
    /// As [`Config::parse`].
    pub fn parse_in(text: &str, folder: &Path) -> Result<Self, ConfigError> {
        Self::parse_with_margin(text, folder, SlidingWindow::MARGIN)
    }

    /// Parses as [`Config::parse_in`] with `margin` as the default margin of sliding windows. The usual default is
    /// meant for a vendor far away; a replay, which counts in one place, has no such delay.
    ///
    /// # Errors
    /// As [`Config::parse`].
    pub fn parse_with_margin(text: &str, folder: &Path, margin: Duration) -> Result<Self, ConfigError> {
        let mut raw = raw::read(text)?;
        paths::place(&mut raw, folder);
        check::config(text, &raw, margin, limit_text::limit)
    }
}

/// Parses rules in JSON: a list of objects as in a configuration. `margin` is the default of windows that name none.
///
/// # Errors
/// If a rule is wrong. The error begins with the key.
pub fn rules_from_json(text: &str, margin: Duration) -> Result<Vec<Rule>, String> {
    let raw = raw::read_rules(text)?;
    if raw.is_empty() {
        return Err("rules is empty: a limit needs at least one rule".to_owned());
    }
    let rules = raw.iter().enumerate();
    rules
        .map(|(index, raw)| {
            rule_text::rule(raw, margin).map_err(|problem| format!("rules[{index}].{problem}"))
        })
        .collect()
}
