//! Which host something happens to, which desks are at it, and when it sees to that.

use super::World;
use super::event::Event;
use std::ops::Range;

impl World {
    /// The desks to which something happens in `event`.
    pub(super) fn touched(&self, event: &Event) -> Range<usize> {
        match (event.desk(), event.node()) {
            (Some(desk), _) => desk..desk + 1,
            (None, Some(node)) => self.desks_of(node),
            (None, None) => 0..0,
        }
    }

    /// The desks of `node`; none if that is no node.
    pub(super) fn desks_of(&self, node: usize) -> Range<usize> {
        let at = node * self.setup.pools;
        if node < self.nodes.len() { at..at + self.setup.pools } else { 0..0 }
    }

    /// The node that `desk` is at.
    pub(super) fn home(&self, desk: usize) -> usize {
        self.setup.home(desk)
    }

    /// Which process of its node `desk` belongs to.
    pub(super) fn life(&self, desk: usize) -> u64 {
        self.nodes[self.home(desk)].life
    }

    /// When a host that is paused will see to `event`.
    pub(super) fn held_up(&self, event: &Event) -> Option<u64> {
        let until = match event {
            Event::Wake { node, .. } | Event::TimeOut { node, .. } => self.nodes[*node].paused_until,
            Event::Due { desk, .. }
            | Event::GiveUp { desk, .. }
            | Event::HandBack { desk, .. }
            | Event::PutBack { desk, .. }
            | Event::Spree { desk, .. }
            | Event::Settle { desk, .. } => self.nodes[self.home(*desk)].paused_until,
            Event::Answer(reply) => self.nodes.get(reply.node).map_or(0, |node| node.paused_until),
            Event::Ask(message) if self.reaches_region(message) => 0,
            Event::Ask(_) | Event::Sweep => self.centre.paused_until,
            Event::Scheme(_)
            | Event::Land { .. }
            | Event::Traffic { .. }
            | Event::Strike(_)
            | Event::Operate(_)
            | Event::Start { .. }
            | Event::Thaw { .. }
            | Event::Unslew { .. }
            | Event::Lags
            | Event::RegionThaws { .. }
            | Event::Signs { .. }
            | Event::AtStore { .. }
            | Event::FromStore { .. }
            | Event::StoreSilent { .. }
            | Event::SetAgain
            | Event::PublishWakes { .. }
            | Event::PublishTimesOut { .. }
            | Event::Lift
            | Event::RegionWakes { .. }
            | Event::RegionTimesOut { .. }
            | Event::RegionStarts { .. }
            | Event::Reopen { .. }
            | Event::Copies { .. }
            | Event::Durable { .. }
            | Event::Next(_)
            | Event::End => 0,
        };
        (until > self.real).then_some(until)
    }
}
