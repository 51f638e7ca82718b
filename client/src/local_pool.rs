//! What this process holds of one pool, shared by every handle of it: the slot, the callers in line, and what
//! the last answer said. Handles spend from it, the background task refills it.

mod in_flight;
mod paced;
mod part;
mod reserve;
#[cfg(test)]
mod tests;

use crate::fallback::Standby;
use crate::line::Line;
use crate::pace::Pace;
use crate::refill::{Refill, Seen};
use crate::refusal::Refusal;
use crate::slot::{SLOT_MAX, Short, Slot};
use lessor_protocol::{Clock, Moment};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Round trip to reckon with until one was measured, in microseconds.
const RTT_UNTOLD_US: u32 = 1_000;

/// What every deadline on a node is counted on.
pub(crate) const CLOCK: Clock = Clock::since_boot();

/// The name of a pool: a limit, and a key if it is keyed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PoolName {
    pub(crate) limit: String,
    pub(crate) key: Option<String>,
}

/// What the last exchange said about the pool.
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
#[repr(u8)]
pub(crate) enum Condition {
    /// Asked, or about to be.
    Good,
    /// The last exchange failed, or its answer was no use. What is leased goes on.
    Unreachable,
    /// Somebody has paused the limit, or blocked this node.
    Paused,
    /// The allocator says that there is no such pool.
    Unknown,
    /// The client was shut down.
    Closed,
}

impl Condition {
    fn from_u8(condition: u8) -> Self {
        const ALL: [Condition; 5] = [
            Condition::Good,
            Condition::Unreachable,
            Condition::Paused,
            Condition::Unknown,
            Condition::Closed,
        ];
        ALL[usize::from(condition)]
    }
}

/// All that a call reads or writes, admitted or refused, in one cache line: a process that calls its vendor now and
/// then finds it cold, and each further line would be another wait for memory.
#[derive(Debug)]
#[repr(align(64))]
struct Hot {
    slot: Slot,
    /// Permits that callers in line want. While there is a line, nobody overtakes it.
    queued: AtomicU64,
    /// Permits refused so far, in total; admitted ones show in the slot.
    refused: AtomicU64,
    /// The parts of [`Standing`]. Each is true by itself: they make hints and refusals, never an admission.
    ceiling: AtomicU64,
    chance: AtomicU64,
    rtt_us: AtomicU32,
    condition: AtomicU8,
    /// Whether what would be refused is let pass: see `standby`.
    passes: AtomicBool,
    /// Whether the background task knows already that it is wanted.
    nudged: AtomicBool,
    /// Whether the limit has a steady flow: then a call takes from the pace too. Written by that task.
    is_paced: AtomicBool,
    /// Whether the allocator counts what is in flight. Written by the background task.
    counts_flights: AtomicBool,
    /// Free permits below which a spender wakes the background task. Written by that task.
    low_water: AtomicU32,
}

/// What this process holds of one pool.
#[derive(Debug)]
pub(crate) struct LocalPool {
    hot: Hot,
    /// Permits let pass in shadow mode.
    shadow_refused: AtomicU64,
    /// Shadow mode and fallback, as far as we were told.
    standby: Standby,
    pub(crate) name: PoolName,
    /// Of limits with a steady flow. Others never look at it.
    pace: Arc<Pace>,
    /// The largest call that a steady flow kept waiting.
    largest: AtomicU64,
    /// Permits that calls have cost beyond what they reserved. They are in `queued` too.
    overdrawn: AtomicU64,
    /// Whether a call was refused as too large, and nobody has asked since.
    doubted: AtomicBool,
    line: Mutex<Line>,
    refill: Mutex<Refill>,
    wake: Arc<Notify>,
}

impl LocalPool {
    pub(crate) fn new(name: PoolName, eager: bool, wake: Arc<Notify>) -> Self {
        let refill = Refill::new(CLOCK.now(), eager);
        LocalPool {
            hot: Hot {
                slot: Slot::new(),
                queued: AtomicU64::new(0),
                refused: AtomicU64::new(0),
                ceiling: AtomicU64::new(lessor_protocol::PERMITS_MAX),
                chance: AtomicU64::new(0),
                rtt_us: AtomicU32::new(RTT_UNTOLD_US),
                condition: AtomicU8::new(Condition::Good as u8),
                passes: AtomicBool::new(false),
                nudged: AtomicBool::new(false),
                is_paced: AtomicBool::new(false),
                counts_flights: AtomicBool::new(false),
                low_water: AtomicU32::new(0),
            },
            shadow_refused: AtomicU64::new(0),
            standby: Standby::default(),
            name,
            pace: refill.pace().clone(),
            largest: AtomicU64::new(0),
            overdrawn: AtomicU64::new(0),
            doubted: AtomicBool::new(false),
            line: Mutex::new(Line::default()),
            refill: Mutex::new(refill),
            wake,
        }
    }

    /// Spends `permits` now, or says why not.
    #[inline]
    pub(crate) fn try_acquire(&self, permits: u64) -> Result<(), Refusal> {
        let now = CLOCK.now();
        match self.take_at(permits, false, now) {
            Ok(()) => Ok(()),
            Err(_) if self.is_shadow() => {
                self.let_pass(permits);
                Ok(())
            }
            Err(_) => Err(self.refuse_at(permits, now)),
        }
    }

    /// Spends `permits` if they are there. Nobody overtakes the line; `first` says that it is the caller's turn.
    /// A failure is not counted: the caller may be about to wait.
    pub(crate) fn take(&self, permits: u64, first: bool) -> Result<(), Short> {
        self.take_at(permits, first, CLOCK.now())
    }

    #[inline]
    fn take_at(&self, permits: u64, first: bool, now: Moment) -> Result<(), Short> {
        if permits == 0 {
            return Ok(());
        }
        if !first && self.hot.queued.load(Ordering::Relaxed) > 0 {
            return Err(Short::Empty);
        }
        if self.hot.is_paced.load(Ordering::Relaxed) {
            return self.take_paced(permits, now);
        }
        self.hot.slot.take(permits, now).map(|left| self.spent_down_to(left))
    }

    /// Sets `permits` aside at `now`, see [`Slot::hold`]; otherwise as [`LocalPool::take`].
    pub(crate) fn hold(&self, permits: u64, first: bool, now: Moment) -> Result<(), Short> {
        if permits == 0 {
            return Ok(());
        }
        if !first && self.hot.queued.load(Ordering::Relaxed) > 0 {
            return Err(Short::Empty);
        }
        self.hot.slot.hold(permits, now).map(|_| ())
    }

    /// Spends what [`LocalPool::hold`] set aside.
    pub(crate) fn spend_held(&self, permits: u64) {
        self.spent_down_to(self.hot.slot.spend_held(permits));
    }

    /// Frees what [`LocalPool::hold`] set aside, for whoever is in line.
    pub(crate) fn put_back(&self, permits: u64) {
        self.hot.slot.put_back(permits);
        if self.hot.queued.load(Ordering::Relaxed) > 0 {
            self.call_first();
        }
    }

    #[inline]
    fn spent_down_to(&self, left: u64) {
        if left < u64::from(self.hot.low_water.load(Ordering::Relaxed)) {
            self.nudge();
        }
    }

    /// Whether what would be refused is let pass, in shadow mode or in an open fallback, as long as the client runs.
    #[inline]
    pub(crate) fn is_shadow(&self) -> bool {
        self.hot.passes.load(Ordering::Relaxed) && self.condition() != Condition::Closed
    }

    /// Shadow mode and fallback. Whoever changes them calls [`LocalPool::mind_passing`].
    pub(crate) fn standby(&self) -> &Standby {
        &self.standby
    }

    /// Shadow mode or fallback may have changed.
    pub(crate) fn mind_passing(&self) {
        self.hot.passes.store(self.standby.lets_pass(), Ordering::Relaxed);
    }

    /// Counts `permits` that would have been refused. They are demand all the same.
    #[cold]
    pub(crate) fn let_pass(&self, permits: u64) {
        if !self.standby.counts(permits) {
            self.shadow_refused.fetch_add(permits, Ordering::Relaxed);
        }
        self.hot.refused.fetch_add(permits, Ordering::Relaxed);
        self.nudge();
    }

    /// Permits let pass in shadow mode so far.
    pub(crate) fn shadow_refused(&self) -> u64 {
        self.shadow_refused.load(Ordering::Relaxed)
    }

    /// As [`LocalPool::take`]; in shadow mode it never fails.
    pub(crate) fn take_or_pass(&self, permits: u64, first: bool) -> Result<(), Short> {
        match self.take(permits, first) {
            Ok(()) => Ok(()),
            Err(_) if self.is_shadow() => {
                self.let_pass(permits);
                Ok(())
            }
            Err(short) => Err(short),
        }
    }

    /// Why `permits` cannot be had; counts the attempt, once for each call that ends with it.
    pub(crate) fn refuse(&self, permits: u64) -> Refusal {
        self.refuse_at(permits, CLOCK.now())
    }

    // Inlined beside the admission and not marked cold: with a quota worth leasing, a refusal is as ordinary, and
    // has to be as cheap. In a function of its own it costs a process that wakes up to it another page of code.
    #[inline]
    fn refuse_at(&self, permits: u64, now: Moment) -> Refusal {
        if let Some(refusal) = self.for_good(permits) {
            self.doubt(refusal);
            return refusal;
        }
        self.hot.refused.fetch_add(permits, Ordering::Relaxed);
        self.nudge();
        self.not_now_at(permits, now)
    }

    /// Has the allocator asked whether `refusal` is still true, if that may have changed: the limit may have been raised.
    /// It is no demand: what is lent to a node cannot be spent by calls that are too large for it.
    pub(crate) fn doubt(&self, refusal: Refusal) {
        if matches!(refusal, Refusal::TooLarge { .. }) {
            self.doubted.store(true, Ordering::Relaxed);
            self.nudge();
        }
    }

    /// Whether a call was refused as too large since this was last asked. The background task asks.
    pub(crate) fn takes_doubt(&self) -> bool {
        self.doubted.load(Ordering::Relaxed) && self.doubted.swap(false, Ordering::Relaxed)
    }

    /// The refusal that waiting will not change, if there is one.
    #[inline]
    pub(crate) fn for_good(&self, permits: u64) -> Option<Refusal> {
        let ceiling = self.hot.ceiling.load(Ordering::Relaxed).min(SLOT_MAX);
        match self.condition() {
            Condition::Closed => Some(Refusal::Closed),
            Condition::Unknown => Some(Refusal::Unavailable),
            Condition::Good | Condition::Unreachable | Condition::Paused if permits > ceiling => {
                Some(Refusal::TooLarge { limit: ceiling })
            }
            Condition::Good | Condition::Unreachable | Condition::Paused => None,
        }
    }

    /// Whether a wait of `patience` cannot end well, as far as this process knows.
    pub(crate) fn in_vain(&self, permits: u64, patience: Duration) -> bool {
        self.for_good(permits).is_some()
            || self.not_now(permits).retry_after().is_some_and(|wait| wait > patience)
    }

    /// The refusal of the moment.
    pub(crate) fn not_now(&self, permits: u64) -> Refusal {
        self.not_now_at(permits, CLOCK.now())
    }

    #[inline]
    fn not_now_at(&self, permits: u64, now: Moment) -> Refusal {
        if let Some(retry_after) = self.early_by(permits, now) {
            return Refusal::Empty { retry_after };
        }
        let condition = self.condition();
        if condition == Condition::Unreachable && now >= self.hot.slot.deadline() {
            return Refusal::Unavailable;
        }
        let chance = Moment::from_nanos(self.hot.chance.load(Ordering::Relaxed)).since(now);
        let rtt = Duration::from_micros(u64::from(self.hot.rtt_us.load(Ordering::Relaxed)));
        let retry_after = chance.max(rtt);
        match condition {
            Condition::Paused => Refusal::Paused { retry_after },
            Condition::Good | Condition::Unreachable | Condition::Unknown | Condition::Closed => {
                Refusal::Empty { retry_after }
            }
        }
    }

    /// Tells the background task that it is wanted, unless it knows. At most once until it has looked: this is
    /// the only thing a spend can do that touches the runtime.
    #[inline]
    pub(crate) fn nudge(&self) {
        if !self.hot.nudged.load(Ordering::Relaxed) {
            self.wake_task();
        }
    }

    #[cold]
    fn wake_task(&self) {
        if !self.hot.nudged.swap(true, Ordering::AcqRel) {
            self.wake.notify_one();
        }
    }

    /// From now on a nudge is heard again, or (`false`) it is not needed until the task looks by itself.
    pub(crate) fn listen(&self, listen: bool) {
        self.hot.nudged.store(!listen, Ordering::Release);
    }

    pub(crate) fn slot(&self) -> &Slot {
        &self.hot.slot
    }

    #[inline]
    pub(crate) fn condition(&self) -> Condition {
        Condition::from_u8(self.hot.condition.load(Ordering::Relaxed))
    }

    pub(crate) fn ceiling(&self) -> u64 {
        self.hot.ceiling.load(Ordering::Relaxed)
    }

    pub(crate) fn set_condition(&self, condition: Condition) {
        self.hot.condition.store(condition as u8, Ordering::Relaxed);
    }

    pub(crate) fn set_standing(&self, standing: Standing) {
        self.set_condition(standing.condition);
        self.hot.ceiling.store(standing.ceiling, Ordering::Relaxed);
        self.hot.chance.store(standing.chance.as_nanos(), Ordering::Relaxed);
        let rtt = u32::try_from(standing.rtt.as_micros()).unwrap_or(u32::MAX);
        self.hot.rtt_us.store(rtt, Ordering::Relaxed);
    }

    /// Before permits are there that must be counted. True if that is news.
    pub(crate) fn set_counts_flights(&self, counts: bool) -> bool {
        self.hot.counts_flights.swap(counts, Ordering::AcqRel) != counts
    }

    pub(crate) fn set_low_water(&self, permits: u64) {
        self.hot.low_water.store(u32::try_from(permits).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// What the handles have seen so far.
    pub(crate) fn seen(&self) -> Seen {
        Seen {
            shadow_refused: self.shadow_refused(),
            refused: self.hot.refused.load(Ordering::Relaxed),
            waiting: self.hot.queued.load(Ordering::Relaxed),
            largest: self.largest.load(Ordering::Relaxed),
        }
    }

    /// Permits that can be spent at this moment.
    pub(crate) fn available(&self) -> u64 {
        self.there_at(CLOCK.now())
    }

    /// The line, with the count of permits that it wants.
    pub(crate) fn line(&self) -> (MutexGuard<'_, Line>, &AtomicU64) {
        // A line is a list of wakers: nothing that a panic elsewhere could have left half done.
        (self.line.lock().unwrap_or_else(PoisonError::into_inner), &self.hot.queued)
    }

    /// Wakes the first in line: there may be something for it.
    pub(crate) fn call_first(&self) {
        self.pay_overdrawn();
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
