//! One part of the map of keys: an array in which an entry stands where its hash points, or behind whoever stands there.
//! So a lookup waits for memory once before it knows the pool. Only [`super::Keys`] uses it, behind a lock.

use crate::local_pool::LocalPool;
use std::sync::Arc;

/// Places at first. Half as many keys take none of the time that the next doubling takes.
const PLACES_MIN: usize = 4;

/// Part of the places that may be taken, as a fraction. More would have lookups walk from line to line, less would be
/// memory: it takes 21 to 43 bytes a key.
const FULL: (usize, usize) = (3, 4);

/// A pool, and the hash of its key: growing reads no pool.
#[derive(Debug)]
struct Entry {
    hash: u64,
    pool: Arc<LocalPool>,
}

/// The pools of some keys.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// A power of two of them, or none. From where a hash points on, there is no gap before its entry.
    places: Box<[Option<Entry>]>,
    taken: usize,
}

// Four in a cache line, and none in two.
const _: () = assert!(size_of::<Option<Entry>>() == 16);

impl Table {
    /// The pool of `key`, whose hash this is.
    #[inline]
    pub(super) fn get(&self, hash: u64, key: &str) -> Option<&Arc<LocalPool>> {
        let mut place = self.home(hash)?;
        while let Some(entry) = &self.places[place] {
            if entry.hash == hash && entry.pool.has_key(key) {
                return Some(&entry.pool);
            }
            place = self.after(place);
        }
        None
    }

    /// Adds the pool of a key, unless there is one.
    pub(super) fn insert(&mut self, hash: u64, pool: Arc<LocalPool>) {
        if self.get(hash, pool.key()).is_some() {
            return;
        }
        if (self.taken + 1) * FULL.1 > self.places.len() * FULL.0 {
            self.grow();
        }
        self.put(Entry { hash, pool });
        self.taken += 1;
    }

    /// The hashes of those that `is_needed` says no of.
    pub(super) fn unneeded(&self, is_needed: impl Fn(&Arc<LocalPool>) -> bool) -> Vec<u64> {
        self.places.iter().flatten().filter(|entry| !is_needed(&entry.pool)).map(|entry| entry.hash).collect()
    }

    /// Takes one with this `hash` out that `is_needed` says no of.
    pub(super) fn remove(
        &mut self,
        hash: u64,
        is_needed: impl Fn(&Arc<LocalPool>) -> bool,
    ) -> Option<Arc<LocalPool>> {
        let mut place = self.home(hash)?;
        while let Some(entry) = &self.places[place] {
            if entry.hash == hash && !is_needed(&entry.pool) {
                return self.remove_at(place);
            }
            place = self.after(place);
        }
        None
    }

    /// All pools, in no order.
    pub(super) fn pools(&self) -> impl Iterator<Item = &Arc<LocalPool>> {
        self.places.iter().flatten().map(|entry| &entry.pool)
    }

    /// Where the entry of a hash stands if nobody else does; `None` if there is no place at all.
    #[inline]
    fn home(&self, hash: u64) -> Option<usize> {
        // The lowest bits: the part of the map was chosen by others.
        self.places.len().checked_sub(1).map(|mask| hash as usize & mask)
    }

    #[inline]
    fn after(&self, place: usize) -> usize {
        (place + 1) & (self.places.len() - 1)
    }

    fn grow(&mut self) {
        let more = (self.places.len() * 2).max(PLACES_MIN);
        let old = std::mem::replace(&mut self.places, (0..more).map(|_| None).collect());
        old.into_iter().flatten().for_each(|entry| self.put(entry));
    }

    /// There is a place that is free.
    fn put(&mut self, entry: Entry) {
        let mut place = self.home(entry.hash).expect("it has grown");
        while self.places[place].is_some() {
            place = self.after(place);
        }
        self.places[place] = Some(entry);
    }

    /// Empties a place, and moves up whoever would not be found behind the gap.
    fn remove_at(&mut self, place: usize) -> Option<Arc<LocalPool>> {
        let removed = self.places[place].take()?;
        self.taken -= 1;
        let (mut gap, mut next) = (place, self.after(place));
        while let Some(entry) = &self.places[next] {
            let home = self.home(entry.hash).expect("it stands somewhere");
            let mask = self.places.len() - 1;
            // Whoever stands at least as far behind his home as behind the gap is looked for from before the gap on.
            if next.wrapping_sub(home) & mask >= next.wrapping_sub(gap) & mask {
                self.places.swap(gap, next);
                gap = next;
            }
            next = self.after(next);
        }
        Some(removed.pool)
    }
}

#[cfg(test)]
mod tests;
