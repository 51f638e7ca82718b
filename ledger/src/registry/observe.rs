//! What nodes hear of a vendor: told to the pool that it is about, and to everybody who should know at once. Each ask may
//! bring some; the handler of the exchange passes on what is to be told.

use super::Registry;
use crate::pool::SessionId;
use crate::registry::limit::PoolId;
use lessor_protocol::Moment;
use lessor_protocol::push::{Event, Kind};
use lessor_protocol::wire::AskBody;

impl Registry {
    /// Takes the events for the listeners since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// The session `id` says with `ask` what it heard of the vendor, if it did.
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
