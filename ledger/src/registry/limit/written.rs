//! What is written down of a limit and of its pools, and when that has to be. The allocator collects it; a limit that
//! nothing is written down of has no part in it.

use super::{Kept, Limit, PoolId, Shelf};
use crate::Rule;
use crate::pool::{CHECKPOINT_LASTS, HighWater, Past, Pool};
use crate::registry::rows::{LimitRow, PoolPlace, PoolRow, Written};
use crate::registry::{Keyed, LimitConfig};
use crate::rule::Gap;
use crate::share::Owner;
use lessor_protocol::{ClockBounds, Moment};
use serde_json::json;

/// What a limit knows of what is written down of it. Without a store it is off, and everything counts as known.
#[derive(Debug, Default)]
pub(super) struct Unwritten {
    is_on: bool,
    /// See [`LimitRow::version`]; `None` until it is known.
    version: Option<u64>,
    /// Whether its own row is to be written.
    has_row: bool,
    /// Pools that are to be written, each of them once.
    pools: Vec<PoolId>,
    /// Whether all that there are are to be written, beside those that are gone.
    has_all: bool,
    round: Round,
    /// Whether something was answered that may not be known before it is written.
    is_uncovered: bool,
}

/// How far a batch has come that all pools of a limit are in.
#[derive(Debug, Default)]
enum Round {
    /// There is none, or it has come to the end.
    #[default]
    Over,
    /// Those after this one are still to be copied, as they are then.
    After(Option<PoolId>),
}

impl Unwritten {
    /// Whether the pool `id` is to be written as one of all.
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
    /// All that makes the checkpoints of its pools what they are, but for those above and below it: rules, and what is counted
    /// apart.
    pub(crate) fn basis(&self, clocks: ClockBounds) -> serde_json::Value {
        json!({
            "drift_ppm": clocks.drift_ppm(),
            "keyed": self.keyed != Keyed::No,
            "parent": self.parent,
            "rules": self.raw().promises(),
        })
    }

    /// Whether it caps what is in flight, or keeps a steady flow, be it for one key.
    pub(crate) fn counts_calls(&self) -> bool {
        let counts = |rule: &Rule| rule.longest().is_some() || rule.flow().is_some();
        self.rules.iter().chain(self.overrides.values().flatten()).any(counts)
    }
}

impl Limit {
    /// From now on what it lends is written down.
    pub(crate) fn begin_writing(&mut self) {
        self.unwritten.is_on = true;
        self.outdate_records();
    }

    /// Its rules are others: what was written of its pools is of no use any more.
    pub(super) fn outdate_records(&mut self) {
        if self.unwritten.is_on {
            self.unwritten.version = None;
            self.write_all();
        }
    }

    /// It, or who is above or below it, is another one.
    pub(crate) fn write_row_soon(&mut self) {
        self.unwritten.has_row = self.unwritten.is_on;
    }

    /// Whether all of its pools can go on as they were written down.
    pub(crate) fn has_checkpoints(&self) -> bool {
        std::iter::once(&self.plan).chain(self.overrides.values()).all(|plan| plan.has_checkpoints())
    }

    /// A pool was used: whether that is known, and what has to be written.
    pub(super) fn note(&mut self, id: &PoolId) {
        self.note_leasing(id);
        if !self.unwritten.is_on {
            return;
        }
        let Some(shelf) = self.pools.get_mut(id, &mut self.tally) else { return };
        let (may_be_known, wants_checkpoint) =
            shelf.with(|Kept { pool, .. }| (pool.may_be_known(), pool.wants_checkpoint()));
        self.unwritten.is_uncovered |= !may_be_known;
        if wants_checkpoint {
            self.queue(id);
        }
    }

    /// A pool is to be written, whatever was lent of it.
    pub(super) fn write_soon(&mut self, id: &PoolId) {
        if self.unwritten.is_on {
            self.queue(id);
        }
    }

    /// A pool is to be written, or is gone and to be dropped.
    fn queue(&mut self, id: &PoolId) {
        if self.unwritten.has(id) && self.pools.contains(id) {
            return;
        }
        if !self.pools.get_mut(id, &mut self.tally).is_some_and(Shelf::queue) {
            self.unwritten.pools.push(id.clone());
        }
    }

    /// A pool was dropped: what is written of it is of no use any more.
    pub(super) fn drop_written(&mut self, id: PoolId) {
        if self.unwritten.is_on {
            self.unwritten.pools.push(id);
        }
    }

    /// Whether an answer was given since the last question that may not be known before what it lends is written.
    pub(crate) fn take_uncovered(&mut self) -> bool {
        std::mem::take(&mut self.unwritten.is_uncovered)
    }

    /// Whether there is something to write.
    pub(crate) fn is_unwritten(&self) -> bool {
        self.unwritten.has_row || self.unwritten.has_all || !self.unwritten.pools.is_empty()
    }

    /// The version of its rows, and its own row but for its basis, if that is to be written. `next` is a version that there never was.
    pub(crate) fn row(&mut self, now: Moment, next: u64) -> (u64, Option<LimitRow>) {
        let version = *self.unwritten.version.get_or_insert(next);
        let (shares, longest) = (self.saved_shares(now), self.longest());
        let row = || LimitRow { version, basis: String::new(), past: self.past.save(), shares, longest };
        (version, std::mem::take(&mut self.unwritten.has_row).then(row))
    }

    /// The pools that are to be written, and whether [`Limit::next_of_all`] says more. Each stays marked until [`Limit::pool_row`] is
    /// called.
    pub(crate) fn take_unwritten(&mut self) -> (Vec<PoolId>, bool) {
        let has_all = std::mem::take(&mut self.unwritten.has_all) && !self.pools.is_empty();
        self.unwritten.round = if has_all { Round::After(None) } else { Round::Over };
        (std::mem::take(&mut self.unwritten.pools), has_all)
    }

    /// The next pool that is to be written where all are, and whether there are more.
    pub(crate) fn next_of_all(&mut self) -> Option<(PoolId, bool)> {
        let Round::After(last) = std::mem::take(&mut self.unwritten.round) else { return None };
        let next = self.pools.next(last.as_ref())?.clone();
        let has_more = self.pools.next(Some(&next)).is_some();
        if has_more {
            self.unwritten.round = Round::After(Some(next.clone()));
        }
        Some((next, has_more))
    }

    /// The row of a pool at `now`, and what may be lent once it is durable; `Some(None)` of a pool that is gone. `None` if there is
    /// nothing to write of it, or the limit has another `version` by now: then the next batch has it.
    pub(crate) fn pool_row(
        &mut self,
        now: Moment,
        id: &PoolId,
        version: u64,
    ) -> Option<Option<(PoolRow, HighWater)>> {
        let is_other = self.unwritten.version != Some(version);
        let Some(shelf) = self.pools.get_mut(id, &mut self.tally) else {
            return (!is_other).then_some(None);
        };
        shelf.take_from_queue();
        let owner = Some(self.owners.at(shelf.made_for())).filter(|owner| *owner != Owner::NONE);
        if is_other {
            self.queue(id);
            return None;
        }
        let (checkpoint, mark) = shelf.with(|kept| kept.pool.checkpoint(now, CHECKPOINT_LASTS))?;
        Some(Some((PoolRow { version, checkpoint, owner: owner.map(|owner| owner.0) }, mark)))
    }

    /// What is to be written once more, all of it.
    pub(crate) fn write_all(&mut self) {
        if self.unwritten.is_on {
            (self.unwritten.has_row, self.unwritten.has_all) = (true, true);
        }
    }

    /// What came with `mark` is durable.
    pub(crate) fn raise_high_water(&mut self, id: &PoolId, mark: HighWater) {
        if let Some(shelf) = self.pools.get_mut(id, &mut self.tally) {
            shelf.with(|kept| kept.pool.raise_high_water(mark));
        }
    }

    /// It goes on where an earlier life was until `now`, with pools that are still to be restored.
    pub(crate) fn resume(&mut self, now: Moment) {
        self.restored = Some(now);
        let pools = self.pools.all(&mut self.tally);
        pools.for_each(|shelf| shelf.with(|kept| kept.pool.forget_safe_shares(now)));
    }

    /// Goes on with all of its pools that are `written`, of this `version` of it.
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

    /// Goes on with a pool as it was written down in `row`, of this `version` of its limit. One that is of no use begins
    /// as after a loss.
    pub(super) fn restore(&mut self, id: PoolId, row: &PoolRow, version: u64, gap: Gap, now: Moment) {
        let plan = id.key.as_ref().and_then(|key| self.overrides.get(key)).unwrap_or(&self.plan).clone();
        let restored = || Pool::from_checkpoint(plan.clone(), &row.checkpoint, gap, now);
        let pool = (row.version == version).then(restored).flatten().unwrap_or_else(|| {
            // If its rules are changed before that is over, it still is not.
            self.past = Past::Lost(now);
            self.past.pool(&plan, now)
        });
        let mut kept = Kept::new(pool);
        self.earlier.keep_back(&mut kept.pool);
        let view = kept.pool.view(now);
        self.tally.count(&mut kept.counted, view);
        self.opens = self.opens.max(now + view.quarantine);
        let made_for = self.begin_pool(&id, row.owner.map_or(Owner::NONE, Owner));
        let mut shelf = Shelf::of(Box::new(kept), made_for);
        if self.makes_pools() {
            // Most rested when they were written.
            shelf.rest();
        }
        if let Some(old) = self.pools.insert(id, shelf) {
            self.owners.remove(old.made_for());
            self.tally.drop(old.counted());
        }
    }
}
