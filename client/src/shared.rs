//! What all handles of a client and its background task share: the pools by name, and how things stand.

use crate::events::{Event, Events, Teller};
use crate::local_pool::{Condition, LocalPool, PoolName};
use crate::ticks::Ticks;
use arc_swap::ArcSwap;
use lessor_protocol::{Fallback, Key, LimitName};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// What handles and the background task share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) wake: Arc<Notify>,
    pub(crate) exchanges: AtomicU64,
    pub(crate) failed_exchanges: AtomicU64,
    pub(crate) listening: AtomicU64,
    unreachable: AtomicBool,
    events: Teller,
    /// Limits that are in fallback.
    fallen: Mutex<BTreeMap<String, Fallback>>,
    ticks: Ticks,
    /// The limits without a key: few, never forgotten, and looked up by whoever keeps no handle.
    limits: ArcSwap<HashMap<String, Arc<LocalPool>>>,
    /// All pools. Changes to `limits` are made under this lock too.
    pools: Mutex<Pools>,
}

#[derive(Debug, Default)]
struct Pools {
    by_name: HashMap<PoolName, Arc<LocalPool>>,
    closed: bool,
}

impl Shared {
    pub(crate) fn new(ticks: Ticks) -> Self {
        Shared {
            wake: Arc::new(Notify::new()),
            exchanges: AtomicU64::new(0),
            failed_exchanges: AtomicU64::new(0),
            listening: AtomicU64::new(0),
            unreachable: AtomicBool::new(false),
            events: Teller::new(),
            fallen: Mutex::default(),
            ticks,
            limits: ArcSwap::default(),
            pools: Mutex::new(Pools::default()),
        }
    }

    /// The pool of a limit and key, made on first use.
    pub(crate) fn pool(&self, limit: &str, key: Option<&str>) -> Arc<LocalPool> {
        let known = if key.is_none() { self.limits.load().get(limit).cloned() } else { None };
        known.unwrap_or_else(|| {
            self.find_or_make(PoolName { limit: limit.to_owned(), key: key.map(str::to_owned) })
        })
    }

    fn find_or_make(&self, name: PoolName) -> Arc<LocalPool> {
        let mut pools = self.lock();
        if let Some(pool) = pools.by_name.get(&name) {
            return pool.clone();
        }
        let (pool, known) = self.make(name.clone(), pools.closed);
        if known {
            if name.key.is_none() {
                let mut limits = HashMap::clone(&self.limits.load());
                limits.insert(name.limit.clone(), pool.clone());
                self.limits.store(Arc::new(limits));
            }
            pools.by_name.insert(name, pool.clone());
        }
        pool
    }

    /// A pool, and whether the background task is to know it: a name that cannot be is never sent.
    fn make(&self, name: PoolName, closed: bool) -> (Arc<LocalPool>, bool) {
        let wrong = LimitName::try_new(&name.limit).err().or_else(|| Key::try_new(name.key.as_ref()?).err());
        let eager = name.key.is_none() && wrong.is_none();
        let pool = Arc::new(LocalPool::new(name, eager, self.ticks.clone(), self.wake.clone()));
        let condition = match &wrong {
            _ if closed => Condition::Closed,
            Some(error) => {
                tracing::error!(%error, "no limit or key can have this name: every call on it is refused");
                Condition::Unknown
            }
            None => Condition::Good,
        };
        pool.set_condition(condition);
        if eager {
            pool.nudge();
        }
        (pool, wrong.is_none() && !closed)
    }

    /// All pools that somebody holds a handle to or something is leased for; the others are forgotten.
    pub(crate) fn pools(&self) -> Vec<Arc<LocalPool>> {
        let mut pools = self.lock();
        // Handles are cloned under this lock or from a handle: with one owner left, nobody else can come by one.
        pools.by_name.retain(|name, pool| {
            name.key.is_none() || Arc::strong_count(pool) > 1 || !pool.refill().is_idle()
        });
        pools.by_name.values().cloned().collect()
    }

    /// Notes whether the allocator answers. True if that is news.
    pub(crate) fn reachable(&self, reachable: bool) -> bool {
        self.unreachable.swap(!reachable, Ordering::Relaxed) == reachable
    }

    /// Limits that are in fallback, and what they do then.
    pub(crate) fn fallen(&self) -> MutexGuard<'_, BTreeMap<String, Fallback>> {
        self.fallen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whoever listens to this client.
    pub(crate) fn tell(&self, event: Event) {
        self.events.tell(event);
    }

    pub(crate) fn listen(&self) -> Events {
        self.events.listen()
    }

    /// Every call is refused from now on.
    pub(crate) fn close(&self) {
        self.tell(Event::Closed);
        let mut pools = self.lock();
        pools.closed = true;
        for pool in pools.by_name.values() {
            pool.set_condition(Condition::Closed);
            pool.refill().close(pool.slot());
            pool.call_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pools> {
        // A map of pools: no panic elsewhere can have left it half changed.
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
