//! How cold a bucket with `warm_up` is: see [`WarmUp`] for the curve. The bucket's refill asks how slow to be, and
//! tells of idle time and of permits reported spent. Rounding never takes a bucket for too warm.

use crate::packed::Carrier;
use crate::rule::{TokenBucket, WarmUp};
use lessor_protocol::ClockBounds;
use lessor_protocol::moment::nanos;
use std::time::Duration;

/// Binary digits of coldness as a fraction of the coldest. They are exact to a four-billionth of the curve; with more,
/// the products that a bucket computes with would not fit.
const DIGITS: u32 = 32;

/// The coldness of one bucket.
#[derive(Clone, Debug)]
pub(super) struct Coldness {
    /// The largest coldness, in thousandths of a permit.
    coldest: u128,
    /// The coldness, in thousandths of a permit, rounded down.
    milli: u128,
    /// The remainder of `milli`, in 1/`over` of a thousandth.
    rest: u128,
    /// Nanoseconds in which a warm bucket grows cold, by an allocator's clock that runs slow.
    over: u64,
    /// The extra time that a permit takes in a cold bucket, as a multiple of the time in a warm one.
    slower: u32,
}

impl Coldness {
    /// Creates the coldness of a new bucket: the largest.
    pub(super) fn new(rule: &TokenBucket, warm_up: WarmUp, clocks: ClockBounds) -> Self {
        let coldest = warm_up.coldest_milli(rule.refill(), rule.per());
        Coldness {
            coldest,
            milli: coldest,
            rest: 0,
            over: nanos(clocks.shrunk(warm_up.over())).max(1),
            slower: warm_up.cold_factor() - 1,
        }
    }

    /// Whether `other` warms up along the same curve.
    pub(super) fn is_of_same_curve(&self, other: &Coldness) -> bool {
        (self.coldest, self.over, self.slower) == (other.coldest, other.over, other.slower)
    }

    /// Grows colder after `span` with nothing used and nothing outstanding.
    pub(super) fn idle(&mut self, span: Duration) {
        // Both factors are below 2^64: a coldness of more than 2^53 permits is refused with the rule.
        let risen = self.coldest * u128::from(nanos(span)) + self.rest;
        self.milli += risen / u128::from(self.over);
        self.rest = risen % u128::from(self.over);
        if self.milli >= self.coldest {
            self.freeze();
        }
    }

    /// Grows warmer by `permits` reported spent.
    pub(super) fn spent(&mut self, permits: u64) {
        let milli = u128::from(permits) * 1_000;
        if milli >= self.milli && milli > 0 {
            (self.milli, self.rest) = (0, 0);
        } else {
            self.milli -= milli;
        }
    }

    /// Grows as cold as can be: the bucket may have been idle for any time.
    pub(super) fn freeze(&mut self) {
        (self.milli, self.rest) = (self.coldest, 0);
    }

    /// Returns the coldness: thousandths of a permit, and parts of one. Both are below 2^64.
    pub(super) fn save(&self) -> (u64, u64) {
        (u64::try_from(self.milli).unwrap_or(u64::MAX), u64::try_from(self.rest).unwrap_or(0))
    }

    /// Carries the coldness.
    pub(super) fn carry(&mut self, carrier: &mut Carrier<'_>) {
        carrier.wide(&mut self.milli);
        carrier.wide(&mut self.rest);
    }

    /// Restores a saved coldness. Returns `false` if no bucket of this rule can be that cold.
    pub(super) fn restore(&mut self, (milli, rest): (u64, u64)) -> bool {
        (self.milli, self.rest) = (u128::from(milli), u128::from(rest));
        self.milli <= self.coldest && rest < self.over
    }

    /// Whether the bucket is as cold as a new one.
    pub(super) fn is_coldest(&self) -> bool {
        self.milli == self.coldest
    }

    /// Returns what the bucket gains while a warm one would gain `parts`, rounded down.
    pub(super) fn slowed(&self, parts: u128) -> u128 {
        if self.coldest == 0 {
            return parts;
        }
        let cold = (self.milli + u128::from(self.rest > 0)).min(self.coldest);
        let share = (cold << DIGITS).div_ceil(self.coldest);
        let takes = (1 << DIGITS) + u128::from(self.slower) * share;
        match parts.leading_zeros() >= DIGITS {
            true => (parts << DIGITS) / takes,
            // More than any bucket holds, so a rounding by billionths does not matter.
            false => (parts / takes) << DIGITS,
        }
    }
}
