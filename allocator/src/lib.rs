//! The allocator of Lessor. It owns quotas, and lends them to nodes so that in every window all nodes together admit at
//! most the limit, whatever crashes, is cut off, lost, repeated or late. Permits that are not spent are back within one
//! lease term. The pure crate [`lessor_ledger`] decides how much is lent.
//!
//! ```
//! use lessor_allocator::Config;
//! use lessor_ledger::pool::Past;
//! use lessor_ledger::registry::{Caller, Entry, Registry};
//! use lessor_protocol::{Moment, NodeName, wire::AskBody};
//! use std::time::Duration;
//!
//! let text = r#"[[limit]]
//! name  = "vendor/rest"
//! rules = [{ kind = "sliding_window", limit = 9000, per = "30s" }]"#;
//! let config = Config::parse(text)?;
//! let mut registry = Registry::new(&config.limits, config.clocks, Past::None, Moment::ORIGIN, 7);
//! let caller = Caller { node: NodeName::try_new("checkout-1")?, session: 1, epoch: 0, seq: 1, rtt: Duration::from_millis(2), owner: Default::default() };
//! let ask = AskBody { limit: "vendor/rest".to_owned(), want: 300, waiting: 2, ..AskBody::default() };
//! let grants = registry.leases(Moment::ORIGIN, &caller, &[Entry::Ask(ask)]).grants;
//! assert_eq!((grants[0].permits, grants[0].term_ms), (300, 1_000));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The state of an allocator is a [`Registry`](lessor_ledger::registry): its limits, pools and sessions, without IO.
//! This crate is the shell around it. In reading order: [`config`] (the decisions of the operator), `clock` (the clocks
//! of the machine), `shared` (a lock and a clock), `events` (listeners), [`reload`], `uplink` (leasing from others),
//! `http` (the routes), `metrics`, `listener` (accepts peers), and [`server`] (runs it all). An allocator has its own
//! [`store`], or shares one with others: [`cells`], with [roots](lessor_ledger::roots), the pools that it leases from
//! there, and [`stored_tokens`].

mod access;
mod addresses;
mod audit;
pub mod cells;
mod clock;
pub mod config;
mod descriptors;
mod earlier_decisions;
mod events;
mod http;
mod journal;
mod listener;
mod memory;
mod metrics;
mod open_secrets;
mod overrides;
mod paces;
mod places;
pub mod reload;
#[cfg(test)]
mod samples;
pub mod server;
mod shared;
mod shared_store_status;
mod silent_upstreams;
pub mod store;
pub mod stored_tokens;
mod uplink;

#[doc(hidden)]
pub use http::untrusted;

pub use access::AccessError;
pub use config::{Config, ConfigError};
pub use listener::{Listener, listen};
pub use server::{OpenError, Server};
