//! The permits at one instant: in the hands of nodes and in the pools. The world asks for them after each step that
//! could have changed them. In a large fleet adding up all desks each time takes too long. There the oracles hear of
//! permits in hand at one step in many, and only of the pools that took part in a step.

use super::World;
use super::event::Message;
use crate::oracle::{Stock, Verdict};
use crate::oracles::Stocks;
use lessor_ledger::pool::PoolView;

/// Desks above which a fleet is large.
const FEW: usize = 256;
/// Mean number of desks looked at in each step of a large fleet.
const LOOKS: usize = 16;

impl World {
    /// Whether permits in hand are added up at this step.
    fn adds_up(&mut self) -> bool {
        self.steps_unseen += LOOKS;
        let adds_up = self.desks.len() <= FEW || self.steps_unseen >= self.desks.len();
        if adds_up {
            self.steps_unseen = 0;
        }
        adds_up
    }

    /// Tells the oracles what nodes could spend now.
    pub(super) fn exposed(&mut self) -> Verdict {
        if !self.adds_up() {
            return Ok(());
        }
        let in_hand = self.in_hand();
        self.oracles.exposed(self.now(), &in_hand)
    }

    /// Returns what all nodes and adversaries can still spend of each limit.
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

    /// Returns the pools, and what all nodes and adversaries can still spend.
    pub(super) fn stocks(&mut self) -> Stocks {
        let in_hand = self.in_hand();
        let at = self.now().allocator;
        let own = in_hand.iter().enumerate();
        if !self.regions.is_empty() {
            let own: Vec<Stock> = own
                .map(|(region, &in_hand)| self.regions[region].stock(&self.limits, self.real, in_hand))
                .collect();
            let in_hand = own.iter().map(Stock::spendable).sum();
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

    /// Returns the stocks after `message` was answered. In a large fleet these are the pools that it asks, and the pool
    /// above them.
    pub(super) fn stocks_after(&mut self, message: &Message) -> Stocks {
        if self.setup.lends_on() || self.adds_up() {
            return self.stocks();
        }
        let at = self.now().allocator;
        let unseen = Stock { view: PoolView::default(), in_hand: 0, at };
        let mut own = vec![unseen; self.setup.lenders()];
        for ask in &message.asks {
            let limit = self.setup.limit(ask.desk);
            own[limit].view = self.view(limit, at);
        }
        let above = self.view_above(at).map(|view| Stock { view, ..unseen });
        Stocks { own, above: above.filter(|_| self.setup.limits() > 1), is_trusted: true }
    }
}
