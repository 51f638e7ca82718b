//! A pool of a limit with its part of the sums: in use, or at rest while no session uses it. Limits take a pool from here for
//! whatever they do to it. One that rests wakes for that, and is as if it had never rested.

use crate::pool::{Pool, PoolView, Resting};
use lessor_protocol::Moment;
use std::time::Duration;

/// A pool, and its part of the sums.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) pool: Pool,
    pub(super) counted: PoolView,
    /// Whether it is about to be written down.
    pub(super) is_queued: bool,
}

/// Where a limit keeps a pool.
#[derive(Debug)]
pub(super) enum Shelf {
    /// A session uses it, or did a moment ago.
    InUse(Box<Kept>),
    /// In as few bytes as it takes.
    AtRest(Box<AtRest>),
}

/// A pool at rest.
#[derive(Debug)]
pub(super) struct AtRest {
    pool: Resting,
    /// How it was counted, if it looked otherwise when it came to rest.
    counted: Option<Box<PoolView>>,
    is_queued: bool,
    /// Whether another checkpoint is worth its write.
    wants_checkpoint: bool,
}

impl Kept {
    /// A pool that counts nowhere yet.
    pub(super) fn new(pool: Pool) -> Self {
        Kept { pool, counted: PoolView::default(), is_queued: false }
    }

    /// The same at rest; `None` if it is in use.
    fn rest(&mut self) -> Option<AtRest> {
        let pool = self.pool.rest()?;
        let counted = (self.pool.as_it_looks() != self.counted).then(|| Box::new(self.counted));
        let wants_checkpoint = self.pool.wants_checkpoint();
        Some(AtRest { pool, counted, is_queued: self.is_queued, wants_checkpoint })
    }
}

impl AtRest {
    fn wake(&self) -> Kept {
        let mut pool = self.pool.wake();
        let counted = self.counted.as_deref().copied().unwrap_or_else(|| pool.as_it_looks());
        Kept { pool, counted, is_queued: self.is_queued }
    }
}

impl Shelf {
    /// The place of a pool that is in use.
    pub(super) fn of(kept: Box<Kept>) -> Self {
        Shelf::InUse(kept)
    }

    /// The pool, which is in use from now on.
    pub(super) fn wake(&mut self) -> &mut Kept {
        if let Shelf::AtRest(at_rest) = self {
            *self = Shelf::InUse(Box::new(at_rest.wake()));
        }
        match self {
            Shelf::InUse(kept) => kept,
            Shelf::AtRest(_) => unreachable!("it is awake"),
        }
    }

    /// The same, to be kept elsewhere.
    pub(super) fn into_kept(self) -> Box<Kept> {
        match self {
            Shelf::InUse(kept) => kept,
            Shelf::AtRest(at_rest) => Box::new(at_rest.wake()),
        }
    }

    /// Runs `act` on the pool. One that rested rests again, if it still can.
    pub(super) fn with<T>(&mut self, act: impl FnOnce(&mut Kept) -> T) -> T {
        let rested = matches!(self, Shelf::AtRest(_));
        let result = act(self.wake());
        if rested {
            self.rest();
        }
        result
    }

    /// A copy of the pool.
    pub(super) fn copy(&self) -> Pool {
        match self {
            Shelf::InUse(kept) => kept.pool.clone(),
            Shelf::AtRest(at_rest) => at_rest.pool.wake(),
        }
    }

    /// How the pool was counted.
    pub(super) fn counted(&self) -> PoolView {
        match self {
            Shelf::InUse(kept) => kept.counted,
            Shelf::AtRest(at_rest) => at_rest.wake().counted,
        }
    }

    /// Lets the pool rest if no session uses it.
    pub(super) fn rest(&mut self) {
        if let Shelf::InUse(kept) = self
            && let Some(at_rest) = kept.rest()
        {
            *self = Shelf::AtRest(Box::new(at_rest));
        }
    }

    /// Whether there is nothing to see or to do at `now`, where pools are written down if `is_written`.
    pub(super) fn rests(&self, now: Moment, is_written: bool) -> bool {
        match self {
            Shelf::InUse(_) => false,
            Shelf::AtRest(at_rest) => {
                let is_known = !is_written || at_rest.is_queued || !at_rest.wants_checkpoint;
                is_known && at_rest.counted.is_none() && now < at_rest.pool.rests_until()
            }
        }
    }

    /// It is about to be written down. Returns whether it was already.
    pub(super) fn queue(&mut self) -> bool {
        let is_queued = match self {
            Shelf::InUse(kept) => &mut kept.is_queued,
            Shelf::AtRest(at_rest) => &mut at_rest.is_queued,
        };
        std::mem::replace(is_queued, true)
    }

    /// It is not about to be written down any more.
    pub(super) fn take_from_queue(&mut self) {
        match self {
            Shelf::InUse(kept) => kept.is_queued = false,
            Shelf::AtRest(at_rest) => at_rest.is_queued = false,
        }
    }

    /// The window of the rule with the least limit of the pool, if that has one.
    pub(super) fn window(&self) -> Option<Duration> {
        match self {
            Shelf::InUse(kept) => kept.pool.window(),
            Shelf::AtRest(at_rest) => at_rest.pool.wake().window(),
        }
    }

    /// Whether a pool that rests at `now` looks as it was counted and cannot be forgotten, for assertions.
    pub(super) fn is_asleep(&self, now: Moment) -> bool {
        match self {
            Shelf::InUse(_) => false,
            Shelf::AtRest(at_rest) => {
                let Kept { mut pool, counted, .. } = at_rest.wake();
                let is_forgettable = pool.is_forgettable(now);
                !is_forgettable && pool.view(now) == counted
            }
        }
    }

    /// In how many bytes the pool rests, if it does.
    #[cfg(test)]
    pub(super) fn resting_bytes(&self) -> Option<usize> {
        match self {
            Shelf::InUse(_) => None,
            Shelf::AtRest(at_rest) => Some(at_rest.pool.len()),
        }
    }
}
