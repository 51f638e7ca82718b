//! The limits of a configuration with the pools of their keys. One exact limiter keeps each pool with all pools above
//! and below it. It answers requests in the order in which they come; it does no IO.

mod kin;
#[cfg(test)]
mod tests;

use super::answer::Answer;
use super::lineage::Lineage;
use super::request::{Call, Request};
use kin::{Families, Member};
use lessor_allocator::Config;
use lessor_allocator::config::{Keyed, LimitConfig, Names};
use lessor_ledger::exact::{Admission, Outcome, Unused};
use lessor_ledger::{CarryOver, Rule};
use lessor_protocol::{Key, LimitName, Moment};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Pools of a limit before the first search for pools that can be forgotten; later, twice as many as were left. A
/// smaller value would search all the time, a larger one would keep idle keys in memory.
const POOLS_TO_LOOK: usize = 1024;

/// All limits of a configuration.
#[derive(Debug)]
pub(crate) struct Contract {
    /// By name or pattern.
    limits: BTreeMap<String, Limit>,
    lineage: Lineage,
    families: Families,
    /// Time of the first request, if there was one.
    began: Option<Moment>,
    /// Latest time of any request, if there was one.
    now: Option<Moment>,
}

/// One limit of the configuration.
#[derive(Debug)]
struct Limit {
    rules: Vec<Rule>,
    /// Rules of single keys, in place of `rules`.
    overrides: BTreeMap<Key, Vec<Rule>>,
    keyed: bool,
    /// Whether it is in shadow mode, and refuses nothing.
    shadow: bool,
    /// Whether it is a pattern for many names, each with its own pools.
    is_pattern: bool,
    pools: BTreeMap<Rc<PoolId>, Member>,
    /// The state of a key or name that was never used, after a change of the limit. `None` once it equals the state of
    /// a new one.
    unused: Option<Unused>,
    look_at: usize,
}

/// The name of a limit, and the key if there is one.
pub(crate) type PoolId = (String, Option<Key>);

/// A function that is told of admissions: from which pool, and when.
pub(crate) type OnAdmission<'a> = &'a mut dyn FnMut(&PoolId, Admission);

impl Contract {
    /// Creates the limits of `config`. They begin with the first request; pools of keys and patterns begin with their
    /// own first request.
    pub(crate) fn new(config: &Config) -> Self {
        let limits = config.limits.iter().map(|limit| (limit.name.to_string(), Limit::new(limit)));
        Contract {
            limits: limits.collect(),
            lineage: Lineage::new(config),
            families: Families::default(),
            began: None,
            now: None,
        }
    }

    /// Answers `request`, and reports the admissions since the last call.
    ///
    /// # Errors
    /// If there is no such limit or key: the problem, beginning with the field. Nothing changes then.
    pub(crate) fn answer(
        &mut self,
        request: &Request,
        on_admission: OnAdmission<'_>,
    ) -> Result<Answer, String> {
        // A name that fits a pattern may still be invalid.
        LimitName::try_new(&request.limit).map_err(|error| format!("limit {:?} {error}", request.limit))?;
        let name = self
            .lineage
            .limit(&request.limit)
            .ok_or_else(|| format!("limit {:?} is not in the configuration", request.limit))?;
        let key = self.limits[&name].key(request)?;
        let chain = self.lineage.chain(&name, (request.limit.clone(), key))?;
        let now = self.begun(request.at);
        if let Call::Set(rules, carry_over) = &request.call {
            self.set(now, &name, rules, *carry_over, on_admission);
        }
        let (member, made) = self.open(&name, &chain, now);
        let answer = self.ask(now, member, &request.call, self.limits[&name].shadow);
        self.families.tell(member.family, on_admission);
        // A peek, or a refund of permits that the pool does not count, begins no pool.
        let begins = matches!(request.call, Call::TryAcquire(_) | Call::Acquire(..) | Call::TopUp(_));
        if !begins {
            self.close(&name, &chain[..made]);
        }
        self.forget(&name, &chain, now);
        Ok(answer)
    }

    /// Serves all calls that wait.
    pub(crate) fn run_out(&mut self, on_admission: OnAdmission<'_>) {
        self.families.run_out(on_admission);
    }

    /// Advances the time to `at`, never backwards. The first request begins the limits without keys.
    fn begun(&mut self, at: Moment) -> Moment {
        if self.now.is_none() {
            let single = self.limits.iter().filter(|(_, limit)| limit.is_single());
            for name in single.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
                let chain = self.lineage.chain(&name, (name.clone(), None));
                self.open(&name, &chain.expect("nothing is counted by key above it"), at);
            }
        }
        let now = self.now.map_or(at, |now| now.max(at));
        (self.began, self.now) = (self.began.or(Some(at)), Some(now));
        now
    }

    /// Returns the first pool of `chain`, which is of the limit called `name`. Begins it and the pools above it where
    /// they do not exist; also returns how many it began.
    fn open(&mut self, name: &str, chain: &[PoolId], now: Moment) -> (Member, usize) {
        let (mut above, mut made) = (None, 0);
        for (index, id) in chain.iter().enumerate().rev() {
            let limit = self.limits.get_mut(config_name(name, index, id)).expect("it is known");
            let member = limit.pools.get(id).copied().unwrap_or_else(|| {
                made += 1;
                let id = Rc::new(id.clone());
                let member = self.families.add(above, id.clone(), limit.rules_of(&id), now);
                if let Some(unused) = limit.unused_of(&id) {
                    self.families.family(member).begin_as(member.place, unused);
                }
                limit.pools.insert(id, member);
                member
            });
            above = Some(member);
        }
        (above.expect("there is one at least"), made)
    }

    /// Drops pools that have just begun and hold nothing, the lowest first.
    fn close(&mut self, name: &str, made: &[PoolId]) {
        for (index, id) in made.iter().enumerate() {
            let limit = self.limits.get_mut(config_name(name, index, id)).expect("it is known");
            self.families.remove(limit.pools.remove(id).expect("it has begun"));
        }
    }

    fn ask(&mut self, now: Moment, member: Member, call: &Call, shadow: bool) -> Answer {
        let (family, place) = (self.families.family(member), member.place);
        let answer = |outcome: Outcome, permits: u64, waits: bool| match Answer::of(outcome, permits, waits) {
            refused if shadow && !refused.ok => Answer::passed(outcome.remaining, waits),
            answer => answer,
        };
        match *call {
            Call::TryAcquire(permits) => {
                answer(family.acquire(now, place, permits, Some(Duration::ZERO)), permits, false)
            }
            Call::Acquire(permits, patience) => {
                // In shadow mode no caller waits, either.
                let patience = if shadow { Some(Duration::ZERO) } else { patience };
                answer(family.acquire(now, place, permits, patience), permits, true)
            }
            Call::Peek(permits) => answer(family.peek(now, place, permits), permits, false),
            Call::TopUp(permits) => Answer::of(family.top_up(now, place, permits), permits, false),
            Call::Refund(permits) => Answer::of(family.refund(now, place, permits), permits, false),
            Call::Set(..) => Answer::of(family.peek(now, place, 0), 0, false),
        }
    }

    /// Sets `rules` for all pools of the limit called `name`, except those of keys with their own rules.
    fn set(
        &mut self,
        now: Moment,
        name: &str,
        rules: &[Rule],
        carry_over: CarryOver,
        on_admission: OnAdmission<'_>,
    ) {
        let limit = self.limits.get_mut(name).expect("it is known");
        if !limit.is_single() {
            let began = self.began.unwrap_or(now);
            let unused = limit.unused.get_or_insert_with(|| Unused::new(&limit.rules, began));
            unused.set(rules, carry_over, now);
        }
        limit.rules = rules.to_vec();
        let mut places: BTreeMap<usize, (Member, Vec<_>)> = BTreeMap::new();
        for (id, &member) in &limit.pools {
            let is_own = id.1.as_ref().is_some_and(|key| limit.overrides.contains_key(key));
            if !is_own {
                places.entry(member.family).or_insert((member, vec![])).1.push(member.place);
            }
        }
        for (member, places) in places.into_values() {
            self.families.family(member).set(now, &places, rules, carry_over);
            // New rules may serve a caller in any pool.
            self.families.tell(member.family, on_admission);
        }
    }

    /// Drops pools that equal new ones, now and then.
    fn forget(&mut self, name: &str, chain: &[PoolId], now: Moment) {
        for (index, id) in chain.iter().enumerate() {
            let limit = self.limits.get_mut(config_name(name, index, id)).expect("it is known");
            if !limit.is_single() && limit.pools.len() >= limit.look_at {
                if limit.unused.as_mut().is_some_and(|unused| unused.is_fresh(now)) {
                    limit.unused = None;
                }
                let (is_new, own) = (limit.unused.is_none(), &limit.overrides);
                let is_own = |id: &PoolId| id.1.as_ref().is_some_and(|key| own.contains_key(key));
                limit
                    .pools
                    .retain(|id, member| !(is_new || is_own(id)) || !self.families.forget(*member, now));
                limit.look_at = POOLS_TO_LOOK.max(limit.pools.len() * 2);
            }
        }
    }
}

/// Returns the name or pattern of the limit of `id`, which is number `index` in a chain that begins at the limit called
/// `name`. No pattern is above another limit.
fn config_name<'a>(name: &'a str, index: usize, id: &'a PoolId) -> &'a str {
    if index == 0 { name } else { &id.0 }
}

impl Limit {
    fn new(config: &LimitConfig) -> Self {
        Limit {
            rules: config.rules.clone(),
            overrides: config.overrides.clone(),
            keyed: config.keyed != Keyed::No,
            shadow: config.shadow,
            is_pattern: config.name.names() != Names::One,
            pools: BTreeMap::new(),
            unused: None,
            look_at: POOLS_TO_LOOK,
        }
    }

    /// Whether the limit has one pool, from the beginning.
    fn is_single(&self) -> bool {
        !self.keyed && !self.is_pattern
    }

    /// Returns the rules of the pool of `id`.
    fn rules_of(&self, id: &PoolId) -> &[Rule] {
        id.1.as_ref().and_then(|key| self.overrides.get(key)).unwrap_or(&self.rules)
    }

    /// Returns the bound on the state of a new pool of `id`, if there is one.
    fn unused_of(&mut self, id: &PoolId) -> Option<&mut Unused> {
        let is_own = id.1.as_ref().is_some_and(|key| self.overrides.contains_key(key));
        self.unused.as_mut().filter(|_| !is_own)
    }

    /// Returns the key of `request`, and checks it against the limit.
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
}
