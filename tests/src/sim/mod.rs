//! A whole fleet in virtual time: the shipping pool, slots and refills on machines whose clocks drift, with a bad
//! network between them, under load. Everything that happens follows from one seed; an omniscient oracle looks on.
//!
//! In reading order: [`setup`] (what is to be simulated), [`text`] (in a line), [`swarm`] (drawing one from a seed) with
//! [`edges`] (of calendars), [`family`] (the pools), [`clock`], [`traffic`], [`network`], [`faults`],
//! [`live`] (what operators do), [`judges`] (the oracles of a run), [`node`], [`foe`] (one that does not play by the rules), [`policy`] and
//! [`rival`] (other ways to size leases), [`oracle`] (what must hold), [`meter`] (how well it went, with [`boundary`]),
//! [`curve`], [`log`]
//! (the last events in words), [`world`] (the loop), [`soak`] (many seeds at once), `mutants` (mistakes that must be
//! noticed), [`shrink`] (cutting down what failed), [`replay`] (one setup, for a reader), [`plot`], [`cli`] (the
//! `simulate` tool).

pub mod boundary;
pub mod cli;
pub mod clock;
pub mod curve;
pub mod edges;
pub mod family;
pub mod faults;
pub mod foe;
pub mod judges;
pub mod live;
pub mod log;
pub mod meter;
#[cfg(lessor_mutants)]
pub mod mutants;
pub mod network;
pub mod node;
pub mod oracle;
pub mod plot;
pub mod policy;
pub mod replay;
pub mod rival;
pub mod setup;
pub mod shrink;
pub mod soak;
pub mod swarm;
pub mod text;
pub mod traffic;
pub mod world;

/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;
/// Nanoseconds in a millisecond.
pub const MILLI: u64 = 1_000_000;
