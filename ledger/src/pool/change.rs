//! Changes and top-ups of a pool's limit, real or tried on a copy, while leases are out. Limits call this. It takes no
//! lease back: outstanding permits stay charged to every rule of the new plan until they end.

use super::groups::Groups;
use super::rare::Rare;
use super::{Plan, Pool};
use crate::CarryOver;
use lessor_protocol::{Moment, PERMITS_MAX};
use std::sync::Arc;

impl Pool {
    /// Creates the pool of a limit that had other rules until `changed`, whose books `plan` cannot carry on. It waits
    /// like a pool of [`Pool::after_loss`]. If it counts calls in flight, it also waits until `calls_end`, when calls
    /// that began under the other rules have ended.
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

    /// Switches to `plan` at `now`. Each rule takes over the balance of an old rule of its kind and period, as
    /// `carry_over` says, see [`crate::carry_over::carried`]. A rule that finds none is new, and all outstanding permits
    /// are charged to it.
    ///
    /// A window that overlaps the change, or begins before the leases that were out then have ended, may hold up to the
    /// larger of both limits. Every later window holds the new limit. A rule that is new or reset covers only windows
    /// that begin at the change or later: it knows nothing of what was spent before.
    pub fn change(&mut self, plan: Arc<Plan>, carry_over: CarryOver, now: Moment) {
        self.advance(now);
        let until = self.sessions.last_expiry().unwrap_or(self.now);
        self.ledgers.change(
            (&self.plan.rules, &plan.rules),
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
        self.groups = Groups::of(&plan, &self.ledgers, self.now);
        let before = std::mem::replace(&mut self.plan, plan);
        self.sessions.go_by(self.ages_now());
        self.checkpoints.forget();
        self.count_safe_shares_by_others(&before);
        (self.pacer, self.excess_demand) = (Rare::default(), Rare::default());
        self.foresee_nothing();
        self.end_waits();
        self.audit();
    }

    /// Lowers the balance of this new pool to that of `unused`, a pool of the same limit that went through its changes
    /// and lent nothing.
    pub fn begin_as(&mut self, unused: &mut Pool, now: Moment) {
        unused.advance(now);
        self.advance(now);
        self.ledgers.begin_as(&unused.ledgers);
        self.quarantine_until = self.quarantine_until.max(unused.quarantine_until);
        self.audit();
    }

    /// Allows `permits` more to be lent once, beyond what the rules say. In a window they last for as long as a spend
    /// made now counts, in a bucket until they are spent. In a steady flow they fill its bucket, as far as there is room.
    ///
    /// Returns `false` and adds nothing in quarantine, if a grant opens windows: the top-up may be meant for a window
    /// that these books do not know, rather than for the next one.
    pub fn top_up(&mut self, permits: u64, now: Moment) -> bool {
        self.advance(now);
        if self.now < self.quarantine_until && self.plan.opens_windows() {
            return false;
        }
        self.ledgers.top_up(permits);
        if let Some(flow) = &mut self.flow {
            flow.top_up(permits);
        }
        self.foresee_nothing();
        self.end_waits();
        self.audit();
        true
    }

    /// Returns the most permits that a top-up at `now` may have: no rule can hold more than [`PERMITS_MAX`].
    pub fn top_up_max(&mut self, now: Moment) -> u64 {
        self.advance(now);
        PERMITS_MAX.saturating_sub(self.ledgers.most())
    }
}

#[cfg(test)]
mod tests;
