//! A distributed rate limiter by quota leasing: a fleet of processes keeps to one contract, at nanoseconds a call.
//!
//! A central allocator owns the quota of a contract and lends it out. This client spends its leases in memory, refills
//! them in the background, and gives back permits that it does not need. The sum over all processes stays within the
//! limit in every window, through crashes, restarts, partitions and pauses. A lease is checked against its deadline at
//! every spend. When the allocator cannot be reached, calls are refused rather than guessed, unless the limit says
//! otherwise.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let lessor = lessor::Client::connect("http://127.0.0.1:7400").await?;
//! let rest = lessor.limit("vendor/rest");
//! let messages = lessor.limit("vendor/messages");
//! if rest.try_acquire(1).is_ok() { /* call the vendor: local, synchronous, nanoseconds */ }
//! messages.acquire(20).await?; // waits its turn
//! lessor::all([(&rest, 1), (&messages, 20)]).acquire_within(Duration::from_secs(2)).await?;
//! let user = lessor.limit("export").key("user-42"); // look it up once, keep it
//! user.check(1).await?; // now, or not at all; a key's first `try_acquire` is refused, as nothing is leased for it yet
//! lessor.limit("export").check_key("user-43", 1).await?; // or look it up at each call
//! let call = lessor.limit("vendor/reports").enter(1).await?; // in flight until it is dropped
//! drop(call);
//! lessor.shutdown().await; // gives the rest back
//! # Ok(())
//! # }
//! ```
//!
//! Several allocators may each own a part of a contract: [`Builder::or`] names another one, to which the client moves
//! when the first fails.
//!
//! # Features
//! None is on by default. The bare client is 86 crates, among them itself, `lessor-holder` and `lessor-protocol`. Most
//! belong to `reqwest` and `tokio` (`cargo tree -p lessor --edges normal --prefix none`, each counted once).
//!
//! - `tls`: [`Builder`]`::tls`, and `https://` addresses. Adds twenty-one crates.
//! - `tower`: `lessor::layer`, for servers that speak HTTP or gRPC. Adds no crate.
//! - `reqwest-middleware`: `lessor::outgoing`, for outgoing requests. Adds three crates.
//! - `opentelemetry`: the client's spans belong to the traces of the process. Adds seventeen crates.
//!
//! # The code
//! The crate `lessor-holder` decides when to ask, for how much, and what to believe. In reading order: `slot` (the
//! atomic words that calls spend from), `ticks` and `stripe_hint` (which clock a call reads, and which word it tries
//! first), `pace` (steady flows), `local_pool`, `line` and `wait` (what handles share, and waiting callers), `limit`,
//! `all`, `guard`, `reservation`, `peek` and `priority` (what callers use), `rate_limit_headers`, `feedback` and
//! `observe` (the vendor's own count), `headers`, `layer` and `outgoing` (HTTP), `refiller`, `fallback`, `events`,
//! `transport` and `listener` (the background tasks), `tally` (metrics), `shared` and `client` (the owners of it all),
//! `node_name` (the default name of a process).

/// Compiles the examples of the guide for users of other limiters.
#[cfg(doctest)]
#[doc = include_str!("../../docs/migration.md")]
mod migration {}

mod all;
#[doc(hidden)]
pub mod bench_support;
pub mod blocking;
#[cfg(test)]
mod by_hand;
mod client;
#[doc(hidden)]
pub mod doorbell;
mod events;
mod fallback;
#[doc(hidden)]
pub mod feedback;
mod guard;
mod headers;
mod keys;
#[cfg(feature = "tower")]
pub mod layer;
mod limit;
mod limits;
mod line;
mod listener;
mod local_pool;
mod node_name;
mod observe;
#[cfg(feature = "reqwest-middleware")]
pub mod outgoing;
#[doc(hidden)]
pub mod overdraft;
#[doc(hidden)]
pub mod pace;
mod peek;
mod priority;
#[doc(hidden)]
pub mod rate_limit_headers;
mod refiller;
mod refusal;
mod reservation;
mod session_numbers;
mod shared;
#[doc(hidden)]
pub mod slot;
#[doc(hidden)]
pub mod slow_path_flags;
mod stripe_hint;
mod sync;
mod tally;
mod ticks;
mod transport;
mod wait;
mod wake_list;

pub use all::{All, Parts, all, try_all};
pub use client::{Builder, Client, Stats};
pub use events::{Event, Events};
pub use guard::Guard;
/// The crate of the header types that [`Limit::observe`] reads.
pub use http;
pub use lessor_files::{FileError, Token};
pub use lessor_protocol::{Announced, ClockBounds, Fallback, Left};
#[cfg(feature = "tls")]
pub use lessor_tls::{Tls, TlsError};
pub use limit::Limit;
pub use peek::Peek;
pub use priority::Priority;
pub use rate_limit_headers::{HeaderNames, RateLimitHeaders};
pub use refusal::Refusal;
pub use reservation::{Reservation, Settled};
pub use tally::HISTOGRAMS;
pub use ticks::HotClock;
pub use transport::ExchangeError;
/// The crates of the requests and clients that [`outgoing`] works with.
#[cfg(feature = "reqwest-middleware")]
pub use {reqwest, reqwest_middleware};
