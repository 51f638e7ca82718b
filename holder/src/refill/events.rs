//! Events of a limit between asks, or in place of a grant, and how soon a refill acts on them. The listener passes them
//! on. Like the rest of a refill, this reads no clock, and nothing depends on it.

use super::{Phase, Refill, Seen, jittered};
use crate::permits::{Pacer, Permits};
use lessor_protocol::Moment;
use lessor_protocol::moment::nanos;
use std::time::Duration;

/// Time for each event that is acted on: a stream of nonsense makes ten asks a second, and no more.
const EVENT_EVERY: Duration = Duration::from_millis(100);

/// Events that may be acted on at once after a quiet while: an operator may do two things one after the other.
const EVENTS_AT_ONCE: u32 = 3;

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

    /// Stops spending, even of leased permits: all of them are returned with the next ask.
    pub fn stop(&mut self, slot: &impl Permits) {
        self.removed += slot.shed(0);
        self.is_stopped = true;
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
