//! Why a call gets no permits of a pool, and when it may. It spends nothing.

use super::{CLOCK, Condition, HotState, LocalPool};
use crate::refusal::Refusal;
use crate::slot::SLOT_MAX;
use crate::stripe_hint::stripe_hint;
use crate::tally::Reason;
use lessor_holder::timing::{EXCHANGE_TIMEOUT, LOOK_AGAIN};
use lessor_protocol::Moment;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl LocalPool {
    /// Refuses a call on the pool with this `hot_state`. Not marked cold: with a quota worth leasing, a refusal is as
    /// common as an admission and has to be as cheap.
    #[inline(always)]
    pub(super) fn refuse_quickly(
        &self,
        hot_state: &HotState,
        permits: u64,
        now: Moment,
    ) -> Result<(), Refusal> {
        let is_good = self.hot.condition.load(Ordering::Relaxed) == Condition::Good as u8;
        let passes = self.hot.passes.load(Ordering::Relaxed);
        if !is_good || passes || permits > self.hot.ceiling.load(Ordering::Relaxed).min(SLOT_MAX) {
            return self.refuse_slowly(permits, now);
        }
        let retry_after = self.chance_in(now);
        self.nudge();
        // Last, because a read after it would wait for its write.
        hot_state.slot.refuse_unstriped(permits);
        Err(Refusal::Empty { retry_after })
    }

    #[inline(never)]
    pub(super) fn refuse_slowly(&self, permits: u64, now: Moment) -> Result<(), Refusal> {
        if self.try_pass(permits, false) {
            return Ok(());
        }
        Err(self.refuse_at(permits, now))
    }

    /// Returns why `permits` cannot be had, and counts the attempt. It is called once for each call that fails.
    pub(crate) fn refuse(&self, permits: u64) -> Refusal {
        self.refuse_at(permits, CLOCK.now())
    }

    #[inline]
    pub(super) fn refuse_at(&self, permits: u64, now: Moment) -> Refusal {
        if let Some(refusal) = self.refuse_for_good(permits) {
            return refusal;
        }
        let refusal = self.not_now_at(permits, now);
        // Counted before the slot's total, from which refusals with these reasons are subtracted.
        match refusal {
            Refusal::Paused { .. } => self.tally().refuse(Reason::Paused, permits),
            Refusal::Unreachable { .. } => self.tally().refuse(Reason::Unreachable, permits),
            Refusal::Quarantine { .. } => self.tally().refuse(Reason::Quarantine, permits),
            Refusal::Empty { .. }
            | Refusal::TooLarge { .. }
            | Refusal::UnknownLimit
            | Refusal::BadKey
            | Refusal::Full { .. }
            | Refusal::Closed => {}
        }
        self.slot().refuse(stripe_hint(), permits);
        self.nudge();
        refusal
    }

    /// Refuses and counts a call that waiting will not help.
    #[inline]
    pub(crate) fn refuse_for_good(&self, permits: u64) -> Option<Refusal> {
        let refusal = self.for_good(permits)?;
        self.doubt(refusal);
        match refusal {
            Refusal::TooLarge { .. } => self.tally().refuse(Reason::TooLarge, permits),
            Refusal::UnknownLimit | Refusal::BadKey | Refusal::Full { .. } => {
                self.tally().refuse(Reason::Unknown, permits);
            }
            // A closed client counts nothing.
            Refusal::Closed
            | Refusal::Empty { .. }
            | Refusal::Paused { .. }
            | Refusal::Quarantine { .. }
            | Refusal::Unreachable { .. } => {}
        }
        Some(refusal)
    }

    /// Refuses and counts a call that has waited in vain for an answer of the allocator.
    pub(crate) fn refuse_unanswered(&self, permits: u64) -> Refusal {
        if let Some(refusal) = self.refuse_for_good(permits) {
            return refusal;
        }
        self.tally().refuse(Reason::Unreachable, permits);
        self.slot().refuse(stripe_hint(), permits);
        self.nudge();
        Refusal::Unreachable { retry_after: self.chance_in(CLOCK.now()) }
    }

    /// Refuses a call that cannot even wait. It is not counted as demand.
    pub(crate) fn turn_away(&self, permits: u64) -> Refusal {
        self.tally().refuse(Reason::Empty, permits);
        self.not_now(permits)
    }

    /// Has the allocator asked whether `refusal` still holds, if that may have changed: the limit may have been raised.
    /// The call is no demand: permits lent to a node cannot serve calls that are too large for it.
    fn doubt(&self, refusal: Refusal) {
        let is_doubtful = match refusal {
            Refusal::TooLarge { .. } => true,
            // Not before the chance: a refused key may get many calls.
            Refusal::UnknownLimit | Refusal::Full { .. } => {
                self.cold.wanted.store(true, Ordering::Relaxed);
                self.hot.chance.load(Ordering::Relaxed) <= CLOCK.now().as_nanos()
            }
            Refusal::Empty { .. }
            | Refusal::Paused { .. }
            | Refusal::Quarantine { .. }
            | Refusal::Unreachable { .. }
            | Refusal::BadKey
            | Refusal::Closed => false,
        };
        if is_doubtful {
            self.cold.doubted.store(true, Ordering::Relaxed);
            self.nudge();
        }
    }

    /// Whether a call was refused as too large, unknown or full since the background task last asked.
    pub(crate) fn takes_doubt(&self) -> bool {
        self.cold.doubted.load(Ordering::Relaxed) && self.cold.doubted.swap(false, Ordering::Relaxed)
    }

    /// Whether a call was refused because the allocator lends nothing of the pool, since the background task last
    /// asked.
    pub(crate) fn takes_wanted(&self) -> bool {
        self.cold.wanted.swap(false, Ordering::Relaxed)
    }

    /// Returns the refusal that waiting will not change, if there is one.
    #[inline]
    pub(crate) fn for_good(&self, permits: u64) -> Option<Refusal> {
        let ceiling = self.hot.ceiling.load(Ordering::Relaxed).min(SLOT_MAX);
        match self.condition() {
            Condition::Closed => Some(Refusal::Closed),
            Condition::Unknown => Some(Refusal::UnknownLimit),
            Condition::BadKey => Some(Refusal::BadKey),
            Condition::Full => Some(Refusal::Full { retry_after: LOOK_AGAIN }),
            _ if permits > ceiling => Some(Refusal::TooLarge { limit: ceiling }),
            Condition::Good | Condition::Unreachable | Condition::Paused | Condition::Quarantine => None,
        }
    }

    /// Returns the refusal of `permits` at `now` if this process knows that the allocator would lend none; `None`
    /// if only another answer can tell. A pause that only an event told of may be over, and no event tells of its
    /// end if the end was set beforehand. An idle pool does not hear of the end of a pause or a quarantine. A wait
    /// for permits counts as a refusal only if it exceeds [`EXCHANGE_TIMEOUT`], or if the pool reported fewer than
    /// `permits` left. Otherwise an allocator that leases the limit itself may not know yet, and may lend what is
    /// left in parts.
    pub(crate) fn known_refusal(&self, permits: u64, now: Moment) -> Option<Refusal> {
        if let Some(refusal) = self.for_good(permits) {
            return Some(refusal);
        }
        let wait = self.hot.chance.load(Ordering::Relaxed).saturating_sub(now.as_nanos());
        let refusal = self.not_now_at(permits, now);
        let is_only_heard = matches!(refusal, Refusal::Paused { .. }) && !self.standby().is_told_to_stop();
        let may_be_over = wait == 0 && matches!(refusal, Refusal::Paused { .. } | Refusal::Quarantine { .. });
        if is_only_heard || may_be_over {
            return None;
        }
        if matches!(refusal, Refusal::Empty { .. }) && self.early_by(permits, now).is_none() {
            let there = self.reported_left().map(|left| left.saturating_add(self.there_at(now)));
            let is_short = there.is_some_and(|there| there < permits);
            let is_far = Duration::from_nanos(wait) > EXCHANGE_TIMEOUT;
            return (is_far || (wait > 0 && is_short))
                .then(|| Refusal::Empty { retry_after: self.chance_in(now) });
        }
        Some(refusal)
    }

    /// Whether a wait of `patience` cannot succeed, as far as this process knows. It does not know when its own calls
    /// end.
    pub(crate) fn in_vain(&self, permits: u64, patience: Duration) -> bool {
        let now = CLOCK.now();
        let refusal = self.not_now_at(permits, now);
        let is_told = refusal.retry_after().is_some_and(|wait| wait > patience);
        let is_empty = matches!(refusal, Refusal::Empty { .. }) && self.early_by(permits, now).is_none();
        let may_end = || self.there_at(now).saturating_add(self.in_flight()) >= permits;
        self.for_good(permits).is_some() || (is_told && !(is_empty && may_end()))
    }

    /// Returns the refusal of this moment.
    pub(crate) fn not_now(&self, permits: u64) -> Refusal {
        self.not_now_at(permits, CLOCK.now())
    }

    #[inline]
    pub(super) fn not_now_at(&self, permits: u64, now: Moment) -> Refusal {
        if let Some(retry_after) = self.early_by(permits, now) {
            return Refusal::Empty { retry_after };
        }
        let condition = self.condition();
        let retry_after = self.chance_in(now);
        let is_over = now >= self.slot().deadline();
        match condition {
            Condition::Paused => Refusal::Paused { retry_after },
            Condition::Unreachable if is_over => Refusal::Unreachable { retry_after },
            Condition::Quarantine if is_over => Refusal::Quarantine { retry_after },
            Condition::Good
            | Condition::Unreachable
            | Condition::Quarantine
            | Condition::Unknown
            | Condition::Closed
            | Condition::BadKey
            | Condition::Full => Refusal::Empty { retry_after },
        }
    }

    /// Time until the pool may have a permit for this process, at least a round trip.
    #[inline(always)]
    fn chance_in(&self, now: Moment) -> Duration {
        let chance = self.hot.chance.load(Ordering::Relaxed).saturating_sub(now.as_nanos());
        let rtt = u64::from(self.hot.rtt_us.load(Ordering::Relaxed)) * 1_000;
        Duration::from_nanos(chance.max(rtt))
    }
}
