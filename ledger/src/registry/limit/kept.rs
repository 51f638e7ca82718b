//! A pool of a limit with its part of the sums: in use, or at rest while no session uses it. Limits take a pool from here for
//! whatever they do to it. One that rests wakes for that, and is as if it had never rested.

use super::figures::Counted;
use crate::pool::{Pool, Resting};
use lessor_protocol::Moment;
use std::time::Duration;

/// A pool, and its part of the sums.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) pool: Pool,
    pub(super) counted: Counted,
}

/// Whether a pool is about to be written down.
type IsQueued = bool;

/// Where a limit keeps a pool.
#[derive(Debug)]
pub(super) enum Shelf {
    /// A session uses it, or did a moment ago. Whether it is about to be written down is beside the box, where it takes no room.
    InUse(IsQueued, Box<Kept>),
    /// In as few bytes as it takes, and counted as it looks.
    AtRest(Marks, Box<Resting>),
    /// The same, but counted when it looked otherwise.
    Miscounted(Marks, Box<(Resting, Counted)>),
}

/// What a limit knows of a pool at rest without a look at it. They are beside the box, where they take no room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marks {
    is_queued: IsQueued,
    /// Whether another checkpoint is worth its write.
    wants_checkpoint: bool,
}

impl Kept {
    /// A pool that counts nowhere yet.
    pub(super) fn new(pool: Pool) -> Self {
        Kept { pool, counted: Counted::default() }
    }

    /// The same at rest; `None` if it is in use.
    fn rest(&mut self, is_queued: IsQueued) -> Option<Shelf> {
        let resting = self.pool.rest()?;
        let marks = Marks { is_queued, wants_checkpoint: self.pool.wants_checkpoint() };
        Some(match Counted::of(&self.pool.as_it_looks()) == self.counted {
            true => Shelf::AtRest(marks, Box::new(resting)),
            false => Shelf::Miscounted(marks, Box::new((resting, self.counted.clone()))),
        })
    }

    /// A pool that was `resting`, awake. It was `counted` so, or as it looks.
    fn awake(resting: &Resting, counted: Option<Counted>) -> Self {
        let mut pool = resting.wake();
        let counted = counted.unwrap_or_else(|| Counted::of(&pool.as_it_looks()));
        Kept { pool, counted }
    }
}

impl Shelf {
    /// The place of a pool that is in use.
    pub(super) fn of(kept: Box<Kept>) -> Self {
        Shelf::InUse(false, kept)
    }

    /// The pool awake, if it is at rest.
    fn awake(&self) -> Option<Kept> {
        match self {
            Shelf::InUse(..) => None,
            Shelf::AtRest(_, resting) => Some(Kept::awake(resting, None)),
            Shelf::Miscounted(_, both) => Some(Kept::awake(&both.0, Some(both.1.clone()))),
        }
    }

    /// The pool at rest, if it is.
    fn at_rest(&self) -> Option<&Resting> {
        match self {
            Shelf::InUse(..) => None,
            Shelf::AtRest(_, resting) => Some(resting),
            Shelf::Miscounted(_, both) => Some(&both.0),
        }
    }

    /// The pool, which is in use from now on.
    pub(super) fn wake(&mut self) -> &mut Kept {
        if let Some(kept) = self.awake() {
            *self = Shelf::InUse(self.is_queued(), Box::new(kept));
        }
        match self {
            Shelf::InUse(_, kept) => kept,
            Shelf::AtRest(..) | Shelf::Miscounted(..) => unreachable!("it is awake"),
        }
    }

    /// The same, to be kept elsewhere.
    pub(super) fn into_kept(mut self) -> Box<Kept> {
        self.wake();
        match self {
            Shelf::InUse(_, kept) => kept,
            Shelf::AtRest(..) | Shelf::Miscounted(..) => unreachable!("it is awake"),
        }
    }

    /// Runs `act` on the pool. One that rested rests again, if it still can.
    pub(super) fn with<T>(&mut self, act: impl FnOnce(&mut Kept) -> T) -> T {
        let rested = self.at_rest().is_some();
        let result = act(self.wake());
        if rested {
            self.rest();
        }
        result
    }

    /// A copy of the pool.
    pub(super) fn copy(&self) -> Pool {
        match self {
            Shelf::InUse(_, kept) => kept.pool.clone(),
            Shelf::AtRest(_, resting) => resting.wake(),
            Shelf::Miscounted(_, both) => both.0.wake(),
        }
    }

    /// How the pool was counted.
    pub(super) fn counted(&self) -> Counted {
        match self {
            Shelf::InUse(_, kept) => kept.counted.clone(),
            Shelf::AtRest(_, resting) => Counted::of(&resting.wake().as_it_looks()),
            Shelf::Miscounted(_, both) => both.1.clone(),
        }
    }

    /// Lets the pool rest if no session uses it.
    pub(super) fn rest(&mut self) {
        if let Shelf::InUse(is_queued, kept) = self
            && let Some(at_rest) = kept.rest(*is_queued)
        {
            *self = at_rest;
        }
    }

    /// Whether there is nothing to see or to do at `now`, where pools are written down if `is_written`.
    pub(super) fn rests(&self, now: Moment, is_written: bool) -> bool {
        match self {
            Shelf::AtRest(marks, resting) => {
                let is_known = !is_written || marks.is_queued || !marks.wants_checkpoint;
                is_known && now < resting.rests_until()
            }
            Shelf::InUse(..) | Shelf::Miscounted(..) => false,
        }
    }

    /// Whether it is about to be written down.
    pub(super) fn is_queued(&self) -> bool {
        match self {
            Shelf::InUse(is_queued, _) => *is_queued,
            Shelf::AtRest(marks, _) | Shelf::Miscounted(marks, _) => marks.is_queued,
        }
    }

    fn is_queued_mut(&mut self) -> &mut bool {
        match self {
            Shelf::InUse(is_queued, _) => is_queued,
            Shelf::AtRest(marks, _) | Shelf::Miscounted(marks, _) => &mut marks.is_queued,
        }
    }

    /// It is about to be written down. Returns whether it was already.
    pub(super) fn queue(&mut self) -> bool {
        std::mem::replace(self.is_queued_mut(), true)
    }

    /// It is not about to be written down any more.
    pub(super) fn take_from_queue(&mut self) {
        *self.is_queued_mut() = false;
    }

    /// Permits that the pool had left when it was counted.
    pub(super) fn available(&self) -> u64 {
        match self {
            Shelf::InUse(_, kept) => kept.counted.available,
            Shelf::AtRest(..) | Shelf::Miscounted(..) => self.counted().available,
        }
    }

    /// The window of the rule with the least limit of the pool, if that has one.
    pub(super) fn window(&self) -> Option<Duration> {
        match self {
            Shelf::InUse(_, kept) => kept.pool.window(),
            Shelf::AtRest(_, resting) => resting.wake().window(),
            Shelf::Miscounted(_, both) => both.0.wake().window(),
        }
    }

    /// Whether a pool that rests at `now` looks as it was counted and cannot be forgotten, for assertions.
    pub(super) fn is_asleep(&self, now: Moment) -> bool {
        self.awake().is_some_and(|Kept { mut pool, counted }| {
            let is_forgettable = pool.is_forgettable(now);
            !is_forgettable && Counted::of(&pool.view(now)) == counted
        })
    }

    /// In how many bytes the pool rests, if it does.
    #[cfg(test)]
    pub(super) fn resting_bytes(&self) -> Option<usize> {
        self.at_rest().map(Resting::len)
    }
}
