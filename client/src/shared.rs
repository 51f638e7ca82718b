//! What all handles of a client and its background task share: the pools by name, and how things stand.

use crate::called::Called;
use crate::events::{Event, Events, Teller};
use crate::fallback;
use crate::keys::{Keys, SHARDS};
use crate::local_pool::{CLOCK, Condition, LocalPool, PoolName, Spot, Standing};
use crate::tally::{self, Tally};
use crate::ticks::Ticks;
use crate::timing::RTT_UNTOLD;
use arc_swap::ArcSwap;
use lessor_protocol::{Fallback, Key, LimitName, push};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What handles and the background task share.
pub(crate) struct Shared {
    pub(crate) called: Arc<Called>,
    pub(crate) exchanges: AtomicU64,
    pub(crate) failed_exchanges: AtomicU64,
    pub(crate) listening: AtomicU64,
    pub(crate) moves: AtomicU64,
    unreachable: AtomicBool,
    events: Teller,
    /// Limits that are in fallback.
    fallen: Mutex<BTreeMap<Arc<str>, Fallback>>,
    ticks: Ticks,
    /// The limits without a key: few, never forgotten, and looked up by whoever keeps no handle. Those of keys are with
    /// that of their limit.
    limits: ArcSwap<HashMap<String, Arc<LocalPool>>>,
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
}

/// Keys of one limit that are known at most: 1.5 GB. Strangers may choose keys; more are refused until others are forgotten.
const KEYS_MAX: usize = 1 << 20;

/// Keys of one limit that are remembered only for what they spent of their part of the reserve. Beyond that, keys that are new
/// go on with what the others have spent: too little is let pass then, and never too much.
const SEATS_KEPT_MAX: usize = 100_000;

/// Pools of keys that are looked at in one go when idle ones are forgotten: a millisecond or two of the background task.
const SWEPT_MAX: usize = 1_000;

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
            called: Arc::default(),
            exchanges: AtomicU64::new(0),
            failed_exchanges: AtomicU64::new(0),
            listening: AtomicU64::new(0),
            moves: AtomicU64::new(0),
            unreachable: AtomicBool::new(false),
            events: Teller::new(),
            fallen: Mutex::default(),
            ticks,
            limits: ArcSwap::default(),
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
        let find = || self.limits.load().get(limit).cloned();
        if let Some(pool) = find() {
            return pool;
        }
        let mut changes = self.lock();
        find().unwrap_or_else(|| {
            let name = PoolName { limit: limit.into(), key: None };
            let condition = condition(&name, &changes);
            // What cannot be a name is no label either.
            let tally = if condition == Condition::Good {
                changes.tally(&name.limit)
            } else {
                Arc::new(Tally::new(name.limit.clone()))
            };
            let pool = self.make(name, condition, Spot::alone(), tally);
            if condition == Condition::Good {
                let mut limits = HashMap::clone(&self.limits.load());
                limits.insert(limit.to_owned(), pool.clone());
                self.limits.store(Arc::new(limits));
            }
            pool
        })
    }

    fn of_key(&self, plain: &LocalPool, key: &str) -> Arc<LocalPool> {
        // Handles are cloned under this lock or from a handle: see `forget_idle`.
        let changes = self.lock();
        plain.keys().and_then(|keys| keys.get(key)).unwrap_or_else(|| {
            let name = PoolName { limit: plain.name().limit.clone(), key: Some(key.into()) };
            let is_full = || plain.keys().is_some_and(|keys| keys.len() >= KEYS_MAX);
            let found = condition(&name, &changes);
            let condition = if found == Condition::Good && is_full() { Condition::Full } else { found };
            let make = |spot| self.make(name, condition, spot, plain.shared_tally());
            if condition == Condition::Good {
                let pool = plain.keys_or_new().get_or_insert(key, make);
                fallback::begin(self, &pool, plain);
                pool
            } else {
                make(Spot::alone())
            }
        })
    }

    fn make(&self, name: PoolName, condition: Condition, spot: Spot, tally: Arc<Tally>) -> Arc<LocalPool> {
        let eager = name.key.is_none() && condition == Condition::Good;
        let pool = LocalPool::new(spot, self.ticks.clone(), name, eager, self.called.clone(), tally);
        if condition == Condition::Good {
            pool.set_condition(condition);
        } else {
            // No call has the allocator asked for it.
            let (ceiling, chance) = (pool.ceiling(), lessor_protocol::Moment::NEVER);
            pool.set_standing(Standing { condition, ceiling, chance, rtt: RTT_UNTOLD });
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
        self.limits.load().values().cloned().collect()
    }

    /// All pools.
    pub(crate) fn pools(&self) -> Vec<Arc<LocalPool>> {
        let mut pools = self.plain_pools();
        let keys: Vec<_> = pools.iter().filter_map(|plain| plain.keys()).flat_map(Keys::pools).collect();
        pools.extend(keys);
        pools
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

    /// Forgets some pools of keys that have no handle and no lease, and says whether the `sweep` over all of them is over.
    /// It looks at [`SWEPT_MAX`] pools and a part of a map at most.
    pub(crate) fn forget_idle(&self, sweep: &mut Sweep) -> bool {
        if sweep.limits.is_empty() {
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
                return false;
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
        true
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

    /// Tells whoever listens to this client.
    pub(crate) fn tell(&self, event: Event) {
        self.events.tell(event);
    }

    pub(crate) fn listen(&self) -> Events {
        self.events.listen()
    }

    /// Every call is refused from now on. Doing it again changes nothing.
    pub(crate) fn close(&self) {
        // Held all the while: none is added beside this.
        let mut changes = self.lock();
        if std::mem::replace(&mut changes.closed, true) {
            return;
        }
        self.events.close();
        for pool in self.pools() {
            pool.set_condition(Condition::Closed);
            pool.refill().close(pool.slot());
            pool.call_all();
        }
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
        write!(f, "{} limits, allocator {reach}", self.limits.load().len())
    }
}

impl Changes {
    /// The tally of a limit that is new.
    fn tally(&mut self, limit: &Arc<str>) -> Arc<Tally> {
        if self.tallies.len() <= LABELS_MAX {
            let label = if self.tallies.len() < LABELS_MAX { limit.clone() } else { Tally::OTHERS.into() };
            let tally = Arc::new(Tally::new(label));
            // All that there is to tell is there from the start, at zero.
            tally.tell(None);
            self.tallies.push(tally);
        }
        self.tallies[self.tallies.len() - 1].clone()
    }
}

/// Of a new pool. If it is not good, it stays so, and the background task is not to know the pool: a name that cannot be
/// is never sent.
fn condition(name: &PoolName, changes: &Changes) -> Condition {
    if changes.closed {
        return Condition::Closed;
    }
    match (LimitName::try_new(&name.limit), &name.key) {
        // Strangers may choose keys: what is refused is not logged.
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
mod tests {
    use super::*;
    use crate::limit::Limit;
    use crate::ticks::HotClock;

    fn is_found(plain: &LocalPool, key: &str) -> bool {
        plain.keys().is_some_and(|keys| keys.get(key).is_some())
    }

    #[test]
    fn keys_without_a_lease_or_a_handle_are_forgotten() {
        let shared = Shared::new(Ticks::try_new(HotClock::Exact).expect("it needs no thread"));
        let plain = shared.pool("user", None);
        let kept = shared.pool("user", Some("kept"));
        let called = shared.pool("user", Some("called"));
        called.make_known();
        let forgotten = shared.pool("user", Some("forgotten"));
        let weak = Arc::downgrade(&forgotten);
        drop((called, forgotten));
        assert!(shared.forget_idle(&mut Sweep::default()));
        assert!(is_found(&plain, "kept") && !is_found(&plain, "forgotten"));
        assert!(is_found(&plain, "called"), "the background task is about to look at it");
        assert_eq!((weak.strong_count(), shared.pools().len()), (0, 3));
        assert!(Arc::ptr_eq(&kept, &shared.pool("user", Some("kept"))));
    }

    /// The bug: all keys were looked at in one go, in which no exchange of any limit began.
    #[test]
    fn many_keys_are_forgotten_in_parts() {
        let shared = Shared::new(Ticks::try_new(HotClock::Exact).expect("it needs no thread"));
        let keys = 20 * SWEPT_MAX;
        for key in 0..keys {
            shared.pool("user", Some(&key.to_string()));
        }
        shared.called.take(&mut vec![]);
        let (mut sweep, mut left, mut parts) = (Sweep::default(), keys, 0);
        loop {
            let is_over = shared.forget_idle(&mut sweep);
            let now_left = shared.pools().len() - 1;
            assert!(left - now_left < 2 * SWEPT_MAX, "{} at once", left - now_left);
            (left, parts) = (now_left, parts + 1);
            if is_over {
                break;
            }
        }
        assert!(left == 0 && parts >= 10, "{left} left after {parts} parts");
    }

    /// The bug: an event about one key looked at all keys of all limits.
    #[test]
    fn an_event_is_about_the_pools_that_it_names() {
        let shared = Shared::new(Ticks::try_new(HotClock::Exact).expect("it needs no thread"));
        for (limit, key) in [("user", None), ("user", Some("a")), ("user", Some("b")), ("used/x", Some("a"))]
        {
            shared.pool(limit, key);
        }
        let about = |limit: Option<&str>, key: Option<&str>| {
            let mut event = push::Event::of_all(push::Kind::Lagged);
            (event.limit, event.key) = (limit.map(Into::into), key.map(Into::into));
            let named = |pool: &Arc<LocalPool>| format!("{} {}", pool.name().limit, pool.key());
            let mut pools: Vec<String> = shared.about(&event).iter().map(named).collect();
            pools.sort();
            pools
        };
        assert_eq!(about(Some("user"), Some("a")), ["user a"]);
        assert_eq!(about(Some("user"), None), ["user ", "user a", "user b"]);
        assert_eq!(about(Some("us*"), Some("a")), ["used/x a", "user a"]);
        assert_eq!(about(Some("user"), Some("c")), [""; 0]);
        assert_eq!(about(None, None).len(), 5, "with the plain one of the second limit");
    }

    #[test]
    fn a_process_that_makes_up_names_of_limits_makes_no_more_series_for_it() {
        let shared = Shared::new(Ticks::try_new(HotClock::Exact).expect("it needs no thread"));
        for limit in 0..3 * LABELS_MAX {
            let pool = shared.pool(&format!("limit-{limit}"), None);
            let label = if limit < LABELS_MAX { format!("limit-{limit}") } else { "(others)".to_owned() };
            assert_eq!(pool.tally().label(), label);
            assert!(Arc::ptr_eq(&pool, &shared.pool(&format!("limit-{limit}"), None)), "it is made once");
        }
        assert_eq!(shared.tallies().len(), LABELS_MAX + 1);
        shared.pool("no name at all", None);
        assert_eq!(shared.tallies().len(), LABELS_MAX + 1);
    }

    /// The bug: a key was forgotten with what it had spent of its part of the reserve, and spent the same part again.
    #[test]
    fn a_key_that_is_forgotten_does_not_spend_its_safe_share_again() {
        let shared = Shared::new(Ticks::try_new(HotClock::Exact).expect("it needs no thread"));
        let span = std::time::Duration::from_secs(60);
        let share = lessor_protocol::SafeShare { permits: 10, span, lasts: 10 * span };
        let mut passed = 0;
        for _outage in 0..3 {
            let pool = shared.pool("user", Some("a"));
            pool.standby().told(false, Fallback::SafeShare);
            pool.standby().tell_share(Some(share), CLOCK.now(), lessor_protocol::Terms::default());
            crate::fallback::enter(&shared, CLOCK.now());
            passed += 10 * usize::from(pool.try_acquire_at(pool.spot().front(), 10).is_ok());
            crate::fallback::leave(&shared);
            // The background task has looked at it.
            shared.called.take(&mut vec![]);
            pool.let_go();
            drop(pool);
            assert!(shared.forget_idle(&mut Sweep::default()));
        }
        assert!(passed <= 10, "{passed} of a share of 10");
    }

    /// The bug: the allocator remembers the number of the last word of a vendor, and a key that was forgotten began at 1 again.
    #[test]
    fn what_a_vendor_says_is_news_also_after_its_key_was_forgotten() {
        let shared = Shared::new(Ticks::try_new(HotClock::Exact).expect("it needs no thread"));
        let told = |refusals: u64| {
            let pool = shared.pool("user", Some("a"));
            (0..refusals).for_each(|_| {
                let refusal = crate::Sighting::refused(Some(std::time::Duration::from_secs(1)));
                Limit::new(pool.clone(), Arc::new(Shared::new(shared.ticks.clone()))).report(&refusal);
            });
            let told = pool.observed(CLOCK.now()).expect("it was just now");
            assert_eq!(pool.vendor_refused(), refusals, "what metrics add up begins at none");
            shared.called.take(&mut vec![]);
            pool.forget();
            told
        };
        let (before, after) = (told(3), {
            shared.limits.store(Arc::default());
            told(1)
        });
        assert!(after.number > before.number, "{after:?} after {before:?}");
        assert!(after.refused_total > before.refused_total, "{after:?} after {before:?}");
    }

    #[test]
    fn a_key_that_cannot_be_is_refused_as_one() {
        let shared = Shared::new(Ticks::try_new(HotClock::Exact).expect("it needs no thread"));
        let pool = shared.pool("user", Some(&"k".repeat(10_000)));
        assert_eq!(pool.try_acquire_at(pool.spot().front(), 1), Err(crate::Refusal::BadKey));
        assert_eq!(shared.pools().len(), 1, "it is not kept");
    }
}
