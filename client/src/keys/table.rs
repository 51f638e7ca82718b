//! One part of the map of keys: an array of entries, and the pools that entries point to. An entry stands where its hash
//! points, or behind the entry that stands there. Only [`super::Keys`] uses it, behind a lock.
//!
//! A lookup waits for memory where no cache holds what it reads, and twice where it must first find out where in the memory
//! of the machine that is. So an entry is small, and the hot states of the pools, which are all that it reads besides, lie
//! together in rows: each is as long as all before it and four more, so that most are in the last few, wherever those are.
//! In small rows, made one by one between everything else that a pool takes, they were as slow to come by as the pools.

use crate::local_pool::{HotRef, HotState, LocalPool, Place};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU32;
use std::sync::Arc;

/// Places at first. Half as many keys take none of the time that the next doubling takes.
const PLACES_MIN: usize = 4;

/// Part of the places that may be taken, as a fraction. More would have lookups walk from line to line, less would be
/// memory: it takes 5 to 11 bytes a key.
const FULL: (usize, usize) = (3, 4);

/// Hot states in the first row. Each of the 256 parts has that one from its first key on, 640 bytes. What is in no use yet is at
/// most as much as what is, and these: a hot state takes 128 to 256 bytes a key.
const ROW_MIN: usize = 4;

type Row = Arc<[Place]>;

/// Bits of an entry that say which pool: 4 billion in all parts, which are more than 3 TB of pools.
const INDEX_BITS: u32 = 24;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;

/// Which pool, from 1 on, and above that eight bits of the hash: of those that are looked for in vain, one in 256 is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry(NonZeroU32);

/// The pools of some keys.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// A power of two of them, or none. From where a hash points on, there is no gap before its entry.
    places: Box<[Option<Entry>]>,
    /// The hot states of the pools, by [`hot_ref`].
    rows: Vec<Row>,
    rest: Box<Rest>,
}

/// What lookups seldom read.
#[derive(Debug, Default)]
struct Rest {
    /// By index.
    pools: Vec<Option<Arc<LocalPool>>>,
    /// The lower half of each one's hash: growing reads no pool.
    hashes: Vec<u32>,
    /// Indices of forgotten pools that no handle keeps any more. The first is taken first, so that the last row comes to be
    /// empty.
    free: BinaryHeap<Reverse<u32>>,
    taken: usize,
}

// Sixteen in a cache line.
const _: () = assert!(size_of::<Option<Entry>>() == 4);

impl Entry {
    fn new(hash: u64, index: usize) -> Self {
        let number = u32::try_from(index + 1).ok().filter(|number| *number <= INDEX_MASK);
        let number = number.and_then(NonZeroU32::new).expect("fewer keys than memory has room for");
        Entry(number | Entry::tag(hash))
    }

    /// Bits that neither say where the entry stands nor which part of the map it is in.
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
    /// Which is the pool of `key`, whose hash this is, and what calls read of it.
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

    /// A pool that is there.
    pub(super) fn pool(&self, index: usize) -> &Arc<LocalPool> {
        self.rest.pools[index].as_ref().expect("it is there")
    }

    /// Adds the pool of a key that has none, and says which it is.
    pub(super) fn insert(&mut self, hash: u64, make: impl FnOnce(HotRef) -> Arc<LocalPool>) -> usize {
        if (self.rest.taken + 1) * FULL.1 > self.places.len() * FULL.0 {
            self.resize((self.places.len() * 2).max(PLACES_MIN));
        }
        let index = self.next_index();
        let entry = Entry::new(hash, index);
        let (row, at) = hot_ref(index);
        let pool = make(HotRef::new(self.rows[row].clone(), at));
        // Whatever panicked so far, nothing is half done.
        self.rest.pools[index] = Some(pool);
        self.rest.hashes[index] = hash as u32;
        self.rest.taken += 1;
        self.put(entry);
        index
    }

    /// Those that `is_needed` says no of.
    pub(super) fn unneeded(&self, is_needed: impl Fn(&Arc<LocalPool>) -> bool) -> Vec<usize> {
        let is_unneeded = |pool: &Option<Arc<LocalPool>>| pool.as_ref().is_some_and(|pool| !is_needed(pool));
        let pools = self.rest.pools.iter().enumerate();
        pools.filter(|(_, pool)| is_unneeded(pool)).map(|(index, _)| index).collect()
    }

    /// All pools, in no order.
    pub(super) fn pools(&self) -> impl Iterator<Item = &Arc<LocalPool>> {
        self.rest.pools.iter().flatten()
    }

    /// Takes one out that is there. Nothing is asked in its name any more.
    pub(super) fn remove(&mut self, index: usize) {
        let mut place = self.home(self.rest.hashes[index]).expect("it stands somewhere");
        while self.places[place].expect("there is no gap before it").index() != index {
            place = self.after(place);
        }
        self.empty(place);
        self.rest.taken -= 1;
        let pool = self.rest.pools[index].take().expect("it is there");
        pool.forget();
        // A handle that still has the pool keeps its hot state, too: no other pool comes there. The last owner sees all that
        // other owners did there.
        if Arc::into_inner(pool).is_some() {
            self.rest.free.push(Reverse(index as u32));
        }
    }

    /// Gives back the last rows if there is nothing in them any more.
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
        let fronts = start(rows);
        self.rest.pools.truncate(fronts);
        self.rest.pools.shrink_to_fit();
        self.rest.hashes.truncate(fronts);
        self.rest.hashes.shrink_to_fit();
        self.rest.free.retain(|Reverse(index)| (*index as usize) < fronts);
        self.rest.free.shrink_to_fit();
        let places = (fronts * FULL.1).div_ceil(FULL.0).next_power_of_two();
        if places < self.places.len() {
            self.resize(places);
        }
    }

    /// Where the entry of a hash stands if no other entry does; `None` if there is no place at all.
    #[inline]
    fn home(&self, hash: u32) -> Option<usize> {
        // The lowest bits: the part of the map was chosen by others.
        self.places.len().checked_sub(1).map(|mask| hash as usize & mask)
    }

    #[inline]
    fn after(&self, place: usize) -> usize {
        (place + 1) & (self.places.len() - 1)
    }

    fn home_of(&self, entry: Entry) -> usize {
        self.home(self.rest.hashes[entry.index()]).expect("there are places")
    }

    /// To so many places, a power of two, of which not all will be taken.
    fn resize(&mut self, places: usize) {
        let old = std::mem::replace(&mut self.places, vec![None; places].into());
        old.into_iter().flatten().for_each(|entry| self.put(entry));
    }

    /// There is a place that is free.
    fn put(&mut self, entry: Entry) {
        let mut place = self.home_of(entry);
        while self.places[place].is_some() {
            place = self.after(place);
        }
        self.places[place] = Some(entry);
    }

    /// Empties a place, and moves up each entry that would not be found behind the gap.
    fn empty(&mut self, place: usize) {
        self.places[place] = None;
        let (mut gap, mut next) = (place, self.after(place));
        while let Some(entry) = self.places[next] {
            let home = self.home_of(entry);
            let mask = self.places.len() - 1;
            // An entry at least as far behind its home as behind the gap is looked for from before the gap on.
            if next.wrapping_sub(home) & mask >= next.wrapping_sub(gap) & mask {
                self.places.swap(gap, next);
                gap = next;
            }
            next = self.after(next);
        }
    }

    /// Where no pool is.
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

/// In which row a front is, and where in that.
#[inline]
fn hot_ref(index: usize) -> (usize, usize) {
    let row = (index / ROW_MIN + 1).ilog2() as usize;
    (row, index - start(row))
}

/// How many hot states are in the rows before this one.
#[inline]
fn start(row: usize) -> usize {
    (ROW_MIN << row) - ROW_MIN
}

#[cfg(test)]
mod tests;
