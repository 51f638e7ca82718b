//! A rival in place of the shipping pool and refill: it asks, answers and installs by its own rule, over the same
//! network and clocks, into the shipping slot. The world calls this wherever the two differ; without a rival nothing
//! happens. Nodes of a rival ask one limit each.

use super::World;
use super::event::{DeskAsk, Message};
use crate::SECOND;
use crate::oracle::Verdict;
use crate::policy::Policy;
use crate::rival::Rival;
use lessor_protocol::{Answer, Ask, Grant, Moment};
use std::time::Duration;

impl World {
    /// Returns the rival that runs `policy`; `None` for Lessor.
    pub(super) fn rival(&mut self, policy: Policy) -> Option<Rival> {
        if policy == Policy::Lessor {
            return None;
        }
        // Processes start at any time, so their ticks are spread over the second.
        let firsts: Vec<Moment> = self.nodes.iter().map(|node| node.now(self.rng.u64(..SECOND))).collect();
        Some(Rival::new(policy, &self.setup.plan, self.now().allocator, &firsts))
    }

    /// Returns the permits that `desk` can still spend.
    pub(super) fn held(&mut self, desk: usize) -> u64 {
        let now = self.now().allocator;
        match &mut self.rival {
            Some(rival) if rival.is_split() => rival.in_share(desk, now),
            Some(_) | None => self.desks[desk].in_hand(&self.nodes[self.setup.home(desk)], self.real),
        }
    }

    /// Returns the permits that can be lent to `desk`.
    pub(super) fn in_pool(&mut self, desk: usize) -> u64 {
        let now = self.now().allocator;
        match &mut self.rival {
            Some(rival) => rival.available(now),
            None => self.view(self.setup.limit(desk), now).available,
        }
    }

    /// Spends `permits` at `desk` if they are there. Returns the free permits left; of a share, always enough.
    pub(super) fn spend(&mut self, desk: usize, permits: u64) -> Option<u64> {
        let now = self.now().allocator;
        match &mut self.rival {
            // A node knows when windows begin, as its clock is as good as the allocator's.
            Some(rival) if rival.is_split() => rival.take(desk, permits, now).then_some(u64::MAX),
            Some(_) | None => self.desks[desk].spend(&self.nodes[self.setup.home(desk)], self.real, permits),
        }
    }

    /// Records a refused caller. The first one refused while a rival's pool is empty marks the pool as empty. That is
    /// later than the first ask that gets nothing, because rivals ask while they still hold permits.
    pub(super) fn refused_by_rival(&mut self) {
        if self.rival.is_some() && !self.meter.has_been_empty() && self.in_pool(0) == 0 {
            let in_hand = self.in_hand().iter().sum();
            self.found_empty(0, in_hand);
        }
    }

    /// Asks if it is time, or sleeps until it is.
    pub(super) fn look_as_rival(&mut self, node: usize) {
        let (home, at) = (&self.nodes[node], &mut self.desks[node]);
        at.nudged = false;
        let Some(rival) = self.rival.as_mut().filter(|rival| !rival.is_split() && home.exchange.is_none())
        else {
            return;
        };
        let (now, free, waiting) = (home.now(self.real), at.in_hand(home, self.real), at.seen().waiting);
        let quiet_until = home.connection.quiet_until();
        if now < quiet_until {
            return self.sleep(node, quiet_until);
        }
        match rival.ask(node, free, waiting, now) {
            Some(want) => {
                let ask = Ask { held: free, want, waiting, ..Ask::default() };
                self.send_new(node, now, vec![DeskAsk { desk: node, ask, observed: None }]);
            }
            None => {
                let next = rival.wakes(node, now);
                self.sleep(node, next);
            }
        }
    }

    /// Returns the answer of the rival's centre.
    pub(super) fn lend_as_rival(&mut self, message: &Message) -> Answer {
        let (now, want) = (self.now().allocator, message.asks[0].ask.want);
        let lent = self.rival.as_mut().expect("there is one").lend(want, now);
        self.log.note(
            self.real,
            "the centre gives node # # of #",
            &[message.node as u64, lent.permits, want],
        );
        self.sent(message, message.asks[0].desk, lent.permits);
        Answer::Grant(Grant {
            kept: message.asks[0].ask.held,
            permits: lent.permits,
            term: lent.term,
            horizon: lent.term,
            ceiling: self.limits.ceiling(&self.centre.rules),
            ask_after: Duration::ZERO,
            retry_after: None,
            rate: lessor_protocol::Rate::Free,
            in_flight: None,
        })
    }

    /// Puts a grant into the slot.
    pub(super) fn install_as_rival(&mut self, node: usize, grant: &Grant, first_sent: Moment) -> Verdict {
        let (home, at) = (&self.nodes[node], &mut self.desks[node]);
        let now = home.now(self.real);
        if now >= at.slot.deadline() {
            at.slot.shed(0);
        }
        at.slot.install(grant.permits, 0, self.setup.plan.clocks.holder_end(first_sent, grant.term));
        let free = at.in_hand(home, self.real);
        let rival = self.rival.as_mut().expect("there is one");
        rival.granted(node, grant.permits, free, now);
        at.low_water = rival.low_water(node);
        self.log.note(self.real, "node # holds #", &[node as u64, free]);
        self.serve_line(node)
    }
}
