//! How long a lease lasts on each side. Pools date what they lend with it, and nodes what they hold. No two clocks are
//! compared: only their *rates* matter, and those differ by at most the stated drift.
//!
//! A node counts from the moment it **first sent** the ask, so before the allocator can have decided. The allocator
//! counts from its decision, and longer. With rates within `1 ± drift` of real time the last spend of the node is
//! before the allocator's end, for any delay of any message.

use crate::moment::{Moment, nanos, span_of};
use std::time::Duration;

/// One million: drift is given in parts per million.
const MILLION: u128 = 1_000_000;

/// Longest term in any configuration, past or future. An allocator that may have forgotten what it lent waits until such a
/// lease is over. A larger value lets a crash burn more and an idle surplus sit longer.
pub const TERM_MAX: Duration = Duration::from_secs(2);

/// Shortest term: a shorter lease would end before a slow answer arrives.
pub const TERM_MIN: Duration = Duration::from_millis(20);

/// The bound on the drift of clocks, and the arithmetic that follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockBounds {
    drift_ppm: u32,
}

impl Default for ClockBounds {
    fn default() -> Self {
        ClockBounds { drift_ppm: Self::DRIFT_PPM }
    }
}

impl ClockBounds {
    /// Default bound on drift, in parts per million. Half of surveyed machines are within 78 ppm and nearly all within
    /// 500 ppm. An allocator may steer its clock by the other half of the bound. A larger value costs more of each
    /// lease (this one 2 ms of a second); a smaller one would trust hardware we have not seen. How fast a daemon slews
    /// does not matter: no term is counted on a clock that is slewed ([`crate::steady`]).
    pub const DRIFT_PPM: u32 = 1_000;

    /// Largest bound on drift, in parts per million. A clock that is off by more than a tenth is broken, and leases on
    /// it would mostly be waiting.
    pub const DRIFT_PPM_MAX: u32 = 100_000;

    /// Allowance for the granularity of clocks and for rounding, added to every end on the allocator's side.
    pub const SLACK: Duration = Duration::from_millis(1);

    /// Creates bounds for clocks whose rates are within `drift_ppm` of real time; `None` above
    /// [`ClockBounds::DRIFT_PPM_MAX`].
    pub const fn try_new(drift_ppm: u32) -> Option<Self> {
        if drift_ppm > Self::DRIFT_PPM_MAX { None } else { Some(ClockBounds { drift_ppm }) }
    }

    /// Returns the bound on how far the rate of a clock may be from real time, in parts per million.
    pub const fn drift_ppm(self) -> u32 {
        self.drift_ppm
    }

    /// Returns the first instant at which a node may no longer spend a lease of `term`, on its own clock. `first_sent`
    /// is when the ask was *first* sent, even if a later retry got the answer.
    pub fn holder_end(self, first_sent: Moment, term: Duration) -> Moment {
        let drift = self.drift();
        first_sent + scale_down(term, MILLION - drift, MILLION)
    }

    /// Returns the instant from which a lease of `term` counts as over for the allocator, on its own clock.
    pub fn grantor_end(self, decided: Moment, term: Duration) -> Moment {
        let drift = self.drift();
        decided + scale_up(term, MILLION + drift, MILLION - drift) + Self::SLACK
    }

    /// Returns the longest term whose [`ClockBounds::grantor_end`] is not after `end`, in whole milliseconds as the
    /// wire carries it. Zero if there is none.
    pub fn term_until(self, decided: Moment, end: Moment) -> Duration {
        let drift = self.drift();
        let span = end.since(decided).saturating_sub(Self::SLACK);
        whole_millis(scale_down(span, MILLION - drift, MILLION + drift))
    }

    /// Returns the longest time that `real` can take on a clock that runs fast. Windows must be stretched to it.
    pub fn stretched(self, real: Duration) -> Duration {
        scale_up(real, MILLION + u128::from(self.drift_ppm), MILLION)
    }

    /// Returns the shortest time that `real` can take on a clock that runs slow.
    pub fn shrunk(self, real: Duration) -> Duration {
        scale_down(real, MILLION - u128::from(self.drift_ppm), MILLION)
    }

    /// Returns how long an allocator that may have forgotten what it lent waits until no node can be spending it.
    pub fn quarantine(self) -> Duration {
        self.grantor_end(Moment::ORIGIN, TERM_MAX).since(Moment::ORIGIN)
    }

    /// Returns the drift in parts per million, for products in 128 bits.
    fn drift(self) -> u128 {
        u128::from(self.drift_ppm)
    }
}

/// Cuts `span` to whole milliseconds.
pub fn whole_millis(span: Duration) -> Duration {
    Duration::new(span.as_secs(), span.subsec_millis() * 1_000_000)
}

/// Returns `span` in milliseconds, rounded up, so that a wait on the wire is never too short.
pub fn millis_up(span: Duration) -> u64 {
    let part = u64::from(span.subsec_nanos().div_ceil(1_000_000));
    span.as_secs().saturating_mul(1_000).saturating_add(part)
}

/// Returns `span` in milliseconds, rounded down.
pub fn millis_down(span: Duration) -> u64 {
    span.as_secs().saturating_mul(1_000).saturating_add(u64::from(span.subsec_millis()))
}

/// Returns `span · num / den`, rounded up.
fn scale_up(span: Duration, num: u128, den: u128) -> Duration {
    span_of((u128::from(nanos(span)) * num).div_ceil(den))
}

/// Returns `span · num / den`, rounded down.
fn scale_down(span: Duration, num: u128, den: u128) -> Duration {
    span_of(u128::from(nanos(span)) * num / den)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn spans_are_rounded_to_milliseconds_however_long(secs in any::<u64>(), cut in 0u32..64, part in 0u32..1_000_000_000) {
            let span = Duration::new(secs >> cut, part);
            let whole = |nanos: u128| u64::try_from(nanos).unwrap_or(u64::MAX);
            prop_assert_eq!(millis_up(span), whole(span.as_nanos().div_ceil(1_000_000)));
            prop_assert_eq!(millis_down(span), whole(span.as_nanos() / 1_000_000));
        }

        /// Theorem 0 of leasing: on any two clocks within the drift, for any delay between first sending and deciding,
        /// the holder's end comes before the grantor's end in real time. Rates are in ppm of real time.
        #[test]
        fn the_holder_stops_before_the_grantor(
            drift in 0u32..100_000,
            holder in -1.0f64..1.0,
            grantor in -1.0f64..1.0,
            term_ms in 1u64..=2_000,
            delay_ns in 0u64..10_000_000_000,
        ) {
            let clocks = ClockBounds::try_new(drift).expect("below the maximum");
            let term = Duration::from_millis(term_ms);
            let rate = |share: f64| 1.0 + share * f64::from(drift) / 1e6;
            let holder_real = clocks.holder_end(Moment::ORIGIN, term).as_nanos() as f64 / rate(holder);
            let span = clocks.grantor_end(Moment::ORIGIN, term).as_nanos();
            let grantor_real = delay_ns as f64 + span as f64 / rate(grantor);
            prop_assert!(holder_real < grantor_real);
        }

        #[test]
        fn a_clipped_term_ends_in_time(drift in 0u32..100_000, decided in 0u64..1 << 40, span in 0u64..1 << 40) {
            let clocks = ClockBounds::try_new(drift).expect("below the maximum");
            let (decided, end) = (Moment::from_nanos(decided), Moment::from_nanos(decided + span));
            let term = clocks.term_until(decided, end);
            prop_assert_eq!(term, whole_millis(term));
            prop_assert!(term.is_zero() || clocks.grantor_end(decided, term) <= end);
            let longer = term + Duration::from_millis(2);
            prop_assert!(clocks.grantor_end(decided, longer) > end, "a longer term would still fit");
        }
    }

    #[test]
    fn waits_are_rounded_up() {
        assert_eq!(millis_up(Duration::from_nanos(1)), 1);
        assert_eq!(millis_up(Duration::from_millis(7)), 7);
        assert_eq!(millis_up(Duration::ZERO), 0);
    }
}
