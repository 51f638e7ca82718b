//! An instant on one machine's own clock. The core takes it as an argument and never reads a clock. It never crosses
//! the wire: moments of two machines cannot be compared.

use std::ops::Add;
use std::time::Duration;

/// Nanoseconds since the origin of one clock, saturating at both ends (2^64 ns are 584 years).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The origin of the clock.
    pub const ORIGIN: Moment = Moment(0);

    /// The moment that never comes.
    pub const NEVER: Moment = Moment(u64::MAX);

    /// Creates the moment `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Moment(nanos)
    }

    /// Returns nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the moment `span` before this one, but not before the origin.
    pub fn before(self, span: Duration) -> Moment {
        Moment(self.0.saturating_sub(nanos(span)))
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, span: Duration) -> Moment {
        Moment(self.0.saturating_add(nanos(span)))
    }
}

/// Returns the moment `nanos` nanoseconds after the origin of a clock.
pub const fn at(nanos: u64) -> Moment {
    Moment(nanos)
}

/// Returns the moment `seconds` seconds after the origin of a clock.
pub const fn seconds(seconds: u64) -> Moment {
    Moment(seconds * 1_000_000_000)
}

/// Returns the moment `millis` milliseconds after the origin of a clock.
pub const fn millis(millis: u64) -> Moment {
    Moment(millis * 1_000_000)
}

/// Returns `span` in whole nanoseconds, saturating.
pub const fn nanos(span: Duration) -> u64 {
    let nanos = span.as_nanos();
    if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 }
}

/// Returns a span of `nanos` nanoseconds, saturating.
pub fn span_of(nanos: u128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_goes_backwards_is_no_time() {
        let (early, late) = (Moment::from_nanos(5), Moment::from_nanos(9));
        assert_eq!(late.since(early), Duration::from_nanos(4));
        assert_eq!(early.since(late), Duration::ZERO);
    }

    #[test]
    fn the_far_future_saturates() {
        assert_eq!(Moment::from_nanos(1) + Duration::MAX, Moment::NEVER);
        assert_eq!(Moment::from_nanos(1).before(Duration::MAX), Moment::ORIGIN);
    }
}
