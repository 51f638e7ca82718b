//! Events of a limit between asks, or in place of a grant, and how soon a refill acts on them. The listener passes them on. As
//! the rest of a refill, this reads no clock, and nothing depends on it.

use super::{Phase, Refill, Seen, jittered};
use crate::permits::{Pacer, Permits};
use lessor_protocol::Moment;
use lessor_protocol::moment::nanos;
use std::time::Duration;

/// Events of a limit are acted on this often at most: a stream of nonsense makes ten asks a second, and no more.
const EVENT_EVERY: Duration = Duration::from_millis(100);

/// So many times more at once, if there was no event for a while: two things that operators do one after the other.
const EVENTS_AT_ONCE: u32 = 3;

impl<P: Pacer> Refill<P> {
    /// When an ask is due, sooner because of an event.
    pub(super) fn due_active(&self, slot: &impl Permits, seen: Seen, now: Moment, rtt: Duration) -> Moment {
        let own_due = self.due_without_events(slot, seen, now, rtt);
        self.event_due.max(now).min(own_due)
    }

    /// The allocator refused to answer until `retry_after` from now; what is held is as it was.
    pub fn refused(&mut self, now: Moment, retry_after: Duration, random: u64) {
        self.not_before = now + jittered(retry_after, random);
        self.phase = Phase::Active;
    }

    /// The ask that was written last got no answer. What it asked for in vain is asked for again as soon as anything is, and not
    /// only when a caller tries once more. A pool that had nothing waits for that caller: most keys that were tried while no
    /// allocator answered are of no use afterwards.
    pub fn unanswered(&mut self) {
        self.asks_ahead_again();
        if self.phase == Phase::Active && self.asked.is_some_and(|ask| ask.want > 0) {
            self.attempted = 0;
        }
    }

    /// Something happened to the limit: it is worth asking again, at once for a pool whose callers wait (`waits`). `random` is
    /// any number: it spreads the asks of all other pools, lest a whole fleet asks in the same instant. However many events
    /// there are, they are acted on ten times a second at most.
    pub fn on_event(&mut self, now: Moment, waits: bool, random: u64) {
        let spread = if waits { 0 } else { random % nanos(EVENT_EVERY) };
        let soonest = now.max(self.acted) + Duration::from_nanos(spread);
        self.not_before = self.not_before.min(soonest);
        if self.phase == Phase::Active {
            self.event_due = self.event_due.min(soonest);
        }
    }

    /// Something happened to a limit of which the allocator lent nothing: it may lend some now, also where no caller has tried since.
    /// `random` is as in [`Refill::on_event`].
    pub fn may_lend_again(&mut self, now: Moment, random: u64) {
        if self.phase == Phase::Idle {
            self.phase = Phase::Active;
        }
        self.on_event(now, false, random);
    }

    /// There is something to tell the allocator at once, also where nothing is held and nothing is wanted.
    pub fn report(&mut self, now: Moment) {
        if self.is_idle() {
            self.phase = Phase::Active;
        }
        self.on_event(now, true, 0);
    }

    /// A caller doubts at `now` that what was last told is still so. It is worth asking, as often as after events.
    /// That holds also for a pool that neither holds nor wants anything.
    pub fn doubt(&mut self, now: Moment) {
        if self.phase == Phase::Idle {
            self.phase = Phase::Active;
        }
        if self.phase == Phase::Active && self.event_due == Moment::NEVER {
            self.event_due = now.max(self.acted);
        }
    }

    /// No caller may spend any more, not even what is leased: all of it goes back, with the next ask.
    pub fn stop(&mut self, slot: &impl Permits) {
        self.removed += slot.shed(0);
        self.is_stopped = true;
    }

    /// An ask is written: events until `now` are acted on.
    pub(super) fn acts(&mut self, now: Moment) {
        self.overdue = Moment::NEVER;
        if self.event_due <= now {
            self.event_due = Moment::NEVER;
            self.acted = self.acted.max(now.before(EVENT_EVERY * EVENTS_AT_ONCE)) + EVENT_EVERY;
        }
    }
}
