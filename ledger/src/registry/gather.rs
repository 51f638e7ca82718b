//! Makes a batch. It begins at once, and its pools are copied a few at a time, so that exchanges go on in between. What
//! an exchange changes meanwhile goes into the next batch.

use super::written::basis_of;
use super::{Batch, LimitConfig, LimitRow, PoolPlace, Registry};
use crate::registry::limit::{Limit, PoolId};
use lessor_protocol::Moment;
use std::collections::VecDeque;

/// A batch, and the pools that are still to be copied into it.
#[derive(Debug)]
pub struct Gathering {
    batch: Batch,
    left: VecDeque<Unwritten>,
}

/// Pools of a limit that are to be written, and the version of their rows.
#[derive(Debug)]
struct Unwritten {
    limit: String,
    version: u64,
    pools: VecDeque<PoolId>,
    /// Whether all pools are to be written: the store drops their earlier rows if the version is new.
    is_whole: bool,
    /// Whether [`Limit::next_of_all`] has more.
    has_more: bool,
}

impl Unwritten {
    /// Returns the next pool of `limit`, to which all of these belong.
    fn next(&mut self, limit: &mut Limit) -> Option<PoolId> {
        self.pools.pop_front().or_else(|| {
            let (pool, has_more) = limit.next_of_all().filter(|_| self.has_more)?;
            self.has_more = has_more;
            Some(pool)
        })
    }

    fn is_empty(&self) -> bool {
        self.pools.is_empty() && !self.has_more
    }
}

impl Gathering {
    /// Leaves out the first limit that is left, because it was changed meanwhile. A crash may undo the change, so none of
    /// its rows may replace earlier ones unless all do, and no decision about it goes before. The next batch has all of
    /// them.
    fn leave_out_first(&mut self) {
        let Some(Unwritten { limit, .. }) = self.left.pop_front() else { return };
        self.batch.is_partial = true;
        self.batch.limits.remove(&limit);
        self.batch.decisions.remove(&limit);
        // Of most limits nothing was copied, and a batch may have a million pools.
        let first = PoolPlace { limit, id: PoolId::default() };
        let limit = &first.limit;
        if self.batch.pools.range(&first..).next().is_some_and(|(place, _)| place.limit == *limit) {
            self.batch.pools.retain(|place, _| place.limit != *limit);
            self.batch.marks.retain(|(place, _)| place.limit != *limit);
        }
    }

    /// Returns the batch, once all pools are in it.
    ///
    /// # Panics
    /// If some pools are not in it yet: see [`Registry::gather`].
    pub fn into_batch(self) -> Batch {
        assert!(self.left.iter().all(Unwritten::is_empty), "pools are still to be copied");
        self.batch
    }
}

impl Registry {
    /// Makes the next batch, all at once.
    pub fn write_down(&mut self, now: Moment) -> Batch {
        let mut gathering = self.begin_batch(now);
        self.gather(now, &mut gathering, usize::MAX);
        gathering.into_batch()
    }

    /// Begins a batch of everything, for a store that has nothing yet.
    pub fn begin_whole_batch(&mut self, now: Moment) -> Gathering {
        self.limits.values_mut().chain(self.retired.values_mut()).for_each(Limit::write_all);
        self.write_decisions();
        self.journaled.is_first = true;
        self.begin_batch(now)
    }

    /// Begins the next batch. [`Registry::gather`] copies pools into it, until it says that these are all.
    pub fn begin_batch(&mut self, now: Moment) -> Gathering {
        let decisions = self.decision_rows(now);
        let journaled = &mut self.journaled;
        journaled.batches += 1;
        journaled.has_no_more();
        let mut batch = Batch {
            number: journaled.batches,
            is_first: std::mem::take(&mut journaled.is_first),
            decisions,
            ..Batch::default()
        };
        if batch.is_first {
            batch.decisions.retain(|_, row| row.is_some());
        }
        for name in std::mem::take(&mut journaled.gone) {
            journaled.versions += 1;
            // An earlier run may have left more of a limit of that name.
            let row = self.departed.get(&name).map(|departed| departed.row(journaled.versions));
            batch.limits.insert(name, row);
        }
        if batch.is_first {
            for (name, departed) in &self.departed {
                journaled.versions += 1;
                batch.limits.insert(name.clone(), Some(departed.row(journaled.versions)));
            }
        }
        let is_unwritten = |(_, limit): &(&String, &mut Limit)| limit.is_unwritten();
        let (mut rows, mut left): (Vec<(String, LimitRow)>, _) = (vec![], VecDeque::new());
        // The answer of a limit that lent just before it was removed waits for this batch, too.
        let limits = self.retired.iter_mut().chain(self.limits.iter_mut());
        for (name, limit) in limits.filter(is_unwritten) {
            journaled.versions += 1;
            let (version, row) = limit.row(now, journaled.versions);
            rows.extend(row.map(|row| (name.clone(), row)));
            let (pools, has_more) = limit.take_unwritten();
            left.push_back(Unwritten {
                limit: name.clone(),
                version,
                pools: pools.into(),
                is_whole: has_more,
                has_more,
            });
        }
        let all: Vec<&LimitConfig> = self.limits.values_mut().map(|limit| limit.config()).collect();
        for (name, row) in rows {
            // `all` is in the order of names.
            let place = all.binary_search_by_key(&name.as_str(), |config| config.name.as_str());
            let removed = || self.retired.lock(&name).map(|limit| limit.shared_config());
            let basis = match place {
                Ok(place) => basis_of(&all, all[place], self.clocks),
                Err(_) => removed().map_or(String::new(), |config| basis_of(&all, &config, self.clocks)),
            };
            batch.limits.insert(name, Some(LimitRow { basis, ..row }));
        }
        Gathering { batch, left }
    }

    /// Copies up to `most` more pools, beside exchanges with other limits. Returns whether these were all.
    pub fn gather(&self, now: Moment, gathering: &mut Gathering, most: usize) -> bool {
        for _ in 0..most {
            while gathering.left.front().is_some_and(Unwritten::is_empty) {
                gathering.left.pop_front();
            }
            let Some(first) = gathering.left.front_mut() else { return true };
            let limit = self.limits.lock(&first.limit).or_else(|| self.retired.lock(&first.limit));
            // The rows of a limit that was forgotten meanwhile are dropped by the next batch.
            let Some(mut limit) = limit else {
                gathering.left.pop_front();
                continue;
            };
            if !limit.has_version(first.version) {
                drop(limit);
                gathering.leave_out_first();
                continue;
            }
            let Some(id) = first.next(&mut limit) else {
                gathering.left.pop_front();
                continue;
            };
            if limit.is_put_off(&id) {
                // The limit's row drops all earlier rows of its pools, so it is not there without this one.
                if first.is_whole {
                    limit.write_all();
                    drop(limit);
                    gathering.leave_out_first();
                    continue;
                }
                // The next batch has the pool, and all decisions about its limit.
                gathering.batch.is_partial = true;
                gathering.batch.decisions.remove(&first.limit);
                continue;
            }
            let now = limit.not_before(now);
            let row = limit.pool_row(now, &id, first.version);
            drop(limit);
            let Some(row) = row else { continue };
            let place = PoolPlace { limit: first.limit.clone(), id };
            if let Some((_, mark)) = &row {
                gathering.batch.marks.push((place.clone(), *mark));
            }
            gathering.batch.pools.insert(place, row.map(|(row, _)| row));
        }
        gathering.left.iter().all(Unwritten::is_empty)
    }
}
