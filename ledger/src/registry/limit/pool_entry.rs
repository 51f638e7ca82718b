//! A pool of a limit with its part of the sums: in use, or at rest while no session uses it. A limit takes each pool
//! that it works on from here. A pool at rest wakes for that, and is as if it had never rested.

use super::figures::Counted;
use super::room::OwnerPlace;
use crate::pool::{Plan, Pool, Resting};
use lessor_protocol::Moment;
use std::sync::Arc;
use std::time::Duration;

/// A pool, and its part of the sums.
#[derive(Debug)]
pub(crate) struct CountedPool {
    pub(crate) pool: Pool,
    pub(super) counted: Counted,
}

/// A pool as a limit keeps it: in use or at rest.
#[derive(Debug)]
pub(super) enum PoolEntry {
    /// A session uses the pool, or did a moment ago.
    InUse(Marks, Box<CountedPool>),
    /// Packed into few bytes. Its part of the sums follows from how it looks, and takes no room.
    AtRest(Marks, WantsCheckpoint, Box<Resting>),
    /// Packed, with its part of the sums, which was counted when the pool looked otherwise.
    Miscounted(Marks, Box<(Resting, Counted)>),
}

/// What a limit knows of a pool without a look at it. It is stored beside the box, in padding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marks {
    /// Whether the pool is about to be written down.
    is_queued: bool,
    made_for: OwnerPlace,
}

/// Whether another checkpoint of a pool at rest is worth its write.
type WantsCheckpoint = bool;

impl CountedPool {
    /// Makes the entry of a pool that is in no sum yet.
    pub(super) fn new(pool: Pool) -> Self {
        CountedPool { pool, counted: Counted::default() }
    }

    /// Packs the pool; `None` if it is in use.
    fn rest(&mut self, marks: Marks) -> Option<PoolEntry> {
        let resting = self.pool.rest()?;
        Some(match Counted::of(&self.pool.current_view()) == self.counted {
            true => PoolEntry::AtRest(marks, self.pool.wants_checkpoint(), Box::new(resting)),
            false => PoolEntry::Miscounted(marks, Box::new((resting, self.counted.clone()))),
        })
    }

    /// Wakes a pool that was `resting`. Without `counted`, it was counted as it looks.
    fn awake(resting: &Resting, counted: Option<Counted>) -> Self {
        let mut pool = resting.wake();
        let counted = counted.unwrap_or_else(|| Counted::of(&pool.current_view()));
        CountedPool { pool, counted }
    }
}

impl PoolEntry {
    /// Makes the place of a pool in use, which was `made_for` this identity.
    pub(super) fn of(kept: Box<CountedPool>, made_for: OwnerPlace) -> Self {
        PoolEntry::InUse(Marks { is_queued: false, made_for }, kept)
    }

    fn marks(&self) -> Marks {
        match self {
            PoolEntry::InUse(marks, _) | PoolEntry::AtRest(marks, ..) | PoolEntry::Miscounted(marks, _) => {
                *marks
            }
        }
    }

    /// Returns the identity that the pool was made for.
    pub(super) fn made_for(&self) -> OwnerPlace {
        self.marks().made_for
    }

    /// Returns an awake copy of the pool, if that is at rest.
    fn awake(&self) -> Option<CountedPool> {
        match self {
            PoolEntry::InUse(..) => None,
            PoolEntry::AtRest(.., resting) => Some(CountedPool::awake(resting, None)),
            PoolEntry::Miscounted(_, both) => Some(CountedPool::awake(&both.0, Some(both.1.clone()))),
        }
    }

    /// Returns the packed pool, if it is at rest.
    fn at_rest(&self) -> Option<&Resting> {
        match self {
            PoolEntry::InUse(..) => None,
            PoolEntry::AtRest(.., resting) => Some(resting),
            PoolEntry::Miscounted(_, both) => Some(&both.0),
        }
    }

    /// Wakes the pool, which is in use from now on.
    pub(super) fn wake(&mut self) -> &mut CountedPool {
        if let Some(kept) = self.awake() {
            *self = PoolEntry::InUse(self.marks(), Box::new(kept));
        }
        match self {
            PoolEntry::InUse(_, kept) => kept,
            PoolEntry::AtRest(..) | PoolEntry::Miscounted(..) => unreachable!("it is awake"),
        }
    }

    /// Wakes the pool, and takes it out.
    pub(super) fn into_kept(mut self) -> Box<CountedPool> {
        self.wake();
        match self {
            PoolEntry::InUse(_, kept) => kept,
            PoolEntry::AtRest(..) | PoolEntry::Miscounted(..) => unreachable!("it is awake"),
        }
    }

    /// Runs `act` on the pool. A pool that rested rests again, if it still can.
    pub(super) fn with<T>(&mut self, act: impl FnOnce(&mut CountedPool) -> T) -> T {
        let rested = self.at_rest().is_some();
        let result = act(self.wake());
        if rested {
            self.rest();
        }
        result
    }

    /// Returns a copy of the pool.
    pub(super) fn copy(&self) -> Pool {
        match self {
            PoolEntry::InUse(_, kept) => kept.pool.clone(),
            PoolEntry::AtRest(.., resting) => resting.wake(),
            PoolEntry::Miscounted(_, both) => both.0.wake(),
        }
    }

    /// Returns the pool's part of the sums.
    pub(super) fn counted(&self) -> Counted {
        match self {
            PoolEntry::InUse(_, kept) => kept.counted.clone(),
            PoolEntry::AtRest(.., resting) => Counted::of(&resting.wake().current_view()),
            PoolEntry::Miscounted(_, both) => both.1.clone(),
        }
    }

    /// Lets the pool rest if no session uses it.
    pub(super) fn rest(&mut self) {
        if let PoolEntry::InUse(marks, kept) = self
            && let Some(at_rest) = kept.rest(*marks)
        {
            *self = at_rest;
        }
    }

    /// Whether a sweep at `now` finds nothing to do in this pool. `is_written` says whether pools are written down.
    pub(super) fn rests(&self, now: Moment, is_written: bool) -> bool {
        match self {
            PoolEntry::AtRest(marks, wants_checkpoint, resting) => {
                let is_known = !is_written || marks.is_queued || !wants_checkpoint;
                is_known && now < resting.rests_until()
            }
            PoolEntry::InUse(..) | PoolEntry::Miscounted(..) => false,
        }
    }

    /// Whether the pool is about to be written down.
    pub(super) fn is_queued(&self) -> bool {
        self.marks().is_queued
    }

    fn is_queued_mut(&mut self) -> &mut bool {
        match self {
            PoolEntry::InUse(marks, _) | PoolEntry::AtRest(marks, ..) | PoolEntry::Miscounted(marks, _) => {
                &mut marks.is_queued
            }
        }
    }

    /// Marks the pool as about to be written down. Returns whether it was already.
    pub(super) fn queue(&mut self) -> bool {
        std::mem::replace(self.is_queued_mut(), true)
    }

    /// Takes the mark of [`PoolEntry::queue`] away.
    pub(super) fn take_from_queue(&mut self) {
        *self.is_queued_mut() = false;
    }

    /// Whether the pool has the plan `plan` already.
    pub(super) fn goes_by(&self, plan: &Arc<Plan>) -> bool {
        Arc::ptr_eq(self.plan(), plan)
    }

    fn plan(&self) -> &Arc<Plan> {
        match self {
            PoolEntry::InUse(_, kept) => kept.pool.plan(),
            PoolEntry::AtRest(.., resting) => resting.plan(),
            PoolEntry::Miscounted(_, both) => both.0.plan(),
        }
    }

    /// Returns the permits that the pool had left when it was counted.
    pub(super) fn available(&self) -> u64 {
        match self {
            PoolEntry::InUse(_, kept) => kept.counted.available,
            PoolEntry::AtRest(..) | PoolEntry::Miscounted(..) => self.counted().available,
        }
    }

    /// Returns the permits that the pool had left when it was counted, if it knows.
    pub(super) fn left(&self) -> Option<u64> {
        // A pool at rest borrows nothing.
        let knows = match self {
            PoolEntry::InUse(_, kept) => kept.pool.knows_left(),
            PoolEntry::AtRest(..) | PoolEntry::Miscounted(..) => true,
        };
        knows.then(|| self.available())
    }

    /// Returns the window of the pool's rule with the smallest limit, if that rule has one.
    pub(super) fn window(&self) -> Option<Duration> {
        self.plan().window()
    }

    /// Whether the pool is at rest, looks at `now` as it was counted, and cannot be forgotten. For assertions.
    pub(super) fn is_asleep(&self, now: Moment) -> bool {
        self.awake().is_some_and(|CountedPool { mut pool, counted }| {
            let is_forgettable = pool.is_forgettable(now);
            !is_forgettable && Counted::of(&pool.view(now)) == counted
        })
    }

    /// Returns the bytes that the packed pool takes, if it is at rest.
    #[cfg(test)]
    pub(super) fn resting_bytes(&self) -> Option<usize> {
        self.at_rest().map(Resting::len)
    }
}
