//! Which host an event happens to, which desks that host has, and when it handles the event.

use super::World;
use super::event::{Event, Host};
use std::ops::Range;

impl World {
    /// Returns the desks to which something happens in `event`.
    pub(super) fn touched(&self, event: &Event) -> Range<usize> {
        match event.host() {
            Some(Host::Desk(desk)) => desk..desk + 1,
            Some(Host::Node(node)) => self.desks_of(node),
            Some(Host::Region(_)) | None => 0..0,
        }
    }

    /// Returns the desks of `node`; none if it is an adversary or a region.
    pub(super) fn desks_of(&self, node: usize) -> Range<usize> {
        let at = node * self.setup.pools;
        if node < self.nodes.len() { at..at + self.setup.pools } else { 0..0 }
    }

    /// Returns the node of `desk`.
    pub(super) fn home(&self, desk: usize) -> usize {
        self.setup.home(desk)
    }

    /// Returns the number of the process that `desk` belongs to.
    pub(super) fn life(&self, desk: usize) -> u64 {
        self.nodes[self.home(desk)].life
    }

    /// Returns when a paused host will handle `event`; `None` if it does so now.
    pub(super) fn held_up(&self, event: &Event) -> Option<u64> {
        // The world starts processes and clocks, even of a paused host.
        let is_of_world = matches!(event, Event::Start { .. } | Event::Thaw { .. });
        let is_ask = matches!(event, Event::Ask(message) if !self.reaches_region(message));
        let is_at_centre = is_ask || matches!(event, Event::Sweep);
        let paused_until = |node: usize| self.nodes.get(node).map_or(0, |node| node.paused_until);
        let region = self.region_of(event).and_then(|region| self.regions.get(region));
        let until = match event.host() {
            _ if region.is_some() => region.map_or(0, |region| region.paused_until),
            _ if is_at_centre => self.centre.paused_until,
            Some(Host::Desk(desk)) => paused_until(self.home(desk)),
            Some(Host::Node(node)) if !is_of_world => paused_until(node),
            Some(Host::Node(_) | Host::Region(_)) | None => 0,
        };
        (until > self.real).then_some(until)
    }

    /// Returns the region whose process handles `event`, if one does.
    fn region_of(&self, event: &Event) -> Option<usize> {
        if let Event::Answer(reply) = event {
            return self.region(reply.node);
        }
        if let Event::Ask(message) = event
            && self.reaches_region(message)
        {
            return Some(self.setup.lender(message.asks[0].desk));
        }
        let Some(Host::Region(region)) = event.host() else { return None };
        Some(region)
    }
}
