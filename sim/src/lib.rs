//! Whole fleets in virtual time: the shipping pool, slots and refills on machines whose clocks drift, with a bad
//! network between them, under load. Everything follows from one seed, and an omniscient oracle checks it.
//!
//! The truth is in [`mod@reference`] (a rule kept by remembering every spend), with [`civil`] (calendars) and
//! [`warming`] (the curve of a cold bucket).
//!
//! The fleet, in reading order:
//! - the setup: [`setup`] (what is simulated), [`text`] (the setup as a line), [`generator`] (setups from seeds) with
//!   [`edges`] (of calendars), [`topology`] (one allocator, regions below it, or several that share a store),
//!   [`limits`] (as an operator configures them), `remade` (rules with other numbers);
//! - its surroundings: [`clock`], [`traffic`], [`network`], [`faults`], [`live`] (what operators do);
//! - nodes: [`node`], [`desk`] (a limit at a node), [`adversary`] (a node that breaks the protocol), [`policy`] and
//!   [`rival`] (other ways to size leases);
//! - judges: [`oracles`] (the oracles of a run), [`oracle`] (what must hold), [`meter`] (how well it went, with
//!   [`boundary`] and [`evenness`]), [`curve`], [`log`] (the last events in words);
//! - runs: [`world`] (the loop), [`soak`] (many seeds at once), [`shrink`] (cuts down a setup that failed), [`replay`]
//!   (one setup, for a reader). `lessor simulate` runs them.

pub mod adversary;
pub mod boundary;
pub mod civil;
pub mod clock;
pub mod curve;
pub mod desk;
pub mod edges;
pub mod evenness;
pub mod faults;
pub mod generator;
pub mod limits;
pub mod live;
pub mod log;
pub mod meter;
pub mod network;
pub mod node;
pub mod oracle;
pub mod oracles;
pub mod policy;
pub mod reference;
mod remade;
pub mod replay;
pub mod rival;
pub mod setup;
pub mod shrink;
pub mod soak;
pub mod text;
pub mod topology;
pub mod traffic;
pub mod warming;
pub mod world;

/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;
/// Nanoseconds in a millisecond.
pub const MILLI: u64 = 1_000_000;
