//! What one session may go on with while no allocator answers. Allocators pay for it from what they keep back, nodes spend
//! it evenly; neither tells the other what was spent.

use crate::lease::ClockBounds;
use crate::moment::nanos;
use std::time::Duration;

/// A part of a limit's reserve.
///
/// While it lasts its holder spends at most `permits` in any interval of length `span`. So however many hold one, what they
/// spend without asking stays within the reserve if their permits add up to no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SafeShare {
    /// So many permits, at least one.
    pub permits: u64,
    /// In so long, whole milliseconds: the longest window of the limit, with the way to the vendor.
    pub span: Duration,
    /// For so long from the moment the ask was first sent. Whole milliseconds.
    pub lasts: Duration,
}

impl SafeShare {
    /// No share lasts longer: an allocator that may have forgotten which nodes it told of one knows how long to wait. It is the
    /// longest outage that is bridged; more would keep those who start after an outage waiting for theirs.
    pub const LASTS_MAX: Duration = Duration::from_secs(600);

    /// Whether it says something that can be.
    pub fn is_sane(&self) -> bool {
        self.permits > 0 && !self.span.is_zero() && self.lasts <= Self::LASTS_MAX
    }

    /// The time from one permit to the next, in nanoseconds of a clock that may run fast.
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
