//! What this process holds of one pool, shared by every handle of it: the slot, the callers in line, and what
//! the last answer said. Handles spend from it, the background task refills it.

mod figures;
mod hot_state;
mod in_flight;
mod known;
mod make;
mod paced;
mod part;
mod pass;
mod refuse;
mod reserve;
mod spend;
#[cfg(test)]
mod tests;
mod timed;

use crate::doorbell::Doorbell;
use crate::fallback::Standby;
use crate::feedback::Feedback;
use crate::keys::Keys;
use crate::line::Line;
use crate::pace::Pace;
use crate::pace::Refill;
use crate::refusal::Refusal;
use crate::slot::{Slot, Watch};
use crate::tally::{Tally, Totals};
use crate::ticks::Ticks;
use crate::wake_list::WakeList;
use lessor_holder::refill::Seen;
use lessor_protocol::rare::Rare;
use lessor_protocol::{Clock, Moment, Tick};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use crate::slow_path_flags::SlowPathFlags;
use hot_state::FastPathFlags;
pub(crate) use hot_state::{HotRef, HotState, Place};

/// Stands for a number of permits that the allocator did not say.
const UNKNOWN: u64 = u64::MAX;

/// What every deadline on a node is counted on.
pub(crate) const CLOCK: Clock = Clock::since_boot();

/// The name of a pool: a limit, and a key if it is keyed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PoolName {
    /// The same text for all keys of a limit.
    pub(crate) limit: Arc<str>,
    pub(crate) key: Option<Box<str>>,
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
    /// An operator has paused the limit, or blocked this node.
    Paused,
    /// The allocator says that there is no such pool.
    Unknown,
    /// The client was shut down.
    Closed,
    /// No key has this text.
    BadKey,
    /// The limit has as many keys, names or sessions as it may.
    Full,
    /// The allocator waits until what it may have forgotten has ended, or is about to stop.
    Quarantine,
}

impl Condition {
    fn from_u8(condition: u8) -> Self {
        const ALL: [Condition; 8] = [
            Condition::Good,
            Condition::Unreachable,
            Condition::Paused,
            Condition::Unknown,
            Condition::Closed,
            Condition::BadKey,
            Condition::Full,
            Condition::Quarantine,
        ];
        ALL[usize::from(condition)]
    }

    /// Whether no call gets a permit while it lasts, however long it waits.
    pub(crate) fn is_for_good(self) -> bool {
        matches!(self, Condition::Unknown | Condition::Closed | Condition::BadKey | Condition::Full)
    }
}

/// All that a call reads besides the front, admitted or refused, in one cache line: a process that calls its vendor now and
/// then finds them cold, and each further line would be another wait for memory. This one changes when the
/// background task has news, so that no thread waits for another one's call.
#[derive(Debug)]
#[repr(align(64))]
struct Hot {
    /// Where its front is: in a row of a table, or of its own.
    hot_ref: HotRef,
    /// The parts of [`Standing`]. Each is true by itself: they make hints and refusals, never an admission.
    ceiling: AtomicU64,
    chance: AtomicU64,
    rtt_us: AtomicU32,
    condition: AtomicU8,
    /// Whether what would be refused is let pass: see `standby`.
    passes: AtomicBool,
    /// How callers tell the background task that it is wanted.
    doorbell: Doorbell,
    /// Whether the allocator counts what is in flight. Written by the background task.
    counts_flights: AtomicBool,
    ticks: Ticks,
}

const _: () = assert!(size_of::<Hot>() == 64 || cfg!(slot_loom));

/// What this process holds of one pool: what each call reads, in lines beside each other, and the rest.
#[repr(C)]
pub(crate) struct LocalPool {
    hot: Hot,
    cold: Cold,
}

/// What calls seldom read.
#[derive(Debug)]
struct Cold {
    name: PoolName,
    /// Permits let pass in shadow mode.
    shadow_refused: AtomicU64,
    /// Shadow mode and fallback, as far as we were told.
    standby: Standby,
    /// Of the plain pool of a limit: those of its keys.
    keys: OnceLock<Box<Keys>>,
    /// Of limits with a steady flow, from the first rate on that was lent.
    pace: OnceLock<Arc<Pace>>,
    /// The largest call that a steady flow kept waiting. Of another limit, what the first in line wants, written under the lock of
    /// the line; zero if there is no line.
    largest: AtomicU64,
    /// Permits that calls have cost beyond what they reserved. They are in the line too.
    overdrawn: AtomicU64,
    /// Whether a call was refused as too large since the background task last asked.
    doubted: AtomicBool,
    /// Whether a call was refused of which the allocator lends nothing, since the background task last asked.
    wanted: AtomicBool,
    line: Mutex<Rare<Line>>,
    refill: Mutex<Refill>,
    /// What was heard of the vendor; made when there is something.
    feedback: OnceLock<Box<Mutex<Feedback>>>,
    wake_list: Arc<WakeList>,
    /// Of the limit: the same for all its keys.
    tally: Arc<Tally>,
    /// What of this pool is counted there. The background task alone goes by it.
    counted: Mutex<Totals>,
    /// What the pool had left when it last answered, [`UNKNOWN`] if it did not say, how often it has answered, and how often it
    /// brought nothing by that or told to wait. Both counts wrap. Written by the background task.
    left: AtomicU64,
    answers: AtomicU32,
    told_to_wait: AtomicU32,
    /// The window of the rule with the least limit, in milliseconds; 0 if it has none, or was not told.
    window_ms: AtomicU64,
    /// When the lease was asked for, in nanoseconds of the node's clock. Written by the background task.
    leased: AtomicU64,
    /// How long a call took that was timed, until the background task takes it: see `timed`.
    timed: AtomicU64,
    /// Whether the background task looks at this pool, or is about to. Who sets it puts the pool there.
    is_known: AtomicBool,
    /// Nothing is asked in its name any more: another one may have it. Set by the background task.
    is_forgotten: AtomicBool,
    me: Weak<LocalPool>,
}

/// Names no key, and is one line.
impl fmt::Debug for LocalPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keyed = if self.cold.name.key.is_some() { ", one key" } else { "" };
        write!(f, "{}{keyed}, {} available", self.cold.name.limit, self.available())
    }
}

impl LocalPool {
    /// Spends `permits` now, or says why not. The front is its own, which the caller has at hand.
    // All of it that is ordinary is in its caller, and what is not in functions of its own: a call is spent in fewer
    // nanoseconds than a stack frame with all of that in it costs.
    #[inline(always)]
    pub(crate) fn try_acquire_at(&self, hot_state: &HotState, permits: u64) -> Result<(), Refusal> {
        hot_state.try_acquire(None, &self.hot.ticks, permits, || self)
    }

    #[inline(never)]
    fn try_slowly(&self, watch: Option<&Watch>, permits: u64, tick: Option<Tick>) -> Result<(), Refusal> {
        if permits > 0 && self.slow_path().is_timed() {
            return self.try_timed(watch, permits);
        }
        match self.spend(watch, permits, false, tick) {
            Ok(()) => Ok(()),
            Err((_, now)) => self.refuse_slowly(permits, now),
        }
    }

    pub(crate) fn name(&self) -> &PoolName {
        &self.cold.name
    }

    /// Its key; nothing if it has none.
    pub(crate) fn key(&self) -> &str {
        self.cold.name.key.as_deref().unwrap_or_default()
    }

    /// What was heard of the vendor, if anything was.
    pub(crate) fn feedback(&self) -> Option<&Mutex<Feedback>> {
        self.cold.feedback.get().map(|feedback| &**feedback)
    }

    /// The same, from now on.
    pub(crate) fn feedback_or_new(&self) -> &Mutex<Feedback> {
        self.cold.feedback.get_or_init(|| Box::new(Mutex::new(self.cold.wake_list.new_feedback())))
    }

    /// The pools of a limit's keys, of the limit's plain pool.
    pub(crate) fn keys(&self) -> Option<&Keys> {
        self.cold.keys.get().map(|keys| &**keys)
    }

    /// The same, from now on.
    pub(crate) fn keys_or_new(&self) -> &Keys {
        self.cold.keys.get_or_init(|| Box::new(Keys::new(self.hot.ticks.clone())))
    }

    pub(crate) fn hot_ref(&self) -> &HotRef {
        &self.hot.hot_ref
    }

    #[inline(always)]
    fn hot_state(&self) -> &HotState {
        self.hot.hot_ref.hot_state()
    }

    #[inline(always)]
    pub(crate) fn slot(&self) -> &Slot {
        &self.hot_state().slot
    }

    #[inline(always)]
    fn fast_path(&self) -> &FastPathFlags {
        &self.hot_state().fast_path
    }

    #[inline(always)]
    fn slow_path(&self) -> &SlowPathFlags {
        &self.fast_path().slow_path
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
        self.fast_path().low_water.store(u32::try_from(permits).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(crate) fn low_water(&self) -> u32 {
        self.fast_path().low_water.load(Ordering::Relaxed)
    }

    /// What the handles have seen so far.
    pub(crate) fn seen(&self) -> Seen {
        Seen {
            shadow_refused: self.shadow_refused(),
            refused: self.slot().refused(),
            waiting: self.slow_path().queued(),
            largest: self.cold.largest.load(Ordering::Relaxed),
        }
    }

    /// Permits that can be spent at this moment.
    pub(crate) fn available(&self) -> u64 {
        self.there_at(CLOCK.now())
    }

    /// The line, with the count of permits that it wants.
    pub(crate) fn line(&self) -> (MutexGuard<'_, Rare<Line>>, &SlowPathFlags) {
        // A line is a list of wakers: nothing that a panic elsewhere could have left half done.
        (self.cold.line.lock().unwrap_or_else(PoisonError::into_inner), self.slow_path())
    }

    /// Notes what the first in line wants, unless the limit has a steady flow. The caller has the lock of the line.
    pub(crate) fn first_wants(&self, permits: u64) {
        if !self.is_paced() {
            self.cold.largest.store(permits, Ordering::Relaxed);
        }
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
        self.cold.refill.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
