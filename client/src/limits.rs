//! The limits without a key that a client knows, by name: few, never forgotten, and looked up without a lock by callers that keep no
//! handle. They are in parts, and a name that is new copies one of them.

use crate::local_pool::LocalPool;
use arc_swap::ArcSwap;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Of 65,536 names, each part has 256.
const PARTS: usize = 256;

/// The limits of a client.
pub(crate) struct Limits {
    parts: Box<[ArcSwap<Part>]>,
    hasher: RandomState,
    len: AtomicUsize,
}

type Part = HashMap<Arc<str>, Arc<LocalPool>>;

impl Limits {
    /// No limit is known.
    pub(crate) fn new() -> Self {
        let parts = (0..PARTS).map(|_| ArcSwap::default()).collect();
        Limits { parts, hasher: RandomState::new(), len: AtomicUsize::new(0) }
    }

    /// The pool of `limit`, if it is known.
    pub(crate) fn get(&self, limit: &str) -> Option<Arc<LocalPool>> {
        self.part(limit).load().get(limit).cloned()
    }

    /// Whether `limit` is known.
    pub(crate) fn contains(&self, limit: &str) -> bool {
        self.part(limit).load().contains_key(limit)
    }

    /// Adds `pool`. No other one is added meanwhile: the caller has a lock.
    pub(crate) fn insert(&self, limit: Arc<str>, pool: Arc<LocalPool>) {
        let place = self.part(&limit);
        let mut part = Part::clone(&place.load());
        if part.insert(limit, pool).is_none() {
            self.len.fetch_add(1, Ordering::Relaxed);
        }
        place.store(Arc::new(part));
    }

    /// How many are known.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Their pools.
    pub(crate) fn pools(&self) -> Vec<Arc<LocalPool>> {
        let mut pools = Vec::with_capacity(self.len());
        for part in &self.parts {
            pools.extend(part.load().values().cloned());
        }
        pools
    }

    /// Forgets all: for tests of what outlives a pool.
    #[cfg(test)]
    pub(crate) fn clear(&self) {
        self.parts.iter().for_each(|part| part.store(Arc::default()));
        self.len.store(0, Ordering::Relaxed);
    }

    /// The part that `limit` is in, or would be.
    fn part(&self, limit: &str) -> &ArcSwap<Part> {
        &self.parts[self.hasher.hash_one(limit) as usize % PARTS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_hand;

    /// The bug: a name that was new copied all that are known, and ten thousand of them took a minute.
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
