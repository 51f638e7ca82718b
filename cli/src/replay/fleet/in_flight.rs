//! Calls in flight on the nodes of a fleet: a `refund` hands one back, and after the longest time of a call the node
//! counts it as ended. The shipping refill decides what becomes of the permits then.

use super::{Event, Fleet};
use crate::replay::answer::Answer;
use crate::replay::contract::PoolId;
use crate::replay::request::Request;
use lessor_ledger::Rule;
use lessor_protocol::Moment;
use std::time::Duration;

impl Fleet {
    /// Hands `permits` of the pool `id` back: on the node that `request` names or, if it names none, on the nodes that
    /// have had permits in use for longest.
    ///
    /// # Errors
    /// If the limit does not count calls in flight.
    pub(super) fn refund(
        &mut self,
        request: &Request,
        id: &PoolId,
        permits: u64,
        ticket: u64,
    ) -> Result<(), String> {
        if self.longest(id).is_none() {
            return Err(format!(
                "op is refund, but limit {:?} has no concurrency: with --nodes, spent permits of a rate cannot be refunded",
                id.0
            ));
        }
        let named = request.node.is_some().then(|| self.node(request));
        let now = self.now;
        let (mut left, mut asked) = (permits, named.unwrap_or(0));
        while left > 0
            && let Some(node) = named.or_else(|| self.oldest(id))
        {
            let landed = self.local(node, id).land(left, now);
            if landed == 0 {
                break;
            }
            (left, asked) = (left - landed, node);
            self.landed(node, id);
        }
        let remaining = self.local(asked, id).remaining(now);
        self.answers.push((request.clone(), ticket, Answer::yes(remaining)));
        Ok(())
    }

    /// Ends calls that began at `node` so long ago that they cannot be in flight any more.
    pub(super) fn over(&mut self, node: usize, id: &PoolId) {
        let Some(longest) = self.longest(id) else { return };
        let now = self.now;
        let local = self.local(node, id);
        while local.oldest().is_some_and(|since| since + longest <= now) {
            local.land(u64::MAX, now);
        }
        self.landed(node, id);
    }

    /// Records a call that was admitted at `node`. It ends after the longest time that one may take, unless a request
    /// hands it back.
    pub(super) fn schedule_end(&mut self, node: usize, id: &PoolId) {
        if let Some(longest) = self.longest(id) {
            let over = self.now + longest;
            self.queue.push(over, Event::Over { node, id: id.clone() });
        }
    }

    fn landed(&mut self, node: usize, id: &PoolId) {
        self.serve(node, id);
        self.look(node);
    }

    /// Returns the node that has had a permit of the pool `id` in use for longest.
    fn oldest(&self, id: &PoolId) -> Option<usize> {
        let oldest = |(node, at): (usize, &super::Host)| Some((at.pools.get(id)?.oldest()?, node));
        let since: Option<(Moment, usize)> = self.nodes.iter().enumerate().filter_map(oldest).min();
        since.map(|(_, node)| node)
    }

    /// Returns how long a call of the pool `id` may take, by its own rules or those of a limit above; `None` if there
    /// is no bound.
    fn longest(&self, id: &PoolId) -> Option<Duration> {
        self.rules(id).filter_map(Rule::longest).min()
    }
}
