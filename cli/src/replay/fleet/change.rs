//! Changes of a limit by an operator while nodes lease from it: other rules, or a top-up. The shipping allocator makes
//! the change; nodes hear of it half a round trip later, like nodes that listen. It takes no lease back.

use super::{Event, Fleet};
use crate::replay::answer::Answer;
use crate::replay::contract::PoolId;
use crate::replay::request::Request;
use lessor_allocator::config::LimitConfig;
use lessor_ledger::{CarryOver, Rule};
use lessor_protocol::push::{self, Kind};

impl Fleet {
    /// Returns the limit of `request` with `rules`.
    ///
    /// # Errors
    /// If there is no such limit, or its rules would not fit those of limits above or below.
    pub(super) fn changed(&self, request: &Request, rules: &[Rule]) -> Result<LimitConfig, String> {
        let name = self.lineage.limit(&request.limit).unwrap_or_default();
        let limit = self.limits.get(&name).expect("its pool was found");
        let config = LimitConfig { rules: rules.to_vec(), ..limit.clone() };
        self.registry.check(&[], &[&config]).map_err(|unfit| format!("rules: {unfit}"))?;
        Ok(config)
    }

    /// Changes the limit to `config`.
    ///
    /// # Errors
    /// If the allocator refuses.
    pub(super) fn put(&mut self, config: LimitConfig, carry_over: CarryOver) -> Result<(), String> {
        let put = self.registry.put(self.now, &config, carry_over, true);
        put.map_err(|full| format!("limit {:?}: {full}", config.name.as_str()))?;
        let name = config.name.to_string();
        self.tell(&push::Event::of(Kind::Changed, &name));
        self.limits.insert(name, config);
        Ok(())
    }

    /// Tops up the pool `id` by `permits`.
    ///
    /// # Errors
    /// If there is no room for another key, or the limit takes none in quarantine.
    pub(super) fn top_up(&mut self, id: &PoolId, permits: u64) -> Result<(), String> {
        let (name, key) = (&id.0, id.1.as_ref().map(|key| key.as_str()));
        let limit = self.registry.limit_for(name).expect("its pool was found");
        let pool = limit.pool_id(name, key).expect("it was found");
        let made = limit.top_up(self.now, pool, permits, None);
        made.map_err(|wrong| format!("{}: {}", wrong.field.as_deref().unwrap_or("key"), wrong.detail))?;
        self.tell(&push::Event::of(Kind::ToppedUp, name));
        Ok(())
    }

    /// Answers an operator, who asks no node: with the permits that the named node, or else the first one, could take.
    pub(super) fn answer(&mut self, request: &Request, id: &PoolId, ticket: u64) {
        let node = if request.node.is_some() { self.node(request) } else { 0 };
        let remaining = self.nodes[node].pools.get(id).map_or(0, |local| local.remaining(self.now));
        self.answers.push((request.clone(), ticket, Answer::yes(remaining)));
    }

    fn tell(&mut self, event: &push::Event) {
        for node in 0..self.nodes.len() {
            self.queue.push(self.now + self.rtt / 2, Event::Notified { node, event: event.clone() });
        }
    }

    /// Tells `node` of `event`: the pools that it concerns ask again.
    pub(super) fn on_event(&mut self, node: usize, event: &push::Event) {
        for (id, local) in &mut self.nodes[node].pools {
            if event.is_about(&id.0, id.1.as_ref().map(lessor_protocol::Key::as_str)) {
                local.on_event(self.now, self.rng.u64(..));
            }
        }
        self.look(node);
    }
}
