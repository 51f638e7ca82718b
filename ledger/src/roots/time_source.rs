//! Who tells what time it is in a store, and how well allocators know it by that.

use std::time::Duration;

/// Who tells the time that the roots of a store go by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimeSource {
    /// The store has a clock, and says what it shows.
    #[default]
    Store,
    /// The store has none. One of the allocators keeps the time and writes it to a cell.
    Allocators,
}

impl TimeSource {
    /// How far apart two allocators may be about the time. Rules of roots are that much stricter, and leases from there that much
    /// shorter.
    pub const fn uncertainty(self) -> Duration {
        match self {
            TimeSource::Store => Duration::from_millis(10),
            // Two allocators may go by keepers of which one took over from the other.
            TimeSource::Allocators => self.span().saturating_add(self.step()),
        }
    }

    /// The span in which an allocator must know the time to be. One that cannot tell it so well lends nothing. A round trip must be
    /// shorter.
    pub const fn span(self) -> Duration {
        match self {
            TimeSource::Store => Duration::from_millis(10),
            TimeSource::Allocators => Duration::from_millis(25),
        }
    }

    /// How far the time may go back where another one tells it.
    pub const fn step(self) -> Duration {
        match self {
            TimeSource::Store => Duration::ZERO,
            TimeSource::Allocators => self.span(),
        }
    }
}
