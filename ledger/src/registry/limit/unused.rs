//! What a key that was never used has after changes of its limit: as much as if its pool had been there all along. From
//! the first change on a limit keeps one unused pool for each plan, until that pool cannot be told from a new one.

use super::earlier::Earlier;
use super::plans::Plans;
use crate::CarryOver;
use crate::pool::{Past, Plan, Pool};
use lessor_protocol::{Key, Moment};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Pools that were never used, one for each plan.
#[derive(Debug)]
pub(super) struct Unused {
    /// When the limit began.
    began: Moment,
    /// By key with rules of its own; `None` stands for all other keys. An entry without a pool says that its key begins
    /// like any new one. Without the entry that key would begin with the pool of the others.
    pools: BTreeMap<Option<Key>, Option<Pool>>,
}

impl Unused {
    /// Makes the unused pools of a limit that begins at `now`: none until its first change.
    pub(super) fn new(now: Moment) -> Self {
        Unused { began: now, pools: BTreeMap::new() }
    }

    /// Changes the limit from the plans `from` to the plans `to`. Balances go over as `carry_over` says.
    pub(super) fn change(
        &mut self,
        from: &Plans,
        to: &Plans,
        past: Past,
        carry_over: CarryOver,
        now: Moment,
    ) {
        let mut before = std::mem::take(&mut self.pools);
        let began = self.began;
        let limit = before.remove(&None).flatten().unwrap_or_else(|| past.pool(&from.of_limit, began));
        for key in to.of_keys.keys() {
            let of_key = || from.of_keys.get(key).map(|plan| past.pool(plan, began));
            let key = Some(key.clone());
            let pool = before.remove(&key).flatten().or_else(of_key).unwrap_or_else(|| limit.clone());
            self.pools.insert(key, Some(pool));
        }
        self.pools.insert(None, Some(limit));
        let pools = self.pools.iter_mut().filter_map(|(key, pool)| Some((key, pool.as_mut()?)));
        for (key, pool) in pools {
            go_on(pool, to.get(key.as_ref()), (past, Earlier::default()), carry_over, now);
        }
    }

    /// Leaves `pool`, a new one of `key`, no more than it would have if it had been there all along.
    pub(super) fn begin(&mut self, key: Option<&Key>, pool: &mut Pool, now: Moment) {
        if let Some(unused) = self.of(key) {
            pool.begin_as(unused, now);
        }
    }

    /// Whether a new pool of `key` begins like any other.
    pub(super) fn is_new(&mut self, key: Option<&Key>) -> bool {
        self.of(key).is_none()
    }

    /// Forgets unused pools that would take nothing from a new pool.
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

/// Changes `pool` to `plan`. A pool in quarantine has lent nothing yet, so it is made anew as at a start, except that
/// it refills by the new rules from now on only.
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
