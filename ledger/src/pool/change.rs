//! A pool whose limit is changed, topped up or tried on while leases are out. Limits call it; it takes back no lease:
//! what is out stays charged, to every rule there is then, until it ends.

use super::groups::Groups;
use super::rare::Rare;
use super::{Plan, Pool};
use crate::CarryOver;
use lessor_protocol::{Moment, PERMITS_MAX};
use std::sync::Arc;

impl Pool {
    /// A pool of a limit that went by other rules until `changed`, from which those of `plan` cannot carry on: as
    /// [`Pool::after_loss`]. If it counts what is in flight, it waits until `calls_end` at least, when those calls have
    /// ended that the other rules let begin.
    pub fn after_others(
        plan: Arc<Plan>,
        changed: Moment,
        calls_end: Moment,
        since: Moment,
        now: Moment,
    ) -> Self {
        let mut pool = Pool::after_loss_by(plan, changed, since, now);
        if pool.longest.is_some() {
            pool.quarantine_until = pool.quarantine_until.max(calls_end);
        }
        pool
    }

    /// Goes on by `plan` from `now` on. Each rule takes over the balance of the first one of its kind and period, as
    /// `carry_over` says; one that finds none is new, with all that is out charged to it.
    ///
    /// A window that overlaps the change, or begins before the leases that were out then have ended, may hold up to the
    /// larger of both limits; every later one holds the new. A rule that is new, or reset, promises something of
    /// windows that begin at the change or later: it knows nothing of what was spent before.
    pub fn change(&mut self, plan: Arc<Plan>, carry_over: CarryOver, now: Moment) {
        self.advance(now);
        let until = self.sessions.last_expiry().unwrap_or(self.now);
        self.ledgers.change(
            &plan.rules,
            (plan.clocks, self.now),
            carry_over,
            (self.books.outstanding, until),
        );
        debug_assert!(
            plan.rules.iter().filter(|rule| rule.flow().is_some()).eq(self
                .plan
                .rules
                .iter()
                .filter(|rule| rule.flow().is_some())),
            "a limit begins anew where its flow changes"
        );
        debug_assert_eq!(self.longest, self.ledgers.longest(), "a limit begins anew where that changes");
        self.old_rules_until = self.old_rules_until.max(until);
        self.recount_ahead();
        self.term = self.borrower.as_ref().map_or(plan.term(), |borrower| borrower.lends_for(plan.term()));
        self.sessions.go_by(self.term, self.ledgers.are_reusable());
        self.groups = Groups::of(&plan, &self.ledgers, self.now);
        let before = std::mem::replace(&mut self.plan, plan);
        self.checkpoints.forget();
        self.count_safe_shares_by_others(&before);
        (self.pacer, self.wanting) = (Rare::default(), Rare::default());
        self.foresee_nothing();
        self.audit();
    }

    /// Begins with no more than `unused` has, a pool of the same limit that was there through its changes and lent nothing.
    pub fn begin_as(&mut self, unused: &mut Pool, now: Moment) {
        unused.advance(now);
        self.advance(now);
        self.ledgers.begin_as(&unused.ledgers);
        self.quarantine_until = self.quarantine_until.max(unused.quarantine_until);
        self.audit();
    }

    /// Lets `permits` more be lent, once, beyond what the rules say: in windows for as long as what is spent now counts
    /// in them, in buckets until they are spent. A steady flow fills its bucket, as far as there is room.
    pub fn top_up(&mut self, permits: u64, now: Moment) {
        self.advance(now);
        if self.now < self.quarantine_until && self.plan.opens_windows() {
            // It may be meant for a window that these books do not know of, and not for the next one.
            return;
        }
        self.ledgers.top_up(permits);
        if let Some(flow) = &mut self.flow {
            flow.top_up(permits);
        }
        self.foresee_nothing();
        self.audit();
    }

    /// The most permits that a top-up at `now` may have: more would be more than anything can hold.
    pub fn top_up_max(&mut self, now: Moment) -> u64 {
        self.advance(now);
        PERMITS_MAX.saturating_sub(self.ledgers.most())
    }
}

#[cfg(test)]
mod tests;
