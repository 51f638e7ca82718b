//! Permits of a lease that the allocator does not know, because it was restarted or because another one is asked. They
//! are used up, and never reported nor extended. Like the rest of a refill, it reads no clock.

use super::{Asked, GUARD, Phase, Refill, SPARE_FOR, Seen, jittered, low_water_span};
use crate::permits::{Pacer, Permits};
use lessor_protocol::{Ask, Grant, Moment, PERMITS_MAX, Rate, RateClaim, sizing};
use std::time::Duration;

/// State while the allocator does not know the lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unrecognised {
    /// Total of refusals when the node heard of it, or at the last answer.
    refused: u64,
    /// Whether the allocator has answered an ask for more, and had nothing.
    is_answered: bool,
}

impl<P: Pacer> Refill<P> {
    /// Records that the allocator does not know the lease. Its permits were lent all the same, and the allocator that
    /// lends now counts them as out until the lease ends. The session uses them up first, and then counts from zero,
    /// see [`Refill::forget`]. It counts from zero at once for a rate and for permits that can be spent again: these
    /// would never be used up.
    pub fn on_unrecognised(&mut self, slot: &impl Permits, now: Moment) {
        if self.is_used_up(slot, now) || self.calls.hold().is_some() || self.rate.is_held() {
            return self.forget(slot);
        }
        self.rate.forget();
        self.unrecognised.get_or_insert(Unrecognised { refused: slot.refused(), is_answered: false });
    }

    /// Moves on to another allocator, which knows nothing of this session. Leases become unrecognised, and the pool may
    /// ask at once. A pool that neither holds nor reports anything stays as silent as it was.
    pub fn move_on(&mut self, slot: &impl Permits, now: Moment) {
        let phase = self.phase;
        self.on_unrecognised(slot, now);
        self.not_before = Moment::ORIGIN;
        if matches!(phase, Phase::New { .. } | Phase::Idle) {
            self.phase = phase;
        }
    }

    /// Drops all permits held, and counts from zero from now on, because the allocator does not know the session. It
    /// does not know the end of the lease either, so the lease is over.
    pub fn forget(&mut self, slot: &impl Permits) {
        self.count_from_zero(slot);
        if self.asked.is_some_and(|ask| ask.want > 0) {
            // The last ask was in vain: its attempts count as new.
            self.attempted = 0;
        }
        self.phase = Phase::Active;
        self.not_before = Moment::ORIGIN;
    }

    fn count_from_zero(&mut self, slot: &impl Permits) {
        self.unrecognised = None;
        self.known.forget();
        self.rate.forget();
        self.removed += slot.end();
        self.spend_all_reserved();
        if let Some(calls) = self.calls.unusual() {
            calls.forget();
        }
        self.forgotten = self.spent(slot);
        if let Some(asked) = &mut self.asked {
            (asked.spent_total, asked.has_untold) = (0, false);
        }
        if let Some(calls) = self.calls.unusual() {
            calls.note(self.forgotten);
        }
        self.shadow.forgotten = self.shadow.reported;
        self.is_known = false;
    }

    /// Whether nothing is left of an unrecognised lease. Permits that a caller has set aside are left: the caller may
    /// put them back, and they must not be reported as held.
    pub(super) fn is_used_up(&mut self, slot: &impl Permits, now: Moment) -> bool {
        if now >= slot.deadline() {
            self.removed += slot.end();
        }
        slot.balance().total() == 0
    }

    /// Returns when to ask because the rest will likely be used up when the answer comes, or is too little for the
    /// callers. `None` if the allocator knows the lease.
    pub(super) fn due_ahead(
        &self,
        slot: &impl Permits,
        seen: Seen,
        now: Moment,
        rtt: Duration,
    ) -> Option<Moment> {
        let Unrecognised { refused, is_answered } = self.unrecognised?;
        let free = slot.balance().free;
        if free == 0 || seen.waiting > free || slot.refused() > refused {
            return Some(now.max(self.not_before));
        }
        let lasts = sizing::lasts(free, self.demand.milli());
        // An allocator that had nothing to lend is asked again once there is nothing to lose.
        let ahead = if is_answered { Duration::ZERO } else { low_water_span(rtt) };
        Some((now + lasts).min(slot.deadline()).before(ahead).max(now).max(self.not_before))
    }

    /// Asks for a first lease while something is left of an unrecognised one. That rest is not reported, and not given
    /// up before there is something in its place: see [`Refill::make_way`].
    pub(super) fn write_ahead(&mut self, slot: &impl Permits, seen: Seen, now: Moment, rtt: Duration) -> Ask {
        self.let_go_of_reserved(slot, now);
        if self.has_tried(slot, seen) {
            self.tried = now;
        }
        self.observe(slot, seen, now);
        if self.is_idle_for_good(now) {
            self.demand.reset();
        }
        self.stepping_back = false;
        let spare = u64::from(now.since(self.tried) < SPARE_FOR);
        let ask = Ask {
            spent_total: 0,
            held: 0,
            want: self.target(rtt).saturating_add(seen.waiting).max(spare).min(PERMITS_MAX),
            waiting: seen.waiting.min(PERMITS_MAX),
            demand_milli: self.reported_demand(),
            largest: seen.largest.min(PERMITS_MAX),
            lends_on: false,
            rate: RateClaim::None,
            shadow_refused: (seen.shadow_refused - self.shadow.reported).min(PERMITS_MAX),
            running: self.calls.running().map(|_| 0),
            unguarded: 0,
            busy: 0,
        };
        self.acts(now);
        self.asked = Some(Asked::new(&ask, now, self.asked));
        self.known.asked(&ask);
        ask
    }

    /// Drops the rest of an unrecognised lease if `grant` brings anything in its place. The grant must also bring at
    /// least as many permits as callers have set aside, which stand for as many of the new ones. The old lease is over
    /// before the new one is installed. So read the clock for [`Refill::believe`] after this: a caller that still uses
    /// the old deadline has read the clock before.
    pub fn make_way(&mut self, slot: &impl Permits, grant: &Grant) {
        let brings_nothing = grant.permits == 0 && !matches!(grant.rate, Rate::Lent { .. });
        let is_too_little = slot.balance().held > grant.permits;
        if self.unrecognised.is_none() || brings_nothing || is_too_little || !self.can_be(grant) {
            return;
        }
        self.count_from_zero(slot);
        self.made_way = true;
        if let Some(asked) = &mut self.asked {
            asked.held = slot.balance().total();
        }
    }

    /// Records that the answer brought nothing of use: the rest is used up. Permits of the answer return with the next
    /// ask, which does not claim them.
    pub(super) fn keep_unrecognised(&mut self, slot: &impl Permits, grant: &Grant, now: Moment, random: u64) {
        self.unrecognised = Some(Unrecognised { refused: slot.refused(), is_answered: true });
        self.awaits_no_answer();
        let least = if grant.permits > 0 { GUARD } else { Duration::ZERO };
        self.not_before = now + jittered(grant.ask_after.max(least), random);
        self.is_known = true;
    }

    /// Records that the last ask got no answer: the next one is due as early as the last one was.
    pub(super) fn asks_ahead_again(&mut self) {
        if let Some(unrecognised) = &mut self.unrecognised {
            unrecognised.is_answered = false;
        }
    }
}
