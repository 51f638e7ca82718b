//! What nodes hear of a vendor. An ask may bring it: the pool takes it in, and an event tells listeners of a change.

use super::Registry;
use crate::pool::SessionId;
use crate::registry::limit::PoolId;
use lessor_protocol::Moment;
use lessor_protocol::push::{Event, Kind};
use lessor_protocol::wire::AskBody;

impl Registry {
    /// Returns the events for listeners since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Takes in what the session `id` heard of the vendor, if `ask` says so.
    pub(super) fn observe(&mut self, now: Moment, id: SessionId, pool: &PoolId, ask: &AskBody) {
        let Some(observed) = &ask.observed else { return };
        let Some(limit) = self.limit_for(&ask.limit) else { return };
        let effect = limit.observe(now, pool, id, &observed.observed());
        let kind = match (effect.pauses, effect.is_over) {
            (true, _) => Kind::Paused,
            (false, true) => Kind::Changed,
            (false, false) => return,
        };
        let event = Event { key: ask.key.clone(), ..Event::of(kind, &ask.limit) };
        self.events.push(event);
    }
}
