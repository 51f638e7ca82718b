//! The limits of a configuration with the pools of their keys, each kept by one exact limiter. It answers requests in
//! the order in which they come; it reads and writes nothing.

use super::answer::Answer;
use super::request::{Call, Request};
use lessor_allocator::Config;
use lessor_allocator::central::{Admission, Carry, Limiter};
use lessor_allocator::config::{Keyed, LimitConfig, Names, named_for};
use lessor_protocol::{Key, LimitName, Moment, Rule};
use std::collections::BTreeMap;

/// Pools of a limit before the first look for those that can be forgotten; then twice as many as were left. Fewer
/// would look all the time, more would keep idle keys in memory.
const POOLS_TO_LOOK: usize = 1024;

/// All limits of a configuration.
#[derive(Debug)]
pub(crate) struct Contract {
    /// By name or pattern.
    limits: BTreeMap<String, Limit>,
    /// The latest time that a request has said; none before the first.
    now: Option<Moment>,
}

/// One limit.
#[derive(Debug)]
struct Limit {
    rules: Vec<Rule>,
    /// Of single keys, in place of those.
    overrides: BTreeMap<Key, Vec<Rule>>,
    keyed: bool,
    /// Whether its permits are charged to another limit too.
    has_parent: bool,
    /// Whether it stands for many names, each with pools of its own.
    is_pattern: bool,
    pools: BTreeMap<PoolId, Limiter>,
    look_at: usize,
}

/// The name, and the key if there is one.
pub(crate) type PoolId = (String, Option<Key>);

/// Is told what was admitted: from which pool, and when.
pub(crate) type Told<'a> = &'a mut dyn FnMut(&PoolId, Admission);

impl Contract {
    /// The limits of `config`. They begin with the first request, those of keys and patterns with the first for each.
    pub(crate) fn new(config: &Config) -> Self {
        let limits = config.limits.iter().map(|limit| (limit.name.to_string(), Limit::new(limit)));
        Contract { limits: limits.collect(), now: None }
    }

    /// Answers `request`, and tells what was admitted since the last one.
    ///
    /// # Errors
    /// If there is no such limit or key: what is wrong, beginning with the field. Nothing changes then.
    pub(crate) fn answer(&mut self, request: &Request, told: Told<'_>) -> Result<Answer, String> {
        // A name that fits a pattern may still be none.
        LimitName::try_new(&request.limit).map_err(|error| format!("limit {:?} {error}", request.limit))?;
        let name = named_for(&self.limits, &request.limit)
            .ok_or_else(|| format!("limit {:?} is not in the configuration", request.limit))?;
        // Answered as if it had none it would be answered wrong.
        if self.limits[&name].has_parent {
            return Err(format!(
                "limit {:?} has a parent, which replay knows only with --nodes",
                request.limit
            ));
        }
        let key = self.limits[&name].key(request)?;
        let now = self.begun(request.at);
        let limit = self.limits.get_mut(&name).expect("it is known");
        let id = (request.limit.clone(), key);
        let answer = limit.answer(now, &request.call, id.clone());
        // New rules may serve somebody in any pool.
        if let Call::Set(..) = request.call {
            limit.tell_all(told);
        } else {
            limit.tell(&id, told);
        }
        limit.forget(now);
        Ok(answer)
    }

    /// Lets all that wait be served.
    pub(crate) fn run_out(&mut self, told: Told<'_>) {
        for limit in self.limits.values_mut() {
            limit.pools.values_mut().for_each(Limiter::run_out);
            limit.tell_all(told);
        }
    }

    /// Time that goes backwards is no time at all. With the first request limits without keys begin.
    fn begun(&mut self, at: Moment) -> Moment {
        if self.now.is_none() {
            for (name, limit) in self.limits.iter_mut().filter(|(_, limit)| limit.is_single()) {
                limit.pools.insert((name.clone(), None), Limiter::new(&limit.rules, at));
            }
        }
        let now = self.now.map_or(at, |now| now.max(at));
        self.now = Some(now);
        now
    }
}

impl Limit {
    fn new(config: &LimitConfig) -> Self {
        Limit {
            rules: config.rules.clone(),
            overrides: config.overrides.clone(),
            keyed: config.keyed != Keyed::No,
            has_parent: config.parent.is_some(),
            is_pattern: config.name.names() != Names::One,
            pools: BTreeMap::new(),
            look_at: POOLS_TO_LOOK,
        }
    }

    /// Whether there is one pool, from the beginning.
    fn is_single(&self) -> bool {
        !self.keyed && !self.is_pattern
    }

    /// The key of `request`, where one is needed.
    fn key(&self, request: &Request) -> Result<Option<Key>, String> {
        let name = &request.limit;
        match (&request.key, &request.call) {
            (Some(key), _) if !self.keyed => Err(format!("key is {key:?}, but limit {name:?} has no keys")),
            (Some(key), _) => Key::try_new(key).map(Some).map_err(|error| format!("key {key:?} {error}")),
            // New rules are for all keys.
            (None, Call::Set(..)) => Ok(None),
            (None, _) if self.keyed => Err(format!("key is missing: limit {name:?} is counted by key")),
            (None, _) => Ok(None),
        }
    }

    /// Answers a call of the pool of `id`, which begins now if there is none yet and something is taken or added.
    fn answer(&mut self, now: Moment, call: &Call, id: PoolId) -> Answer {
        if let Call::Set(rules, carry) = call {
            self.set(now, rules, *carry);
        }
        let Limit { rules, overrides, pools, .. } = self;
        let own = id.1.as_ref().and_then(|key| overrides.get(key));
        let begin = || Limiter::new(own.unwrap_or(rules), now);
        let (outcome, permits) = match *call {
            Call::TryAcquire(permits) => {
                (pools.entry(id).or_insert_with(begin).try_acquire(now, permits), permits)
            }
            Call::Acquire(permits, patience) => {
                let outcome = pools.entry(id).or_insert_with(begin).acquire(now, permits, patience);
                return Answer::of(outcome, permits, true);
            }
            Call::TopUp(permits) => (pools.entry(id).or_insert_with(begin).top_up(now, permits), permits),
            Call::Refund(permits) => match pools.get_mut(&id) {
                Some(pool) => (pool.refund(now, permits), permits),
                None => (begin().refund(now, permits), permits),
            },
            Call::Peek(permits) => match pools.get_mut(&id) {
                Some(pool) => (pool.peek(now, permits), permits),
                None => (begin().peek(now, permits), permits),
            },
            Call::Set(..) => match pools.get_mut(&id) {
                Some(pool) => (pool.peek(now, 0), 0),
                None => (begin().peek(now, 0), 0),
            },
        };
        Answer::of(outcome, permits, false)
    }

    /// From now on `rules` hold for all but the keys that have their own.
    fn set(&mut self, now: Moment, rules: &[Rule], carry: Carry) {
        self.rules = rules.to_vec();
        for ((_, key), pool) in &mut self.pools {
            if !key.as_ref().is_some_and(|key| self.overrides.contains_key(key)) {
                pool.set(now, rules, carry);
            }
        }
    }

    fn tell(&mut self, id: &PoolId, told: Told<'_>) {
        if let Some(pool) = self.pools.get_mut(id) {
            pool.admitted().for_each(|admission| told(id, admission));
        }
    }

    fn tell_all(&mut self, told: Told<'_>) {
        for (id, pool) in &mut self.pools {
            for admission in pool.admitted() {
                told(id, admission);
            }
        }
    }

    /// Drops pools that cannot be told from new ones, now and then.
    fn forget(&mut self, now: Moment) {
        if !self.is_single() && self.pools.len() >= self.look_at {
            self.pools.retain(|_, pool| {
                pool.advance(now);
                !pool.is_fresh()
            });
            self.look_at = POOLS_TO_LOOK.max(self.pools.len() * 2);
        }
    }
}
