//! `token_bucket`: At most C + D + r·T in any interval T, exactly as one central bucket with a debt of up to D.
//! Outstanding permits still take their room: refill pauses while level and outstanding together fill the bucket.
//!
//! Why it holds: an interval can spend what bucket, debt and leases hold at its start, at most C + D, and what is
//! minted in it, at most r·T (at intervals: what comes at the instants in it). A burned permit has made room for
//! another one, so it is not credited if it proves unspent later.

mod coldness;
pub(crate) mod refill;
mod resting;
mod style;
#[cfg(test)]
mod tests;

use super::{
    Account, Draw, Ends, RuleAccount, RuleError, Saved, Since, THOUSAND_SECONDS, WarmUp, check_per,
    check_permits,
};
use crate::{CarryOver, Rule};
use lessor_protocol::{ClockBounds, Moment, PERMITS_MAX};
use refill::Refill;
use std::time::Duration;
pub use style::RefillStyle;

/// A bucket of `capacity` permits that gains `refill` permits every `per`.
///
/// It gains them evenly, unless the style is [`RefillStyle::Interval`]. With a `debt` of D its level may fall to −D. A
/// call is served if the bucket holds at least one permit and is left with no less than −D. The next call waits until
/// the bucket holds a permit again. So one call can take capacity + D, and an interval T sees at most capacity + D +
/// r·T.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    capacity: u64,
    refill: u64,
    per: Duration,
    initial: u64,
    style: RefillStyle,
    debt: u64,
    warm_up: Option<WarmUp>,
}

impl TokenBucket {
    /// Checks the numbers of a bucket that refills evenly, warm and without debt.
    ///
    /// # Errors
    /// If `capacity`, `refill` or `initial` is above 2^53 − 1, `initial` is above `capacity`, or `per` is zero
    /// or above 366 days.
    pub fn try_new(capacity: u64, refill: u64, per: Duration, initial: u64) -> Result<Self, RuleError> {
        check_permits("capacity", capacity)?;
        check_permits("refill", refill)?;
        check_per(per)?;
        if initial > capacity {
            let problem = format!("is {initial}, more than the bucket holds: use at most {capacity}");
            return Err(RuleError { field: "initial", problem });
        }
        let style = RefillStyle::default();
        Ok(TokenBucket { capacity, refill, per, initial, style, debt: 0, warm_up: None })
    }

    /// Returns the bucket with another refill style.
    ///
    /// # Errors
    /// If the bucket warms up, which needs an even refill.
    pub fn with_refill_style(self, style: RefillStyle) -> Result<Self, RuleError> {
        TokenBucket { style, ..self }.checked()
    }

    /// Returns the bucket with a debt of up to `debt`.
    ///
    /// # Errors
    /// If one call could then take more than 2^53 − 1, or the bucket warms up.
    pub fn with_debt(self, debt: u64) -> Result<Self, RuleError> {
        TokenBucket { debt, ..self }.checked()
    }

    /// Returns the bucket with a refill that is slow at first.
    ///
    /// # Errors
    /// If the bucket refills at intervals or has a debt, or warming it up takes more than 2^53 − 1 permits.
    pub fn with_warm_up(self, warm_up: WarmUp) -> Result<Self, RuleError> {
        TokenBucket { warm_up: Some(warm_up), ..self }.checked()
    }

    fn checked(self) -> Result<Self, RuleError> {
        let wrong = |field, problem| Err(RuleError { field, problem });
        if self.debt > PERMITS_MAX - self.capacity {
            let (debt, most) = (self.debt, PERMITS_MAX - self.capacity);
            return wrong(
                "debt",
                format!("is {debt}, too much with capacity = {}: use at most {most}", self.capacity),
            );
        }
        let Some(warm_up) = self.warm_up else {
            return Ok(self);
        };
        if self.style == RefillStyle::Interval {
            let problem =
                "is \"interval\", but a bucket with warm_up refills evenly: use \"greedy\", or no warm_up";
            return wrong("refill_style", problem.to_owned());
        }
        if self.debt > 0 {
            let problem =
                format!("is {}, but a bucket with warm_up has none: leave one of them out", self.debt);
            return wrong("debt", problem);
        }
        if warm_up.coldest_milli(self.refill, self.per) > u128::from(PERMITS_MAX) * 1_000 {
            let problem = format!(
                "is {:?}, in which more than 2^53 - 1 permits are spent: use a shorter one",
                warm_up.over()
            );
            return wrong("warm_up.over", problem);
        }
        Ok(self)
    }

    /// The most the bucket holds. 0 refuses everything.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Permits gained every [`TokenBucket::per`]. 0 never refills.
    pub fn refill(&self) -> u64 {
        self.refill
    }

    /// The period of [`TokenBucket::refill`].
    pub fn per(&self) -> Duration {
        self.per
    }

    /// Permits in the bucket at the start.
    pub fn initial(&self) -> u64 {
        self.initial
    }

    /// When the bucket gains its permits.
    pub fn refill_style(&self) -> RefillStyle {
        self.style
    }

    /// How far below zero the level may go.
    pub fn debt(&self) -> u64 {
        self.debt
    }

    /// How the bucket warms up, if it does.
    pub fn warm_up(&self) -> Option<WarmUp> {
        self.warm_up
    }
}

/// The books of a token bucket.
#[derive(Clone, Debug)]
pub struct BucketLedger {
    capacity: u64,
    initial: u64,
    /// How far below zero the level may go.
    debt: i64,
    now: Moment,
    /// Permits in the bucket, below zero in debt. All counts are below 2^53: neither sign nor sum can overflow.
    level: i64,
    refill: Refill,
    outstanding: u64,
    /// Permits by which level and outstanding may exceed the capacity, since a top-up.
    surplus: u64,
    /// The latest that the true time may be, see [`BucketLedger::doubt`].
    latest: Moment,
}

impl BucketLedger {
    /// Creates a bucket with its initial level at `now`.
    pub fn new(rule: &TokenBucket, clocks: ClockBounds, now: Moment) -> Self {
        BucketLedger {
            capacity: rule.capacity(),
            initial: rule.initial(),
            debt: rule.debt().cast_signed(),
            now,
            level: rule.initial().cast_signed(),
            refill: Refill::new(rule, clocks, now),
            outstanding: 0,
            surplus: 0,
            latest: now,
        }
    }

    /// Returns the permits that the bucket has room for.
    fn room(&self) -> u64 {
        u64::try_from(self.capacity.cast_signed() - self.level - self.outstanding.cast_signed()).unwrap_or(0)
    }

    /// Cuts the level to the room beside outstanding permits, but not below −debt.
    fn cut(&mut self) {
        let most = (self.capacity + self.surplus).cast_signed() - self.outstanding.cast_signed();
        self.level = self.level.min(most.max(-self.debt));
        if self.room() == 0 {
            self.refill.begin_permit();
        }
    }

    /// Delays the refill, because a permit that leaves now may have left as late as `latest`. A bucket that would have
    /// been full before `latest` would have gained nothing in the time between.
    fn lag(&mut self) {
        // At intervals nothing is outstanding when permits come, see [`BucketLedger::lease_end_in_doubt`].
        if self.latest <= self.now || self.refill.next().is_some() {
            return;
        }
        let full = match self.room() {
            0 => self.now,
            room => self.refill.minted_at(self.now, room).unwrap_or(Moment::NEVER),
        };
        self.now = self.now + self.latest.since(full);
    }

    /// Ends `permits` outstanding that were spent or burned. They make room for the refill, but not beyond the
    /// capacity: a top-up is used up once.
    fn gone(&mut self, permits: u64) {
        self.outstanding -= permits;
        let sum = self.level + self.outstanding.cast_signed();
        let surplus = u64::try_from(sum - self.capacity.cast_signed()).unwrap_or(0);
        self.surplus = self.surplus.min(surplus);
    }

    /// Returns what a bucket with `level` lends: its level and debt, but nothing at all while it holds no permit.
    fn lends(&self, level: i64) -> u64 {
        if level < 1 { 0 } else { (level + self.debt).cast_unsigned() }
    }

    /// Returns the permits that must be minted until the bucket lends `permits`.
    fn missing(&self, permits: u64) -> u64 {
        let level = permits.cast_signed().saturating_sub(self.debt).max(1);
        if permits == 0 { 0 } else { u64::try_from(level.saturating_sub(self.level)).unwrap_or(0) }
    }
}

impl Account for BucketLedger {
    fn advance(&mut self, now: Moment) {
        let elapsed = now.since(self.now);
        self.now = self.now.max(now);
        let minted = self.refill.advance(elapsed, self.now, self.room(), self.outstanding == 0);
        self.level += minted.cast_signed();
    }

    fn available(&self) -> u64 {
        self.lends(self.level)
    }

    fn charge(&mut self, permits: u64) {
        self.level -= permits.cast_signed();
        self.outstanding += permits;
    }

    fn settle(&mut self, permits: u64, _at: Moment) {
        self.lag();
        self.gone(permits);
        self.refill.spent(permits);
    }

    fn burn(&mut self, permits: u64, _at: Moment) {
        self.gone(permits);
    }

    fn release(&mut self, permits: u64) {
        self.outstanding -= permits;
        self.level += permits.cast_signed();
        // More may have been outstanding than the bucket can hold now.
        self.cut();
    }

    fn credit(&mut self, _permits: u64, _at: Moment) {}

    fn ready_at(&self, permits: u64, ends: Ends<'_>) -> Option<Moment> {
        if permits > self.lends(self.capacity.cast_signed()) {
            return None;
        }
        // Lets the future happen on a copy: up to each lease end, refill runs as far as it has room.
        let mut future = self.clone();
        loop {
            let missing = future.missing(permits);
            if missing == 0 {
                return Some(future.now);
            }
            let is_room = missing <= future.room();
            let minted = if is_room { future.refill.minted_at(future.now, missing) } else { None };
            match (minted, ends.next()) {
                (Some(minted), Some((end, _))) if minted <= end => return Some(minted),
                (minted, None) => return minted,
                (_, Some((end, permits))) => {
                    future.advance(end);
                    future.burn(permits, end);
                }
            }
        }
    }

    fn arriving(&self, span: Duration) -> u64 {
        let minted = self.refill.within(self.now, span).min(self.capacity).cast_signed();
        let level = (self.level + minted).min(self.capacity.cast_signed().max(self.level));
        self.lends(level) - self.available()
    }

    fn sustained(&self, span: Duration) -> u64 {
        self.refill.sustained(span, self.capacity + self.debt.cast_unsigned())
    }

    /// Only one call can use the debt: nodes that take one permit after the other run out at zero.
    fn lasts(&self, draw: Draw) -> Option<Duration> {
        let draw = draw.and_at_once(self.debt.cast_unsigned().min(self.available()));
        let lasts = draw.lasts(self.available())?;
        if self.refill.within(self.now, lasts) == 0 {
            return Some(lasts);
        }
        draw.less(self.sustained(THOUSAND_SECONDS)).lasts(self.available())
    }

    fn is_fresh(&self) -> bool {
        self.has_all() && self.initial == self.capacity
    }

    fn has_all(&self) -> bool {
        self.outstanding == 0 && self.level == self.capacity.cast_signed() && self.refill.is_fresh()
    }

    fn memory(&self) -> Duration {
        Duration::ZERO
    }

    fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// Earlier processes may have taken all that the bucket lends up to `quarantined`, so it refills from −debt from
    /// then on.
    fn forget(&mut self, quarantined: Moment) -> Moment {
        let now = self.now;
        self.level = -self.debt;
        self.now = quarantined;
        self.refill.restart(quarantined);
        self.advance(now);
        quarantined
    }

    fn excess(&self) -> u64 {
        let most = self.capacity + self.surplus + self.debt.cast_unsigned();
        self.outstanding.saturating_sub(most)
    }

    fn is_sound(&self) -> bool {
        let sum = self.level + self.outstanding.cast_signed();
        // A bucket that holds no permit lends nothing, however much is outstanding.
        (self.level <= 0 || sum <= (self.capacity + self.surplus).cast_signed()) && self.refill.is_sound()
    }
}

impl RuleAccount for BucketLedger {
    fn change(&mut self, rule: &Rule, clocks: ClockBounds, carry_over: CarryOver) -> bool {
        let Rule::TokenBucket(rule) = rule else { return false };
        if !self.refill.goes_on_by(Refill::new(rule, clocks, self.now)) {
            return false;
        }
        self.lag();
        let (from, to) = (self.capacity, rule.capacity());
        match carry_over {
            // A debt stays as it is.
            CarryOver::Proportional if from > 0 && self.level > 0 => {
                self.level = self.refill.scale(self.level, from, to);
            }
            CarryOver::Additive => {
                let (level, least) = (self.level + to.cast_signed() - from.cast_signed(), self.level.min(0));
                self.level = level.max(least);
                if level < least {
                    self.refill.begin_permit();
                }
            }
            CarryOver::AsIs | CarryOver::Proportional | CarryOver::Reset => {}
        }
        (self.capacity, self.initial, self.debt) = (to, rule.initial(), rule.debt().cast_signed());
        self.surplus = 0;
        self.cut();
        true
    }

    fn adopt(&mut self, permits: u64, _until: Moment) {
        self.outstanding = permits;
        self.cut();
    }

    fn top_up(&mut self, permits: u64) {
        self.level = (self.level + permits.cast_signed()).min(PERMITS_MAX.cast_signed());
        let sum = self.level + self.outstanding.cast_signed();
        self.surplus = u64::try_from(sum - self.capacity.cast_signed()).unwrap_or(0);
        if self.room() == 0 {
            self.refill.begin_permit();
        }
    }

    fn most(&self) -> u64 {
        let is_there = self.outstanding.saturating_add(u64::try_from(self.level).unwrap_or(0));
        is_there.max(self.capacity)
    }

    fn save(&self) -> Saved {
        let (level, surplus, at) = (self.level, self.surplus, Some(self.now.into()));
        Saved::Bucket { level, surplus, refill: self.refill.save(), at }
    }

    fn restore(&mut self, saved: &Saved, since: Since, (out, _): (u64, Moment)) -> bool {
        let Saved::Bucket { level, surplus, refill, at } = saved else { return false };
        let most = PERMITS_MAX.cast_signed();
        if *surplus > PERMITS_MAX || !(-most..=most).contains(level) {
            return false;
        }
        (self.level, self.surplus, self.outstanding) = (*level, *surplus, out);
        self.now = at.map_or(self.now, |at| since.moment(at).max(self.now));
        self.refill.restore(refill, since) && self.is_sound()
    }
}

impl BucketLedger {
    /// Returns when a bucket that is refilled steadily is full of permits there and lent, if no spend is reported before.
    /// From then on it mints nothing.
    pub fn full_at(&self) -> Option<Moment> {
        if self.outstanding == 0 || self.refill.next().is_some() {
            return None;
        }
        let room = self.room();
        if room == 0 { Some(self.now) } else { self.refill.minted_at(self.now, room) }
    }

    /// Returns the instant that no lease from a root may outlive, because no allocator is sure on which side of it the
    /// time is: the next refill at intervals.
    ///
    /// A spend on one side of the refill must not be taken for a spend on the other, because a full bucket gains
    /// nothing at a refill.
    pub fn lease_end_in_doubt(&self) -> Option<Moment> {
        self.refill.next()
    }

    /// Notes that the true time is at most `latest`: permits settled now were spent by then.
    pub fn doubt(&mut self, latest: Moment) {
        self.latest = latest;
    }
}
