//! Bounds the pools of a limit: how many keys and names it may have, how many one identity may have, and none that is
//! new while memory is short. Existing pools go on then, with few new sessions.

use super::pool_entry::PoolEntry;
use super::sweeping::Replaced;
use super::{CountedPool, Limit, PoolId};
use crate::named::Names;
use crate::pool::{Holder, Pool};
use crate::registry::Keyed;
use crate::rejection::{AskRejection, Reason};
use crate::share::Owner;
use lessor_protocol::{LimitName, Moment};
use std::collections::BTreeMap;

/// Pools that are swept for every new key. With more than one, a flood of new keys cannot outrun the sweep that makes
/// room for them; each more makes a new key dearer.
const STEPS_FOR_KEY: usize = 4;

/// The identity that a pool was made for, as its place among [`OwnerPlaces`] in two bytes. Zero stands for no identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OwnerPlace(u16);

/// Number of pools of a limit that were made for each identity. Pools of callers without one are not counted.
#[derive(Debug, Default)]
pub(super) struct OwnerPlaces {
    places: BTreeMap<Owner, OwnerPlace>,
    /// Identity and count by place; the first entry is of place 1.
    counts: Vec<(Owner, usize)>,
    /// Places of identities that have no pools any more.
    free: Vec<OwnerPlace>,
}

impl OwnerPlaces {
    /// Returns the number of pools of `owner`.
    fn count(&self, owner: Owner) -> usize {
        self.places
            .get(&owner)
            .and_then(|place| self.counts.get(place.index()?))
            .map_or(0, |(_, count)| *count)
    }

    /// Returns the identity at `place`.
    pub(super) fn at(&self, place: OwnerPlace) -> Owner {
        place.index().and_then(|index| self.counts.get(index)).map_or(Owner::NONE, |(owner, _)| *owner)
    }

    /// Counts one more pool of `owner`. An identity is not counted if no place is left for it.
    pub(super) fn add(&mut self, owner: Owner) -> OwnerPlace {
        if owner == Owner::NONE {
            return OwnerPlace::default();
        }
        let known = self.places.get(&owner).copied();
        let Some(place) = known.or_else(|| self.free.pop()).or_else(|| self.next_place()) else {
            return OwnerPlace::default();
        };
        self.places.insert(owner, place);
        if let Some(count) = place.index().and_then(|index| self.counts.get_mut(index)) {
            *count = (owner, count.1 + 1);
        }
        place
    }

    /// Returns a place that was never taken, if there is one.
    fn next_place(&mut self) -> Option<OwnerPlace> {
        let place = u16::try_from(self.counts.len() + 1).ok()?;
        self.counts.push((Owner::NONE, 0));
        Some(OwnerPlace(place))
    }

    /// Counts one pool less of the identity at `place`.
    pub(super) fn remove(&mut self, place: OwnerPlace) {
        let Some((owner, count)) = place.index().and_then(|index| self.counts.get_mut(index)) else { return };
        *count -= 1;
        if *count == 0 {
            self.places.remove(owner);
            self.free.push(place);
        }
    }
}

/// Names in use of a pattern with keys, and the identity that began each. (A pattern without keys has one pool for each
/// name.)
#[derive(Debug, Default)]
pub(super) struct KeyedNames {
    begun: BTreeMap<LimitName, OwnerPlace>,
    owners: OwnerPlaces,
}

impl KeyedNames {
    /// Returns the number of names in use.
    pub(super) fn len(&self) -> usize {
        self.begun.len()
    }

    /// Notes that a pool of `name` is made for `owner`.
    pub(super) fn begin(&mut self, name: &LimitName, owner: Owner) {
        if !self.begun.contains_key(name) {
            self.begun.insert(name.clone(), self.owners.add(owner));
        }
    }

    /// Notes that `name` has no pool any more.
    pub(super) fn end(&mut self, name: &LimitName) {
        if let Some(place) = self.begun.remove(name) {
            self.owners.remove(place);
        }
    }
}

/// Whether an allocator has memory for new pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The process takes no more than it may.
    Enough,
    /// The process takes more than it may, but no more than the most since memory last was enough.
    Short,
    /// The process takes more than it may, and more than ever since memory last was enough.
    Shorter,
}

/// Compares the memory that a process takes with what it may take.
#[derive(Clone, Copy, Debug)]
pub struct MemoryWatch {
    max: u64,
    /// The most bytes that the process took since memory last was enough, and no less than `max`.
    most: u64,
}

impl MemoryWatch {
    /// Watches a process that may take `max` bytes.
    pub fn new(max: u64) -> Self {
        MemoryWatch { max, most: max }
    }

    /// Judges the `bytes` that the process takes now. Freed memory does not go back to the system at once, so what
    /// counts is whether the process grows.
    pub fn look(&mut self, bytes: u64) -> Memory {
        if bytes <= self.max {
            self.most = self.max;
            return Memory::Enough;
        }
        if bytes <= self.most {
            return Memory::Short;
        }
        self.most = bytes;
        Memory::Shorter
    }
}

impl OwnerPlace {
    fn index(self) -> Option<usize> {
        usize::from(self.0).checked_sub(1)
    }
}

impl Limit {
    /// Makes the pool `id` for `owner` if it does not exist.
    ///
    /// # Errors
    /// If there is no room for another key or name.
    pub(super) fn make_on_first_use(
        &mut self,
        now: Moment,
        id: &PoolId,
        owner: Owner,
    ) -> Result<(), AskRejection> {
        if !self.pools.contains(id) {
            self.make_room(now, id, owner)?;
            self.make(now, id.clone(), owner);
        }
        Ok(())
    }

    /// Makes room for the new pool `id`, which `owner` asks for. If a sweep is not enough, one pool goes that has saved
    /// up more than a new one has: a pool of `owner`, or any pool if the limit is full.
    ///
    /// # Errors
    /// If there is no room.
    fn make_room(&mut self, now: Moment, id: &PoolId, owner: Owner) -> Result<(), AskRejection> {
        self.sweep_pools(now, STEPS_FOR_KEY, Replaced::None);
        if self.check_room(id, owner).is_ok() {
            return Ok(());
        }
        let is_full_for_all = self.check_room(id, Owner::NONE).is_err();
        let replaced = if is_full_for_all { Replaced::One } else { Replaced::OneOf(owner) };
        self.sweep_pools(now, STEPS_FOR_KEY, replaced);
        if self.check_room(id, owner).is_err() {
            // The round ended before it came to such a pool.
            self.sweep_pools(now, STEPS_FOR_KEY, replaced);
        }
        self.check_room(id, owner)
    }

    fn check_room(&self, id: &PoolId, owner: Owner) -> Result<(), AskRejection> {
        let (name, pools) = (self.config.name.as_str(), self.pools.len());
        let names_max = match self.config.name.names() {
            Names::Many { names_max } => Some(names_max),
            Names::One => None,
        };
        if let (Keyed::Yes { .. }, Some(names_max), Some(new)) = (self.config.keyed, names_max, &id.name)
            && !self.names.begun.contains_key(new)
        {
            let (used, used_by_owner) = (self.names.len(), self.names.owners.count(owner));
            Capacity::of_names(names_max).admit(name, used, owner, used_by_owner)?;
        }
        let capacity = match (self.config.keyed, names_max) {
            (Keyed::Yes { keys_max }, _) => Capacity::of_keys(keys_max),
            (Keyed::No, Some(names_max)) => Capacity::of_names(names_max),
            (Keyed::No, None) => return Ok(()),
        };
        if let Some(held) = self.pools_cap.filter(|held| pools >= *held) {
            let what = capacity.what;
            let detail = format!(
                "{name:?} has {held} {what} in use, and memory is short (server.memory_max): those go on"
            );
            return Err(AskRejection::new(capacity.reason, capacity.field, detail));
        }
        capacity.admit(name, pools, owner, self.owners.count(owner))
    }

    /// Makes room for the session of `holder` in the pool `id`, if that exists. Many keys may have many sessions each,
    /// and no bound of one pool bounds their sum. So the sum is bounded while memory is short.
    ///
    /// # Errors
    /// If there is no room.
    pub(crate) fn make_room_for_session(
        &mut self,
        now: Moment,
        id: &PoolId,
        holder: Holder,
    ) -> Result<(), AskRejection> {
        let Some(held) = self.sessions_cap.filter(|held| self.tally.sums.sessions >= *held) else {
            return Ok(());
        };
        let is_open = self.with_pool(now, id, |pool| {
            pool.is_open_in_need(holder) || {
                pool.forget_spare(now);
                pool.is_open_in_need(holder)
            }
        });
        if is_open.unwrap_or(true) || self.tally.sums.sessions < held {
            return Ok(());
        }
        let detail = format!(
            "{:?} remembers {held} sessions of keys, and memory is short (server.memory_max): those go on",
            self.config.name.as_str()
        );
        Err(AskRejection { reason: Reason::LesseesFull, field: None, detail })
    }

    /// Bounds the pools, and the sessions of pools that come and go, to their numbers of now while memory is short. A
    /// forgotten one makes room for another.
    pub(crate) fn hold_pools(&mut self, memory: Memory) {
        let (pools, sessions) = match (memory, self.pools_cap) {
            (Memory::Short, Some(_)) => return,
            (Memory::Enough, _) => (None, None),
            (Memory::Short, None) | (Memory::Shorter, _) => {
                (Some(self.pools.len()), self.makes_pools().then_some(self.tally.sums.sessions))
            }
        };
        (self.pools_cap, self.sessions_cap) = (pools, sessions);
    }

    /// Returns a pool as it is made at `now`.
    pub(super) fn new_pool(&mut self, now: Moment, id: &PoolId) -> Pool {
        let mut pool = self.past.pool(self.plans.get(id.key.as_ref()), now);
        self.unused.begin(id.key.as_ref(), &mut pool, now);
        self.earlier.keep_back(&mut pool);
        if let Some(restored) = self.restored {
            pool.forget_safe_shares(restored);
        }
        pool
    }

    /// Makes the pool `id` for `owner`.
    pub(super) fn make(&mut self, now: Moment, id: PoolId, owner: Owner) {
        let mut kept = CountedPool::new(self.new_pool(now, &id));
        self.tally.count(&mut kept.counted, kept.pool.view(now));
        let made_for = self.begin_pool(&id, owner);
        self.pools.insert(id, PoolEntry::of(Box::new(kept), made_for));
    }

    /// Counts the new pool `id` for `owner`.
    pub(super) fn begin_pool(&mut self, id: &PoolId, owner: Owner) -> OwnerPlace {
        if let (true, Some(name)) = (self.is_keyed(), &id.name) {
            self.names.begin(name, owner);
        }
        self.owners.add(owner)
    }
}

/// A bound on the keys or names that a limit has in use at once.
struct Capacity {
    most: usize,
    what: &'static str,
    /// Reason for refusing one more.
    reason: Reason,
    /// Field of the ask that the refusal names.
    field: &'static str,
}

impl Capacity {
    fn of_keys(most: usize) -> Self {
        Capacity { most, what: "keys", reason: Reason::KeysFull, field: "key" }
    }

    fn of_names(most: usize) -> Self {
        Capacity { most, what: "names", reason: Reason::NamesFull, field: "limit" }
    }

    /// Lets `owner` begin one more in the limit `name`, which has `used` in all and `used_by_owner` begun by `owner`.
    ///
    /// # Errors
    /// If the limit, or the identity, has as many as it may.
    fn admit(&self, name: &str, used: usize, owner: Owner, used_by_owner: usize) -> Result<(), AskRejection> {
        let Capacity { most, what, reason, field } = *self;
        if used >= most {
            let detail = format!("{name:?} has {most} {what} in use, as many as it may; those go on");
            return Err(AskRejection::new(reason, field, detail));
        }
        let of_identity = Owner::most_of(most);
        if owner != Owner::NONE && used_by_owner >= of_identity {
            let detail = format!(
                "{name:?} has {of_identity} {what} in use that this identity began, as many as one may; those go on"
            );
            return Err(AskRejection::new(reason, field, detail));
        }
        Ok(())
    }
}
