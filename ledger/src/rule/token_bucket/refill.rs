//! How a bucket gains permits: evenly, slowly at first, or all at once at intervals. A bucket's books let the refill
//! mint as far as they have room, and count the permits.

use super::coldness::Coldness;
use crate::packed::Carrier;
use crate::rule::{Gap, RefillStyle, SavedRefill, Since, TokenBucket};
use lessor_protocol::moment::nanos;
use lessor_protocol::{ClockBounds, Moment};
use std::time::Duration;

/// What is minted, and when. The period is stretched by the drift: an allocator's clock that runs fast must not mint
/// faster than the contract.
#[derive(Clone, Debug)]
pub(crate) enum Refill {
    Even(Even),
    Interval(Interval),
}

impl Refill {
    /// Creates the refill of `rule`, which begins at `now`.
    pub(crate) fn new(rule: &TokenBucket, clocks: ClockBounds, now: Moment) -> Self {
        let (refill, per) = (rule.refill(), nanos(clocks.stretched(rule.per())).max(1));
        match rule.refill_style() {
            RefillStyle::Interval => {
                Refill::Interval(Interval { refill, per, next: now + Duration::from_nanos(per) })
            }
            RefillStyle::Greedy => {
                let cold = rule.warm_up().map(|warm_up| Box::new(Coldness::new(rule, warm_up, clocks)));
                Refill::Even(Even { refill, per, fraction: 0, cold })
            }
        }
    }

    /// Lets time pass for `elapsed` up to `now`. Returns the permits minted, at most `room`. A bucket without room
    /// grows colder if it `is_idle`: nothing is outstanding.
    pub(crate) fn advance(&mut self, elapsed: Duration, now: Moment, room: u64, is_idle: bool) -> u64 {
        match self {
            Refill::Even(even) => even.advance(nanos(elapsed), room, is_idle),
            Refill::Interval(interval) => interval.advance(now).min(room),
        }
    }

    /// Returns when the next permits come, if they come at intervals.
    pub(super) fn next(&self) -> Option<Moment> {
        match self {
            Refill::Even(_) => None,
            Refill::Interval(interval) => Some(interval.next),
        }
    }

    /// Returns when `missing` more permits will have been minted, if nothing stops the refill.
    pub(crate) fn minted_at(&self, now: Moment, missing: u64) -> Option<Moment> {
        match self {
            Refill::Even(even) => even.minted_in(missing).map(|wait| now + Duration::from_nanos(wait)),
            Refill::Interval(interval) => interval.minted_at(missing),
        }
    }

    /// Returns the permits minted within `span` of `now`, if nothing stops the refill.
    pub(super) fn within(&self, now: Moment, span: Duration) -> u64 {
        match self {
            Refill::Even(even) => even.permits(even.fraction + even.parts(nanos(span))),
            Refill::Interval(interval) => interval.clone().advance(now + span),
        }
    }

    /// Returns the permits minted in `span` on average, into a bucket with room for `room`.
    pub(super) fn sustained(&self, span: Duration, room: u64) -> u64 {
        match self {
            Refill::Even(even) => even.permits(even.parts(nanos(span))),
            Refill::Interval(Interval { refill, per, .. }) => {
                let permits = u128::from(room.min(*refill)) * span.as_nanos() / u128::from(*per);
                u64::try_from(permits).unwrap_or(u64::MAX)
            }
        }
    }

    /// Continues as `other`, which began just now, if both have the same period. Otherwise returns `false`. A part of a
    /// permit already minted stays, unless permits come in another style from now on. Another warm-up curve begins
    /// cold.
    pub(crate) fn goes_on_by(&mut self, other: Refill) -> bool {
        if self.per() != other.per() {
            return false;
        }
        match (&mut *self, other) {
            (Refill::Even(even), Refill::Even(other)) => {
                even.refill = other.refill;
                even.cold = match (even.cold.take(), other.cold) {
                    (Some(cold), Some(other)) if cold.is_of_same_curve(&other) => Some(cold),
                    (_, other) => other,
                };
            }
            (Refill::Interval(interval), Refill::Interval(other)) => interval.refill = other.refill,
            (_, other) => *self = other,
        }
        true
    }

    fn per(&self) -> u64 {
        match self {
            Refill::Even(even) => even.per,
            Refill::Interval(interval) => interval.per,
        }
    }

    /// Returns `level`, scaled in proportion with the part of a permit minted since, from a capacity of `from` to one
    /// of `to`. The part is rounded down.
    pub(crate) fn scale(&mut self, level: i64, from: u64, to: u64) -> i64 {
        // Permits stay below 2^53 and `per` below 2^56: no product leaves 127 bits.
        let (from, to) = (i128::from(from), i128::from(to));
        let whole = i128::from(level) * to;
        let mut level = whole.div_euclid(from);
        if let Refill::Even(even) = self {
            let per = i128::from(even.per);
            let parts = (whole.rem_euclid(from) * per + even.fraction.cast_signed() * to) / from;
            level += parts / per;
            even.fraction = (parts % per).cast_unsigned();
        }
        i64::try_from(level).unwrap_or(i64::MAX)
    }

    /// Drops the part of a permit already minted: the bucket is full, or was counted anew.
    pub(crate) fn begin_permit(&mut self) {
        if let Refill::Even(even) = self {
            even.fraction = 0;
        }
    }

    /// Warms the bucket by `permits` reported spent, if it warms up.
    pub(crate) fn spent(&mut self, permits: u64) {
        if let Refill::Even(Even { cold: Some(cold), .. }) = self {
            cold.spent(permits);
        }
    }

    /// Begins anew at `now`.
    pub(super) fn restart(&mut self, now: Moment) {
        match self {
            Refill::Even(even) => {
                even.fraction = 0;
                even.cold.iter_mut().for_each(|cold| cold.freeze());
            }
            Refill::Interval(interval) => interval.next = now + Duration::from_nanos(interval.per),
        }
    }

    /// Whether a full bucket with this refill is as good as new: if it warms up, it must be as cold as a new one.
    /// Refill instants do not matter, because a full bucket gains nothing from them.
    pub(crate) fn is_fresh(&self) -> bool {
        match self {
            Refill::Even(even) => even.cold.as_deref().is_none_or(Coldness::is_coldest),
            Refill::Interval(_) => true,
        }
    }

    /// Carries the progress of the refill.
    pub(super) fn carry(&mut self, carrier: &mut Carrier<'_>) {
        match self {
            Refill::Even(even) => {
                carrier.wide(&mut even.fraction);
                even.cold.iter_mut().for_each(|cold| cold.carry(carrier));
            }
            Refill::Interval(interval) => carrier.moment(&mut interval.next),
        }
    }

    /// See [`crate::rule::RuleAccount::save`].
    pub(super) fn save(&self) -> SavedRefill {
        match self {
            Refill::Even(even) => SavedRefill::Even {
                // A permit has less than 2^64 parts.
                fraction: u64::try_from(even.fraction).unwrap_or(0),
                cold: even.cold.as_deref().map(Coldness::save),
            },
            Refill::Interval(interval) => SavedRefill::Interval { next: interval.next.into() },
        }
    }

    /// See [`crate::rule::RuleAccount::restore`].
    pub(super) fn restore(&mut self, saved: &SavedRefill, since: Since) -> bool {
        match (self, saved) {
            (Refill::Even(even), SavedRefill::Even { fraction, cold }) => {
                even.fraction = u128::from(*fraction);
                match (&mut even.cold, cold) {
                    (Some(own), Some(cold)) => {
                        let is_possible = own.restore(*cold);
                        if since.gap == Gap::Unknown {
                            // How long the bucket was idle is unknown.
                            own.freeze();
                        }
                        is_possible
                    }
                    (None, None) => true,
                    (Some(_), None) | (None, Some(_)) => false,
                }
            }
            // After an unknown gap the refill instants shift. As much time is left until the next one as when it was
            // written, so no two are closer than a whole period.
            (Refill::Interval(interval), SavedRefill::Interval { next }) => {
                interval.next = since.moment(*next);
                true
            }
            (Refill::Even(_), SavedRefill::Interval { .. })
            | (Refill::Interval(_), SavedRefill::Even { .. }) => false,
        }
    }

    pub(super) fn is_sound(&self) -> bool {
        match self {
            Refill::Even(even) => even.fraction < u128::from(even.per),
            Refill::Interval(_) => true,
        }
    }
}

/// Refill that mints each permit as soon as its part of the period is over.
#[derive(Clone, Debug)]
pub(crate) struct Even {
    refill: u64,
    per: u64,
    /// What was minted since the last whole permit, in 1/`per` of a permit. Zero while the bucket is full.
    fraction: u128,
    /// Boxed, because few buckets warm up.
    cold: Option<Box<Coldness>>,
}

impl Even {
    fn advance(&mut self, elapsed: u64, room: u64, is_idle: bool) -> u64 {
        if room == 0 {
            self.idle(elapsed, is_idle);
            return 0;
        }
        let parts = self.fraction + self.parts(elapsed);
        let minted = self.permits(parts);
        if minted < room {
            self.fraction = parts % u128::from(self.per);
            return minted;
        }
        // Full on the way, and idle from then on.
        let full = self.minted_in(room).unwrap_or(elapsed);
        self.fraction = 0;
        self.idle(elapsed.saturating_sub(full), is_idle);
        room
    }

    fn idle(&mut self, span: u64, is_idle: bool) {
        if let Some(cold) = &mut self.cold
            && is_idle
        {
            cold.idle(Duration::from_nanos(span));
        }
    }

    /// Returns what is gained in `elapsed` nanoseconds, in 1/`per` of a permit, rounded down.
    fn parts(&self, elapsed: u64) -> u128 {
        let parts = u128::from(elapsed) * u128::from(self.refill);
        self.cold.as_ref().map_or(parts, |cold| cold.slowed(parts))
    }

    fn permits(&self, parts: u128) -> u64 {
        u64::try_from(parts / u128::from(self.per)).unwrap_or(u64::MAX)
    }

    /// Returns the nanoseconds until `missing` more permits are minted. `None` if never.
    fn minted_in(&self, missing: u64) -> Option<u64> {
        if self.refill == 0 {
            return None;
        }
        let parts = u128::from(missing) * u128::from(self.per) - self.fraction.min(u128::from(self.per) - 1);
        let warm = u64::try_from(parts.div_ceil(u128::from(self.refill))).unwrap_or(u64::MAX);
        if self.cold.is_none() {
            return Some(warm);
        }
        // Searches the first nanosecond at which the refill, rounding as it does, has minted them.
        let (mut short, mut enough) = (warm.saturating_sub(1), u64::MAX);
        while short + 1 < enough {
            let middle = short + (enough - short) / 2;
            if self.parts(middle) < parts { short = middle } else { enough = middle }
        }
        Some(enough)
    }
}

/// Refill that mints all permits at once, each time that a whole period is over.
#[derive(Clone, Debug)]
pub(crate) struct Interval {
    refill: u64,
    per: u64,
    next: Moment,
}

impl Interval {
    fn advance(&mut self, now: Moment) -> u64 {
        if now < self.next {
            return 0;
        }
        let times = nanos(now.since(self.next)) / self.per + 1;
        self.next = self.next + Duration::from_nanos(times.saturating_mul(self.per));
        times.saturating_mul(self.refill)
    }

    fn minted_at(&self, missing: u64) -> Option<Moment> {
        if self.refill == 0 {
            return None;
        }
        let more = missing.div_ceil(self.refill).saturating_sub(1);
        Some(self.next + Duration::from_nanos(more.saturating_mul(self.per)))
    }
}
