//! What a key that was never used has after changes of its limit: as much as if its pool had been there all along. Limits keep
//! one such pool for each plan, from the first change on, until it cannot be told from a new one.

use super::Plan;
use super::earlier::Earlier;
use crate::CarryOver;
use crate::pool::{Past, Pool};
use lessor_protocol::{Key, Moment};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The plans of a limit: of all keys but those that have rules of their own, and of those.
pub(super) type AllPlans<'a> = (&'a Arc<Plan>, &'a BTreeMap<Key, Arc<Plan>>);

/// The pools that were never used.
#[derive(Debug)]
pub(super) struct Unused {
    /// When the limit began.
    began: Moment,
    /// By the key that has rules of its own; `None` of all others. One without a pool begins like any other: it is not taken for a key
    /// that has no rules of its own.
    pools: BTreeMap<Option<Key>, Option<Pool>>,
}

impl Unused {
    /// Those of a limit that begins at `now`: none, for it has not been changed.
    pub(super) fn new(now: Moment) -> Self {
        Unused { began: now, pools: BTreeMap::new() }
    }

    /// The limit goes on by the plans `to` instead of `from`, and its pools as `carry_over` says.
    pub(super) fn change(
        &mut self,
        from: AllPlans<'_>,
        to: AllPlans<'_>,
        past: Past,
        carry_over: CarryOver,
        now: Moment,
    ) {
        let mut before = std::mem::take(&mut self.pools);
        let began = self.began;
        let limit = before.remove(&None).flatten().unwrap_or_else(|| past.pool(from.0, began));
        for key in to.1.keys() {
            let of_key = || from.1.get(key).map(|plan| past.pool(plan, began));
            let key = Some(key.clone());
            let pool = before.remove(&key).flatten().or_else(of_key).unwrap_or_else(|| limit.clone());
            self.pools.insert(key, Some(pool));
        }
        self.pools.insert(None, Some(limit));
        let pools = self.pools.iter_mut().filter_map(|(key, pool)| Some((key, pool.as_mut()?)));
        for (key, pool) in pools {
            let plan = key.as_ref().and_then(|key| to.1.get(key)).unwrap_or(to.0);
            go_on(pool, plan, (past, Earlier::default()), carry_over, now);
        }
    }

    /// Leaves `pool`, which is new and of `key`, no more than it would have if it had been there all along.
    pub(super) fn begin(&mut self, key: Option<&Key>, pool: &mut Pool, now: Moment) {
        if let Some(unused) = self.of(key) {
            pool.begin_as(unused, now);
        }
    }

    /// Whether a new pool of `key` begins like any other.
    pub(super) fn is_new(&mut self, key: Option<&Key>) -> bool {
        self.of(key).is_none()
    }

    /// Forgets those that leave a new pool all that it begins with.
    pub(super) fn sweep(&mut self, now: Moment) {
        for pool in self.pools.values_mut() {
            // A new pool has no more than this one by then, and may have less.
            pool.take_if(|pool| pool.is_replaceable(now));
        }
        if self.pools.values().all(Option::is_none) {
            self.pools.clear();
        }
    }

    fn of(&mut self, key: Option<&Key>) -> Option<&mut Pool> {
        if self.pools.is_empty() {
            return None;
        }
        let key = key.cloned();
        let own = if self.pools.contains_key(&key) { key } else { None };
        self.pools.get_mut(&own)?.as_mut()
    }
}

/// Goes on by `plan`. A pool in quarantine has lent nothing yet: it is made anew, as at a start, but that it refills by the
/// new rules from now on only.
pub(super) fn go_on(
    pool: &mut Pool,
    plan: &Arc<Plan>,
    (past, earlier): (Past, Earlier),
    carry_over: CarryOver,
    now: Moment,
) {
    match pool.view(now).quarantine.is_zero() {
        true => pool.change(plan.clone(), carry_over, now),
        false => {
            let mut anew = past.pool_by(plan, now, now);
            anew.keep_back_shares_of(pool);
            *pool = anew;
        }
    }
    earlier.keep_back(pool);
}
