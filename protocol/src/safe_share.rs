//! Permits that one session may spend while no allocator answers. Allocators pay for them from the reserve that they
//! keep back. Nodes spend them evenly and do not report the spends.

use crate::lease::ClockBounds;
use crate::moment::nanos;
use std::time::Duration;

/// A part of a limit's reserve.
///
/// While it lasts its holder spends at most `permits` in any interval of length `span`. So the spends of all holders
/// stay within the reserve if their permits add up to no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SafeShare {
    /// Permits that may be spent in `span`. At least one.
    pub permits: u64,
    /// The longest window of the limit, with the way to the vendor. Whole milliseconds.
    pub span: Duration,
    /// How long the share lasts, from the moment the ask was first sent. Whole milliseconds.
    pub lasts: Duration,
}

impl SafeShare {
    /// Longest time that a share may last. An allocator that may have forgotten its shares waits this long. It is the
    /// longest outage that is bridged. A larger value would keep nodes that start after an outage waiting for a share.
    pub const LASTS_MAX: Duration = Duration::from_secs(600);

    /// Whether the share is possible.
    pub fn is_sane(&self) -> bool {
        self.permits > 0 && !self.span.is_zero() && self.lasts <= Self::LASTS_MAX
    }

    /// Returns the time from one permit to the next, in nanoseconds of a clock that may run fast.
    pub fn interval(&self, clocks: ClockBounds) -> u64 {
        nanos(clocks.stretched(self.span)).div_ceil(self.permits.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_never_closer_than_the_span_allows() {
        let share = SafeShare { permits: 3, span: Duration::from_secs(1), lasts: Duration::from_secs(60) };
        let exact = ClockBounds::try_new(0).expect("no drift");
        assert_eq!(share.interval(exact), 333_333_334);
        assert_eq!(share.interval(ClockBounds::default()), 333_666_667);
        assert!(share.is_sane());
        assert!(!SafeShare { permits: 0, ..share }.is_sane());
        assert!(!SafeShare { span: Duration::ZERO, ..share }.is_sane());
        assert!(!SafeShare { lasts: Duration::from_secs(601), ..share }.is_sane());
    }
}
