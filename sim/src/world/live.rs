//! What operators do to the limit over the API of the allocator: books and suspensions change at once, and nodes learn
//! of it when they ask.

use super::World;
use super::event::Phase;
use crate::live::Act;
use crate::oracle::Verdict;
use lessor_ledger::overrides::Decision;
use lessor_ledger::pool::FixedParts;
use lessor_ledger::registry::Put;
use lessor_ledger::share::Sharing;
use lessor_ledger::{CarryOver, Rule};
use lessor_protocol::Moment;
use std::time::Duration;

/// The limit to which acts of operators apply.
const OPERATED: usize = 0;

impl World {
    /// Performs the `index`-th act.
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
        // Only a put changes a limit that was removed.
        if self.centre.is_removed && !matches!(act, Act::Change(..) | Act::Put(_)) {
            return Ok(());
        }
        match act {
            Act::Remove => {
                self.centre.registry.remove(self.limits.pool(OPERATED).0);
                (self.centre.is_removed, self.centre.paused) = (true, None);
            }
            Act::Change(carry, rules) => self.change(rules, carry)?,
            Act::Put(rules) => self.change(rules, CarryOver::AsIs)?,
            Act::Safe(safe) => self.share_otherwise(|sharing| sharing.safe = safe),
            Act::Reserve(permits) => self.share_otherwise(|sharing| sharing.reserve = permits),
            Act::TopUp(permits) => self.top_up(permits)?,
            Act::Pause(nanos) => self.decide_here(&Decision::Pause(Some(Duration::from_nanos(nanos)))),
            Act::Resume => self.decide_here(&Decision::Resume),
            Act::Block(node) => self.decide_here(&Decision::Block(self.setup.name(node))),
            Act::Unblock(node) => self.decide_here(&Decision::Unblock(self.setup.name(node))),
            // The allocator has no part in that.
            Act::Outside(_) => {}
        }
        self.oracles.shut(self.centre.paused.unwrap_or(Moment::ORIGIN));
        self.write_down();
        Ok(())
    }

    /// Changes how the limits that nodes ask are shared, in the file too.
    fn share_otherwise(&mut self, change: impl FnOnce(&mut Sharing)) {
        let now = self.centre.clock.show(self.real);
        self.limits.share_otherwise(change);
        let configs = self.limits.configs(&self.centre.rules);
        for config in &configs {
            self.centre.registry.put(now, config, CarryOver::AsIs, false).expect("there are few limits");
        }
        self.centre.registry.file_says(&configs);
    }

    fn decide_here(&mut self, decision: &Decision) {
        let now = self.centre.clock.show(self.real);
        let decided = self.centre.registry.decide(now, self.limits.pool(OPERATED).0, decision);
        decided.expect("there is this limit").expect("there are few nodes");
        match decision {
            Decision::Pause(span) => self.centre.paused = Some(span.map_or(Moment::NEVER, |span| now + span)),
            Decision::Resume => self.centre.paused = None,
            Decision::Block(_) | Decision::Unblock(_) => {}
        }
    }

    /// Lets the limit and those above it go on by `rules`, in the file too.
    fn change(&mut self, rules: Vec<Rule>, carry: CarryOver) -> Verdict {
        let now = self.centre.clock.show(self.real);
        let (before, after) = (self.limits.configs(&self.centre.rules), self.limits.configs(&rules));
        let count = self.limits.count();
        let (mut reset, mut waits) = (vec![false; count], vec![false; count]);
        let (mut is_put, mut is_created) = (false, false);
        for (place, (before, after)) in before.iter().zip(&after).enumerate() {
            let is_gone = place == OPERATED && self.centre.is_removed;
            // A reset is put even if nothing else changed, so that the limit forgets its charges, as the oracle does.
            if before == after && !is_gone && carry != CarryOver::Reset {
                continue;
            }
            let is_shut = !self.view_of(place, now).quarantine.is_zero();
            let put = self.centre.registry.put(now, after, carry, false).expect("there are few limits");
            let goes_on = FixedParts::of(&before.rules) == FixedParts::of(&after.rules);
            reset[place] = put == Put::Created || !goes_on;
            (is_put, is_created) = (true, is_created || put == Put::Created);
            // A limit in quarantine has lent nothing yet, and waits on as after a start. By the new rules it refills
            // from now on.
            waits[place] = is_shut && !reset[place];
        }
        self.centre.registry.file_says(&after);
        (self.centre.is_removed, self.centre.rules) = (false, rules.clone());
        if !is_put {
            // The limit is as it was, with its top-ups.
            return Ok(());
        }
        let others: Vec<bool> = reset.iter().zip(&waits).map(|(reset, waits)| *reset || *waits).collect();
        self.are_lost(&others);
        let (now, stocks) = (self.now(), self.stocks());
        // A limit that was forgotten begins anew, whatever `carry` says.
        let carry = if is_created { CarryOver::Reset } else { carry };
        self.oracles.changed(now, &rules, carry, &stocks)?;
        self.books_begin(&reset, Moment::ORIGIN);
        self.books_begin(&waits, now.allocator);
        Ok(())
    }

    /// Tops up all limits by `permits`.
    fn top_up(&mut self, permits: u64) -> Verdict {
        let now = self.centre.clock.show(self.real);
        for place in 0..self.limits.count() {
            let (name, id) = self.limits.pool(place);
            let limit = self.centre.registry.limit(name).expect("it was not removed");
            let topped_up = limit.top_up(now, id.clone(), permits, None);
            // A limit in quarantine may refuse it.
            let is_shut = limit.view(now, id).is_some_and(|view| !view.quarantine.is_zero());
            assert!(topped_up.is_ok() || is_shut, "{topped_up:?}");
            self.centre.registry.note_decision(name);
        }
        let (now, stocks) = (self.now(), self.stocks());
        self.oracles.topped_up(now, permits, &stocks)
    }

    /// Undoes all that keeps nodes from what they are owed.
    pub(super) fn lift_here(&mut self) -> Verdict {
        if self.shared.is_some() {
            return Ok(());
        }
        if self.centre.is_removed {
            self.change(self.centre.rules.clone(), CarryOver::AsIs)?;
        }
        self.decide_here(&Decision::Resume);
        for node in 0..self.nodes.len() {
            self.decide_here(&Decision::Unblock(self.setup.name(node)));
        }
        self.oracles.shut(Moment::ORIGIN);
        self.write_down();
        Ok(())
    }
}
