//! What operators do to the limit, as an allocator would carry it out: books and gate change at once, and nodes learn of
//! it when they ask.

use super::World;
use super::event::Phase;
use crate::live::Act;
use crate::oracle::Verdict;
use lessor_ledger::overrides::Suspension;
use lessor_ledger::pool::{Fixtures, Plan};
use lessor_protocol::{Moment, NodeName, Refusal};
use std::sync::Arc;
use std::time::Duration;

impl World {
    /// The operator does the `index`-th thing.
    pub(super) fn operate(&mut self, index: usize) -> Verdict {
        if let Act::Outside(permits) = self.setup.live[index].act {
            self.spends_outside(permits);
            return Ok(());
        }
        if !self.centre.up || self.phase != Phase::Trouble {
            return Ok(());
        }
        let act = self.setup.live[index].act.clone();
        if self.shared.is_some() {
            return self.operate_at_store(&act);
        }
        self.log.note(self.real, "! an operator acts (#)", &[index as u64]);
        let now = self.centre.clock.show(self.real);
        // Of one that is gone nothing is known, until it is put again.
        if self.centre.is_removed && !matches!(act, Act::Change(..)) {
            return Ok(());
        }
        match act {
            Act::Remove => (self.centre.gate, self.centre.is_removed) = (Suspension::default(), true),
            Act::Change(carry, rules) => {
                self.centre.is_removed = false;
                let begins_anew = !Fixtures::of(&self.centre.plan.rules).go_on_as(&Fixtures::of(&rules));
                let before = self.centre.plan.clone();
                let plan = Arc::new(Plan { rules, ..(*self.centre.plan).clone() });
                self.centre.plan = plan.clone();
                let view = self.centre.pool.view(0, now);
                if begins_anew {
                    self.centre.past = self.centre.past.after([&*before].into_iter(), before.clocks, now);
                    self.new_pool(Moment::ORIGIN);
                } else if view.quarantine.is_zero() {
                    self.centre.pool.change(&plan, carry, now);
                } else {
                    // It has lent nothing yet, and waits as it would have at a start; by the new rules it refills from now on.
                    self.new_pool(now);
                }
                let since = if begins_anew { Moment::ORIGIN } else { now };
                let (now, stocks) = (self.now(), self.stocks());
                let rules = self.centre.plan.rules.clone();
                self.oracles.changed(now, &rules, carry, &stocks)?;
                if begins_anew || !view.quarantine.is_zero() {
                    self.books_are_to_begin(&self.all_new(), since);
                }
            }
            Act::TopUp(permits) => {
                self.centre.pool.top_up(permits, now);
                let (now, stocks) = (self.now(), self.stocks());
                self.oracles.topped_up(now, permits, &stocks)?;
            }
            Act::Pause(nanos) => self.centre.gate.pause(now + Duration::from_nanos(nanos)),
            Act::Resume => {
                self.centre.gate.resume(now);
            }
            Act::Block(node) => assert!(self.centre.gate.block(name(node)), "there are few nodes"),
            Act::Unblock(node) => {
                self.centre.gate.unblock(&name(node));
            }
            // The allocator has no part in it.
            Act::Outside(_) => {}
        }
        let now = self.centre.clock.show(self.real);
        self.oracles.shut(self.centre.gate.paused_until(now).unwrap_or(Moment::ORIGIN));
        self.decided();
        Ok(())
    }

    /// What `node` is told instead of a grant.
    pub(super) fn refusal(&self, node: usize) -> Option<Refusal> {
        self.centre.gate.refusal(self.centre.clock.show(self.real), &name(node))
    }
}

/// What `node` is called.
pub(super) fn name(node: usize) -> NodeName {
    NodeName::try_new(&format!("node-{node}")).expect("a name")
}
