//! What is written down of a limit and of its pools, and when that has to happen. The registry collects it into
//! batches. All of it is off for a limit without a store.

use super::{CountedPool, Limit, PoolEntry, PoolId};
use crate::Rule;
use crate::pool::{CHECKPOINT_LASTS, HighWater, Past, Pool};
use crate::registry::rows::{LimitRow, PoolPlace, PoolRow, Written};
use crate::registry::{Keyed, LimitConfig};
use crate::rule::Gap;
use crate::share::Owner;
use lessor_protocol::{ClockBounds, Moment};
use serde_json::json;
use std::collections::BTreeSet;

/// What is still to be written down of a limit. Without a store this is off, and every answer may leave at once.
#[derive(Debug, Default)]
pub(super) struct Unwritten {
    is_on: bool,
    /// See [`LimitRow::version`]; `None` until the next row gets one.
    version: Option<u64>,
    /// Whether the limit's own row is to be written.
    has_row: bool,
    /// Pools that are to be written, each once, and pools that are gone.
    pools: Vec<PoolId>,
    /// Whether all existing pools are to be written, beside the ones that are gone.
    has_all: bool,
    round: Round,
    /// Pools that were topped up under a name since the last batch began. That batch does not have the name.
    topped_up: BTreeSet<PoolId>,
    /// Whether an answer was given that may not leave before its permits are written down.
    is_uncovered: bool,
}

/// Progress of a batch that takes in all pools of a limit.
#[derive(Debug, Default)]
enum Round {
    /// There is no such batch, or it has all pools.
    #[default]
    Over,
    /// Pools after this one are still to be copied, as they are by then; all of them if there is none.
    After(Option<PoolId>),
}

impl Unwritten {
    /// Whether the pool `id` will be written because all pools are.
    fn has(&self, id: &PoolId) -> bool {
        let is_ahead = match &self.round {
            Round::Over => false,
            Round::After(last) => last.as_ref().is_none_or(|last| id > last),
        };
        self.has_all || is_ahead
    }

    /// Whether anything is written down.
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }
}

impl LimitConfig {
    /// Returns what the checkpoints of its pools depend on, except for other limits: rules, drift, keys and the name of
    /// the parent.
    pub(crate) fn basis(&self, clocks: ClockBounds) -> serde_json::Value {
        json!({
            "drift_ppm": clocks.drift_ppm(),
            "keyed": self.keyed != Keyed::No,
            "parent": self.parent,
            "rules": self.raw().promises(),
        })
    }

    /// Whether any of its rules, be it for one key, caps calls in flight or keeps a steady flow.
    pub(crate) fn counts_calls(&self) -> bool {
        let counts = |rule: &Rule| rule.longest().is_some() || rule.flow().is_some();
        self.rules.iter().chain(self.overrides.values().flatten()).any(counts)
    }
}

impl Limit {
    /// Begins to write down what the limit lends.
    pub(crate) fn begin_writing(&mut self) {
        self.unwritten.is_on = true;
        self.invalidate_checkpoints();
    }

    /// Has all rows written anew, because the old checkpoints are of no use under other rules.
    pub(super) fn invalidate_checkpoints(&mut self) {
        if self.unwritten.is_on {
            self.unwritten.version = None;
            self.write_all();
        }
    }

    /// Has the limit's own row written, because it changed, or a limit above or below it.
    pub(crate) fn queue_row(&mut self) {
        self.unwritten.has_row = self.unwritten.is_on;
    }

    /// Whether all of its pools can go on from checkpoints.
    pub(crate) fn has_checkpoints(&self) -> bool {
        self.plans.all().all(|plan| plan.has_checkpoints())
    }

    /// Notes that a pool was used: whether its answer may leave, and whether it has to be written.
    pub(super) fn note(&mut self, id: &PoolId) {
        self.note_leasing(id);
        if !self.unwritten.is_on {
            return;
        }
        let Some(entry) = self.pools.get_mut(id, &mut self.tally) else { return };
        let (is_covered, wants_checkpoint) =
            entry.with(|CountedPool { pool, .. }| (pool.is_covered(), pool.wants_checkpoint()));
        self.unwritten.is_uncovered |= !is_covered;
        if wants_checkpoint {
            self.queue(id);
        }
    }

    /// Has a pool written, whatever it has lent since its last checkpoint.
    pub(super) fn write_soon(&mut self, id: &PoolId) {
        if self.unwritten.is_on {
            self.queue(id);
        }
    }

    /// Has a pool written with the name of its top-up, and neither without the other.
    pub(super) fn write_with_name(&mut self, id: &PoolId) {
        if self.unwritten.is_on {
            self.unwritten.topped_up.insert(id.clone());
        }
    }

    /// Whether the batch that began last cannot have the pool `id`, because it does not have the name of a top-up. The
    /// pool is queued for the next batch then.
    pub(crate) fn is_put_off(&mut self, id: &PoolId) -> bool {
        let is_put_off = self.unwritten.topped_up.contains(id);
        if is_put_off && let Some(entry) = self.pools.get_mut(id, &mut self.tally) {
            entry.take_from_queue();
            self.queue(id);
        }
        is_put_off
    }

    /// Queues a pool that is to be written, or that is gone.
    fn queue(&mut self, id: &PoolId) {
        if self.unwritten.has(id) && self.pools.contains(id) {
            return;
        }
        if !self.pools.get_mut(id, &mut self.tally).is_some_and(PoolEntry::queue) {
            self.unwritten.pools.push(id.clone());
        }
    }

    /// Queues the row of a dropped pool to be dropped, too.
    pub(super) fn drop_written(&mut self, id: PoolId) {
        if self.unwritten.is_on {
            self.unwritten.pools.push(id);
        }
    }

    /// Whether an answer was given, since the last call, that may not leave before its permits are written down.
    pub(crate) fn take_uncovered(&mut self) -> bool {
        std::mem::take(&mut self.unwritten.is_uncovered)
    }

    /// Whether there is something to write.
    pub(crate) fn is_unwritten(&self) -> bool {
        self.unwritten.has_row || self.unwritten.has_all || !self.unwritten.pools.is_empty()
    }

    /// Returns the version of its rows, and its own row without the basis, if that is to be written. `next` is an
    /// unused version.
    pub(crate) fn row(&mut self, now: Moment, next: u64) -> (u64, Option<LimitRow>) {
        let version = *self.unwritten.version.get_or_insert(next);
        let (shares, longest) = (self.saved_shares(now), self.longest());
        let row = || LimitRow { version, basis: String::new(), past: self.past.save(), shares, longest };
        (version, std::mem::take(&mut self.unwritten.has_row).then(row))
    }

    /// Takes the pools that are to be written, and returns whether [`Limit::next_of_all`] has more. Each stays marked
    /// until [`Limit::pool_row`] is called.
    pub(crate) fn take_unwritten(&mut self) -> (Vec<PoolId>, bool) {
        let has_all = std::mem::take(&mut self.unwritten.has_all) && !self.pools.is_empty();
        self.unwritten.round = if has_all { Round::After(None) } else { Round::Over };
        self.unwritten.topped_up.clear();
        (std::mem::take(&mut self.unwritten.pools), has_all)
    }

    /// Returns the next pool of a batch that takes in all pools, and whether there are more.
    pub(crate) fn next_of_all(&mut self) -> Option<(PoolId, bool)> {
        let Round::After(last) = std::mem::take(&mut self.unwritten.round) else { return None };
        let next = self.pools.next(last.as_ref())?.clone();
        let has_more = self.pools.next(Some(&next)).is_some();
        if has_more {
            self.unwritten.round = Round::After(Some(next.clone()));
        }
        Some((next, has_more))
    }

    /// Whether its rows have this `version`: no change has made them useless.
    pub(crate) fn has_version(&self, version: u64) -> bool {
        self.unwritten.version == Some(version)
    }

    /// Returns the row of a pool at `now`, of this `version`, and its high-water mark once the row is durable;
    /// `Some(None)` for a pool that is gone. `None` if there is nothing to write of the pool.
    pub(crate) fn pool_row(
        &mut self,
        now: Moment,
        id: &PoolId,
        version: u64,
    ) -> Option<Option<(PoolRow, HighWater)>> {
        let Some(entry) = self.pools.get_mut(id, &mut self.tally) else { return Some(None) };
        entry.take_from_queue();
        let owner = Some(self.owners.at(entry.made_for())).filter(|owner| *owner != Owner::NONE);
        let (checkpoint, mark) = entry.with(|kept| kept.pool.checkpoint(now, CHECKPOINT_LASTS))?;
        Some(Some((PoolRow { version, checkpoint, owner: owner.map(|owner| owner.0) }, mark)))
    }

    /// Has the limit's row and all pools written.
    pub(crate) fn write_all(&mut self) {
        if self.unwritten.is_on {
            (self.unwritten.has_row, self.unwritten.has_all) = (true, true);
        }
    }

    /// Raises the high-water mark of a pool to `mark`, whose checkpoint is durable.
    pub(crate) fn raise_high_water(&mut self, id: &PoolId, mark: HighWater) {
        if let Some(entry) = self.pools.get_mut(id, &mut self.tally) {
            entry.with(|kept| kept.pool.raise_high_water(mark));
        }
    }

    /// Goes on from what an earlier run wrote, which ended by `now`. Its pools are restored after this.
    pub(crate) fn resume(&mut self, now: Moment) {
        self.restored = Some(now);
        let pools = self.pools.all(&mut self.tally);
        pools.for_each(|entry| entry.with(|kept| kept.pool.forget_safe_shares(now)));
    }

    /// Restores all of its pools that are `written`. The limit's own row has this `version`.
    pub(crate) fn restore_all(&mut self, written: &Written, version: u64, gap: Gap, now: Moment) {
        let name = self.config.name.to_string();
        let first = PoolPlace { limit: name.clone(), id: PoolId::default() };
        let pools = written.pools.range(first..).take_while(|(place, _)| place.limit == name);
        for (place, row) in pools {
            let id = &place.id;
            let asked = id.name.as_ref().map_or(name.as_str(), |name| name.as_str());
            if self.pool_id(asked, place.key()) == Ok(id.clone()) {
                self.restore(id.clone(), row, version, gap, now);
            }
        }
    }

    /// Restores a pool from `row`. If the row has another version than the limit's own, or cannot be used, the pool
    /// begins as after a loss of books.
    pub(super) fn restore(&mut self, id: PoolId, row: &PoolRow, version: u64, gap: Gap, now: Moment) {
        let plan = self.plans.get(id.key.as_ref()).clone();
        let restored = || Pool::from_checkpoint(plan.clone(), &row.checkpoint, gap, now);
        let pool = (row.version == version).then(restored).flatten().unwrap_or_else(|| {
            // A change of the rules does not end the wait.
            self.past = self.past.and(Past::Lost(now));
            self.past.pool(&plan, now)
        });
        let mut kept = CountedPool::new(pool);
        self.earlier.keep_back(&mut kept.pool);
        let view = kept.pool.view(now);
        self.tally.count(&mut kept.counted, view);
        self.opens = self.opens.max(now + view.quarantine);
        let made_for = self.begin_pool(&id, row.owner.map_or(Owner::NONE, Owner));
        let mut entry = PoolEntry::of(Box::new(kept), made_for);
        if self.makes_pools() {
            // Most pools were at rest when they were written.
            entry.rest();
        }
        if let Some(old) = self.pools.insert(id, entry) {
            self.owners.remove(old.made_for());
            self.tally.drop(old.counted());
        }
    }
}
