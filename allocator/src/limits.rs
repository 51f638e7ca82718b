//! One limit: what was configured, and a pool for each key that is in use. The allocator drives it with the time
//! as an argument. It never holds more pools than configured, and never forgets one that still matters.

mod figures;
mod gate;
mod live;
#[cfg(test)]
mod tests;

pub use figures::{Answered, Figures};
pub use gate::{BLOCKED_MAX, Gate};
pub use live::{Effect, Preview};

use crate::config::{Keyed, LimitConfig};
use crate::pool::{AskError, Holder, LesseeId, Plan, Pool, PoolView};
use crate::sweep::Sweep;
use crate::wrong::{Reason, Wrong};
use figures::Sums;
use lessor_protocol::{Answer, Ask, Key, Moment, Terms};
use live::TopUps;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// Pools that every new key pays for looking at. With more than one, a flood of new keys cannot outrun the sweep
/// that makes room for them; each more makes a new key dearer.
const STEPS_FOR_KEY: usize = 4;

/// What an earlier life of the allocator may have left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Past {
    /// Nothing: nobody can be spending what it lent.
    None,
    /// It ended at this moment at the latest, and its books are lost.
    Lost(Moment),
}

/// One limit and its pools.
#[derive(Debug)]
pub struct Limit {
    config: LimitConfig,
    plan: Arc<Plan>,
    past: Past,
    /// When pools that are made now begin to lend.
    opens: Moment,
    ceiling: u64,
    memory: Duration,
    /// By key, and one without a key if the limit is not keyed. Ordered: pages and sweeps go by it, the same
    /// calls always do the same, and no choice of keys makes it slow.
    pools: BTreeMap<Option<Key>, Kept>,
    sweep: Sweep<Option<Key>>,
    sums: Sums,
    /// To whom nothing is lent, whatever is left.
    gate: Gate,
    /// What it was topped up with.
    top_ups: TopUps,
}

/// A pool, and its part of the sums.
#[derive(Debug)]
struct Kept {
    pool: Pool,
    counted: PoolView,
}

impl Limit {
    /// The limit, with its pool if it is not keyed.
    pub fn new(config: LimitConfig, terms: Terms, past: Past, now: Moment) -> Self {
        let plan = plan(&config, terms);
        let mut probe = pool(&plan, past, now);
        let mut limit = Limit {
            opens: now + probe.view(now).quarantine,
            ceiling: probe.ceiling(),
            memory: probe.memory(),
            past,
            plan,
            pools: BTreeMap::new(),
            sweep: Sweep::default(),
            sums: Sums::default(),
            gate: Gate::default(),
            top_ups: TopUps::default(),
            config,
        };
        if limit.config.keyed == Keyed::No {
            limit.make(now, None);
        }
        limit
    }

    /// What was configured.
    pub fn config(&self) -> &LimitConfig {
        &self.config
    }

    /// How long until the first pool lends: not zero after a loss.
    pub fn quarantine(&self, now: Moment) -> Duration {
        self.opens.since(now)
    }

    /// How long after its last ask a session may still matter to a pool.
    pub fn memory(&self) -> Duration {
        self.memory
    }

    /// The key in `text`, checked against whether the limit is keyed.
    ///
    /// # Errors
    /// If there is one too many or one too few, or it is none.
    pub fn key(&self, text: Option<&str>) -> Result<Option<Key>, Wrong> {
        let name = &self.config.name;
        let mismatch = |problem: &str| {
            let detail = format!("{:?} {problem}", name.as_str());
            Err(Wrong::new(Reason::KeyMismatch, "key", detail))
        };
        match (self.config.keyed, text) {
            (Keyed::No, None) => Ok(None),
            (Keyed::No, Some(_)) => mismatch("has no keys: ask without one"),
            (Keyed::Yes { .. }, None) => mismatch("is counted by key: say which"),
            (Keyed::Yes { .. }, Some(text)) => {
                let wrong = |error| Wrong::new(Reason::Invalid, "key", format!("key {error}"));
                Key::try_new(text).map(Some).map_err(wrong)
            }
        }
    }

    /// One exchange with the pool of `key`, which is made on first use.
    ///
    /// # Errors
    /// If the ask cannot be true or is out of order, or there is no room for another key. Nothing changes then.
    pub fn renew(
        &mut self,
        now: Moment,
        key: Option<Key>,
        holder: Holder,
        seq: u64,
        ask: Ask,
    ) -> Result<Answer, Wrong> {
        if !self.pools.contains_key(&key) {
            self.make_room(now)?;
            self.make(now, key.clone());
        }
        let asked = self.with_pool(now, &key, |pool| pool.renew(now, holder, seq, ask));
        let answer = asked.expect("it was there or has been made")?;
        self.sums.answered.count(&ask, &answer);
        Ok(answer)
    }

    /// An ask that got no answer from a pool, because the allocator is stopping.
    pub fn count_stopping(&mut self) {
        self.sums.answered.stopping += 1;
    }

    /// The session `id` ends with a total of `spent_total`. Returns what came back unspent.
    ///
    /// # Errors
    /// If the total cannot be true or is out of order.
    pub fn leave(
        &mut self,
        now: Moment,
        key: &Option<Key>,
        id: LesseeId,
        seq: u64,
        spent_total: u64,
    ) -> Result<u64, AskError> {
        self.with_pool(now, key, |pool| pool.leave(now, id, seq, spent_total)).unwrap_or(Ok(0))
    }

    /// Looks at the next `steps` pools: brings their figures up to date, forgets their idle sessions, and drops
    /// the pools of keys that cannot be told from new ones.
    pub fn sweep(&mut self, now: Moment, steps: usize) {
        let (sums, keyed) = (&mut self.sums, self.config.keyed != Keyed::No);
        let gone = self.sweep.run(&mut self.pools, steps, |kept| {
            let forgettable = kept.pool.is_forgettable(now);
            sums.count(&mut kept.counted, kept.pool.view(now));
            keyed && forgettable
        });
        for kept in gone {
            self.sums.drop(kept.counted);
        }
    }

    /// The sums over all pools, dropped ones included. Exact for a limit without keys; the pools of keys are as
    /// of their last ask or sweep.
    pub fn figures(&mut self, now: Moment) -> Figures {
        self.with_pool(now, &None, |_| ());
        Figures {
            ceiling: self.ceiling,
            pools: self.pools.len() as u64,
            quarantine: self.quarantine(now),
            paused: self.gate.pause(now).is_some(),
            blocked: self.gate.blocked().len() as u64,
            topped_up: self.top_ups.permits,
            sums: self.sums,
        }
    }

    /// The pool of `key`, if there is one.
    pub fn view(&mut self, now: Moment, key: &Option<Key>) -> Option<PoolView> {
        self.with_pool(now, key, |pool| pool.view(now))
    }

    /// Up to `count` pools with keys after `after`, in order.
    pub fn views(&mut self, now: Moment, after: Option<&Key>, count: usize) -> Vec<(Option<Key>, PoolView)> {
        let from = match after {
            Some(key) => Bound::Excluded(Some(key.clone())),
            None => Bound::Unbounded,
        };
        let page = self.pools.range_mut((from, Bound::Unbounded)).take(count);
        page.map(|(key, kept)| (key.clone(), kept.pool.view(now))).collect()
    }

    /// Runs `act` on the pool of `key`, if there is one, and keeps the sums. Leases that ended until `now` burn
    /// before `act`, reports settle in it: counted apart, so that what was burned is a count that never falls.
    fn with_pool<T>(
        &mut self,
        now: Moment,
        key: &Option<Key>,
        act: impl FnOnce(&mut Pool) -> T,
    ) -> Option<T> {
        let kept = self.pools.get_mut(key)?;
        self.sums.count(&mut kept.counted, kept.pool.view(now));
        let result = act(&mut kept.pool);
        self.sums.count(&mut kept.counted, kept.pool.view(now));
        Some(result)
    }

    fn make_room(&mut self, now: Moment) -> Result<(), Wrong> {
        let Keyed::Yes { keys_max } = self.config.keyed else {
            return Ok(());
        };
        self.sweep(now, STEPS_FOR_KEY);
        if self.pools.len() < keys_max {
            return Ok(());
        }
        let name = self.config.name.as_str();
        let detail = format!("{name:?} has {keys_max} keys in use, as many as it may; those go on");
        Err(Wrong::new(Reason::KeysFull, "key", detail))
    }

    fn make(&mut self, now: Moment, key: Option<Key>) {
        let mut kept = Kept { pool: pool(&self.plan, self.past, now), counted: PoolView::default() };
        self.sums.count(&mut kept.counted, kept.pool.view(now));
        self.pools.insert(key, kept);
    }
}

/// What the pools of `config` are made of.
fn plan(config: &LimitConfig, terms: Terms) -> Arc<Plan> {
    Arc::new(Plan {
        rules: config.rules.clone(),
        terms,
        ease_off: config.ease_off,
        lessees_max: config.lessees_max,
    })
}

fn pool(plan: &Arc<Plan>, past: Past, now: Moment) -> Pool {
    match past {
        Past::None => Pool::new(plan.clone(), now),
        Past::Lost(lost) => Pool::after_loss(plan.clone(), lost, now),
    }
}
