//! The pools of one limit by key, for callers that keep no handle: a call is one lookup, which allocates nothing.
//! Handles to the plain limit look here; [`crate::shared::Shared`] decides which pools are made and forgotten.

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

/// Parts of the map, each with its own lock, which every lookup writes to. With this many, two threads seldom use one
/// at the same time, and a part that grows keeps few threads waiting. Each takes 128 bytes.
pub(crate) const SHARDS: usize = 256;

/// The pools of one limit by key.
#[derive(Debug)]
pub(crate) struct Keys {
    shards: Box<[Shard]>,
    /// Differs between maps, so that a caller that chooses keys cannot know which keys collide.
    hasher: RandomState,
    /// The newest reading of the exact clock by any lookup: a key that is called rarely needs no reading of its own.
    watch: SharedWatch,
    /// Number of keys.
    len: AtomicUsize,
    /// The ticks of the pools, kept here because reading them from a pool would cost another cache line.
    ticks: Ticks,
}

/// Written once a tick and read by every lookup, in a cache line that no call writes otherwise.
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

    /// Spends `permits` from the pool of `key`; `None` if the key is not known.
    #[inline]
    pub(crate) fn try_acquire(&self, key: &str, permits: u64) -> Option<Result<(), Refusal>> {
        let hash = self.hash(key);
        let table = self.shard(hash).read();
        let (index, hot_state) = table.find(hash, key)?;
        Some(hot_state.try_acquire(Some(&self.watch.0), &self.ticks, permits, || table.pool(index)))
    }

    /// Returns the pool of `key`, if the key is known.
    pub(crate) fn get(&self, key: &str) -> Option<Arc<LocalPool>> {
        let hash = self.hash(key);
        let table = self.shard(hash).read();
        table.find(hash, key).map(|(index, _)| table.pool(index).clone())
    }

    /// Returns the pool of `key`, and makes it if there is none, with its hot state at the place that `make` is given.
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

    /// Number of known keys.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Returns all pools.
    pub(crate) fn pools(&self) -> Vec<Arc<LocalPool>> {
        (0..SHARDS).flat_map(|part| self.pools_of(part)).collect()
    }

    /// Returns the pools of one part, an index below [`SHARDS`].
    pub(crate) fn pools_of(&self, part: usize) -> Vec<Arc<LocalPool>> {
        self.shards[part].read().pools().cloned().collect()
    }

    /// Forgets the pools of a part that are not needed, and returns how many pools it looked at. The caller holds the
    /// lock under which pools are added and removed. Lookups wait only while pools are removed.
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
            // Checked again: a caller may have used the pool just now. Under the write lock none can.
            if !is_needed(table.pool(index)) {
                table.remove(index);
                self.len.fetch_sub(1, Ordering::Relaxed);
            }
        }
        table.trim();
        looked
    }

    /// Hashes the bytes alone: the terminator of a `str` separates it from values that follow, and none does.
    #[inline]
    fn hash(&self, key: &str) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key.as_bytes());
        hasher.finish()
    }

    fn shard(&self, hash: u64) -> &Shard {
        // Not the lowest bits, which the table uses.
        &self.shards[(hash >> 32) as usize % SHARDS]
    }
}

impl Shard {
    // A panic elsewhere leaves the table whole: nothing in it can be half done.
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
