//! Whole fleets in virtual time: the shipping pool, slots and refills on machines whose clocks drift, with a bad
//! network between them, under load. Everything that happens follows from one seed; an omniscient oracle looks on.
//!
//! What is true, in [`mod@reference`] (a rule kept by remembering every spend), with [`civil`] (calendars) and [`warming`] (the
//! curve of a cold bucket).
//!
//! The fleet, in reading order: [`setup`] (what is to be simulated), [`text`] (in a line), [`generator`] (drawing one from a seed) with
//! [`edges`] (of calendars), [`topology`] (one allocator, regions below it, or several that share a store), [`limits`] (as an operator configures them),
//! [`clock`], [`traffic`], [`network`], [`faults`],
//! [`live`] (what operators do), [`oracles`] (the oracles of a run), [`node`], [`desk`] (a limit at a node), [`adversary`] (one that does not play by the rules), [`policy`] and
//! [`rival`] (other ways to size leases), [`oracle`] (what must hold), [`meter`] (how well it went, with [`boundary`] and [`evenness`]),
//! [`curve`], [`log`]
//! (the last events in words), [`world`] (the loop), [`soak`] (many seeds at once), [`shrink`] (cutting down what failed), [`replay`] (one setup, for a reader). `lessor simulate` runs them.

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
