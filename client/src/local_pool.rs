//! What this process holds of one pool, shared by every handle of it: the slot, the callers in line, and what
//! the last answer said. Handles spend from it, the background task refills it.

use crate::line::Line;
use crate::refill::{Refill, Seen};
use crate::refusal::Refusal;
use crate::slot::{SLOT_MAX, Short, Slot};
use arc_swap::ArcSwap;
use lessor_protocol::{Clock, Moment};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// The name of a pool: a limit, and a key if it is keyed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PoolName {
    pub(crate) limit: String,
    pub(crate) key: Option<String>,
}

/// What the last exchange said about the pool; replaced as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) condition: Condition,
    /// The most one call can ever take.
    pub(crate) ceiling: u64,
    /// When the pool may have a permit for us again.
    pub(crate) chance: Moment,
    /// How long an exchange takes.
    pub(crate) rtt: Duration,
}

/// How things stand between this process and the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// Asked, or about to be.
    Good,
    /// The last exchange failed. What is leased goes on.
    Unreachable,
    /// The allocator says that there is no such pool.
    Unknown,
    /// The client was shut down.
    Closed,
}

#[derive(Debug)]
pub(crate) struct LocalPool {
    pub(crate) name: PoolName,
    pub(crate) slot: Slot,
    /// Free permits below which a spender wakes the background task. Written by that task.
    low_water: AtomicU64,
    /// Permits that callers in line want. While there is a line, nobody overtakes it.
    queued: AtomicU64,
    /// Whether the background task knows already that it is wanted.
    nudged: AtomicBool,
    /// Permits refused so far, in total; admitted ones show in the slot.
    refused: AtomicU64,
    standing: ArcSwap<Standing>,
    line: Mutex<Line>,
    refill: Mutex<Refill>,
    wake: Arc<Notify>,
    clock: Clock,
}

impl LocalPool {
    pub(crate) fn new(name: PoolName, eager: bool, wake: Arc<Notify>, clock: Clock) -> Self {
        let standing = Standing {
            condition: Condition::Good,
            ceiling: lessor_protocol::PERMITS_MAX,
            chance: Moment::ORIGIN,
            rtt: Duration::from_millis(1),
        };
        LocalPool {
            name,
            slot: Slot::new(),
            low_water: AtomicU64::new(0),
            queued: AtomicU64::new(0),
            nudged: AtomicBool::new(false),
            refused: AtomicU64::new(0),
            standing: ArcSwap::from_pointee(standing),
            line: Mutex::new(Line::default()),
            refill: Mutex::new(Refill::new(clock.now(), eager)),
            wake,
            clock,
        }
    }

    /// Spends `permits` if they are there. Nobody overtakes the line; `first` says that it is the caller's turn.
    /// A failure is not counted: the caller may be about to wait.
    #[inline]
    pub(crate) fn take(&self, permits: u64, first: bool) -> Result<(), Short> {
        if permits == 0 {
            return Ok(());
        }
        if !first && self.queued.load(Ordering::Relaxed) > 0 {
            return Err(Short::Empty);
        }
        self.slot.take(permits, self.clock.now()).map(|left| self.spent_down_to(left))
    }

    /// Sets `permits` aside, see [`Slot::hold`]; otherwise as [`LocalPool::take`].
    pub(crate) fn hold(&self, permits: u64, first: bool) -> Result<(), Short> {
        if permits == 0 {
            return Ok(());
        }
        if !first && self.queued.load(Ordering::Relaxed) > 0 {
            return Err(Short::Empty);
        }
        self.slot.hold(permits, self.clock.now()).map(|_| ())
    }

    /// Spends what [`LocalPool::hold`] set aside.
    pub(crate) fn spend_held(&self, permits: u64) {
        self.spent_down_to(self.slot.spend_held(permits));
    }

    /// Frees what [`LocalPool::hold`] set aside, for whoever is in line.
    pub(crate) fn put_back(&self, permits: u64) {
        self.slot.put_back(permits);
        if self.queued.load(Ordering::Relaxed) > 0 {
            self.call_first();
        }
    }

    #[inline]
    fn spent_down_to(&self, left: u64) {
        if left < self.low_water.load(Ordering::Relaxed) {
            self.nudge();
        }
    }

    /// Why `permits` cannot be had; counts the attempt, once for each call that ends with it.
    #[cold]
    pub(crate) fn refuse(&self, permits: u64) -> Refusal {
        if let Some(refusal) = self.for_good(permits) {
            return refusal;
        }
        self.refused.fetch_add(permits, Ordering::Relaxed);
        self.nudge();
        self.not_now()
    }

    /// The refusal that waiting will not change, if there is one.
    pub(crate) fn for_good(&self, permits: u64) -> Option<Refusal> {
        let standing = self.standing.load();
        let ceiling = standing.ceiling.min(SLOT_MAX);
        match standing.condition {
            Condition::Closed => Some(Refusal::Closed),
            Condition::Unknown => Some(Refusal::Unavailable),
            Condition::Good | Condition::Unreachable if permits > ceiling => {
                Some(Refusal::TooLarge { limit: ceiling })
            }
            Condition::Good | Condition::Unreachable => None,
        }
    }

    /// Whether a wait of `patience` cannot end well, as far as this process knows.
    pub(crate) fn in_vain(&self, permits: u64, patience: Duration) -> bool {
        self.for_good(permits).is_some() || self.not_now().retry_after().is_some_and(|wait| wait > patience)
    }

    /// The refusal of the moment.
    pub(crate) fn not_now(&self) -> Refusal {
        let (now, standing) = (self.clock.now(), self.standing.load());
        if standing.condition == Condition::Unreachable && now >= self.slot.deadline() {
            return Refusal::Unavailable;
        }
        Refusal::Empty { retry_after: standing.chance.since(now).max(standing.rtt) }
    }

    /// Tells the background task that it is wanted, unless it knows. At most once until it has looked: this is
    /// the only thing a spend can do that touches the runtime.
    #[cold]
    pub(crate) fn nudge(&self) {
        if !self.nudged.load(Ordering::Relaxed) && !self.nudged.swap(true, Ordering::AcqRel) {
            self.wake.notify_one();
        }
    }

    /// From now on a nudge is heard again, or (`false`) it is not needed until the task looks by itself.
    pub(crate) fn listen(&self, listen: bool) {
        self.nudged.store(!listen, Ordering::Release);
    }

    pub(crate) fn standing(&self) -> Standing {
        **self.standing.load()
    }

    pub(crate) fn set_standing(&self, standing: Standing) {
        self.standing.store(Arc::new(standing));
    }

    pub(crate) fn set_low_water(&self, permits: u64) {
        self.low_water.store(permits, Ordering::Relaxed);
    }

    /// What the handles have seen so far.
    pub(crate) fn seen(&self) -> Seen {
        Seen { refused: self.refused.load(Ordering::Relaxed), waiting: self.queued.load(Ordering::Relaxed) }
    }

    /// Permits that can be spent at this moment.
    pub(crate) fn available(&self) -> u64 {
        if self.clock.now() < self.slot.deadline() { self.slot.balance().free } else { 0 }
    }

    /// The line, with the count of permits that it wants.
    pub(crate) fn line(&self) -> (MutexGuard<'_, Line>, &AtomicU64) {
        // A line is a list of wakers: nothing that a panic elsewhere could have left half done.
        (self.line.lock().unwrap_or_else(PoisonError::into_inner), &self.queued)
    }

    /// Wakes the first in line: there may be something for it.
    pub(crate) fn call_first(&self) {
        let waker = self.line().0.first_waker();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Wakes everybody in line: something changed for good.
    pub(crate) fn call_all(&self) {
        let wakers = self.line().0.all_wakers();
        for waker in wakers {
            waker.wake();
        }
    }

    pub(crate) fn refill(&self) -> MutexGuard<'_, Refill> {
        self.refill.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
