//! The pools of one limit by key: for callers that keep no handle, one lookup a call, which allocates nothing. Handles of
//! the plain limit look here; what is made and forgotten, [`crate::shared::Shared`] decides.

mod table;

use crate::local_pool::LocalPool;
use crate::refusal::Refusal;
use crate::slot::Watch;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use table::Table;

/// Parts with a lock of their own. A lookup writes to the lock of its part: with so many, two threads seldom do so at
/// once, and a part that grows keeps few of them waiting. Each is 128 bytes.
const SHARDS: usize = 256;

/// Longest key that is kept beside its pool: comparing a longer one waits once more for memory. The textual forms of a UUID
/// and of an address fit.
const SHORT: usize = 54;

/// The pools of one limit by key.
#[derive(Debug)]
pub(crate) struct Keys {
    shards: Box<[Shard]>,
    /// Differs from map to map: whoever chooses keys does not know which fall together.
    hasher: RandomState,
    /// The newest reading of the exact clock that any lookup took: a key that is called now and then takes none.
    watch: SharedWatch,
}

/// Written once a tick and read by every lookup: no line that is written at each call.
#[derive(Debug)]
#[repr(align(128))]
struct SharedWatch(Watch);

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(RwLock<Table>);

impl Keys {
    pub(crate) fn new() -> Self {
        Keys {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            hasher: RandomState::new(),
            watch: SharedWatch(Watch::new()),
        }
    }

    /// Spends `permits` of the pool of `key`, if that is known.
    #[inline]
    pub(crate) fn try_acquire(&self, key: &str, permits: u64) -> Option<Result<(), Refusal>> {
        self.with(key, |pool| pool.try_acquire_by(Some(&self.watch.0), permits))
    }

    /// What `act` says of the pool of `key`, if that is known.
    #[inline]
    fn with<T>(&self, key: &str, act: impl FnOnce(&Arc<LocalPool>) -> T) -> Option<T> {
        let hash = self.hash(key);
        self.shard(hash).read().get(hash, key).map(act)
    }

    /// The pool of `key`, if that is known.
    pub(crate) fn get(&self, key: &str) -> Option<Arc<LocalPool>> {
        self.with(key, Arc::clone)
    }

    /// Adds the pool of a key, unless there is one.
    pub(crate) fn insert(&self, pool: Arc<LocalPool>) {
        let hash = self.hash(pool.key());
        self.shard(hash).write().insert(hash, pool);
    }

    /// All pools.
    pub(crate) fn pools(&self) -> Vec<Arc<LocalPool>> {
        self.shards.iter().flat_map(|shard| shard.read().pools().cloned().collect::<Vec<_>>()).collect()
    }

    /// Forgets the pools that `is_needed` says no of. A part at a time, each under a lock of `lock`'s: whoever holds that
    /// adds none and takes none out. Lookups wait only while some are taken out.
    pub(crate) fn forget<L>(&self, lock: impl Fn() -> L, is_needed: impl Fn(&Arc<LocalPool>) -> bool) {
        for shard in &self.shards {
            let _lock = lock();
            let unneeded = shard.read().unneeded(&is_needed);
            if unneeded.is_empty() {
                continue;
            }
            let mut table = shard.write();
            for hash in unneeded {
                // Looked at again: somebody may have called it just now, and nobody does any more.
                if let Some(pool) = table.remove(hash, &is_needed) {
                    pool.forget();
                }
            }
        }
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

/// The key of a pool, beside it where it is short.
#[derive(Debug)]
pub(crate) struct KeyText {
    /// `None` if it is long, or there is none.
    len: Option<u8>,
    head: [u8; SHORT],
}

impl KeyText {
    pub(crate) fn new(key: Option<&str>) -> Self {
        let mut text = KeyText { len: None, head: [0; SHORT] };
        if let Some(key) = key.filter(|key| key.len() <= SHORT) {
            text.head[..key.len()].copy_from_slice(key.as_bytes());
            text.len = u8::try_from(key.len()).ok();
        }
        text
    }

    /// Whether it is `key`; `None` if it is not here.
    #[inline]
    pub(crate) fn is(&self, key: &str) -> Option<bool> {
        self.len.map(|len| &self.head[..usize::from(len)] == key.as_bytes())
    }
}

#[cfg(test)]
mod tests;
