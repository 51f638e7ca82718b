//! What is held of a lease that the allocator does not know, because it was started again, or because another one is asked:
//! it is used up, and never told nor extended. As the rest of a refill, it reads no clock.

use super::{Asked, GUARD, Phase, Refill, SPARE_FOR, Seen, jittered, low_water_span};
use crate::permits::{Pacer, Permits};
use lessor_protocol::{Ask, Grant, Moment, PERMITS_MAX, Rate, RateClaim, sizing};
use std::time::Duration;

/// What is in hand is nothing that the allocator knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unrecognised {
    /// Refusals when that was heard, or when it last answered.
    refused: u64,
    /// It has answered an ask for more, and had nothing.
    is_answered: bool,
}

impl<P: Pacer> Refill<P> {
    /// The allocator does not know what this session holds. That was lent all the same, and the allocator that lends now counts
    /// it as out until it ends. The session uses it up first, and then counts from zero, see [`Refill::forget`]. It counts from
    /// zero at once where permits do not become fewer by being used: the allocator has to hear of those.
    pub fn on_unrecognised(&mut self, slot: &impl Permits, now: Moment) {
        if self.is_used_up(slot, now) || self.calls.hold().is_some() || self.rate.is_held() {
            return self.forget(slot);
        }
        self.rate.forget();
        self.unrecognised.get_or_insert(Unrecognised { refused: slot.refused(), is_answered: false });
    }

    /// Another allocator is asked from now on, which knows nothing of what this session holds and told: the same, and at once. A
    /// session that neither holds nor tells anything stays as silent as it was.
    pub fn move_on(&mut self, slot: &impl Permits, now: Moment) {
        let phase = self.phase;
        self.on_unrecognised(slot, now);
        self.not_before = Moment::ORIGIN;
        if matches!(phase, Phase::New { .. } | Phase::Idle) {
            self.phase = phase;
        }
    }

    /// The allocator does not know what this session holds: drop it, and count from zero from now on. Nor does it know until
    /// when that was lent: the lease is over.
    pub fn forget(&mut self, slot: &impl Permits) {
        self.count_from_zero(slot);
        if self.asked.is_some_and(|ask| ask.want > 0) {
            // It was asked for in vain.
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
        if let Some(calls) = self.calls.unusual() {
            calls.note(self.forgotten);
        }
        self.shadow.forgotten = self.shadow.reported;
        self.is_known = false;
    }

    /// Whether nothing is left of a lease that the allocator does not know. What a caller has set aside is left: it may put that
    /// back, and it must not be told as held.
    pub(super) fn is_used_up(&mut self, slot: &impl Permits, now: Moment) -> bool {
        if now >= slot.deadline() {
            self.removed += slot.end();
        }
        slot.balance().total() == 0
    }

    /// When to ask because what is left is likely to be used up once the answer is here, or is of no use to those who call.
    /// `None` if it is known what is held.
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
        let lasts = u128::from(free) * sizing::PERMIT / u128::from(self.demand.milli().max(1));
        let lasts = Duration::from_nanos(u64::try_from(lasts).unwrap_or(u64::MAX));
        // One that had nothing to lend is asked again once there is nothing to lose.
        let ahead = if is_answered { Duration::ZERO } else { low_water_span(rtt) };
        Some((now + lasts).min(slot.deadline()).before(ahead).max(now).max(self.not_before))
    }

    /// Asks for a first lease while something is left that the allocator does not know. That is not told, and not given up
    /// before there is something in its place: see [`Refill::make_way`].
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
            rate: RateClaim::None,
            shadow_refused: (seen.shadow_refused - self.shadow.reported).min(PERMITS_MAX),
            running: self.calls.running().map(|_| 0),
            unguarded: 0,
            busy: 0,
        };
        self.acts(now);
        self.asked = Some(Asked::new(&ask, now));
        self.known.asked(&ask);
        ask
    }

    /// An answer is here. What is left of a lease that the allocator does not know is dropped, if `grant` brings anything in its
    /// place. The grant must also bring enough for what callers have set aside: that stands for as many of the new permits.
    /// The old lease is over before the new one is installed. So the clock for [`Refill::believe`] is to be read after this: a
    /// caller that still goes by the old deadline has read it before.
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

    /// The answer brought nothing of use: what is left is used up. What it lent comes back with the next ask, which does not
    /// claim it.
    pub(super) fn goes_without(&mut self, slot: &impl Permits, grant: &Grant, now: Moment, random: u64) {
        self.unrecognised = Some(Unrecognised { refused: slot.refused(), is_answered: true });
        self.awaits_no_answer();
        let least = if grant.permits > 0 { GUARD } else { Duration::ZERO };
        self.not_before = now + jittered(grant.ask_after.max(least), random);
        self.is_known = true;
    }

    /// The ask that was written last got no answer: it may be written again as soon.
    pub(super) fn asks_ahead_again(&mut self) {
        if let Some(unrecognised) = &mut self.unrecognised {
            unrecognised.is_answered = false;
        }
    }
}
