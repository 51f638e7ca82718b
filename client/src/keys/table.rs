//! One part of the map of keys: an array of entries, and the pools that the entries point to. An entry is at the place
//! of its hash, or at the next free place. Only [`super::Keys`] uses it, behind a lock.
//!
//! A lookup waits for memory where no cache holds what it reads, and twice where the page tables are not cached either.
//! So entries are small. The hot states of the pools, the only other memory that a lookup reads, lie together in rows.
//! Each row is four places longer than all earlier rows together, so most hot states are in the last few rows. In small
//! rows, made one by one between a pool's other allocations, they were as slow to reach as the pools.

use crate::local_pool::{HotRef, HotState, LocalPool, Place};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU32;
use std::sync::Arc;

/// Places of the first array, a power of two.
const PLACES_MIN: usize = 4;

/// Largest fraction of the places that may be taken. More would make lookups walk from line to line; less would cost
/// memory. It takes 5 to 11 bytes a key.
const FULL: (usize, usize) = (3, 4);

/// Hot states in the first row. Each of the 256 parts has this row, 640 bytes, from its first key on. The unused places
/// are at most the used ones and these four, so hot states take 128 to 256 bytes a key.
const ROW_MIN: usize = 4;

type Row = Arc<[Place]>;

/// Bits of an entry that hold the index of a pool. In all parts that is 4 billion pools, or more than 3 TB.
const INDEX_BITS: u32 = 24;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;

/// The index of a pool plus one, and above it eight bits of the hash. So a lookup reads the hot state of only one in
/// 256 wrong entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry(NonZeroU32);

/// The pools of some keys.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// A power of two of places, or none. There is no gap between the place of an entry's hash and the entry.
    places: Box<[Option<Entry>]>,
    /// The hot states of the pools, found by [`hot_ref`].
    rows: Vec<Row>,
    rest: Box<Rest>,
}

/// Data that lookups seldom read.
#[derive(Debug, Default)]
struct Rest {
    /// The pools, by index.
    pools: Vec<Option<Arc<LocalPool>>>,
    /// The lower half of each pool's hash, so that resizing reads no pool.
    hashes: Vec<u32>,
    /// Indices of forgotten pools that no handle keeps. The lowest is reused first, so that the last row becomes empty.
    free: BinaryHeap<Reverse<u32>>,
    taken: usize,
}

// Sixteen entries in a cache line.
const _: () = assert!(size_of::<Option<Entry>>() == 4);

impl Entry {
    fn new(hash: u64, index: usize) -> Self {
        let number = u32::try_from(index + 1).ok().filter(|number| *number <= INDEX_MASK);
        let number = number.and_then(NonZeroU32::new).expect("fewer keys than memory has room for");
        Entry(number | Entry::tag(hash))
    }

    /// Returns bits of the hash that choose neither the place of the entry nor the part of the map.
    #[inline]
    fn tag(hash: u64) -> u32 {
        (hash >> 56 << INDEX_BITS) as u32
    }

    #[inline]
    fn is_tagged(self, hash: u64) -> bool {
        self.0.get() & !INDEX_MASK == Entry::tag(hash)
    }

    #[inline]
    fn index(self) -> usize {
        (self.0.get() & INDEX_MASK) as usize - 1
    }
}

impl Table {
    /// Finds the pool of `key`, with the hash of the key: returns its index and its hot state.
    #[inline]
    pub(super) fn find(&self, hash: u64, key: &str) -> Option<(usize, &HotState)> {
        let mut place = self.home(hash as u32)?;
        while let Some(entry) = self.places[place] {
            if entry.is_tagged(hash) {
                let index = entry.index();
                let (row, at) = hot_ref(index);
                let hot_state = self.rows[row][at].hot_state();
                if hot_state.is_of(key).unwrap_or_else(|| self.pool(index).key() == key) {
                    return Some((index, hot_state));
                }
            }
            place = self.after(place);
        }
        None
    }

    /// Returns the pool at `index`, which must be there.
    pub(super) fn pool(&self, index: usize) -> &Arc<LocalPool> {
        self.rest.pools[index].as_ref().expect("the index has a pool")
    }

    /// Adds the pool of a key that has none, and returns its index.
    pub(super) fn insert(&mut self, hash: u64, make: impl FnOnce(HotRef) -> Arc<LocalPool>) -> usize {
        if (self.rest.taken + 1) * FULL.1 > self.places.len() * FULL.0 {
            self.resize((self.places.len() * 2).max(PLACES_MIN));
        }
        let index = self.next_index();
        let entry = Entry::new(hash, index);
        let (row, at) = hot_ref(index);
        let pool = make(HotRef::new(self.rows[row].clone(), at));
        // A panic before this leaves nothing half done.
        self.rest.pools[index] = Some(pool);
        self.rest.hashes[index] = hash as u32;
        self.rest.taken += 1;
        self.put(entry);
        index
    }

    /// Returns the indices of the pools that are not needed.
    pub(super) fn unneeded(&self, is_needed: impl Fn(&Arc<LocalPool>) -> bool) -> Vec<usize> {
        let is_unneeded = |pool: &Option<Arc<LocalPool>>| pool.as_ref().is_some_and(|pool| !is_needed(pool));
        let pools = self.rest.pools.iter().enumerate();
        pools.filter(|(_, pool)| is_unneeded(pool)).map(|(index, _)| index).collect()
    }

    /// Iterates over all pools, in no order.
    pub(super) fn pools(&self) -> impl Iterator<Item = &Arc<LocalPool>> {
        self.rest.pools.iter().flatten()
    }

    /// Removes the pool at `index`, which must be there. Nothing is asked in its name any more.
    pub(super) fn remove(&mut self, index: usize) {
        let mut place = self.home(self.rest.hashes[index]).expect("the table has places");
        while self.places[place].expect("no empty place comes before the pool").index() != index {
            place = self.after(place);
        }
        self.empty(place);
        self.rest.taken -= 1;
        let pool = self.rest.pools[index].take().expect("the index has a pool");
        pool.forget();
        // A handle that still has the pool keeps its hot state, which no other pool gets. The last owner sees all
        // writes of the other owners to it.
        if Arc::into_inner(pool).is_some() {
            self.rest.free.push(Reverse(index as u32));
        }
    }

    /// Frees the last rows if they are empty.
    pub(super) fn trim(&mut self) {
        let last = self.rest.pools.iter().rposition(Option::is_some);
        let rows = last.map_or(0, |last| hot_ref(last).0 + 1);
        if rows == self.rows.len() {
            return;
        }
        if rows == 0 {
            *self = Table::default();
            return;
        }
        self.rows.truncate(rows);
        let hot_states = start(rows);
        self.rest.pools.truncate(hot_states);
        self.rest.pools.shrink_to_fit();
        self.rest.hashes.truncate(hot_states);
        self.rest.hashes.shrink_to_fit();
        self.rest.free.retain(|Reverse(index)| (*index as usize) < hot_states);
        self.rest.free.shrink_to_fit();
        let places = (hot_states * FULL.1).div_ceil(FULL.0).next_power_of_two();
        if places < self.places.len() {
            self.resize(places);
        }
    }

    /// Place of the entry with `hash` if no other entry is there; `None` if there are no places at all.
    #[inline]
    fn home(&self, hash: u32) -> Option<usize> {
        // The lowest bits: other bits choose the part of the map.
        self.places.len().checked_sub(1).map(|mask| hash as usize & mask)
    }

    #[inline]
    fn after(&self, place: usize) -> usize {
        (place + 1) & (self.places.len() - 1)
    }

    fn home_of(&self, entry: Entry) -> usize {
        self.home(self.rest.hashes[entry.index()]).expect("the table has places")
    }

    /// Changes the number of places to `places`: a power of two, greater than the number of entries.
    fn resize(&mut self, places: usize) {
        let old = std::mem::replace(&mut self.places, vec![None; places].into());
        old.into_iter().flatten().for_each(|entry| self.put(entry));
    }

    /// Puts an entry into the first free place from its home on. There must be one.
    fn put(&mut self, entry: Entry) {
        let mut place = self.home_of(entry);
        while self.places[place].is_some() {
            place = self.after(place);
        }
        self.places[place] = Some(entry);
    }

    /// Empties a place, and moves back each entry that would not be found beyond the gap.
    fn empty(&mut self, place: usize) {
        self.places[place] = None;
        let (mut gap, mut next) = (place, self.after(place));
        while let Some(entry) = self.places[next] {
            let home = self.home_of(entry);
            let mask = self.places.len() - 1;
            // An entry at least as far from its home as from the gap is searched for across the gap.
            if next.wrapping_sub(home) & mask >= next.wrapping_sub(gap) & mask {
                self.places.swap(gap, next);
                gap = next;
            }
            next = self.after(next);
        }
    }

    /// Returns an index without a pool, and adds a row if needed.
    fn next_index(&mut self) -> usize {
        if let Some(Reverse(free)) = self.rest.free.pop() {
            return free as usize;
        }
        let index = self.rest.pools.len();
        let row = hot_ref(index).0;
        if row == self.rows.len() {
            self.rows.push((0..ROW_MIN << row).map(|_| Place::new()).collect());
        }
        self.rest.pools.push(None);
        self.rest.hashes.push(0);
        index
    }
}

/// The row of a hot state, and the place in that row.
#[inline]
fn hot_ref(index: usize) -> (usize, usize) {
    let row = (index / ROW_MIN + 1).ilog2() as usize;
    (row, index - start(row))
}

/// Number of hot states in the rows before `row`.
#[inline]
fn start(row: usize) -> usize {
    (ROW_MIN << row) - ROW_MIN
}

#[cfg(test)]
mod tests;
