//! What a pool may lend on of what it was itself lent, by the allocator above: a ledger beside those of its rules. The pool
//! charges it as any of them; what it says to the one above, and hears, is in `borrow.rs`.
//!
//! Where the one above counts what is in flight, what the nodes here have in flight is what this pool has: it says so, and goes on
//! to lease for as long as there is any.
//!
//! Whatever a node may spend was lent for at least as long by the one above, so its end is the end of every lease from here.
//! A crash needs no quarantine: the one above takes all for spent, and what comes after begins with nothing.

use crate::rule::{Account, Calls, Draw, Ends, Pace, THOUSAND_SECONDS};
use lessor_protocol::{InFlight, Moment, PERMITS_MAX};
use std::time::Duration;

/// What came in this span tells what will come.
const RECENT: Duration = Duration::from_secs(1);

/// What a pool was lent.
#[derive(Clone, Debug)]
pub(super) struct Loan {
    now: Moment,
    /// Permits in hand: neither lent on nor spent.
    free: u64,
    /// Permits that are lent on.
    out: u64,
    /// Of those, how many the one above did not extend. While there are any, nothing that is out is extended.
    unkept: u64,
    /// Permits spent since it began to count, or taken for spent.
    spent: u64,
    /// The most of that which was ever reported, and when that was. It never falls.
    reported: u64,
    reported_at: Moment,
    /// The most of it that the one above is known to have heard of.
    told: u64,
    /// Whether it was never told that, and is not told any more.
    gave_up: bool,
    /// Permits that the one above has lent since it began to count, as far as is known here: by the last ask that was answered, and by
    /// those without an answer at most.
    lent: u64,
    may_be_lent: u64,
    /// The same before the last ask was written.
    might_be_lent: u64,
    /// Spent, and in flight as far as is known here.
    in_flight: u64,
    /// Of those, what the one above does not know of: others have to wait for it there.
    unknown: u64,
    /// What was reported of it last, and what may count above: what was reported before, until that is answered.
    reported_in_flight: u64,
    counted: u64,
    /// The cap on that above, if there is one.
    cap: Option<InFlight>,
    /// Nothing may be spent from this instant on.
    end: Moment,
    /// The most that one call can ever take, as far as was told.
    ceiling: u64,
    /// When there may be more.
    chance: Moment,
    /// Whether all that was asked for came last time.
    is_ample: bool,
    /// What came since a moment, and in the span before.
    came: (Moment, u64, u64),
}

/// What the one above granted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Came {
    pub permits: u64,
    /// Permits that were lent so far, with those.
    pub lent: u64,
    /// Permits that are not extended.
    pub unkept: u64,
    pub end: Moment,
    pub ceiling: u64,
    pub chance: Moment,
    pub is_ample: bool,
    /// What is told of a cap on what is in flight.
    pub cap: Option<InFlight>,
}

impl Loan {
    /// Nothing was lent.
    pub(super) fn new(now: Moment) -> Self {
        Loan {
            now,
            free: 0,
            out: 0,
            unkept: 0,
            spent: 0,
            reported: 0,
            reported_at: Moment::ORIGIN,
            told: 0,
            gave_up: false,
            lent: 0,
            may_be_lent: 0,
            might_be_lent: 0,
            in_flight: 0,
            unknown: 0,
            reported_in_flight: 0,
            counted: 0,
            cap: None,
            end: Moment::ORIGIN,
            ceiling: PERMITS_MAX,
            chance: Moment::ORIGIN,
            is_ample: true,
            came: (now, 0, 0),
        }
    }

    pub(super) fn free(&self) -> u64 {
        self.free
    }

    pub(super) fn out(&self) -> u64 {
        self.out
    }

    pub(super) fn end(&self) -> Moment {
        self.end
    }

    pub(super) fn ceiling(&self) -> u64 {
        self.ceiling
    }

    /// Whether all that was asked for came last time.
    pub(super) fn is_ample(&self) -> bool {
        self.is_ample
    }

    /// Whether the one above has said that there is nothing more for now.
    pub(super) fn is_told_to_wait(&self) -> bool {
        !self.is_ample && self.chance > self.now
    }

    /// Whether there is something that was spent, or has ended, and not reported.
    pub(super) fn has_unreported(&self) -> bool {
        self.spent > self.reported || self.has_finished()
    }

    /// Whether there is something that was spent, or has ended, and that the one above may not know. What it lent counts as unspent there
    /// if this pool is forgotten, and then counts from zero.
    pub(super) fn has_untold(&self) -> bool {
        self.spent > self.told || self.has_finished()
    }

    /// Whether the one above may hold permits for lent that are neither here nor spent: it takes them for spent once that has ended,
    /// until it is told.
    pub(super) fn has_returned(&self) -> bool {
        self.lent.saturating_add(self.may_be_lent) > self.spent + self.free + self.out
    }

    /// Whether calls have ended that count as in flight above.
    pub(super) fn has_finished(&self) -> bool {
        self.cap.is_some() && self.known_in_flight() < self.counted
    }

    /// Whether what was lent may be in flight, as is known above: it counts there as long as this goes on to say so.
    pub(super) fn is_in_flight(&self) -> bool {
        self.cap.is_some() && self.known_in_flight() > 0
    }

    /// What is in flight of what the one above knows.
    fn known_in_flight(&self) -> u64 {
        self.in_flight - self.unknown
    }

    /// Whether a permit can be spent again when its call ends.
    pub(super) fn is_reusable(&self) -> bool {
        self.cap.is_some_and(|cap| cap.hold.is_some())
    }

    /// The most to have in hand and out, where permits are spent again.
    pub(super) fn hold(&self) -> u64 {
        self.cap.and_then(|cap| cap.hold).unwrap_or(PERMITS_MAX)
    }

    /// The clock by which it ends may be late: what is in hand goes back, and nothing that is out is extended.
    pub(super) fn hold_back(&mut self) {
        self.shed(0);
        self.unkept = self.out;
    }

    /// Takes out what is in hand beyond `keep`: it is given back.
    pub(super) fn shed(&mut self, keep: u64) {
        self.free = self.free.min(keep);
    }

    /// What was spent and what is held, for an ask that wants `want`. It stays true however late it arrives.
    pub(super) fn report(&mut self, want: u64) -> (u64, u64) {
        (self.reported, self.reported_at) = (self.reported.max(self.spent), self.now);
        (self.might_be_lent, self.may_be_lent) = (self.may_be_lent, self.may_be_lent.max(want));
        (self.reported, self.free + self.out)
    }

    /// What is in flight, for an ask, where the one above counts that. Whatever ends first was unknown there.
    pub(super) fn report_in_flight(&mut self) -> Option<u64> {
        self.cap?;
        self.reported_in_flight = self.known_in_flight();
        self.counted = self.counted.max(self.reported_in_flight);
        Some(self.reported_in_flight)
    }

    /// The last report was answered: the one above has lent so many in all.
    pub(super) fn on_report_answered(&mut self, lent: u64) {
        (self.lent, self.may_be_lent) = (lent, 0);
        (self.told, self.gave_up) = (self.reported, false);
        self.counted = self.reported_in_flight;
    }

    /// The one above is told nothing more: only once nothing is out or in hand.
    pub(super) fn give_up(&mut self) {
        self.gave_up |= self.has_untold();
        (self.told, self.lent, self.may_be_lent, self.counted) = (self.spent, self.spent, 0, 0);
    }

    /// Whether the one above was not told all, and is not any more.
    pub(super) fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// The one above has not looked at the last report, and so it has lent nothing by that.
    pub(super) fn on_report_lost(&mut self) {
        self.may_be_lent = self.might_be_lent;
    }

    /// Of `all` that is in flight or in use, what counts as held here.
    pub(super) fn busy_of(&self, all: u64) -> u64 {
        all.saturating_sub(self.in_flight)
    }

    /// The one above has granted something.
    pub(super) fn came(&mut self, came: Came) {
        let dropped = came.unkept.min(self.free);
        self.free = self.free - dropped + came.permits;
        self.unkept = (self.unkept + came.unkept - dropped).min(self.out);
        self.end = self.end.max(came.end);
        (self.ceiling, self.chance, self.is_ample) = (came.ceiling, came.chance, came.is_ample);
        self.cap = came.cap;
        self.on_report_answered(came.lent);
        self.roll();
        self.came.1 += came.permits;
        if self.now >= self.end {
            self.lapse();
        }
    }

    /// There will be none before `chance`.
    pub(super) fn wait_until(&mut self, chance: Moment) {
        (self.chance, self.is_ample) = (chance, false);
    }

    /// Counts from zero from now on: only once nothing is out or in hand.
    pub(super) fn reset(&mut self) {
        (self.spent, self.reported, self.lent, self.may_be_lent) = (0, 0, 0, 0);
        (self.told, self.gave_up) = (0, false);
        (self.unknown, self.reported_in_flight, self.counted) = (self.in_flight, 0, 0);
    }

    /// Whether nothing is out or in hand.
    pub(super) fn is_empty(&self) -> bool {
        self.free == 0 && self.out == 0
    }

    /// Its term is over: what is in hand may not be spent any more. What is out ended before.
    fn lapse(&mut self) {
        self.free = 0;
    }

    fn roll(&mut self) {
        let (since, came, _) = self.came;
        if self.now.since(since) >= RECENT {
            let before = if self.now.since(since) < 2 * RECENT { came } else { 0 };
            self.came = (self.now, 0, before);
        }
    }

    /// Permits that come in `span` if it goes on as in the last [`RECENT`].
    fn coming(&self, span: Duration) -> u64 {
        if self.is_ample {
            // Whatever is wanted.
            return PERMITS_MAX;
        }
        let (since, came, before) = self.came;
        let gone = self.now.since(since).min(RECENT);
        let came = u128::from(came) * RECENT.as_nanos() + u128::from(before) * (RECENT - gone).as_nanos();
        let coming = came * span.as_nanos() / RECENT.as_nanos() / RECENT.as_nanos();
        u64::try_from(coming).unwrap_or(u64::MAX)
    }

    /// Permits that are out are not any more.
    fn back(&mut self, permits: u64) {
        self.out -= permits;
        self.unkept = self.unkept.min(self.out);
    }
}

impl Account for Loan {
    fn advance(&mut self, now: Moment) {
        self.now = self.now.max(now);
        if self.now >= self.end {
            self.lapse();
        }
    }

    fn available(&self) -> u64 {
        self.free
    }

    fn charge(&mut self, permits: u64) {
        self.free -= permits;
        self.out += permits;
    }

    fn settle(&mut self, permits: u64, _at: Moment) {
        self.back(permits);
        self.spent += permits;
    }

    fn release(&mut self, permits: u64) {
        // Those that the one above did not extend come back first: they are not there any more.
        let unkept = self.unkept.min(permits);
        self.out -= permits;
        self.unkept -= unkept;
        self.free += permits - unkept;
        if self.now >= self.end {
            self.lapse();
        }
    }

    fn credit(&mut self, permits: u64, at: Moment) {
        // What was reported stays so, and in the place of nothing that was spent since: that is charged from later on.
        if at > self.reported_at {
            self.spent -= permits.min(self.spent - self.reported);
        }
    }

    fn ready_at(&self, permits: u64, _ends: Ends<'_>) -> Option<Moment> {
        if permits <= self.free {
            return Some(self.now);
        }
        (permits <= self.ceiling).then(|| self.chance.max(self.now))
    }

    fn arriving(&self, span: Duration) -> u64 {
        self.coming(span)
    }

    fn sustained(&self, span: Duration) -> u64 {
        self.coming(span)
    }

    /// Whatever is wanted comes, or as much as came lately.
    fn lasts(&self, draw: Draw) -> Option<Duration> {
        if self.is_ample { None } else { draw.less(self.coming(THOUSAND_SECONDS)).lasts(self.free) }
    }

    fn pace(&self) -> Option<Pace> {
        None
    }

    fn lease_end(&self) -> Option<Moment> {
        Some(self.end)
    }

    fn is_fresh(&self) -> bool {
        self.is_empty() && !self.has_untold()
    }

    fn memory(&self) -> Duration {
        Duration::ZERO
    }

    fn outstanding(&self) -> u64 {
        self.out
    }

    fn forget(&mut self, quarantined: Moment) -> Moment {
        quarantined
    }

    fn adopt(&mut self, permits: u64, _until: Moment) {
        self.out += permits;
        self.unkept += permits;
    }

    fn excess(&self) -> u64 {
        self.unkept
    }

    fn is_sound(&self) -> bool {
        let is_nested = self.out == 0 || self.now < self.end;
        self.reported <= self.spent && self.unkept <= self.out && self.unknown <= self.in_flight && is_nested
    }
}

impl Calls for Loan {
    fn begin(&mut self, permits: u64) {
        self.in_flight += permits;
    }

    fn finish(&mut self, permits: u64) {
        self.in_flight -= permits;
        self.unknown = self.unknown.saturating_sub(permits);
    }

    fn in_flight(&self) -> u64 {
        self.in_flight
    }

    fn longest(&self) -> Option<Duration> {
        self.cap.map(|cap| cap.longest)
    }
}

#[cfg(test)]
mod tests;
