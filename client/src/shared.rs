//! State that all handles of a client and its background task share: the pools by name, and whether an allocator
//! answers.

use crate::events::{Event, Events, Teller};
use crate::fallback;
use crate::keys::{Keys, SHARDS};
use crate::limits::Limits;
use crate::local_pool::{CLOCK, Condition, HotRef, LocalPool, PoolName, Standing};
use crate::refiller::LOG_EVERY;
use crate::tally::{self, Tally};
use crate::ticks::Ticks;
use crate::wake_list::WakeList;
use lessor_holder::timing::INITIAL_RTT;
use lessor_protocol::lock_anyway::LockAnyway;
use lessor_protocol::{Fallback, Key, LimitName, Moment, push};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// State that handles and the background task share.
pub(crate) struct Shared {
    pub(crate) wake_list: Arc<WakeList>,
    pub(crate) exchanges: AtomicU64,
    pub(crate) failed_exchanges: AtomicU64,
    pub(crate) listening: AtomicU64,
    pub(crate) moves: AtomicU64,
    unreachable: AtomicBool,
    /// Whether an allocator answers, and turns this client away.
    denied: AtomicBool,
    events: Teller,
    /// Limits that are in fallback.
    fallen: Mutex<BTreeMap<Arc<str>, Fallback>>,
    ticks: Ticks,
    /// The pools without a key, which hold the pools of their keys.
    limits: Limits,
    /// Held while pools are added or forgotten.
    changes: Mutex<Changes>,
}

/// State that changes when pools are added or forgotten.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Whether the client is closed: no pool is added any more.
    closed: bool,
    /// The tallies of limits, each under its own label, and at last that of all others under one label.
    tallies: Vec<Arc<Tally>>,
    /// For each limit, the pool that refuses all invalid keys.
    bad_keys: HashMap<Arc<str>, Arc<LocalPool>>,
    /// When an invalid name of a limit was last logged.
    logged: Option<Moment>,
}

/// Most known keys of one limit: about 1 GB. Strangers may choose keys; further ones are refused until others are
/// forgotten.
const KEYS_MAX: usize = 1 << 20;

/// Most known limits: some 125 MB, because none is ever forgotten. A process with more makes names up as it goes.
const LIMITS_MAX: usize = 1 << 16;

/// Most keys of one limit that are kept only for what they spent of their safe share. Beyond that, new keys of the
/// limit begin with the spends of forgotten ones: then too little may pass, never too much.
const SPENT_SHARES_KEPT_MAX: usize = 100_000;

/// Pools visited in one step, up to a part of a map more: a millisecond or two of the background task.
const SWEPT_MAX: usize = 1_000;

/// Iterates over pools in parts: over the keys of a limit and its plain pool, and then over the next limit.
#[derive(Debug)]
pub(crate) struct Parts {
    /// Limits still to visit, or the pools of single keys, the last one first.
    limits: Vec<Arc<LocalPool>>,
    /// The next part of the keys of the last limit.
    part: usize,
}

/// A sweep over the keys of all limits, with its progress.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// Limits still to visit, the last one first.
    limits: Vec<Arc<LocalPool>>,
    /// The next part of the keys of the last limit.
    part: usize,
    /// Keys of the last limit that are kept only for what they spent of their safe share.
    kept: usize,
}

/// Most limits with a label of their own in metrics. Each has some ninety series. A process that makes up more names,
/// by a pattern for example, would flood the metrics store.
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
            denied: AtomicBool::new(false),
            events: Teller::new(),
            fallen: Mutex::default(),
            ticks,
            limits: Limits::new(),
            changes: Mutex::default(),
        }
    }

    /// Returns the pool of a limit and key, made on first use.
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
        let mut changes = self.changes.lock_anyway();
        find().unwrap_or_else(|| {
            let found = condition(limit, None, &changes);
            if found == Condition::Unknown {
                changes.log_name(limit);
            }
            let is_full = self.limits.len() >= LIMITS_MAX;
            let condition = if found == Condition::Good && is_full { Condition::Full } else { found };
            let name = PoolName { limit: limit.into(), key: None };
            // A name that is not kept must not become a label: strangers may choose it.
            let tally = if condition == Condition::Good {
                changes.tally(&name.limit)
            } else {
                Arc::new(Tally::new(Tally::OTHERS.into()))
            };
            let pool = self.make(name, condition, HotRef::alone(), tally);
            if condition == Condition::Good {
                self.limits.insert(pool.name().limit.clone(), pool.clone());
            }
            pool
        })
    }

    fn of_key(&self, plain: &LocalPool, key: &str) -> Arc<LocalPool> {
        // Handles are cloned under this lock, or from another handle: see `forget_idle`.
        let mut changes = self.changes.lock_anyway();
        plain.keys().and_then(|keys| keys.get(key)).unwrap_or_else(|| {
            let limit = &plain.name().limit;
            let has_limit = || self.limits.contains(limit);
            let is_full = || plain.keys().is_some_and(|keys| keys.len() >= KEYS_MAX) || !has_limit();
            let found = condition(limit, Some(key), &changes);
            if found == Condition::BadKey {
                // Strangers choose keys: one pool refuses all invalid ones.
                let name = || PoolName { limit: limit.clone(), key: Some("".into()) };
                let make = || self.make(name(), found, HotRef::alone(), plain.shared_tally());
                if !has_limit() {
                    return make();
                }
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
        if condition != Condition::Good {
            // Calls must not make the task ask for this pool.
            let (ceiling, chance) = (pool.ceiling(), Moment::NEVER);
            pool.set_standing(Standing { condition, ceiling, chance, rtt: INITIAL_RTT });
        }
        if eager {
            pool.nudge();
        }
        pool
    }

    /// Returns the tallies of all limits.
    pub(crate) fn tallies(&self) -> Vec<Arc<Tally>> {
        self.changes.lock_anyway().tallies.clone()
    }

    /// Returns the pools without a key, one for each limit.
    pub(crate) fn plain_pools(&self) -> Vec<Arc<LocalPool>> {
        self.limits.pools()
    }

    /// Returns all pools.
    pub(crate) fn pools(&self) -> Vec<Arc<LocalPool>> {
        let mut pools = self.plain_pools();
        let keys: Vec<_> = pools.iter().filter_map(|plain| plain.keys()).flat_map(Keys::pools).collect();
        pools.extend(keys);
        pools
    }

    /// Returns all pools in parts, for work between whose parts other tasks run. A pool added meanwhile may be missing.
    pub(crate) fn parts(&self) -> Parts {
        Parts { limits: self.plain_pools(), part: 0 }
    }

    /// Returns the pools that `event` is about, as [`Shared::parts`] does.
    pub(crate) fn about(&self, event: &push::Event) -> Parts {
        let mut limits = self.plain_pools();
        limits.retain(|plain| event.is_about(&plain.name().limit, event.key.as_deref()));
        if let Some(key) = &event.key {
            // The pool of a key has no keys of its own.
            limits = limits.iter().filter_map(|plain| plain.keys()?.get(key)).collect();
        }
        Parts { limits, part: 0 }
    }

    /// Forgets some pools of keys without a handle and a lease: continues the `sweep` over all of them, or begins it.
    /// It looks at no more than [`SWEPT_MAX`] pools and one part of a map.
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
            // Handles are cloned under the lock or from a handle: if only this owner is left, no other can appear. A
            // call with the key at this moment is refused, because nothing is held, and the next call finds a new pool.
            let _lock = self.changes.lock_anyway();
            let kept = Cell::new(sweep.kept);
            let is_needed = |pool: &Arc<LocalPool>| {
                if Arc::strong_count(pool) > 1 || !pool.refill().is_forgettable(pool.slot(), now) {
                    return true;
                }
                if pool.standby().is_forgettable(now) {
                    return false;
                }
                kept.set(kept.get() + 1);
                let is_kept = kept.get() <= SPENT_SHARES_KEPT_MAX;
                if !is_kept {
                    plain.standby().inherit(pool.standby());
                }
                is_kept
            };
            looked += keys.forget(sweep.part, is_needed);
            (sweep.part, sweep.kept) = (sweep.part + 1, kept.get());
        }
    }

    /// Whether no allocator gives good answers.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.unreachable.load(Ordering::Relaxed)
    }

    /// Whether an allocator answers, and turns this client away.
    pub(crate) fn is_denied(&self) -> bool {
        self.denied.load(Ordering::Relaxed)
    }

    /// Notes whether an allocator turns this client away. Returns whether that changed.
    pub(crate) fn note_denied(&self, denied: bool) -> bool {
        self.denied.swap(denied, Ordering::Relaxed) != denied
    }

    /// Locks out the adding of pools. Every pool whose adding had begun is there.
    pub(crate) fn no_new_pools(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock_anyway()
    }

    /// Notes whether an allocator answers. Returns whether that changed.
    pub(crate) fn note_reachable(&self, reachable: bool) -> bool {
        self.unreachable.swap(!reachable, Ordering::Relaxed) == reachable
    }

    /// Returns the limits in fallback, with the fallback of each.
    pub(crate) fn fallen(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Fallback>> {
        self.fallen.lock_anyway()
    }

    /// Sends `event` to the listeners of this client.
    pub(crate) fn tell(&self, event: Event) {
        self.events.tell(event);
    }

    pub(crate) fn listen(&self) -> Events {
        self.events.listen()
    }

    /// Refuses every call from now on. Repeating it has no effect.
    pub(crate) fn close(&self) {
        // Held until all pools are closed, so that none is added meanwhile.
        let mut changes = self.changes.lock_anyway();
        if std::mem::replace(&mut changes.closed, true) {
            return;
        }
        let pools = self.pools();
        for pool in &pools {
            pool.set_condition(Condition::Closed);
            pool.refill().close(pool.slot());
        }
        // Metrics show no fallback of a client that has ended.
        self.fallen().clear();
        let tallies = changes.tallies.clone();
        drop(changes);
        self.wake_list.close();
        // A waker is foreign code: it may call this client, or panic. All pools are closed already, and no lock is held.
        let mut panicked = None;
        for pool in &pools {
            panicked = panicked.or(catch_unwind(AssertUnwindSafe(|| pool.call_all())).err());
        }
        panicked = panicked.or(catch_unwind(AssertUnwindSafe(|| self.events.close())).err());
        tallies.iter().for_each(|tally| tally.end());
        if let Some(panic) = panicked
            && !std::thread::panicking()
        {
            resume_unwind(panic);
        }
    }
}

/// Prints one line, and never a key.
impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reach = if self.unreachable.load(Ordering::Relaxed) { "unreachable" } else { "reachable" };
        write!(f, "{} limits, allocator {reach}", self.limits.len())
    }
}

impl Sweep {
    /// Whether no limit is left to visit, so that the next sweep starts with the first.
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
    /// Returns the tally for a new limit.
    fn tally(&mut self, limit: &Arc<str>) -> Arc<Tally> {
        if self.tallies.len() <= LABELS_MAX {
            let label = if self.tallies.len() < LABELS_MAX { limit.clone() } else { Tally::OTHERS.into() };
            let tally = Arc::new(Tally::new(label));
            // All metrics of the limit exist from the start, at zero.
            tally.publish(None);
            self.tallies.push(tally);
        }
        self.tallies[self.tallies.len() - 1].clone()
    }

    /// Logs that no limit can be called `name`, unless such a line was logged lately.
    fn log_name(&mut self, name: &str) {
        let now = CLOCK.now();
        if let Err(error) = LimitName::try_new(name)
            && self.logged.is_none_or(|last| now.since(last) >= LOG_EVERY)
        {
            self.logged = Some(now);
            tracing::error!(%error, "invalid name of a limit: every call on it is refused");
        }
    }
}

/// Condition of a new pool. Any condition but good is final, and the background task never learns of the pool, so that
/// invalid names are never sent.
fn condition(limit: &str, key: Option<&str>, changes: &Changes) -> Condition {
    if changes.closed {
        return Condition::Closed;
    }
    match (LimitName::try_new(limit), key) {
        // Strangers choose keys, so invalid ones are not logged.
        (Ok(_), Some(key)) if Key::try_new(key).is_err() => Condition::BadKey,
        (Ok(_), _) => Condition::Good,
        (Err(_), _) => Condition::Unknown,
    }
}

#[cfg(test)]
mod tests;
