//! Sources of the time of a store, and how well allocators know the time from each.

use std::time::Duration;

/// The source of the time that the roots of a store go by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimeSource {
    /// The store's own clock.
    #[default]
    Store,
    /// One of the allocators, which keeps the time and writes it to a cell, because the store has no clock.
    Allocators,
}

impl TimeSource {
    /// Returns by how much two allocators may differ about the time. Rules of roots are that much stricter, and leases
    /// from roots that much shorter.
    pub const fn uncertainty(self) -> Duration {
        match self {
            TimeSource::Store => Duration::from_millis(10),
            // Two allocators may go by keepers, one of which took over from the other.
            TimeSource::Allocators => self.span().saturating_add(self.step()),
        }
    }

    /// Returns the span in which an allocator must know the time to be. An allocator that knows it less well lends
    /// nothing. A round trip must be shorter.
    pub const fn span(self) -> Duration {
        match self {
            TimeSource::Store => Duration::from_millis(10),
            TimeSource::Allocators => Duration::from_millis(25),
        }
    }

    /// Returns how far the time may go back when another allocator takes over keeping it.
    pub const fn step(self) -> Duration {
        match self {
            TimeSource::Store => Duration::ZERO,
            TimeSource::Allocators => self.span(),
        }
    }
}
