//! Calls of nodes, and what their vendor sees of them: at each step what nodes could spend is held against what is known to be out.

use super::*;

impl World {
    /// What nodes can spend the centre knows to be out, unless its books were lost; and the vendor would take that at once, and
    /// all that the centre would lend.
    pub(super) fn in_hand_is_known(&mut self) -> Result<(), String> {
        let live = |node: &&Node| shown(self.real, node.ppm) < node.slot.deadline();
        let in_hand: u64 = self.nodes.iter().filter(live).map(|node| node.slot.balance().total()).sum();
        let now = self.store_clock();
        let views = match &self.store {
            None => [Some(self.centre.view(now)), None],
            Some(_) => self.root_views(),
        };
        let is_set = self.store.as_ref().is_some_and(|store| store.set != 0);
        for (place, view) in views.into_iter().enumerate() {
            let (out, available) =
                view.map_or((u64::MAX, 0), |view| (view.books.outstanding, view.available));
            if self.left[place].as_ref().is_some_and(Left::is_exceeded) {
                return Err("the vendor saw too many calls in flight".to_owned());
            }
            if let Some(left) = self.left[place].as_mut().filter(|_| !is_set).map(|left| left.at(now))
                && in_hand + available > left
            {
                return Err(format!(
                    "nodes can spend {in_hand}, {available} would be lent, and {left} are left"
                ));
            }
            if in_hand > out && !self.centre_died && !self.begins_anew() {
                return Err(format!("nodes can spend {in_hand}, the centre knows of {out}"));
            }
        }
        Ok(())
    }

    pub(super) fn spend(&mut self, node: usize) -> bool {
        let allocator = self.store_clock();
        let lasts = self.longest().map(|longest| self.rng.u64(0..=longest));
        let at = &mut self.nodes[node];
        let (now, born) = (shown(self.real, at.ppm), at.born);
        let is_spent = match lasts {
            Some(_) => at.refill.enter(&at.slot, 1, now).is_ok(),
            None => at.slot.take(1, now).is_ok(),
        };
        if let Some(lasts) = lasts.filter(|_| is_spent) {
            self.after(lasts, Event::Ends(node, born));
        }
        let at = &mut self.nodes[node];
        match is_spent {
            true => {
                self.left.iter_mut().flatten().for_each(|left| left.spend(allocator));
                let allocator = allocator.as_nanos();
                self.spends.push(Spend { real: self.real, allocator, permits: 1 });
            }
            false => at.refused += 1,
        }
        is_spent
    }

    /// The longest that a call takes, where that counts.
    fn longest(&self) -> Option<u64> {
        self.rules().filter_map(Rule::longest).min().map(nanos)
    }

    /// A call has ended at the vendor, whatever became of the process that made it.
    pub(super) fn ends(&mut self, node: usize, born: SessionId) {
        self.left.iter_mut().flatten().for_each(Left::land);
        let at = &mut self.nodes[node];
        if at.born == born {
            at.refill.hand_back(&at.slot, 1, shown(self.real, at.ppm));
            self.look(Who::Node(node));
        }
    }

    /// Whether what was out may have been waited out, though nothing was lost: how many intervals passed is unknown.
    fn begins_anew(&self) -> bool {
        let at_intervals = |rule: &Rule| matches!(rule, Rule::TokenBucket(rule) if rule.refill_style() == RefillStyle::Interval);
        self.store.as_ref().is_some_and(|store| store.has_eras) && self.rules().any(at_intervals)
    }
}
