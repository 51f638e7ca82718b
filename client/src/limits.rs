//! The plain pools of a client, by the name of their limit. They are never forgotten, and a lookup takes no lock. The
//! map is in parts, and adding a name copies one part.

use crate::local_pool::LocalPool;
use arc_swap::ArcSwap;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Parts of the map. At 65,536 names, each has 256.
const PARTS: usize = 256;

/// The plain pools of a client, one for each limit that it knows.
pub(crate) struct Limits {
    parts: Box<[ArcSwap<Part>]>,
    hasher: RandomState,
    len: AtomicUsize,
}

type Part = HashMap<Arc<str>, Arc<LocalPool>>;

impl Limits {
    /// Makes an empty map.
    pub(crate) fn new() -> Self {
        let parts = (0..PARTS).map(|_| ArcSwap::default()).collect();
        Limits { parts, hasher: RandomState::new(), len: AtomicUsize::new(0) }
    }

    /// Returns the pool of `limit`, if it is known.
    pub(crate) fn get(&self, limit: &str) -> Option<Arc<LocalPool>> {
        self.part(limit).load().get(limit).cloned()
    }

    /// Whether `limit` is known.
    pub(crate) fn contains(&self, limit: &str) -> bool {
        self.part(limit).load().contains_key(limit)
    }

    /// Adds `pool`. The caller holds a lock under which no other pool is added.
    pub(crate) fn insert(&self, limit: Arc<str>, pool: Arc<LocalPool>) {
        let place = self.part(&limit);
        let mut part = Part::clone(&place.load());
        if part.insert(limit, pool).is_none() {
            self.len.fetch_add(1, Ordering::Relaxed);
        }
        place.store(Arc::new(part));
    }

    /// Number of limits that are known.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Returns all pools.
    pub(crate) fn pools(&self) -> Vec<Arc<LocalPool>> {
        let mut pools = Vec::with_capacity(self.len());
        for part in &self.parts {
            pools.extend(part.load().values().cloned());
        }
        pools
    }

    /// Forgets all limits, for tests of state that outlives a pool.
    #[cfg(test)]
    pub(crate) fn clear(&self) {
        self.parts.iter().for_each(|part| part.store(Arc::default()));
        self.len.store(0, Ordering::Relaxed);
    }

    /// The part for the name `limit`.
    fn part(&self, limit: &str) -> &ArcSwap<Part> {
        &self.parts[self.hasher.hash_one(limit) as usize % PARTS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_hand;

    /// The bug: each new name copied all known ones, and ten thousand names took a minute.
    #[test]
    fn a_name_that_is_new_copies_few_of_those_that_are_known() {
        let (limits, pool) = (Limits::new(), by_hand::shared().pool("a", None));
        let names: Vec<Arc<str>> = (0..20_000).map(|name| format!("api/{name}").into()).collect();
        for name in &names {
            limits.insert(name.clone(), pool.clone());
        }
        limits.insert(names[7].clone(), pool);
        assert_eq!((limits.len(), limits.pools().len()), (20_000, 20_000));
        assert!(names.iter().all(|name| limits.contains(name) && limits.get(name).is_some()));
        assert!(!limits.contains("api/") && limits.get("api/20000").is_none());
        let longest = limits.parts.iter().map(|part| part.load().len()).max();
        assert!(longest < Some(200), "{longest:?} in one part");
    }
}
