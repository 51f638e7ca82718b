//! When a pool may be silent: asks that can wait, and pools with nothing left to report. Like the rest of a refill, it
//! reads no clock.

use super::{LATE_ANSWER_MAX, Phase, Refill, Seen, low_water_span};
use crate::permits::{Pacer, Permits};
use crate::timing::EXCHANGE_TIMEOUT;
use lessor_protocol::Moment;
use std::time::Duration;

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
    /// Whether there is nothing to hold or to report.
    pub fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::New { .. } | Phase::Idle)
    }

    /// Whether this pool can be forgotten altogether. An unanswered ask may have been granted permits: a node that
    /// forgets them, and counts from zero before their lease is over, would not be believed. And a call in flight that
    /// the allocator has forgotten would be taken for a later one when it ends.
    pub fn is_forgettable(&self, now: Moment) -> bool {
        let goes_on = self.calls.are_forgotten();
        let is_over = self.asked.is_none_or(|ask| ask.is_answered || now.since(ask.at) >= LATE_ANSWER_MAX);
        self.is_idle() && !goes_on && is_over
    }

    /// Records that the allocator cannot lend from this pool. If nothing is held and nothing is left to report, the
    /// pool is silent until a caller tries again.
    pub fn refused_for_good(&mut self, slot: &impl Permits, now: Moment, retry_after: Duration, random: u64) {
        self.refused(now, retry_after, random);
        self.awaits_no_answer();
        let holds = slot.balance().total() + self.reserved.permits() > 0 || self.rate.is_held();
        let reported = self.asked.map_or(0, |ask| ask.spent_total) + self.forgotten;
        let has_reported = !self.is_known || self.spent(slot) <= reported;
        if !holds && has_reported && self.calls.is_empty() {
            self.phase = Phase::Idle;
        }
    }

    /// Records that no answer to the last ask is expected any more.
    pub(super) fn awaits_no_answer(&mut self) {
        if let Some(asked) = &mut self.asked {
            asked.is_answered = true;
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
