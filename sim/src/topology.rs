//! Who lends to nodes, and where that is leased from. It is data of a setup; the world has the hosts.

use crate::network::Latency;
use lessor_ledger::roots::TimeSource;

/// Who lends to nodes. Nodes go round.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Topology {
    /// One allocator.
    #[default]
    Allocator,
    /// Regions that lease from it and lend on.
    Regions(Regions),
    /// Allocators that lease from roots in a store which they share.
    Store(Shared),
}

/// Regions, and their links to the allocator above them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Regions {
    /// How many.
    pub count: usize,
    /// How long messages take between a region and the allocator.
    pub far: Latency,
}

/// Allocators, and the store that they share.
#[derive(Clone, Debug, PartialEq)]
pub struct Shared {
    /// How many.
    pub count: usize,
    /// How long calls take to the store, and answers back.
    pub far: Latency,
    /// How long they take at least at each allocator, in nanoseconds there and back. Where none is said: as `far` says.
    pub ways: Vec<(u64, u64)>,
    /// What may become of the store when [`Fault::StoreTrouble`](crate::faults::Fault::StoreTrouble) strikes.
    pub fates: Vec<Fate>,
    /// Whether it has no clock, so that one of the allocators keeps the time.
    pub is_clockless: bool,
    /// Whether the last allocator knows an older configuration, in which the limit is below no other one.
    pub of_two_minds: bool,
    /// What is wrong with the clock of the first allocator, which then lends to no node.
    pub lag: Option<Lag>,
}

/// What becomes of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// A replica has all of it.
    Copied,
    /// Its clock is set.
    Set,
    /// Its clock is set, and set again before all have heard of it: by more than a second, for no allocator could tell less.
    SetTwice,
    /// An operator empties it, on the same timeline.
    Emptied,
    /// The same, while an allocator that knows the head asks the store for the first time: just before it reads a root, or just
    /// before it writes one that it has read. An allocator that holds nothing is not asked what it holds.
    EmptiedUnderway,
    /// It goes on with what the replica has, on another timeline.
    Behind,
    /// It goes on with all that it had, on another timeline.
    Started,
    /// The same on another server, whose clock is a few milliseconds off: less than allocators may be about the time.
    Replaced,
}

impl Fate {
    /// All of them, with their names in setups.
    pub const ALL: [(&str, Fate); 8] = [
        ("copied", Fate::Copied),
        ("set", Fate::Set),
        ("set_twice", Fate::SetTwice),
        ("emptied", Fate::Emptied),
        ("emptied_underway", Fate::EmptiedUnderway),
        ("behind", Fate::Behind),
        ("started", Fate::Started),
        ("replaced", Fate::Replaced),
    ];

    /// Its name in setups.
    pub fn name(self) -> &'static str {
        Fate::ALL.iter().find(|(_, fate)| *fate == self).expect("all are listed").0
    }
}

/// What is wrong with a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lag {
    /// It stands still for 200 ms, as in a machine which is moved.
    Stalled,
    /// A daemon slews the disciplined clock by so many parts per million from then on. The allocator goes by what the shipping code
    /// makes of that.
    Slewed(i64),
}

impl Shared {
    /// Who tells the time of its roots.
    pub fn time_source(&self) -> TimeSource {
        match self.is_clockless {
            true => TimeSource::Allocators,
            false => TimeSource::Store,
        }
    }
}

impl Topology {
    /// How many hosts there are that lend on what they lease: none where nodes ask the only allocator.
    pub fn regions(&self) -> usize {
        match self {
            Topology::Allocator => 0,
            Topology::Regions(regions) => regions.count,
            Topology::Store(shared) => shared.count,
        }
    }

    /// How long messages take between such a host and what is above it.
    pub fn far(&self) -> Latency {
        match self {
            Topology::Allocator => Latency { one_way: 0, jitter: 0 },
            Topology::Regions(regions) => regions.far,
            Topology::Store(shared) => shared.far,
        }
    }

    /// The store that they share, if there is one.
    pub fn shared(&self) -> Option<&Shared> {
        match self {
            Topology::Store(shared) => Some(shared),
            Topology::Allocator | Topology::Regions(_) => None,
        }
    }
}
