//! What an operator writes: TOML text → raw structs → checked types. The binary parses it before anything is
//! bound; behind [`Config::parse`] nothing is checked twice. It reads no file and no environment.

mod auth;
mod check;
mod error;
mod exposure;
mod listen;
mod one;
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
use lessor_ledger::rule_text;
pub use listen::Listen;
pub use one::limit_from_json;

use crate::cells::CellsConfig;
use lessor_ledger::Rule;
use lessor_ledger::rule::SlidingWindow;
use lessor_protocol::{ClockBounds, NodeName};
use lessor_tls::{ServerFiles, Tls};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

/// Connections that are open at once, where the operator says nothing else; further ones wait to be accepted.
/// A node keeps one or two. Each takes a file and some 20 kB: more would need a raised `ulimit -n`.
pub const CONNECTIONS_MAX: usize = 4_096;

/// Of so many connections those that one address may hold, where the operator says nothing else: three quarters. A fleet behind one
/// proxy has enough of them, and an address that takes all that it may leaves some for others.
pub(crate) fn per_address(connections_max: usize) -> usize {
    connections_max - connections_max / 4
}

/// By how many times a limit is changed without a confirmation, where the operator says nothing else.
pub const CHANGE_FACTOR_MAX: u64 = 10;

/// Where to listen, where the operator says nothing else: reachable from this machine only.
pub const LISTEN: &str = "127.0.0.1:7400";

/// Everything that an operator decides. Its `Display` prints it as TOML, every default included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The assumption about clocks.
    pub clocks: ClockBounds,
    /// How the service is reached.
    pub server: ServerConfig,
    /// Where operators see and change it, apart from nodes; `None` if that is where nodes are.
    pub admin: Option<AdminConfig>,
    /// How allocators with `https://` are asked that limits are leased from; `None` if nothing is said of it.
    pub upstream_tls: Option<Tls>,
    /// The file of the token that is shown to allocators that limits are leased from; `None` if they are shown none.
    pub upstream_token: Option<PathBuf>,
    /// Where decisions are written down; `None` leaves it to the log.
    pub audit: Option<AuditConfig>,
    /// Which identities are let in, and to what; `None` if each peer may do all.
    pub auth: Option<AuthConfig>,
    /// The limits, at least one, no two of the same name.
    pub limits: Vec<LimitConfig>,
}

/// How the service is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Where the binary listens.
    pub listen: Listen,
    /// Connections that are open at once.
    pub connections_max: usize,
    /// Those of one address. Further ones are closed at once.
    pub connections_per_address_max: usize,
    /// Bytes of memory beyond which no key is new; `None` leaves it to the system.
    pub memory_max: Option<u64>,
    /// The name of this allocator at the allocators that it leases from; `None` if none is given: each process has its own
    /// name then.
    pub node: Option<NodeName>,
    /// Names with a dot by which operators reach it, in small letters. A change that was sent to another one is not made.
    pub hosts: BTreeSet<String>,
    /// Allocators that limits may be leased from which are put over the API, beside those that the file leases limits from.
    pub upstreams: BTreeSet<Upstream>,
    /// The files by which connections are encrypted; `None` if they are not.
    pub tls: Option<ServerFiles>,
    /// By how many times an operator may change a limit, up or down, without a confirmation.
    pub change_factor_max: u64,
    /// Whether other machines may reach it though it lets in any peer.
    pub insecure: bool,
    /// Where pools outlive the process.
    pub store: StoreConfig,
}

/// Where operators see and change it, apart from nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminConfig {
    /// Where the binary listens.
    pub listen: Listen,
    /// The files by which connections are encrypted; `None` if they are not.
    pub tls: Option<ServerFiles>,
    /// Whether other machines may reach it though it lets in any peer.
    pub insecure: bool,
    /// Whether `/metrics` is here, and not where nodes are.
    pub metrics: bool,
}

/// Where pools outlive the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreConfig {
    /// Nowhere: a new process waits until all that may be out is over.
    Memory,
    /// In a file of this process.
    Embedded {
        /// Which file; `None` leaves it to the program that starts the process.
        path: Option<PathBuf>,
    },
    /// In a server that several allocators share: all of them lease from it.
    Shared(Box<SharedStore>),
}

/// A store that several allocators share. Two are the same if all but a password is.
#[derive(Clone, Debug)]
pub struct SharedStore {
    /// Where it is, and what is asked of it.
    pub cells: CellsConfig,
    /// The file that holds the password, for the program that starts the process; `None` if none was named.
    pub password_file: Option<PathBuf>,
    /// Which configuration this is: of two allocators that say different rules, the one with the higher version is right.
    pub version: u64,
}

impl StoreConfig {
    /// All kinds, as they are written.
    pub const KINDS: [&str; 5] = ["embedded", "memory", "redis", "postgres", "etcd"];

    /// The default file.
    pub const FILE: &str = "lessor.redb";

    /// Its word in configurations.
    pub fn kind(&self) -> &'static str {
        match self {
            StoreConfig::Embedded { .. } => Self::KINDS[0],
            StoreConfig::Memory => Self::KINDS[1],
            StoreConfig::Shared(shared) => shared.kind(),
        }
    }
}

impl Config {
    /// Reads and checks `text`.
    ///
    /// # Errors
    /// The first thing that is wrong with it, in one line.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        check::config(text, &raw::read(text)?, SlidingWindow::MARGIN)
    }

    /// The same, with `margin` where the operator says none: that default is the price of a vendor far away, which
    /// who counts in one place does not pay.
    ///
    /// # Errors
    /// As [`Config::parse`].
    pub fn parse_with_margin(text: &str, margin: Duration) -> Result<Self, ConfigError> {
        check::config(text, &raw::read(text)?, margin)
    }
}

/// Reads rules as they are written in JSON: a list of the objects that a configuration has. `margin` is for those
/// that say none.
///
/// # Errors
/// What is wrong with them, beginning with the key.
pub fn rules_from_json(text: &str, margin: Duration) -> Result<Vec<Rule>, String> {
    let raw = raw::read_rules(text)?;
    if raw.is_empty() {
        return Err("rules is empty: say at least one, or the limit would promise nothing".to_owned());
    }
    let rules = raw.iter().enumerate();
    rules
        .map(|(index, raw)| {
            rule_text::rule(raw, margin).map_err(|problem| format!("rules[{index}].{problem}"))
        })
        .collect()
}
