//! What becomes of a limit while the allocator cannot be reached and its lease is over, and who is told. The background
//! task enters and leaves it; callers see it in what they are answered, and nothing here waits.

use crate::events::Event;
use crate::local_pool::{Condition, LocalPool};
use crate::shared::Shared;
use lessor_protocol::{Fallback, Moment};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// One if a limit is in fallback in this process, by limit and by what it does then.
const ACTIVE: &str = "lessor_client_fallback";

/// Permits that were let pass in fallback, by limit.
const PASSED: &str = "lessor_client_fallback_passed_permits_total";

/// One pool's part in it.
#[derive(Debug, Default)]
pub(crate) struct Standby {
    /// What the allocator told: whether everything is to pass without it.
    opens: AtomicBool,
    /// Whether the limit is in shadow mode, as far as we were told.
    shadow: AtomicBool,
    /// Somebody has paused the limit, or blocked this node: that goes before any fallback.
    stopped: AtomicBool,
    active: AtomicBool,
    /// Permits that were let pass.
    passed: AtomicU64,
}

impl Standby {
    /// The last answer said so. True if the limit enters or leaves shadow mode by that.
    pub(crate) fn told(&self, shadow: bool, fallback: Fallback) -> bool {
        self.opens.store(fallback == Fallback::Open, Ordering::Relaxed);
        self.shadow.swap(shadow, Ordering::Relaxed) != shadow
    }

    /// Whether somebody has paused the limit. True if that is news.
    pub(crate) fn stops(&self, stopped: bool) -> bool {
        self.stopped.swap(stopped, Ordering::Relaxed) != stopped
    }

    /// Whether what would be refused is let pass.
    pub(crate) fn lets_pass(&self) -> bool {
        self.shadow.load(Ordering::Relaxed) || self.is_open()
    }

    /// Counts permits that were let pass because nobody answers. False if they were for another reason.
    pub(crate) fn counts(&self, permits: u64) -> bool {
        let is_counted = self.is_open() && !self.shadow.load(Ordering::Relaxed);
        if is_counted {
            self.passed.fetch_add(permits, Ordering::Relaxed);
        }
        is_counted
    }

    /// Permits that were ever let pass because nobody answered.
    pub(crate) fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    /// What happens in fallback.
    fn fallback(&self) -> Fallback {
        if self.opens.load(Ordering::Relaxed) { Fallback::Open } else { Fallback::Closed }
    }

    fn is_open(&self) -> bool {
        self.active.load(Ordering::Relaxed) && self.fallback() == Fallback::Open
    }
}

/// An exchange has failed: those limits whose leases are over are in fallback from now on.
pub(crate) fn enter(shared: &Shared, now: Moment) {
    let (pools, mut passed) = (shared.pools(), BTreeMap::new());
    // A key that is new has heard nothing yet: what was told of another key of its limit holds for it too.
    let opens = pools.iter().filter(|pool| pool.standby().fallback() == Fallback::Open);
    let opens: HashSet<&str> = opens.map(|pool| &*pool.name().limit).collect();
    for pool in &pools {
        let standby = pool.standby();
        let is_of_no_use = [Condition::Unknown, Condition::Closed].contains(&pool.condition());
        if now < pool.slot().deadline() || is_of_no_use || standby.stopped.load(Ordering::Relaxed) {
            continue;
        }
        standby.opens.store(opens.contains(&*pool.name().limit), Ordering::Relaxed);
        standby.active.store(true, Ordering::Relaxed);
        pool.mind_passing();
        *passed.entry(pool.name().limit.clone()).or_default() += standby.passed();
        let fallback = standby.fallback();
        if shared.fallen().insert(pool.name().limit.clone(), fallback).is_none() {
            entered(shared, &pool.name().limit, fallback);
        }
        if standby.lets_pass() {
            // Whoever waits need not wait any more, one after the other.
            pool.call_first();
        }
    }
    count(passed);
}

/// The allocator answers again: no limit is in fallback any more.
pub(crate) fn leave(shared: &Shared) {
    let fallen = std::mem::take(&mut *shared.fallen());
    if fallen.is_empty() {
        return;
    }
    let mut passed = BTreeMap::new();
    for pool in shared.pools() {
        pool.standby().active.store(false, Ordering::Relaxed);
        pool.mind_passing();
        *passed.entry(pool.name().limit.clone()).or_default() += pool.standby().passed();
    }
    for (limit, fallback) in fallen {
        metrics::gauge!(ACTIVE, "limit" => limit.clone(), "fallback" => fallback.name()).set(0.0);
        tracing::info!(%limit, %fallback, "the allocator answers again: the limit is out of fallback");
        shared.tell(Event::FallbackLeft { limit, fallback });
    }
    count(passed);
}

fn entered(shared: &Shared, limit: &str, fallback: Fallback) {
    metrics::gauge!(ACTIVE, "limit" => limit.to_owned(), "fallback" => fallback.name()).set(1.0);
    if fallback == Fallback::Open {
        tracing::error!(
            limit,
            "no allocator and no lease: EVERY CALL PASSES until it answers again, and nothing holds the cap"
        );
    } else {
        tracing::warn!(limit, "no allocator and no lease: calls are refused until it answers again");
    }
    shared.tell(Event::FallbackEntered { limit: limit.into(), fallback });
}

fn count(passed: BTreeMap<Arc<str>, u64>) {
    for (limit, permits) in passed.into_iter().filter(|(_, permits)| *permits > 0) {
        metrics::counter!(PASSED, "limit" => limit).absolute(permits);
    }
}

impl LocalPool {
    /// Permits that were let pass in fallback.
    pub(crate) fn fallback_passed(&self) -> u64 {
        self.standby().passed()
    }
}
