//! The hosts that lend to nodes, and what they lease from. It is data of a setup; the world has the hosts.

use crate::network::Latency;
use lessor_ledger::roots::TimeSource;

/// The hosts that lend to nodes. Nodes go round.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Topology {
    /// One allocator.
    #[default]
    Allocator,
    /// Regions that lease from one allocator and lend on.
    Regions(Regions),
    /// Allocators that lease from roots in a shared store.
    Store(Shared),
}

/// Regions, and their links to the allocator above them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Regions {
    /// The number of regions.
    pub count: usize,
    /// How long messages take between a region and the allocator, in nanoseconds.
    pub far: Latency,
}

/// Allocators, and their shared store.
#[derive(Clone, Debug, PartialEq)]
pub struct Shared {
    /// The number of allocators.
    pub count: usize,
    /// How long calls to the store take, and answers back, in nanoseconds.
    pub far: Latency,
    /// The least time of a call and of its answer at each allocator, in nanoseconds; where there is none, `far`
    /// applies.
    pub ways: Vec<(u64, u64)>,
    /// The fates that may strike the store at a [`Fault::StoreTrouble`](crate::faults::Fault::StoreTrouble).
    pub fates: Vec<Fate>,
    /// Whether the store has no clock, so that one of the allocators keeps the time.
    pub is_clockless: bool,
    /// Whether the last allocator has an older configuration, in which the limit that nodes ask has no parent.
    pub of_two_minds: bool,
    /// What is wrong with the clock of the first allocator, which lends to no node in that case.
    pub lag: Option<Lag>,
}

lessor_protocol::words! {
    /// A fate of a store.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Fate {
        /// A replica copies all of it.
        Copied = "copied",
        /// The store's clock is set.
        Set = "set",
        /// The clock is set, and set again by more than a second before all have heard of it: no allocator could tell less.
        SetTwice = "set_twice",
        /// An operator empties the store, on the same timeline.
        Emptied = "emptied",
        /// The store is emptied while an allocator that knows the head first asks it: just before it reads a root, or
        /// writes one it has read. An allocator that holds nothing is not asked what it holds.
        EmptiedUnderway = "emptied_underway",
        /// The store goes on with what the replica has, on another timeline.
        Behind = "behind",
        /// The store goes on with all that it had, on another timeline.
        Started = "started",
        /// As [`Fate::Started`], on a server whose clock is a few milliseconds off: less than allocators may be off the
        /// time.
        Replaced = "replaced",
        /// All allocators die, and the clock is set by more than two seconds before any of them is back.
        SetUnwatched = "set_unwatched",
    }
}

/// What is wrong with a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lag {
    /// It stands still for 200 ms, as in a virtual machine that is moved.
    Stalled,
    /// A daemon slews the disciplined clock by this many parts per million from then on. The allocator goes by what the
    /// shipping code makes of it.
    Slewed(i64),
}

impl Shared {
    /// Makes a store of `count` allocators that are `far` from it, which nothing befalls.
    pub fn of(count: usize, far: Latency) -> Shared {
        let (ways, fates, lag) = (vec![], vec![], None);
        Shared { count, far, ways, fates, is_clockless: false, of_two_minds: false, lag }
    }

    /// Returns the source of time of the roots.
    pub fn time_source(&self) -> TimeSource {
        match self.is_clockless {
            true => TimeSource::Allocators,
            false => TimeSource::Store,
        }
    }
}

impl Topology {
    /// Returns the number of hosts that lend on what they lease: none where nodes ask the only allocator.
    pub fn regions(&self) -> usize {
        match self {
            Topology::Allocator => 0,
            Topology::Regions(regions) => regions.count,
            Topology::Store(shared) => shared.count,
        }
    }

    /// Returns how long messages take between such a host and the one above it.
    pub fn far(&self) -> Latency {
        match self {
            Topology::Allocator => Latency { one_way: 0, jitter: 0 },
            Topology::Regions(regions) => regions.far,
            Topology::Store(shared) => shared.far,
        }
    }

    /// Returns the shared store, if there is one.
    pub fn shared(&self) -> Option<&Shared> {
        match self {
            Topology::Store(shared) => Some(shared),
            Topology::Allocator | Topology::Regions(_) => None,
        }
    }
}
