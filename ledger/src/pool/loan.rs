//! The loan of a pool: permits that the allocator above lent it to lend on. It is a ledger beside those of the pool's
//! rules, and is charged like them. The exchange with the allocator above is in `borrow.rs`.
//!
//! Where the allocator above counts calls in flight, the pool reports the calls of its nodes as its own, and goes on
//! leasing while there are any.
//!
//! Each permit that a node may spend was lent for at least as long by the allocator above, so no lease from here
//! outlives the loan. A crash needs no quarantine: the allocator above counts the whole loan as spent, and the next
//! process begins with nothing.

use crate::rule::{Account, Calls, Draw, Ends, THOUSAND_SECONDS};
use lessor_protocol::{InFlight, Moment, PERMITS_MAX};
use std::time::Duration;

/// Span by whose arrivals later ones are predicted.
const RECENT: Duration = Duration::from_secs(1);

/// A loan of the allocator above.
#[derive(Clone, Debug)]
pub(super) struct Loan {
    now: Moment,
    /// Permits in hand: neither lent on nor spent.
    free: u64,
    /// Permits lent on.
    out: u64,
    /// Permits of `out` that the allocator above did not extend. While there are any, nothing that is out is extended.
    unkept: u64,
    /// Permits spent, or counted as spent, since the loan began to count.
    spent: u64,
    /// Highest total of spent permits that was reported, which never falls, and when the last report was written.
    reported: u64,
    reported_at: Moment,
    /// Highest total of spent permits that the allocator above is known to have read.
    told: u64,
    /// Whether the pool gave up telling the allocator above all that was spent.
    gave_up: bool,
    /// Permits lent by the allocator above since the loan began to count: by the last answered ask, and at most by
    /// unanswered ones.
    lent: u64,
    may_be_lent: u64,
    /// `may_be_lent` before the last ask was written.
    may_be_lent_before_ask: u64,
    /// Permits spent and in flight, as far as is known here.
    in_flight: u64,
    /// Permits of `in_flight` that the allocator above does not know for this session: others wait for them there.
    unknown: u64,
    /// Permits in flight by the last report, and permits that may count above: the most of all reports since the last answer.
    reported_in_flight: u64,
    counted: u64,
    /// Cap on calls in flight above, if there is one.
    cap: Option<InFlight>,
    /// Nothing may be spent from this instant on.
    end: Moment,
    /// Most permits that one call can ever take, as the last grant said.
    ceiling: u64,
    /// When there may be more permits.
    chance: Moment,
    /// Whether the last grant met its ask in full.
    is_ample: bool,
    /// Start of the current [`RECENT`] span, permits that came in it, and permits that came in the span before.
    came: (Moment, u64, u64),
}

/// A grant of the allocator above.
#[derive(Clone, Copy, Debug)]
pub(super) struct Came {
    pub permits: u64,
    /// Permits lent so far, including these.
    pub lent: u64,
    /// Held permits that are not extended.
    pub unkept: u64,
    pub end: Moment,
    pub ceiling: u64,
    pub chance: Moment,
    pub is_ample: bool,
    /// Cap on calls in flight, if there is one.
    pub cap: Option<InFlight>,
}

impl Loan {
    /// Creates a loan of nothing.
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
            may_be_lent_before_ask: 0,
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

    /// Whether the last grant met its ask in full.
    pub(super) fn is_ample(&self) -> bool {
        self.is_ample
    }

    /// Whether the allocator above has said that there is nothing more for now.
    pub(super) fn is_told_to_wait(&self) -> bool {
        !self.is_ample && self.chance > self.now
    }

    /// Whether some spends or ends of calls are not reported yet.
    pub(super) fn has_unreported(&self) -> bool {
        self.has_unreported_spends() || self.has_finished()
    }

    /// Whether some spends are not reported yet.
    pub(super) fn has_unreported_spends(&self) -> bool {
        self.spent > self.reported
    }

    /// Whether the allocator above may not know of some spends or ends of calls. They would count as unspent there if
    /// this pool were forgotten and then started from zero.
    pub(super) fn has_untold(&self) -> bool {
        self.spent > self.told || self.has_finished()
    }

    /// Whether the allocator above may count permits as lent that are neither here nor spent. Until it is told, it
    /// counts them as spent once the loan has ended.
    pub(super) fn has_returned(&self) -> bool {
        self.lent.saturating_add(self.may_be_lent) > self.spent + self.free + self.out
    }

    /// Whether calls have ended that count as in flight above.
    pub(super) fn has_finished(&self) -> bool {
        self.cap.is_some() && self.known_in_flight() < self.counted
    }

    /// Whether permits may be in flight that the allocator above knows. They count there while the pool keeps reporting them.
    pub(super) fn is_in_flight(&self) -> bool {
        self.cap.is_some() && self.known_in_flight() > 0
    }

    /// Returns the permits in flight that the allocator above knows.
    fn known_in_flight(&self) -> u64 {
        self.in_flight - self.unknown
    }

    /// Whether a permit can be spent again when its call ends.
    pub(super) fn is_reusable(&self) -> bool {
        self.cap.is_some_and(|cap| cap.hold.is_some())
    }

    /// Returns the most permits to have in hand and out, where permits are spent again.
    pub(super) fn hold(&self) -> u64 {
        self.cap.and_then(|cap| cap.hold).unwrap_or(PERMITS_MAX)
    }

    /// Gives back the permits in hand and marks those out as not extended: the clock by which the loan ends may be late.
    pub(super) fn hold_back(&mut self) {
        self.shed(0);
        self.unkept = self.out;
    }

    /// Gives back the permits in hand beyond `keep`.
    pub(super) fn shed(&mut self, keep: u64) {
        self.free = self.free.min(keep);
    }

    /// Returns the totals spent and held, for an ask that wants `want`. The report stays true however late it arrives.
    pub(super) fn report(&mut self, want: u64) -> (u64, u64) {
        (self.reported, self.reported_at) = (self.reported.max(self.spent), self.now);
        (self.may_be_lent_before_ask, self.may_be_lent) = (self.may_be_lent, self.may_be_lent.max(want));
        (self.reported, self.free + self.out)
    }

    /// Returns the permits in flight for an ask, if the allocator above counts them. Calls that are unknown there count
    /// as the first to end.
    pub(super) fn report_in_flight(&mut self) -> Option<u64> {
        self.cap?;
        self.reported_in_flight = self.known_in_flight();
        self.counted = self.counted.max(self.reported_in_flight);
        Some(self.reported_in_flight)
    }

    /// Notes that the last report was answered: the allocator above has lent `lent` permits in all.
    pub(super) fn on_report_answered(&mut self, lent: u64) {
        (self.lent, self.may_be_lent) = (lent, 0);
        (self.told, self.gave_up) = (self.reported, false);
        self.counted = self.reported_in_flight;
    }

    /// Stops reporting to the allocator above; only once nothing is out or in hand.
    pub(super) fn give_up(&mut self) {
        self.gave_up |= self.has_untold();
        (self.told, self.lent, self.may_be_lent, self.counted) = (self.spent, self.spent, 0, 0);
    }

    /// Whether the pool gave up telling the allocator above all that was spent.
    pub(super) fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// Notes that the allocator above did not read the last report, and so lent nothing for it.
    pub(super) fn on_report_lost(&mut self) {
        self.may_be_lent = self.may_be_lent_before_ask;
    }

    /// Returns how many of `all` permits in flight or in use count as held here.
    pub(super) fn busy_of(&self, all: u64) -> u64 {
        all.saturating_sub(self.in_flight)
    }

    /// Applies a grant of the allocator above.
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

    /// Notes that no permits will come before `chance`.
    pub(super) fn wait_until(&mut self, chance: Moment) {
        (self.chance, self.is_ample) = (chance, false);
    }

    /// Starts counting from zero; only once nothing is out or in hand. The allocator above knows nothing of the end of
    /// this loan, and counts the next permits by an end that may be earlier.
    pub(super) fn reset(&mut self) {
        self.end = Moment::ORIGIN;
        (self.spent, self.reported, self.lent, self.may_be_lent) = (0, 0, 0, 0);
        (self.told, self.gave_up) = (0, false);
        (self.unknown, self.reported_in_flight, self.counted) = (self.in_flight, 0, 0);
    }

    /// Whether nothing is out or in hand.
    pub(super) fn is_empty(&self) -> bool {
        self.free == 0 && self.out == 0
    }

    /// Drops the permits in hand, because the term is over. Leases from the loan ended before.
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

    /// Returns the permits that come in `span` at the rate of the last [`RECENT`].
    fn coming(&self, span: Duration) -> u64 {
        if self.is_ample {
            // All that is wanted comes.
            return PERMITS_MAX;
        }
        let (since, came, before) = self.came;
        let gone = self.now.since(since).min(RECENT);
        let came = u128::from(came) * RECENT.as_nanos() + u128::from(before) * (RECENT - gone).as_nanos();
        let coming = came * span.as_nanos() / RECENT.as_nanos() / RECENT.as_nanos();
        u64::try_from(coming).unwrap_or(u64::MAX)
    }

    /// Takes `permits` off those out.
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
        // Permits that were not extended come back first: the allocator above no longer lends them.
        let unkept = self.unkept.min(permits);
        self.out -= permits;
        self.unkept -= unkept;
        self.free += permits - unkept;
        if self.now >= self.end {
            self.lapse();
        }
    }

    fn credit(&mut self, permits: u64, at: Moment) {
        // A reported total stays as it is, and a credit must not hide later spends, which are charged from later on.
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

    /// Forever if all that is wanted comes; otherwise by what came lately.
    fn lasts(&self, draw: Draw) -> Option<Duration> {
        if self.is_ample { None } else { draw.less(self.coming(THOUSAND_SECONDS)).lasts(self.free) }
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
