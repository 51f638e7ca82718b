//! Room for the pools of a limit: how many keys and names it may have, how many of them one identity, and none that is new while
//! memory is short. Pools that are there go on.

use super::kept::Shelf;
use super::{Kept, Limit, PoolId};
use crate::named::Names;
use crate::pool::Pool;
use crate::registry::Keyed;
use crate::rejection::{AskRejection, Reason};
use crate::share::Owner;
use lessor_protocol::Moment;
use std::collections::BTreeMap;

/// Pools that every new key pays for looking at. With more than one, a flood of new keys cannot outrun the sweep
/// that makes room for them; each more makes a new key dearer.
const STEPS_FOR_KEY: usize = 4;

/// Which identity a pool was made for: its place among [`Owners`], in two bytes. Zero stands for no identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OwnerPlace(u16);

/// How many pools of a limit each identity has had made. Those of callers without one are not counted.
#[derive(Debug, Default)]
pub(super) struct Owners {
    places: BTreeMap<Owner, OwnerPlace>,
    /// By place, from one on.
    counts: Vec<(Owner, usize)>,
    /// Places of identities that have none any more.
    free: Vec<OwnerPlace>,
}

impl Owners {
    /// How many `owner` has.
    fn count(&self, owner: Owner) -> usize {
        self.places
            .get(&owner)
            .and_then(|place| self.counts.get(place.index()?))
            .map_or(0, |(_, count)| *count)
    }

    /// The identity at `place`.
    pub(super) fn at(&self, place: OwnerPlace) -> Owner {
        place.index().and_then(|index| self.counts.get(index)).map_or(Owner::NONE, |(owner, _)| *owner)
    }

    /// One more of `owner`. More identities than there are places for are not counted.
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

    /// A place that was never taken, if there is one.
    fn next_place(&mut self) -> Option<OwnerPlace> {
        let place = u16::try_from(self.counts.len() + 1).ok()?;
        self.counts.push((Owner::NONE, 0));
        Some(OwnerPlace(place))
    }

    /// One less of the identity at `place`.
    pub(super) fn remove(&mut self, place: OwnerPlace) {
        let Some((owner, count)) = place.index().and_then(|index| self.counts.get_mut(index)) else { return };
        *count -= 1;
        if *count == 0 {
            self.places.remove(owner);
            self.free.push(place);
        }
    }
}

/// Whether an allocator has memory for new pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// It has.
    Enough,
    /// It takes more than it may, but no more than when it was looked at before.
    Short,
    /// It takes more than it may, and more than ever since it was enough.
    Shorter,
}

/// Watches how much memory a process takes, beside how much it may.
#[derive(Clone, Copy, Debug)]
pub struct MemoryWatch {
    max: u64,
    /// The most that it took since it was enough.
    most: u64,
}

impl MemoryWatch {
    /// For a process that may take `max` bytes.
    pub fn new(max: u64) -> Self {
        MemoryWatch { max, most: max }
    }

    /// It takes so many `bytes` now. Memory that is free again is not given back to the system at once: so what counts is whether the
    /// process grows.
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
    /// Makes sure that there is room for the pool `id`, which `owner` asks for first.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn make_room(&mut self, now: Moment, id: &PoolId, owner: Owner) -> Result<(), AskRejection> {
        self.sweep(now, STEPS_FOR_KEY);
        let (name, pools) = (self.config.name.as_str(), self.pools.len());
        let names_max = match self.config.name.names() {
            Names::Many { names_max } => Some(names_max),
            Names::One => None,
        };
        if let (Some(names_max), Some(new)) = (names_max, &id.name)
            && self.names >= names_max
            && !self.has_name(new)
        {
            let detail = format!("{name:?} has {names_max} names in use, as many as it may; those go on");
            return Err(AskRejection::new(Reason::NamesFull, "limit", detail));
        }
        let (most, what, reason, field) = match (self.config.keyed, names_max) {
            (Keyed::Yes { keys_max }, _) => (keys_max, "keys", Reason::KeysFull, "key"),
            (Keyed::No, Some(names_max)) => (names_max, "names", Reason::NamesFull, "limit"),
            (Keyed::No, None) => return Ok(()),
        };
        if let Some(held) = self.held_pools.filter(|held| pools >= *held) {
            let detail = format!(
                "{name:?} has {held} {what} in use, and memory is short (server.memory_max): those go on"
            );
            return Err(AskRejection::new(reason, field, detail));
        }
        if pools >= most {
            let detail = format!("{name:?} has {most} {what} in use, as many as it may; those go on");
            return Err(AskRejection::new(reason, field, detail));
        }
        let of_identity = Owner::most_of(most);
        if owner != Owner::NONE && self.owners.count(owner) >= of_identity {
            let detail = format!(
                "{name:?} has {of_identity} {what} in use that this identity began, as many as one may; those go on"
            );
            return Err(AskRejection::new(reason, field, detail));
        }
        Ok(())
    }

    /// Has no more pools than now while memory is short. Those that are forgotten make room for as many.
    pub(crate) fn hold_pools(&mut self, memory: Memory) {
        self.held_pools = match (memory, self.held_pools) {
            (Memory::Enough, _) => None,
            (Memory::Short, Some(held)) => Some(held),
            (Memory::Short, None) | (Memory::Shorter, _) => Some(self.pools.len()),
        };
    }

    /// A pool that is made at `now`.
    pub(super) fn new_pool(&mut self, now: Moment, id: &PoolId) -> Pool {
        let of_key = id.key.as_ref().and_then(|key| self.overrides.get(key));
        let mut pool = self.past.pool(of_key.unwrap_or(&self.plan), now);
        self.unused.begin(id.key.as_ref(), &mut pool, now);
        if let Some(restored) = self.restored {
            pool.forget_safe_shares(restored);
        }
        pool
    }

    /// Makes the pool `id` for `owner`.
    pub(super) fn make(&mut self, now: Moment, id: PoolId, owner: Owner) {
        let mut kept = Kept::new(self.new_pool(now, &id));
        self.tally.count(&mut kept.counted, kept.pool.view(now));
        self.names += usize::from(id.name.as_ref().is_some_and(|name| !self.has_name(name)));
        let made_for = self.owners.add(owner);
        self.pools.insert(id, Shelf::of(Box::new(kept), made_for));
    }
}
