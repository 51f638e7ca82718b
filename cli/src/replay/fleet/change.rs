//! What an operator does to a limit while nodes lease from it: other rules, or permits on top. The allocator that ships
//! does it; nodes hear of it half a round trip later, as those that listen do. It takes nothing back.

use super::{Event, Fleet};
use crate::replay::answer::Answer;
use crate::replay::contract::PoolId;
use crate::replay::request::Request;
use lessor_allocator::config::LimitConfig;
use lessor_ledger::{CarryOver, Rule};
use lessor_protocol::push::{self, Kind};

impl Fleet {
    /// The limit of `request` under `rules`.
    ///
    /// # Errors
    /// If there is no such limit, or its rules would not fit those of limits above it or below.
    pub(super) fn changed(&self, request: &Request, rules: &[Rule]) -> Result<LimitConfig, String> {
        let name = self.lineage.limit(&request.limit).unwrap_or_default();
        let limit = self.limits.get(&name).expect("its pool was found");
        let config = LimitConfig { rules: rules.to_vec(), ..limit.clone() };
        self.registry.check(&[], &[&config]).map_err(|unfit| format!("rules: {unfit}"))?;
        Ok(config)
    }

    /// From now on the limit is as `config` says.
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

    /// `permits` more may be lent of the pool `id`, once.
    ///
    /// # Errors
    /// If there is no room for another key.
    pub(super) fn top_up(&mut self, id: &PoolId, permits: u64) -> Result<(), String> {
        let (name, key) = (&id.0, id.1.as_ref().map(|key| key.as_str()));
        let limit = self.registry.limit_for(name).expect("its pool was found");
        let pool = limit.pool_id(name, key).expect("it was found");
        let made = limit.top_up(self.now, pool, permits, None);
        made.map_err(|wrong| format!("key: {}", wrong.detail))?;
        self.tell(&push::Event::of(Kind::ToppedUp, name));
        Ok(())
    }

    /// Answers an operator, who asks no node: with what the first one, or the one that is named, could take.
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

    /// `node` hears of `event`: its pools that the event is about ask anew.
    pub(super) fn on_event(&mut self, node: usize, event: &push::Event) {
        for (id, local) in &mut self.nodes[node].pools {
            if event.is_about(&id.0, id.1.as_ref().map(lessor_protocol::Key::as_str)) {
                local.on_event(self.now, self.rng.u64(..));
            }
        }
        self.look(node);
    }
}
