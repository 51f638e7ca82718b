//! The pools of the allocator as the oracles see them: their views, when they are made and forgotten, and when their
//! books begin.

use super::World;
use crate::oracle::{Stock, Verdict, hold_after};
use crate::oracles::IsNew;
use lessor_ledger::pool::{Books, Past, PoolView};
use lessor_protocol::Moment;

impl World {
    /// Returns the pool at `place`, or as it would be if it was made now. A limit that does not exist can lend nothing.
    pub(super) fn view_of(&mut self, place: usize, now: Moment) -> PoolView {
        let (name, id) = self.limits.pool(place);
        let limit = self.centre.registry.limit_or_retired(name);
        limit.map_or_else(PoolView::default, |limit| limit.view_or_new(now, id))
    }

    /// Returns the books of `limit`, and what it can lend together with those above it.
    pub(super) fn view(&mut self, limit: usize, now: Moment) -> PoolView {
        let own = self.view_of(limit, now);
        self.limits.above().fold(own, |least, place| Stock::least(least, self.view_of(place, now)))
    }

    /// Returns the pool above all that nodes ask.
    pub(super) fn view_above(&mut self, now: Moment) -> Option<PoolView> {
        self.limits.above().next().map(|place| self.view_of(place, now))
    }

    /// K1, K4 of the pools above those that nodes ask: their books balance, and no count falls.
    pub(super) fn books_above_hold(&mut self) -> Verdict {
        let now = self.now().allocator;
        self.limits.above().try_for_each(|place| {
            let (books, before) = (self.view_of(place, now).books, self.books_above[place]);
            hold_after(books, before)?;
            self.books_above[place] = books;
            Ok(())
        })
    }

    /// Returns which pools exist, by place.
    pub(super) fn made(&mut self) -> Vec<bool> {
        let made = |place| {
            let (name, id) = self.limits.pool(place);
            self.centre.registry.limit_or_retired(name).is_some_and(|limit| limit.has(id))
        };
        (0..self.limits.count()).map(made).collect()
    }

    /// Records that the marked pools were made now.
    pub(super) fn are_made(&mut self, made: &[bool]) {
        self.books_begin(made, Moment::ORIGIN);
    }

    /// Records that the marked pools were forgotten or replaced.
    pub(super) fn are_lost(&mut self, lost: &[bool]) {
        self.forgotten.iter_mut().zip(lost).for_each(|(forgotten, lost)| *forgotten &= !lost);
        let is_new = self.is_new(lost);
        for place in self.limits.above().filter(|place| lost[*place]) {
            self.books_above[place] = Books::default();
        }
        let (now, stocks) = (self.now(), self.stocks());
        for (limit, is_new) in is_new.own.iter().enumerate() {
            if is_new.first() == Some(&true) {
                self.oracles.of(limit).books_lost(now, stocks.own[limit].view);
            }
        }
        if self.setup.lends_on()
            && let (Some(is_new), Some(stock)) = (&is_new.above, stocks.above)
            && is_new[0]
        {
            self.oracles.root().books_lost(now, stock.view);
        }
    }

    /// Records that the books of the marked pools begin once all leases of earlier pools are over. Where rules hold
    /// `since` a moment, no books begin before it.
    pub(super) fn books_begin(&mut self, begin: &[bool], since: Moment) {
        for place in (0..begin.len()).filter(|place| begin[*place]) {
            let only: Vec<bool> = (0..begin.len()).map(|other| other == place).collect();
            let (now, begins) = (self.now(), self.begins(place));
            let is_new = self.is_new(&only);
            self.oracles.books_begin(now, begins.max(since), &is_new);
        }
    }

    /// Returns when the pool at `place` begins, if it is made now.
    fn begins(&mut self, place: usize) -> Moment {
        let (now, (name, _)) = (self.now().allocator, self.limits.pool(place));
        match self.centre.registry.limit_or_retired(name).map(|limit| limit.past()) {
            None | Some(Past::None) => now,
            Some(Past::Lost(lost) | Past::Other { until: lost, .. }) => {
                lost + self.setup.plan.clocks.quarantine()
            }
        }
    }

    /// Marks all pools.
    pub(super) fn all(&self) -> Vec<bool> {
        vec![true; self.limits.count()]
    }

    /// Returns the rules whose books are new if the marked pools are.
    fn is_new(&self, places: &[bool]) -> IsNew {
        let (lowest, above) = places.split_at(self.limits.above().start);
        let own = self.centre.rules.len() - above.len();
        if self.setup.lends_on() {
            // All rules belong to the allocator above regions.
            let is_new = [&vec![lowest[0]; own], above].concat();
            return IsNew { own: vec![vec![]; self.setup.lenders()], above: Some(is_new) };
        }
        let own = lowest.iter().map(|&is_new| vec![is_new; own]);
        match self.setup.limits() {
            1 => IsNew { own: own.map(|own| [&own, above].concat()).collect(), above: None },
            _ => IsNew { own: own.collect(), above: Some(above.to_vec()) },
        }
    }
}
