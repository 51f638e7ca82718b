//! When a pool asks: at low water, after an event, once its line stands still, or not at all while it has nothing to
//! report. Like the rest of a refill, this reads no clock and draws no random number.

use super::{LATE_ANSWER_MAX, Phase, Refill, Seen, jittered};
use crate::permits::{Pacer, Permits};
use crate::timing::EXCHANGE_TIMEOUT;
use lessor_protocol::Moment;
use lessor_protocol::moment::nanos;
use lessor_protocol::sizing::{low_water_span, need};
use std::time::Duration;

/// Time for each event that is acted on: a stream of nonsense makes ten asks a second, and no more.
const EVENT_EVERY: Duration = Duration::from_millis(100);

/// Events that may be acted on at once after a quiet while: an operator may do two things one after the other.
const EVENTS_AT_ONCE: u32 = 3;

/// Terms after which a line that neither spends nor gets anything although permits are in hand steps back for a term.
/// Its first caller wants more than one lease brings, and another node may hold the rest and wait for these permits. A
/// smaller value would break up a holding that grows by a permit now and then. The number is drawn anew each time: two
/// lines that step back together gain nothing.
const PATIENCE_TERMS: std::ops::RangeInclusive<u64> = 3..=9;

/// Demand below which a key is rare, in permits per 1,000 s: its next call is half a second away, so an ask can wait a
/// little.
const RARE_MILLI: u64 = 2_000;

/// Attempts since the last ask up to which a key may be rare: more may be the beginning of an unknown demand.
const RARE_TRIES: u64 = 2;

/// Longest wait of an ask that holds up no caller, for another one to go along with. A larger value would delay returns
/// to other nodes; a smaller one would cost more exchanges.
pub const GOES_ALONG: Duration = Duration::from_millis(100);

/// Least time between two exchanges if all waiting callers are of rare keys. It delays a call by no more than that, and
/// only where a hundred exchanges a second are not enough.
const RARE_EVERY: Duration = Duration::from_millis(10);

impl<P: Pacer> Refill<P> {
    /// Returns the number of free permits at which it is time to ask for more. These are the permits that callers will
    /// likely spend until the answer comes, but at most half of the target.
    pub(super) fn low_water(&self, rtt: Duration) -> u64 {
        need(self.demand.milli(), low_water_span(rtt)).min(self.target(rtt) / 2)
    }

    /// Returns the permits to hold for callers that only try; where permits are spent again, those in use or in hand.
    pub(super) fn target(&self, rtt: Duration) -> u64 {
        if self.calls.hold().is_some() {
            return self.target_in_use();
        }
        need(self.demand.milli(), self.horizon.max(low_water_span(rtt)))
    }

    /// Returns the number of free permits below which a spender wakes the background task: half of the low water, but
    /// at least one. A timer keeps the plan, at no cost to any caller. A nudge is for demand that runs ahead of the
    /// plan.
    pub fn nudge_below(&self, rtt: Duration) -> u64 {
        (self.low_water(rtt) / 2).max(1)
    }
}

impl<P: Pacer> Refill<P> {
    /// Returns when an ask is due, sooner because of an event.
    pub(super) fn due_active(&self, slot: &impl Permits, seen: Seen, now: Moment, rtt: Duration) -> Moment {
        let own_due = self.due_without_events(slot, seen, now, rtt);
        self.event_due.max(now).min(own_due)
    }

    /// Records a refusal until `retry_after` from now; leases are unchanged.
    pub fn refused(&mut self, now: Moment, retry_after: Duration, random: u64) {
        self.not_before = now + jittered(retry_after, random);
        self.phase = Phase::Active;
    }

    /// Records that the last ask got no answer. The pool asks again for what it wanted, without waiting for another
    /// attempt of a caller. A pool that had nothing waits for that attempt: most keys that were tried during an outage
    /// are of no use afterwards.
    pub fn unanswered(&mut self) {
        self.asks_ahead_again();
        if self.phase == Phase::Active && self.asked.is_some_and(|ask| ask.want > 0) {
            self.attempted = 0;
        }
    }

    /// Records that something happened to the limit, so that it is worth asking again: at once if callers wait
    /// (`waits`). `random` is any number: it spreads the asks of all other pools, so that a fleet does not ask in the
    /// same instant. Events are acted on at most ten times a second.
    pub fn on_event(&mut self, now: Moment, waits: bool, random: u64) {
        let spread = if waits { 0 } else { random % nanos(EVENT_EVERY) };
        let soonest = now.max(self.acted) + Duration::from_nanos(spread);
        self.not_before = self.not_before.min(soonest);
        if self.phase == Phase::Active {
            self.event_due = self.event_due.min(soonest);
        }
    }

    /// Records an event that makes it worth asking even if no caller has tried since: a limit of which nothing was lent
    /// may lend now, or is paused. `waits` and `random` are as in [`Refill::on_event`].
    pub fn ask_though_idle(&mut self, now: Moment, waits: bool, random: u64) {
        if matches!(self.phase, Phase::New { eager: false } | Phase::Idle) {
            self.phase = Phase::Active;
        }
        self.on_event(now, waits, random);
    }

    /// Asks at once to report something, even if nothing is held and nothing is wanted.
    pub fn report(&mut self, now: Moment) {
        if self.is_idle() {
            self.phase = Phase::Active;
        }
        self.on_event(now, true, 0);
    }

    /// Records that a caller doubts at `now` whether the last answer still holds. The pool asks, as often as after
    /// events, even if it neither holds nor wants anything.
    pub fn doubt(&mut self, now: Moment) {
        if self.phase == Phase::Idle {
            self.phase = Phase::Active;
        }
        if self.phase == Phase::Active && self.event_due == Moment::NEVER {
            self.event_due = now.max(self.acted);
        }
    }

    /// Stops spending, even of leased permits: all of them are returned with the next ask. Only a grant for that ask, or
    /// for a later one, ends the stop.
    pub fn stop(&mut self, slot: &impl Permits) {
        self.removed += slot.shed(0);
        self.is_stopped = true;
        if let Some(asked) = &mut self.asked {
            asked.is_stopped_since = true;
        }
    }

    /// Records that an ask is written: events until `now` are acted on.
    pub(super) fn acts(&mut self, now: Moment) {
        self.overdue = Moment::NEVER;
        if self.event_due <= now {
            self.event_due = Moment::NEVER;
            self.acted = self.acted.max(now.before(EVENT_EVERY * EVENTS_AT_ONCE)) + EVENT_EVERY;
        }
    }
}

impl<P: Pacer> Refill<P> {
    /// Whether callers wait and permits are in hand, but nothing was spent and nothing came for so long that all permits
    /// should go back once. Otherwise two nodes that each hold half of what both need would hold and wait for ever.
    pub(super) fn is_stuck(&mut self, slot: &impl Permits, seen: Seen, now: Moment) -> bool {
        let (before, at) = self.moved;
        let spent = self.spent(slot) + self.reserved.tried() + self.calls.taken();
        let stuck = seen.waiting > 0 && slot.balance().free > 0 && spent == before;
        let for_long = stuck && now.since(at) >= self.term.max(self.rate.fills_in()) * self.patience;
        if !stuck || for_long {
            self.moved = (spent, now);
        }
        for_long
    }
}

/// Draws a number of [`PATIENCE_TERMS`].
pub(super) fn patience(random: u64) -> u32 {
    let (least, most) = (PATIENCE_TERMS.start(), PATIENCE_TERMS.end());
    u32::try_from(least + random % (most - least + 1)).expect("a few")
}

impl<P: Pacer> Refill<P> {
    /// Whether there is nothing to hold or to report.
    pub fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::New { .. } | Phase::Idle)
    }

    /// Whether this pool can be forgotten altogether. An unanswered ask may have been granted permits: a node that
    /// forgets them, and counts from zero before their lease is over, would not be believed. And a call in flight that
    /// the allocator has forgotten would be taken for a later one when it ends. Permits whose spends the allocator does
    /// not know would count as unspent once the node counts from zero in the same session.
    pub fn is_forgettable(&self, slot: &impl Permits, now: Moment) -> bool {
        let goes_on = self.calls.are_forgotten();
        let is_over = self.asked.is_none_or(|ask| ask.is_answered || now.since(ask.at) >= LATE_ANSWER_MAX);
        self.is_idle() && !goes_on && is_over && !self.has_untold(slot)
    }

    /// Records that the allocator cannot lend from this pool. If nothing is held and nothing is left to report, the
    /// pool is silent until a caller tries again.
    pub fn refused_for_good(&mut self, slot: &impl Permits, now: Moment, retry_after: Duration, random: u64) {
        self.refused(now, retry_after, random);
        self.awaits_no_answer();
        let returns = self.asked.is_some_and(|ask| ask.held > 0);
        let holds = slot.balance().total() + self.reserved.permits() > 0 || self.rate.is_held() || returns;
        let reported = self.asked.map_or(0, |ask| ask.spent_total) + self.forgotten;
        let has_reported = !self.is_known || self.spent(slot) <= reported;
        if !holds && has_reported && self.calls.is_empty() {
            self.phase = Phase::Idle;
        }
    }

    /// Records a refusal of an allocator that may take in no report. A pool that had nothing to hold or to report stays
    /// as silent as it was. It is not forgotten sooner than after an ask without an answer.
    pub(crate) fn refused_unheard(&mut self, now: Moment, retry_after: Duration, random: u64) {
        let is_idle = self.is_idle();
        self.refused(now, retry_after, random);
        if is_idle {
            self.phase = Phase::Idle;
        }
    }

    /// Records that no answer to the last ask is expected any more.
    pub(super) fn awaits_no_answer(&mut self) {
        if let Some(asked) = &mut self.asked {
            asked.is_answered = true;
        }
    }

    /// Records that the allocator has taken in all that the last ask reports.
    pub(super) fn is_told(&mut self) {
        if let Some(asked) = &mut self.asked {
            asked.has_untold = false;
        }
    }

    /// Whether asks of this pool may wait for others: it is called seldom, and other sessions wait for nothing of it.
    pub fn is_rare(&self, slot: &impl Permits, seen: Seen) -> bool {
        let tried = self.attempts(slot, seen).saturating_sub(self.attempted);
        tried <= RARE_TRIES
            && self.demand.milli() < RARE_MILLI
            && !self.is_paced()
            && !self.calls.count()
            && self.unrecognised.is_none()
    }

    /// Returns the latest moment for an ask of a rare pool that is due at `when`. The exchange before this one began at
    /// `began`.
    pub fn latest(
        &mut self,
        slot: &impl Permits,
        seen: Seen,
        (when, began): (Moment, Moment),
        now: Moment,
        rtt: Duration,
    ) -> Moment {
        if when > now {
            return self.put_off(slot, seen, when, began, rtt);
        }
        self.overdue = self.overdue.min(now);
        self.put_off(slot, seen, self.overdue, began, rtt)
    }

    fn put_off(&self, slot: &impl Permits, seen: Seen, due: Moment, began: Moment, rtt: Duration) -> Moment {
        if seen.waiting > 0 || due >= slot.deadline() {
            return due.max(began + RARE_EVERY);
        }
        (due + GOES_ALONG).min(slot.deadline().before(low_water_span(rtt))).max(due)
    }

    /// Returns until when a due ask is of use, to order many: the end of the lease, or one exchange timeout after it
    /// was due.
    pub fn deadline(&mut self, slot: &impl Permits, now: Moment) -> Moment {
        self.overdue = self.overdue.min(now);
        let due = self.overdue + EXCHANGE_TIMEOUT;
        let ends = slot.deadline();
        if ends > now { due.min(ends) } else { due }
    }
}
