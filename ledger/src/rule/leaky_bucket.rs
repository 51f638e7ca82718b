//! `leaky_bucket`: A steady flow: at most b + r·T in any interval T, kept by lending *rates*. Pools call these books,
//! which know neither sessions nor deadlines, only what is charged for each.
//!
//! Why it holds: permits that can be spent at an instant are in the central bucket and in those of the nodes. All
//! buckets together have room for b and mint r; the central one mints the share that is not lent. So an interval sees
//! at most b, held at its start, and at most r·T, minted in it. A node is charged for the larger of the terms that it
//! *may still* go by, until it says which one. A bucket that moves takes its permits along; a bucket that is lost loses
//! them.

#[cfg(test)]
mod tests;

use super::{Account, Ends, RuleAccount, RuleError, Saved, Since, check_per, check_permits};
use crate::{CarryOver, Rule};
use lessor_protocol::moment::{nanos, span_of};
use lessor_protocol::sizing::PERMIT;
use lessor_protocol::{ClockBounds, Moment, PERMITS_MAX};
use std::time::Duration;

/// At most `burst + refill·T/per` permits in any interval T, over the whole fleet: with a burst of 1 no two calls are
/// closer to each other than `per / refill`. A central limiter would be GCRA with that interval and that burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeakyBucket {
    burst: u64,
    refill: u64,
    per: Duration,
}

impl LeakyBucket {
    /// Default burst: even spacing means one call at a time.
    pub const BURST: u64 = 1;

    /// Longest interval between two calls, and longest time in which the bucket fills: what a session has saved up is told
    /// as a time. In nanoseconds it must fit a number that every JSON reader keeps exact.
    pub const INTERVAL_MAX: Duration = Duration::from_nanos(PERMITS_MAX);

    /// Checks the numbers.
    ///
    /// # Errors
    /// If `burst` or `refill` is above 2^53 − 1, `per` is zero or above 366 days, or one call would be let through
    /// less often than every 2^53 − 1 ns (104 days), or the bucket would take longer than that to fill.
    pub fn try_new(burst: u64, refill: u64, per: Duration) -> Result<Self, RuleError> {
        check_permits("burst", burst)?;
        check_permits("refill", refill)?;
        check_per(per)?;
        let rule = LeakyBucket { burst, refill, per };
        if rule.interval().is_some_and(|interval| interval > Self::INTERVAL_MAX) {
            let problem =
                format!("is {per:?} for {refill}, less than one permit in 104 days: use a shorter one");
            return Err(RuleError { field: "per", problem });
        }
        let fills_in = rule.interval().map_or(0, |interval| interval.as_nanos() * u128::from(burst));
        if fills_in > Self::INTERVAL_MAX.as_nanos() {
            let days = fills_in / Duration::from_secs(86_400).as_nanos();
            let problem = format!(
                "is {burst}, a bucket that fills in {days} days: use one that fills in 104 days at most"
            );
            return Err(RuleError { field: "burst", problem });
        }
        Ok(rule)
    }

    /// The most that may be let through at once. 0 refuses everything.
    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// Permits let through every [`LeakyBucket::per`]. 0 refuses everything: a flow of nothing.
    pub fn refill(&self) -> u64 {
        self.refill
    }

    /// The period of [`LeakyBucket::refill`].
    pub fn per(&self) -> Duration {
        self.per
    }

    /// The time for one permit, rounded up to a nanosecond; `None` if nothing flows.
    pub fn interval(&self) -> Option<Duration> {
        // Not zero, and at most 366 days: it fits.
        let nanos = (self.refill > 0).then(|| self.per.as_nanos().div_ceil(u128::from(self.refill)))?;
        Some(span_of(nanos))
    }
}

/// Parts that the rate of a flow is lent in. Ten thousand sessions still get several each. With many more parts the
/// largest burst, counted in shares and nanoseconds, would not fit 128 bits.
pub const SHARES: u64 = 1 << 16;

/// A part of a flow: room in the bucket, in permits, and a share of the rate, of [`SHARES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The most that may be let through at once.
    pub cap: u64,
    /// The share of the rate.
    pub share: u64,
}

impl Part {
    /// Returns the part to charge for a session that may go by either part.
    pub fn max(self, other: Part) -> Part {
        Part { cap: self.cap.max(other.cap), share: self.share.max(other.share) }
    }
}

/// The rate of a flow, as the contract says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speed {
    refill: u64,
    /// Nanoseconds in which `refill` permits may be let through.
    per: u64,
}

impl Speed {
    /// Returns the share of the whole rate, of [`SHARES`], that `demand_milli` permits per 1,000 s are, rounded up.
    pub fn share_of(&self, demand_milli: u64) -> u64 {
        let asked = u128::from(demand_milli) * u128::from(self.per) / u128::from(self.refill.max(1));
        let shares = asked.saturating_mul(u128::from(SHARES)).div_ceil(PERMIT);
        u64::try_from(shares).unwrap_or(u64::MAX)
    }

    /// Returns the smallest share by which a bucket of `permits` fills within [`LeakyBucket::INTERVAL_MAX`]. A smaller one
    /// cannot be told. At most [`SHARES`].
    pub fn least_share(&self, permits: u64) -> u64 {
        let longest = (PERMITS_MAX / permits.max(1)).max(1);
        let whole = u128::from(self.per) * u128::from(SHARES);
        let share = whole.div_ceil(u128::from(self.refill.max(1)) * u128::from(longest));
        u64::try_from(share).unwrap_or(u64::MAX).min(SHARES)
    }
}

/// The books of a steady flow: the permits in the central bucket, and the parts lent.
#[derive(Clone, Debug)]
pub struct Flow {
    burst: u64,
    refill: u64,
    /// Nanoseconds in which `refill` permits may be let through, as the contract says.
    per: u64,
    /// `per` stretched by the drift: an allocator's clock that runs fast must not mint faster than the contract.
    stretched: u64,
    now: Moment,
    /// Content of the central bucket, in parts: [`Flow::permit`] of them are a permit.
    level: u128,
    lent: Part,
}

impl Flow {
    /// Creates a full bucket at `now`.
    pub fn new(rule: &LeakyBucket, clocks: ClockBounds, now: Moment) -> Self {
        let burst = if rule.refill() == 0 { 0 } else { rule.burst() };
        let mut flow = Flow {
            burst,
            refill: rule.refill(),
            per: nanos(rule.per()),
            stretched: nanos(clocks.stretched(rule.per())),
            now,
            level: 0,
            lent: Part::default(),
        };
        flow.level = flow.room();
        flow
    }

    /// Returns the parts of one permit: the nanoseconds of a period times all shares. At most 2^71, so that the largest
    /// burst of 2^53 permits fits.
    fn permit(&self) -> u128 {
        u128::from(self.stretched) * u128::from(SHARES)
    }

    /// Returns the most that the central bucket may hold, in parts.
    fn room(&self) -> u128 {
        u128::from(self.burst - self.lent.cap.min(self.burst)) * self.permit()
    }

    /// Lets time pass up to `now`: the central bucket mints by the share of the rate that is not lent. Called at every
    /// lease end on the way.
    pub fn advance(&mut self, now: Moment) {
        let elapsed = u128::from(nanos(now.since(self.now)));
        self.now = self.now.max(now);
        let rate = u128::from(SHARES - self.lent.share.min(SHARES)) * u128::from(self.refill);
        self.level = self.level.saturating_add(elapsed.saturating_mul(rate)).min(self.room());
    }

    /// Takes at most `cap` permits from the central bucket for the bucket of a lease, and leaves `reserve`. Returns them in
    /// parts.
    pub fn take(&mut self, cap: u64, reserve: u64) -> u128 {
        let free = self.level.saturating_sub(u128::from(reserve) * self.permit());
        let taken = free.min(u128::from(cap) * self.permit());
        self.level -= taken;
        taken
    }

    /// Changes the charge for a session from `before` to `after`; the caller knows how much more may be lent. Content
    /// of the central bucket beyond its new room is lost.
    pub fn recharge(&mut self, before: Part, after: Part) {
        self.lent.cap = self.lent.cap - before.cap + after.cap;
        self.lent.share = self.lent.share - before.share + after.share;
        self.level = self.level.min(self.room());
    }

    /// Returns the part that may be lent to a session that is already charged for `own`.
    pub fn free(&self, own: Part) -> Part {
        Part {
            cap: self.burst.saturating_sub(self.lent.cap - own.cap),
            share: SHARES.saturating_sub(self.lent.share - own.share),
        }
    }

    /// Returns the whole flow as one part, to be charged while no session has any: an earlier process may have lent it.
    /// Empty where nothing flows.
    pub fn whole(&self) -> Part {
        if self.burst == 0 { Part::default() } else { Part { cap: self.burst, share: SHARES } }
    }

    /// Takes back `part` with the content of its bucket, which takes `credit` to mint at one permit per `interval`.
    pub fn give_back(&mut self, part: Part, credit: Duration, interval: Duration) {
        self.recharge(part, Part::default());
        let held = parts(credit, self.permit(), interval);
        let most = u128::from(part.cap) * self.permit();
        self.level = self.level.saturating_add(held.min(most)).min(self.room());
    }

    /// Ends `part`, whose bucket is lost: all that it held may have been spent.
    pub fn lose(&mut self, part: Part) {
        self.recharge(part, Part::default());
    }

    /// Fills the central bucket by `permits`, as far as it has room.
    pub fn top_up(&mut self, permits: u64) {
        self.level = self.level.saturating_add(u128::from(permits) * self.permit()).min(self.room());
    }

    /// Returns the time for one permit at `share`, rounded up. `None` if nothing flows, or the time is above 2^53 − 1
    /// ns.
    pub fn interval(&self, share: u64) -> Option<Duration> {
        let rate = u128::from(self.refill) * u128::from(share);
        let whole = u128::from(self.per) * u128::from(SHARES);
        let interval = (rate > 0).then(|| whole.div_ceil(rate))?;
        let interval = u64::try_from(interval).ok().filter(|&interval| interval <= PERMITS_MAX)?;
        Some(Duration::from_nanos(interval))
    }

    /// Returns `part` with room for no more than it mints within [`LeakyBucket::INTERVAL_MAX`].
    pub fn fitting(&self, part: Part) -> Part {
        let most = self.interval(part.share).map_or(0, |interval| PERMITS_MAX / nanos(interval).max(1));
        Part { cap: part.cap.min(most), ..part }
    }

    /// Returns the time that `held` parts take to mint at one permit per `interval`, rounded down.
    pub fn credit(&self, held: u128, interval: Duration) -> Duration {
        // A bucket is at most 2^53 permits of 2^53 ns each: in two steps it fits.
        let permit = self.permit();
        let (whole, rest) = (held / permit, held % permit);
        let interval = u128::from(nanos(interval));
        // The rest is less than 2^71 parts, and an interval less than 2^53 ns.
        let credit = whole * interval + rest * interval / permit;
        Duration::from_nanos(u64::try_from(credit).unwrap_or(u64::MAX).min(PERMITS_MAX))
    }

    /// Returns the permits in the central bucket, rounded down.
    pub fn level(&self) -> u64 {
        u64::try_from(self.level / self.permit().max(1)).unwrap_or(u64::MAX)
    }

    /// Returns the permits in the central bucket, rounded up.
    pub fn level_up(&self) -> u64 {
        u64::try_from(self.level.div_ceil(self.permit().max(1))).unwrap_or(u64::MAX)
    }

    /// Returns the rate of the flow.
    pub fn speed(&self) -> Speed {
        Speed { refill: self.refill, per: self.per }
    }

    /// Returns the permits that all nodes together may let through at once.
    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// Whether the flow cannot be told from a new one.
    pub fn is_fresh(&self) -> bool {
        self.lent == Part::default() && self.level == self.room()
    }

    /// Empties the central bucket as of `quarantined`: earlier processes may have emptied it until then. It refills
    /// from there.
    pub fn forget(&mut self, quarantined: Moment) {
        let now = self.now;
        self.level = 0;
        self.now = quarantined;
        self.advance(now);
    }

    /// Whether no more is lent than there is, for assertions.
    pub fn is_sound(&self) -> bool {
        self.lent.cap <= self.burst && self.lent.share <= SHARES && self.level <= self.room()
    }
}

/// Returns `credit / interval` permits of `permit` parts each, in parts, rounded down.
fn parts(credit: Duration, permit: u128, interval: Duration) -> u128 {
    let (credit, interval) = (u128::from(nanos(credit)), u128::from(nanos(interval).max(1)));
    (credit / interval).saturating_mul(permit) + (credit % interval) * permit / interval
}

/// The permits of a steady flow. They count calls like those of any limit, and do not bound the flow: [`Flow`] says
/// when each may be spent.
#[derive(Clone, Debug, Default)]
pub struct FlowLedger {
    outstanding: u64,
}

impl Account for FlowLedger {
    fn advance(&mut self, _now: Moment) {}

    fn available(&self) -> u64 {
        PERMITS_MAX.saturating_sub(self.outstanding)
    }

    fn charge(&mut self, permits: u64) {
        self.outstanding += permits;
    }

    fn settle(&mut self, permits: u64, _at: Moment) {
        self.outstanding -= permits;
    }

    fn release(&mut self, permits: u64) {
        self.outstanding -= permits;
    }

    fn credit(&mut self, _permits: u64, _at: Moment) {}

    fn ready_at(&self, _permits: u64, _ends: Ends<'_>) -> Option<Moment> {
        Some(Moment::ORIGIN)
    }

    fn sustained(&self, _span: Duration) -> u64 {
        PERMITS_MAX
    }

    fn is_fresh(&self) -> bool {
        self.outstanding == 0
    }

    fn memory(&self) -> Duration {
        Duration::ZERO
    }

    fn outstanding(&self) -> u64 {
        self.outstanding
    }

    fn forget(&mut self, quarantined: Moment) -> Moment {
        quarantined
    }

    fn excess(&self) -> u64 {
        0
    }
}

impl RuleAccount for FlowLedger {
    /// The [`Flow`] stays as it is: a limit whose flow changes begins anew.
    fn change(&mut self, rule: &Rule, _clocks: ClockBounds, _carry_over: CarryOver) -> bool {
        matches!(rule, Rule::LeakyBucket(_))
    }

    fn adopt(&mut self, permits: u64, _until: Moment) {
        self.outstanding = permits;
    }

    fn top_up(&mut self, _permits: u64) {}

    fn most(&self) -> u64 {
        0
    }

    fn save(&self) -> Saved {
        Saved::Flow {}
    }

    fn restore(&mut self, saved: &Saved, _since: Since, (out, _): (u64, Moment)) -> bool {
        self.outstanding = out;
        *saved == Saved::Flow {}
    }
}
