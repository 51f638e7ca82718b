//! The events of a fleet: the soonest first, and of two at the same time the one that was queued first. A caller gives
//! up last: a wait of exactly its patience is in time.

use crate::replay::contract::PoolId;
use lessor_ledger::registry::Entry;
use lessor_protocol::Moment;
use lessor_protocol::push;
use lessor_protocol::wire::GrantBody;
use std::collections::BTreeMap;

/// An event of a fleet.
#[derive(Debug)]
pub(super) enum Event {
    /// A node looks whether it should ask.
    Wake { node: usize },
    /// Asks reach the allocator.
    Asked { node: usize, seq: u64, asks: Vec<Entry> },
    /// The answers reach the node.
    Answered { node: usize, seq: u64, grants: Vec<GrantBody> },
    /// A call has reached the longest time that it may take.
    Over { node: usize, id: PoolId },
    /// A node is told of an event of a limit.
    Notified { node: usize, event: push::Event },
    /// The patience of a caller is over.
    GiveUp { node: usize, id: PoolId, ticket: u64 },
}

/// Events to come.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Events by time, whether a caller gives up, and order.
    events: BTreeMap<(Moment, bool, u64), Event>,
    order: u64,
}

impl Queue {
    /// Queues `event`, unless it never comes.
    pub(super) fn push(&mut self, at: Moment, event: Event) {
        if at < Moment::NEVER {
            self.order += 1;
            self.events.insert((at, matches!(event, Event::GiveUp { .. }), self.order), event);
        }
    }

    /// Returns when the next event happens; [`Moment::NEVER`] if there is none.
    pub(super) fn next_at(&self) -> Moment {
        self.events.first_key_value().map_or(Moment::NEVER, |((at, ..), _)| *at)
    }

    /// Removes the next event, and returns it with its time.
    pub(super) fn pop(&mut self) -> Option<(Moment, Event)> {
        self.events.pop_first().map(|((at, ..), event)| (at, event))
    }
}
