//! What happens next in a fleet: the soonest first, and of two at the same time the one that was queued first. A caller
//! that gives up does so last: a wait that is exactly as long as it may be is in time.

use crate::replay::contract::PoolId;
use lessor_ledger::registry::Entry;
use lessor_protocol::Moment;
use lessor_protocol::push;
use lessor_protocol::wire::GrantBody;
use std::collections::BTreeMap;

/// Something that happens at a time.
#[derive(Debug)]
pub(super) enum Event {
    /// A node looks whether it should ask.
    Wake { node: usize },
    /// Asks reach the allocator.
    Asked { node: usize, seq: u64, asks: Vec<Entry> },
    /// Its answers reach the node.
    Answered { node: usize, seq: u64, grants: Vec<GrantBody> },
    /// A call has taken for as long as one may.
    Over { node: usize, id: PoolId },
    /// A node is told that something happened to a limit.
    Notified { node: usize, event: push::Event },
    /// A caller has waited for as long as it would.
    GiveUp { node: usize, id: PoolId, ticket: u64 },
}

/// What is to come.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// By when, whether a caller gives up, and order.
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

    /// When the next one happens; [`Moment::NEVER`] if none does.
    pub(super) fn next_at(&self) -> Moment {
        self.events.first_key_value().map_or(Moment::NEVER, |((at, ..), _)| *at)
    }

    /// The next one, and when.
    pub(super) fn pop(&mut self) -> Option<(Moment, Event)> {
        self.events.pop_first().map(|((at, ..), event)| (at, event))
    }
}
