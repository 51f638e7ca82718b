//! What there is at one instant: in the hands of nodes and in the pools. The world asks it after each step that could have
//! changed that; it changes nothing.

use super::World;
use crate::oracle::Stock;
use crate::oracles::Stocks;

impl World {
    /// What all can still spend of each limit.
    pub(super) fn in_hand(&mut self) -> Vec<u64> {
        let mut in_hand = vec![0; self.setup.lenders()];
        for desk in 0..self.desks.len() {
            in_hand[self.setup.lender(desk)] += self.held(desk);
        }
        for (index, (adversary, _)) in self.adversaries.iter().enumerate() {
            in_hand[self.setup.lender(self.adversary_desk(index))] += adversary.in_hand(self.real);
        }
        in_hand
    }

    /// How the pools look, and what all can still spend.
    pub(super) fn stocks(&mut self) -> Stocks {
        let (at, in_hand) = (self.now().allocator, self.in_hand());
        let own = in_hand.iter().enumerate();
        if !self.regions.is_empty() {
            let own = own
                .map(|(region, &in_hand)| self.regions[region].stock(&self.limits, self.real, in_hand))
                .collect();
            let in_hand = in_hand.iter().sum();
            let above = match self.shared.is_some() {
                true => self.stock_of_roots(in_hand),
                false => Some(Stock { view: self.view(0, at), in_hand, at }),
            };
            return Stocks { own, above, is_trusted: self.is_trusted() };
        }
        let above = if in_hand.len() > 1 { self.view_above(at) } else { None };
        let above = above.map(|view| Stock { view, in_hand: in_hand.iter().sum(), at });
        let own = own.map(|(limit, &in_hand)| Stock { view: self.view(limit, at), in_hand, at }).collect();
        Stocks { own, above, is_trusted: true }
    }
}
