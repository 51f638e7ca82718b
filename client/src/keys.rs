//! The pools of one limit by key, for callers that keep no handle: one lookup a call, which allocates nothing. Handles of
//! the plain limit look here; what is made and forgotten, [`crate::shared::Shared`] decides.

use crate::local_pool::LocalPool;
use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::{Arc, PoisonError, RwLock};

/// Parts with a lock of their own. A lookup writes to the lock of its part: with so many, two threads seldom do so at
/// once, and a part that grows keeps few of them waiting. Each is 128 bytes.
const SHARDS: usize = 256;

/// Longest key that is kept beside its pool: comparing a longer one waits once more for memory.
const SHORT: usize = 31;

/// The pools of one limit by key.
#[derive(Debug)]
pub(crate) struct Keys {
    shards: Box<[Shard]>,
    /// Differs from map to map: whoever chooses keys does not know which fall together.
    hasher: RandomState,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(RwLock<HashSet<Entry, Hashed>>);

/// A pool, and the hash of its key: growing reads no pool.
#[derive(Debug)]
struct Entry {
    hash: u64,
    pool: Arc<LocalPool>,
}

impl Keys {
    pub(crate) fn new() -> Self {
        Keys { shards: (0..SHARDS).map(|_| Shard::default()).collect(), hasher: RandomState::new() }
    }

    /// What `act` says of the pool of `key`, if that is known.
    #[inline]
    pub(crate) fn with<T>(&self, key: &str, act: impl FnOnce(&LocalPool) -> T) -> Option<T> {
        let asked = Asked { hash: self.hasher.hash_one(key), key };
        // Pools are whole whatever panicked: there is nothing in the set that could be half done.
        let shard = self.shard(asked.hash).read().unwrap_or_else(PoisonError::into_inner);
        shard.get(&asked as &dyn Named).map(|entry| act(&entry.pool))
    }

    /// Adds the pool of a key, unless there is one.
    pub(crate) fn insert(&self, pool: Arc<LocalPool>) {
        let hash = self.hasher.hash_one(pool.key.text(&pool.name.key));
        self.shard(hash).write().unwrap_or_else(PoisonError::into_inner).insert(Entry { hash, pool });
    }

    /// Forgets the pool of `key`.
    pub(crate) fn remove(&self, key: &str) {
        let asked = Asked { hash: self.hasher.hash_one(key), key };
        self.shard(asked.hash).write().unwrap_or_else(PoisonError::into_inner).remove(&asked as &dyn Named);
    }

    fn shard(&self, hash: u64) -> &RwLock<HashSet<Entry, Hashed>> {
        // Not the bits that the set itself goes by, which are the lowest and the highest.
        &self.shards[(hash >> 32) as usize % SHARDS].0
    }
}

/// The key of a pool, beside it where it is short.
#[derive(Debug, Default)]
pub(crate) struct KeyText {
    /// `None` if it is long, or there is none.
    short: Option<u8>,
    head: [u8; SHORT],
}

impl KeyText {
    pub(crate) fn new(key: Option<&str>) -> Self {
        let mut text = KeyText::default();
        if let Some(key) = key.filter(|key| key.len() <= SHORT) {
            text.head[..key.len()].copy_from_slice(key.as_bytes());
            text.short = u8::try_from(key.len()).ok();
        }
        text
    }

    fn is(&self, key: &str, whole: &Option<String>) -> bool {
        match self.short {
            Some(len) => &self.head[..usize::from(len)] == key.as_bytes(),
            None => whole.as_deref() == Some(key),
        }
    }

    fn text<'a>(&self, whole: &'a Option<String>) -> &'a str {
        whole.as_deref().unwrap_or_default()
    }
}

/// What an entry and a key that is looked for have in common.
trait Named {
    fn hash(&self) -> u64;
    fn is(&self, other: &dyn Named) -> bool;
    fn key(&self) -> &str;
}

struct Asked<'a> {
    hash: u64,
    key: &'a str,
}

impl Named for Asked<'_> {
    fn hash(&self) -> u64 {
        self.hash
    }
    fn is(&self, other: &dyn Named) -> bool {
        self.key == other.key()
    }
    fn key(&self) -> &str {
        self.key
    }
}

impl Named for Entry {
    fn hash(&self) -> u64 {
        self.hash
    }
    fn is(&self, other: &dyn Named) -> bool {
        self.pool.key.is(other.key(), &self.pool.name.key)
    }
    fn key(&self) -> &str {
        self.pool.key.text(&self.pool.name.key)
    }
}

impl PartialEq for dyn Named + '_ {
    fn eq(&self, other: &Self) -> bool {
        // The entry compares: its key is where its pool is.
        self.hash() == other.hash() && other.is(self)
    }
}

impl Eq for dyn Named + '_ {}

impl Hash for dyn Named + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(Named::hash(self));
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self as &dyn Named == other as &dyn Named
    }
}

impl Eq for Entry {}

impl Hash for Entry {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl<'a> Borrow<dyn Named + 'a> for Entry {
    fn borrow(&self) -> &(dyn Named + 'a) {
        self
    }
}

/// Passes on what is a hash already.
#[derive(Clone, Debug, Default)]
struct Hashed(u64);

impl BuildHasher for Hashed {
    type Hasher = Hashed;
    fn build_hasher(&self) -> Hashed {
        Hashed(0)
    }
}

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("only whole hashes are written");
    }
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests;
