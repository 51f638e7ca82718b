//! What there is at one instant: in the hands of nodes and in the pools. The world asks it after each step that could have
//! changed that; it changes nothing.

use super::World;
use crate::oracle::Stock;
use crate::oracles::Stocks;

impl World {
    /// What all can still spend of each limit.
    pub(super) fn in_hand(&mut self) -> Vec<u64> {
        let mut in_hand = vec![0; self.setup.limits()];
        for node in 0..self.nodes.len() {
            in_hand[self.setup.limit(node)] += self.held(node);
        }
        for (index, (adversary, _)) in self.adversaries.iter().enumerate() {
            in_hand[self.setup.limit(self.nodes.len() + index)] += adversary.in_hand(self.real);
        }
        in_hand
    }

    /// How the pools look, and what all can still spend.
    pub(super) fn stocks(&mut self) -> Stocks {
        let (now, in_hand) = (self.now().allocator, self.in_hand());
        let pool = &mut self.centre.pool;
        let above = if in_hand.len() > 1 { pool.view_above(now) } else { None };
        let above = above.map(|view| Stock { view, in_hand: in_hand.iter().sum() });
        let own = in_hand.iter().enumerate();
        let own = own.map(|(limit, &in_hand)| Stock { view: pool.view(limit, now), in_hand }).collect();
        Stocks { own, above }
    }
}
