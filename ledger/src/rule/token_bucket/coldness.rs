//! How cold a bucket is that warms up: see [`WarmUp`] for the curve. Its refill asks it how slow to be; it is told of
//! time without use and of permits that were reported spent. It rounds so that a bucket is never taken for too warm.

use crate::packed::Carrier;
use crate::rule::{TokenBucket, WarmUp};
use lessor_protocol::ClockBounds;
use lessor_protocol::moment::nanos;
use std::time::Duration;

/// Binary digits of a fraction of the coldest. They are exact to a four-billionth of the curve; with more, the products
/// that a bucket computes with would not fit.
const DIGITS: u32 = 32;

/// The coldness of one bucket.
#[derive(Clone, Debug)]
pub(super) struct Coldness {
    /// The most, in thousandths of a permit.
    coldest: u128,
    /// What it is, in thousandths of a permit, rounded down.
    milli: u128,
    /// The rest, in parts of `over` of a thousandth.
    rest: u128,
    /// Nanoseconds in which a warm bucket grows cold, on a clock of ours that runs slow.
    over: u64,
    /// By how much a cold bucket takes longer, as a multiple of what a warm one takes.
    slower: u32,
}

impl Coldness {
    /// The coldest.
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

    /// Nothing was used for `span`, and nothing is out.
    pub(super) fn idle(&mut self, span: Duration) {
        // Both factors are below 2^64: a coldness of more than 2^53 permits is refused with the rule.
        let risen = self.coldest * u128::from(nanos(span)) + self.rest;
        self.milli += risen / u128::from(self.over);
        self.rest = risen % u128::from(self.over);
        if self.milli >= self.coldest {
            self.freeze();
        }
    }

    /// `permits` were spent, for sure.
    pub(super) fn spent(&mut self, permits: u64) {
        let milli = u128::from(permits) * 1_000;
        if milli >= self.milli && milli > 0 {
            (self.milli, self.rest) = (0, 0);
        } else {
            self.milli -= milli;
        }
    }

    /// It may have been idle for ever.
    pub(super) fn freeze(&mut self) {
        (self.milli, self.rest) = (self.coldest, 0);
    }

    /// How cold it is: thousandths of a permit, and parts of one. Both are below 2^64.
    pub(super) fn save(&self) -> (u64, u64) {
        (u64::try_from(self.milli).unwrap_or(u64::MAX), u64::try_from(self.rest).unwrap_or(0))
    }

    /// Carries how cold it is.
    pub(super) fn carry(&mut self, carrier: &mut Carrier<'_>) {
        carrier.wide(&mut self.milli);
        carrier.wide(&mut self.rest);
    }

    /// As cold as that; `false` if it cannot be.
    pub(super) fn restore(&mut self, (milli, rest): (u64, u64)) -> bool {
        (self.milli, self.rest) = (u128::from(milli), u128::from(rest));
        self.milli <= self.coldest && rest < self.over
    }

    /// Whether it is as cold as a new one.
    pub(super) fn is_coldest(&self) -> bool {
        self.milli == self.coldest
    }

    /// What is left of `parts` that a warm bucket would gain, rounded down.
    pub(super) fn slowed(&self, parts: u128) -> u128 {
        if self.coldest == 0 {
            return parts;
        }
        let cold = (self.milli + u128::from(self.rest > 0)).min(self.coldest);
        let share = (cold << DIGITS).div_ceil(self.coldest);
        let takes = (1 << DIGITS) + u128::from(self.slower) * share;
        match parts.leading_zeros() >= DIGITS {
            true => (parts << DIGITS) / takes,
            // More than anything holds: here a rounding by billionths is nothing.
            false => (parts / takes) << DIGITS,
        }
    }
}
