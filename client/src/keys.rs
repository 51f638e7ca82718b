//! The pools of one limit by key: for callers that keep no handle, one lookup a call, which allocates nothing. Handles of
//! the plain limit look here; what is made and forgotten, [`crate::shared::Shared`] decides.

mod table;
mod text;

use crate::local_pool::{HotRef, LocalPool};
use crate::refusal::Refusal;
use crate::slot::Watch;
use crate::ticks::Ticks;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use table::Table;

pub(crate) use text::KeyText;

/// Parts with a lock of their own. A lookup writes to the lock of its part: with so many, two threads seldom do so at
/// once, and a part that grows keeps few of them waiting. Each is 128 bytes.
pub(crate) const SHARDS: usize = 256;

/// The pools of one limit by key.
#[derive(Debug)]
pub(crate) struct Keys {
    shards: Box<[Shard]>,
    /// Differs from map to map: a caller that chooses keys does not know which fall together.
    hasher: RandomState,
    /// The newest reading of the exact clock that any lookup took: a key that is called now and then takes none.
    watch: SharedWatch,
    /// How many there are.
    len: AtomicUsize,
    /// What their pools go by: that of one would be in a line that a call need not wait for.
    ticks: Ticks,
}

/// Written once a tick and read by every lookup: no line that is written at each call.
#[derive(Debug)]
#[repr(align(128))]
struct SharedWatch(Watch);

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(RwLock<Table>);

impl Keys {
    pub(crate) fn new(ticks: Ticks) -> Self {
        Keys {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            hasher: RandomState::new(),
            watch: SharedWatch(Watch::new()),
            len: AtomicUsize::new(0),
            ticks,
        }
    }

    /// Spends `permits` of the pool of `key`, if that is known.
    #[inline]
    pub(crate) fn try_acquire(&self, key: &str, permits: u64) -> Option<Result<(), Refusal>> {
        let hash = self.hash(key);
        let table = self.shard(hash).read();
        let (index, hot_state) = table.find(hash, key)?;
        Some(hot_state.try_acquire(Some(&self.watch.0), &self.ticks, permits, || table.pool(index)))
    }

    /// The pool of `key`, if that is known.
    pub(crate) fn get(&self, key: &str) -> Option<Arc<LocalPool>> {
        let hash = self.hash(key);
        let table = self.shard(hash).read();
        table.find(hash, key).map(|(index, _)| table.pool(index).clone())
    }

    /// The pool of a key, which is made if there is none: with its hot state at the spot that it is given.
    pub(crate) fn get_or_insert(
        &self,
        key: &str,
        make: impl FnOnce(HotRef) -> Arc<LocalPool>,
    ) -> Arc<LocalPool> {
        let hash = self.hash(key);
        let mut table = self.shard(hash).write();
        let found = table.find(hash, key).map(|(index, _)| index);
        let index = found.unwrap_or_else(|| {
            self.len.fetch_add(1, Ordering::Relaxed);
            table.insert(hash, make)
        });
        table.pool(index).clone()
    }

    /// How many keys are known.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// All pools.
    pub(crate) fn pools(&self) -> Vec<Arc<LocalPool>> {
        (0..SHARDS).flat_map(|part| self.pools_of(part)).collect()
    }

    /// The pools of a part: of [`SHARDS`].
    pub(crate) fn pools_of(&self, part: usize) -> Vec<Arc<LocalPool>> {
        self.shards[part].read().pools().cloned().collect()
    }

    /// Forgets the pools of a part that `is_needed` says no of, and says how many pools it looked at. The caller holds
    /// the lock under which pools are added and taken out. Lookups wait only while some are taken out.
    pub(crate) fn forget(&self, part: usize, is_needed: impl Fn(&Arc<LocalPool>) -> bool) -> usize {
        let shard = &self.shards[part];
        let (looked, unneeded) = {
            let table = shard.read();
            (table.pools().count(), table.unneeded(&is_needed))
        };
        if unneeded.is_empty() {
            return looked;
        }
        let mut table = shard.write();
        for index in unneeded {
            // Looked at again: a caller may have used it just now, and none can any more.
            if !is_needed(table.pool(index)) {
                table.remove(index);
                self.len.fetch_sub(1, Ordering::Relaxed);
            }
        }
        table.trim();
        looked
    }

    /// Of the bytes alone: what a `str` adds tells it from others that follow, and none does.
    #[inline]
    fn hash(&self, key: &str) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key.as_bytes());
        hasher.finish()
    }

    fn shard(&self, hash: u64) -> &Shard {
        // Not the bits that the table itself goes by, which are the lowest.
        &self.shards[(hash >> 32) as usize % SHARDS]
    }
}

impl Shard {
    // Pools are whole whatever panicked: there is nothing in the table that could be half done.
    #[inline]
    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
