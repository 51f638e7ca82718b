//! What all handles of a client and its background task share: the pools by name, and how things stand.

use crate::events::{Event, Events, Teller};
use crate::fallback;
use crate::keys::{Keys, SHARDS};
use crate::limits::Limits;
use crate::local_pool::{CLOCK, Condition, HotRef, LocalPool, PoolName, Standing};
use crate::tally::{self, Tally};
use crate::ticks::Ticks;
use crate::wake_list::WakeList;
use lessor_holder::timing::INITIAL_RTT;
use lessor_protocol::{Fallback, Key, LimitName, push};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What handles and the background task share.
pub(crate) struct Shared {
    pub(crate) wake_list: Arc<WakeList>,
    pub(crate) exchanges: AtomicU64,
    pub(crate) failed_exchanges: AtomicU64,
    pub(crate) listening: AtomicU64,
    pub(crate) moves: AtomicU64,
    unreachable: AtomicBool,
    events: Teller,
    /// Limits that are in fallback.
    fallen: Mutex<BTreeMap<Arc<str>, Fallback>>,
    ticks: Ticks,
    /// The limits without a key. Pools of keys are with the pool of their limit.
    limits: Limits,
    /// Pools are added and forgotten under this lock.
    changes: Mutex<Changes>,
}

/// What changes when pools are added and forgotten.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// None is added any more.
    closed: bool,
    /// What is told of limits, each under a label of its own, and at last of all others under one.
    tallies: Vec<Arc<Tally>>,
    /// By limit, the pool that refuses all keys that cannot be.
    bad_keys: HashMap<Arc<str>, Arc<LocalPool>>,
}

/// Keys of one limit that are known at most: 1.5 GB. Strangers may choose keys; more are refused until others are forgotten.
const KEYS_MAX: usize = 1 << 20;

/// Limits that are known at most: some 125 MB, and none is ever forgotten. A process with more makes their names up as it goes.
const LIMITS_MAX: usize = 1 << 16;

/// Keys of one limit that are remembered only for what they spent of their part of the reserve. Beyond that, keys that are new
/// go on with what the others have spent: too little is let pass then, and never too much.
const SEATS_KEPT_MAX: usize = 100_000;

/// Pools that are looked at in one go: a millisecond or two of the background task. Beyond that, a part of a map.
const SWEPT_MAX: usize = 1_000;

/// All pools, a part after the other: of the plain one and the keys of a limit, and then of the next.
#[derive(Debug)]
pub(crate) struct Parts {
    /// Limits to go through yet, the last one first.
    limits: Vec<Arc<LocalPool>>,
    /// The next part of the keys of the last one.
    part: usize,
}

/// A sweep over the keys of all limits, of which it remembers how far it is.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// Limits to look at yet, the last one first.
    limits: Vec<Arc<LocalPool>>,
    /// The next part of the keys of the last one.
    part: usize,
    /// Keys of it that are only kept for what they spent of their part of the reserve.
    kept: usize,
}

/// Limits that metrics are told of by name. Each is some ninety series: more would be a process that makes names up as it
/// goes, by a pattern for example, and floods whatever keeps them.
const LABELS_MAX: usize = 100;

impl Shared {
    pub(crate) fn new(ticks: Ticks) -> Self {
        tally::begin();
        Shared {
            wake_list: Arc::default(),
            exchanges: AtomicU64::new(0),
            failed_exchanges: AtomicU64::new(0),
            listening: AtomicU64::new(0),
            moves: AtomicU64::new(0),
            unreachable: AtomicBool::new(false),
            events: Teller::new(),
            fallen: Mutex::default(),
            ticks,
            limits: Limits::new(),
            changes: Mutex::default(),
        }
    }

    /// The pool of a limit and key, made on first use.
    pub(crate) fn pool(&self, limit: &str, key: Option<&str>) -> Arc<LocalPool> {
        let plain = self.plain(limit);
        match key {
            None => plain,
            Some(key) => self.of_key(&plain, key),
        }
    }

    fn plain(&self, limit: &str) -> Arc<LocalPool> {
        let find = || self.limits.get(limit);
        if let Some(pool) = find() {
            return pool;
        }
        let mut changes = self.lock();
        find().unwrap_or_else(|| {
            let found = condition(limit, None, &changes);
            let is_full = self.limits.len() >= LIMITS_MAX;
            let condition = if found == Condition::Good && is_full { Condition::Full } else { found };
            let name = PoolName { limit: limit.into(), key: None };
            // What cannot be a name is no label either.
            let tally = if condition == Condition::Good {
                changes.tally(&name.limit)
            } else {
                Arc::new(Tally::new(name.limit.clone()))
            };
            let pool = self.make(name, condition, HotRef::alone(), tally);
            if condition == Condition::Good {
                self.limits.insert(pool.name().limit.clone(), pool.clone());
            }
            pool
        })
    }

    fn of_key(&self, plain: &LocalPool, key: &str) -> Arc<LocalPool> {
        // Handles are cloned under this lock or from a handle: see `forget_idle`.
        let mut changes = self.lock();
        plain.keys().and_then(|keys| keys.get(key)).unwrap_or_else(|| {
            let limit = &plain.name().limit;
            let has_limit = || self.limits.contains(limit);
            let is_full = || plain.keys().is_some_and(|keys| keys.len() >= KEYS_MAX) || !has_limit();
            let found = condition(limit, Some(key), &changes);
            if found == Condition::BadKey {
                // Strangers choose keys: one pool refuses all that cannot be keys.
                let name = || PoolName { limit: limit.clone(), key: Some("".into()) };
                let make = || self.make(name(), found, HotRef::alone(), plain.shared_tally());
                return changes.bad_keys.entry(limit.clone()).or_insert_with(make).clone();
            }
            let name = PoolName { limit: limit.clone(), key: Some(key.into()) };
            let condition = if found == Condition::Good && is_full() { Condition::Full } else { found };
            let make = |hot_ref| self.make(name, condition, hot_ref, plain.shared_tally());
            if condition == Condition::Good {
                let pool = plain.keys_or_new().get_or_insert(key, make);
                fallback::begin(self, &pool, plain);
                pool
            } else {
                make(HotRef::alone())
            }
        })
    }

    fn make(
        &self,
        name: PoolName,
        condition: Condition,
        hot_ref: HotRef,
        tally: Arc<Tally>,
    ) -> Arc<LocalPool> {
        let eager = name.key.is_none() && condition == Condition::Good;
        let pool = LocalPool::new(hot_ref, self.ticks.clone(), name, eager, self.wake_list.clone(), tally);
        if condition == Condition::Good {
            pool.set_condition(condition);
        } else {
            // No call has the allocator asked for it.
            let (ceiling, chance) = (pool.ceiling(), lessor_protocol::Moment::NEVER);
            pool.set_standing(Standing { condition, ceiling, chance, rtt: INITIAL_RTT });
        }
        if eager {
            pool.nudge();
        }
        pool
    }

    /// What is told of limits.
    pub(crate) fn tallies(&self) -> Vec<Arc<Tally>> {
        self.lock().tallies.clone()
    }

    /// The pools without a key: one for each limit.
    pub(crate) fn plain_pools(&self) -> Vec<Arc<LocalPool>> {
        self.limits.pools()
    }

    /// All pools.
    pub(crate) fn pools(&self) -> Vec<Arc<LocalPool>> {
        let mut pools = self.plain_pools();
        let keys: Vec<_> = pools.iter().filter_map(|plain| plain.keys()).flat_map(Keys::pools).collect();
        pools.extend(keys);
        pools
    }

    /// All pools in parts, for work between whose parts other tasks run. A pool that is added meanwhile may be missing.
    pub(crate) fn parts(&self) -> Parts {
        Parts { limits: self.plain_pools(), part: 0 }
    }

    /// The pools that `event` is about.
    pub(crate) fn about(&self, event: &push::Event) -> Vec<Arc<LocalPool>> {
        let plain = self.plain_pools();
        let plain = plain.into_iter().filter(|pool| event.is_about(&pool.name().limit, event.key.as_deref()));
        let mut pools = vec![];
        for plain in plain {
            match (&event.key, plain.keys()) {
                (Some(key), keys) => pools.extend(keys.and_then(|keys| keys.get(key))),
                (None, keys) => {
                    pools.extend(keys.map(Keys::pools).unwrap_or_default());
                    pools.push(plain);
                }
            }
        }
        pools
    }

    /// Forgets some pools of keys that have no handle and no lease: goes on with the `sweep` over all of them, or begins it.
    /// It looks at [`SWEPT_MAX`] pools and a part of a map at most.
    pub(crate) fn forget_idle(&self, sweep: &mut Sweep) {
        if sweep.is_over() {
            sweep.limits = self.plain_pools();
        }
        let (now, mut looked) = (CLOCK.now(), 0);
        while let Some(plain) = sweep.limits.last() {
            let keys = plain.keys().filter(|_| sweep.part < SHARDS);
            let Some(keys) = keys else {
                sweep.limits.pop();
                (sweep.part, sweep.kept) = (0, 0);
                continue;
            };
            if looked >= SWEPT_MAX {
                return;
            }
            // Handles are cloned under the lock or from a handle: with this owner left, no other one can appear. A call
            // by the key just now is refused, for nothing is held, and the next one finds another pool.
            let _lock = self.lock();
            let kept = Cell::new(sweep.kept);
            let is_needed = |pool: &Arc<LocalPool>| {
                if Arc::strong_count(pool) > 1 || !pool.refill().is_forgettable(now) {
                    return true;
                }
                if pool.standby().is_forgettable(now) {
                    return false;
                }
                kept.set(kept.get() + 1);
                let is_kept = kept.get() <= SEATS_KEPT_MAX;
                if !is_kept {
                    plain.standby().inherit(pool.standby());
                }
                is_kept
            };
            looked += keys.forget(sweep.part, is_needed);
            (sweep.part, sweep.kept) = (sweep.part + 1, kept.get());
        }
    }

    /// Whether no allocator answers.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.unreachable.load(Ordering::Relaxed)
    }

    /// No pool is added while this is held, and each that was begun before is there.
    pub(crate) fn no_new_pools(&self) -> MutexGuard<'_, Changes> {
        self.lock()
    }

    /// Notes whether the allocator answers. True if that is news.
    pub(crate) fn reachable(&self, reachable: bool) -> bool {
        self.unreachable.swap(!reachable, Ordering::Relaxed) == reachable
    }

    /// Limits that are in fallback, and what they do then.
    pub(crate) fn fallen(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Fallback>> {
        self.fallen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends `event` to the listeners of this client.
    pub(crate) fn tell(&self, event: Event) {
        self.events.tell(event);
    }

    pub(crate) fn listen(&self) -> Events {
        self.events.listen()
    }

    /// Every call is refused from now on. Doing it again changes nothing.
    pub(crate) fn close(&self) {
        // Held until all pools are closed: none is added beside this.
        let mut changes = self.lock();
        if std::mem::replace(&mut changes.closed, true) {
            return;
        }
        self.events.close();
        let pools = self.pools();
        for pool in &pools {
            pool.set_condition(Condition::Closed);
            pool.refill().close(pool.slot());
        }
        drop(changes);
        // A waker is the caller's code: it may call here, and where it panics no pool is left open.
        pools.iter().for_each(|pool| pool.call_all());
    }

    fn lock(&self) -> MutexGuard<'_, Changes> {
        // One word: no panic elsewhere can have left it half changed.
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Names no key, and is one line.
impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reach = if self.unreachable.load(Ordering::Relaxed) { "unreachable" } else { "reachable" };
        write!(f, "{} limits, allocator {reach}", self.limits.len())
    }
}

impl Sweep {
    /// Whether no limit is left to look at, so that the next one begins with the first.
    pub(crate) fn is_over(&self) -> bool {
        self.limits.is_empty()
    }
}

impl Iterator for Parts {
    type Item = Vec<Arc<LocalPool>>;

    fn next(&mut self) -> Option<Vec<Arc<LocalPool>>> {
        let mut pools = vec![];
        while pools.len() < SWEPT_MAX
            && let Some(plain) = self.limits.last()
        {
            match plain.keys().filter(|_| self.part < SHARDS) {
                Some(keys) => {
                    pools.extend(keys.pools_of(self.part));
                    self.part += 1;
                }
                None => {
                    pools.extend(self.limits.pop());
                    self.part = 0;
                }
            }
        }
        (!pools.is_empty()).then_some(pools)
    }
}

impl Changes {
    /// The tally of a limit that is new.
    fn tally(&mut self, limit: &Arc<str>) -> Arc<Tally> {
        if self.tallies.len() <= LABELS_MAX {
            let label = if self.tallies.len() < LABELS_MAX { limit.clone() } else { Tally::OTHERS.into() };
            let tally = Arc::new(Tally::new(label));
            // All that there is to tell is there from the start, at zero.
            tally.publish(None);
            self.tallies.push(tally);
        }
        self.tallies[self.tallies.len() - 1].clone()
    }
}

/// Of a new pool. If it is not good, it stays so, and the background task is not to know the pool: a name that cannot be
/// is never sent.
fn condition(limit: &str, key: Option<&str>, changes: &Changes) -> Condition {
    if changes.closed {
        return Condition::Closed;
    }
    match (LimitName::try_new(limit), key) {
        // Strangers choose keys: what is refused is not logged.
        (Ok(_), Some(key)) if Key::try_new(key).is_err() => Condition::BadKey,
        (Ok(_), _) => Condition::Good,
        (Err(_), Some(_)) => Condition::Unknown,
        (Err(error), None) => {
            tracing::error!(%error, "no limit can have this name: every call on it is refused");
            Condition::Unknown
        }
    }
}

#[cfg(test)]
mod tests;
