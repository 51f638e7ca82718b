//! A distributed rate limiter by quota leasing: a fleet of processes keeps to one contract, at nanoseconds a call.
//!
//! A central allocator owns the quota of a contract and lends it out. This client spends what it was lent in
//! memory, refills it in the background, and gives back what it does not need. The sum over all processes stays
//! within the limit in every window, through crashes, restarts, partitions and pauses: a lease is checked against
//! its deadline at every spend, and when the allocator cannot be reached, calls are refused rather than guessed, unless the limit says otherwise.
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
//! user.try_acquire(1)?;
//! lessor.limit("export").try_acquire_key("user-43", 1)?; // or look it up at each call
//! let call = lessor.limit("vendor/reports").enter(1).await?; // in flight until it is dropped
//! drop(call);
//! lessor.shutdown().await; // gives the rest back
//! # Ok(())
//! # }
//! ```
//!
//! Several allocators may each own a part of a contract: [`Builder::or`] names another one to go on at when the first is gone.
//!
//! # Features
//! None is on by default. The bare client is 86 crates, itself, `lessor-holder` and `lessor-protocol` among them. Most are those of
//! `reqwest` and `tokio` (`cargo tree -p lessor --edges normal --prefix none`, each counted once).
//!
//! - `tls`: [`Builder`]`::tls`, and `https://` addresses. Twenty-one crates more.
//! - `tower`: `lessor::layer`, for servers that speak HTTP or gRPC. No crate more.
//! - `reqwest-middleware`: `lessor::outgoing`, for requests that are sent. Three crates more.
//! - `opentelemetry`: spans lead on in the traces of the process. Seventeen crates more.
//!
//! # The code
//! When to ask, for how much, and what to believe is decided in the crate `lessor-holder`. In reading order: `slot` (the atomic words that are spent from), `ticks` and `stripe_hint` (by which clock, and which word
//! first), `pace` (how fast), `local_pool`, `line` and `wait` (what handles share, and who waits), `limit`, `all`,
//! `guard`, `reservation`, `peek` and `priority` (what callers use), `rate_limit_headers`, `feedback` and `observe` (what the
//! vendor says), `headers`, `layer` and `outgoing` (for HTTP), `refiller`, `fallback`, `events`,
//! `transport` and `listener` (the background tasks), `tally` (metrics), `shared` and `client` (who owns
//! it all).

/// What the guide for those who come from another limiter shows, compiled.
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
mod observe;
#[cfg(feature = "reqwest-middleware")]
pub mod outgoing;
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
/// The crate whose headers [`Limit::observe`] reads.
pub use http;
pub use lessor_files::{FileError, Token};
pub use lessor_protocol::Fallback;
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
