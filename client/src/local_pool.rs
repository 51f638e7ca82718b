//! This process's share of one pool, used by every handle to the pool: the slot, the line of waiting callers, and what
//! the last answer said. Handles spend from it, and the background task refills it.

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
use crate::overdraft::Overdraft;
use crate::pace::Pace;
use crate::pace::Refill;
use crate::refusal::Refusal;
use crate::slot::{Slot, Watch};
use crate::tally::{Tally, Totals};
use crate::ticks::Ticks;
use crate::wake_list::WakeList;
use lessor_holder::refill::Seen;
use lessor_protocol::lock_anyway::LockAnyway;
use lessor_protocol::rare::Rare;
use lessor_protocol::{Clock, Moment, Tick};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use crate::slow_path_flags::SlowPathFlags;
use hot_state::FastPathFlags;
pub(crate) use hot_state::{HotRef, HotState, Place};

/// A number of permits that the allocator did not tell.
const UNKNOWN: u64 = u64::MAX;

/// The clock of every deadline on a node.
pub(crate) const CLOCK: Clock = Clock::since_boot();

/// The name of a pool: a limit, and a key if the limit is keyed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PoolName {
    /// The limit, as one text that all its keys share.
    pub(crate) limit: Arc<str>,
    pub(crate) key: Option<Box<str>>,
}

/// What the last exchange told about the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) condition: Condition,
    /// Most permits that one call can ever take.
    pub(crate) ceiling: u64,
    /// When the pool may have a permit for this process again.
    pub(crate) chance: Moment,
    /// Round-trip time of an exchange.
    pub(crate) rtt: Duration,
}

/// The state of this process's access to the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Condition {
    /// The allocator answers, or is about to be asked.
    Good,
    /// The last exchange failed, or its answer was of no use. The lease can still be spent.
    Unreachable,
    /// An operator has paused the limit, or blocked this node.
    Paused,
    /// The allocator has no such pool.
    Unknown,
    /// The client was shut down.
    Closed,
    /// No key can have this text.
    BadKey,
    /// The limit has as many keys, names or sessions as it may.
    Full,
    /// The allocator lends nothing yet, because leases that it may have forgotten have not ended, or it is about to
    /// stop.
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

    /// Whether no call gets a permit in this condition, however long it waits.
    pub(crate) fn is_for_good(self) -> bool {
        matches!(self, Condition::Unknown | Condition::Closed | Condition::BadKey | Condition::Full)
    }
}

/// All that a call reads besides its hot state, admitted or refused, in one cache line. A process that calls its vendor
/// only now and then finds the lines cold, and each further line would be another wait for memory. It changes only when
/// the background task has news, so that no thread waits for another one's call.
#[derive(Debug)]
#[repr(align(64))]
struct Hot {
    /// Where the hot state is: in a row of a table, or in a row of its own.
    hot_ref: HotRef,
    /// The parts of [`Standing`]. Each is correct by itself: they make hints and refusals, never an admission.
    ceiling: AtomicU64,
    chance: AtomicU64,
    rtt_us: AtomicU32,
    condition: AtomicU8,
    /// Whether some calls that would be refused pass: see `standby`.
    passes: AtomicBool,
    /// How callers tell the background task that it is needed.
    doorbell: Doorbell,
    /// Whether the allocator counts calls in flight. Written by the background task.
    counts_flights: AtomicBool,
    ticks: Ticks,
}

const _: () = assert!(size_of::<Hot>() == 64 || cfg!(slot_loom));

/// The state of one pool in this process: first what each call reads, in adjacent cache lines, then the rest.
#[repr(C)]
pub(crate) struct LocalPool {
    hot: Hot,
    cold: Cold,
}

/// State that calls seldom read.
#[derive(Debug)]
struct Cold {
    name: PoolName,
    /// Permits let pass in shadow mode.
    shadow_refused: AtomicU64,
    /// Shadow mode and fallback, as far as the allocator told them.
    standby: Standby,
    /// In the plain pool of a limit: the pools of its keys.
    keys: OnceLock<Box<Keys>>,
    /// The pace of a limit with a steady flow, from the first rate that was lent.
    pace: OnceLock<Arc<Pace>>,
    /// The largest call that a steady flow kept waiting. For another limit: the permits that the first in line wants,
    /// written under the lock of the line; zero if there is no line.
    largest: AtomicU64,
    /// Permits that calls have cost beyond their reservations and that are not paid yet.
    overdraft: Overdraft,
    /// Whether a call was refused as too large, unknown or full, so that the background task asks whether that still
    /// holds.
    doubted: AtomicBool,
    /// Whether a call was refused because the allocator lends nothing of the pool, since the background task last
    /// asked.
    wanted: AtomicBool,
    line: Mutex<Rare<Line>>,
    refill: Mutex<Refill>,
    /// What was heard from the vendor; made when there is something.
    feedback: OnceLock<Box<Mutex<Feedback>>>,
    wake_list: Arc<WakeList>,
    /// The tally of the limit, shared by all its keys.
    tally: Arc<Tally>,
    /// The part of this pool's totals that is in the tally already. Only the background task uses it.
    counted: Mutex<Totals>,
    /// The last answer's count of permits left in the pool, [`UNKNOWN`] if it told none; the number of answers; and the
    /// number that told what is left but brought nothing, or told to wait. Both numbers wrap. Written by the background
    /// task.
    left: AtomicU64,
    answers: AtomicU32,
    told_to_wait: AtomicU32,
    /// The window of the rule with the least limit, in milliseconds; 0 if it has none, or was not told.
    window_ms: AtomicU64,
    /// When the lease was asked for, in nanoseconds of [`CLOCK`]. Written by the background task.
    leased: AtomicU64,
    /// How long the timed call took, until the background task takes it: see `timed`.
    timed: AtomicU64,
    /// Whether the background task looks at this pool, or is about to. The thread that sets it adds the pool to the
    /// task's list.
    is_known: AtomicBool,
    /// Whether the pool is forgotten: nothing is asked in its name, and the key may have another pool. Set by the
    /// background task.
    is_forgotten: AtomicBool,
    me: Weak<LocalPool>,
}

/// Prints one line, and never a key.
impl fmt::Debug for LocalPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keyed = if self.cold.name.key.is_some() { ", one key" } else { "" };
        write!(f, "{}{keyed}, {} available", self.cold.name.limit, self.available())
    }
}

impl LocalPool {
    /// Spends `permits` now, or returns the reason why not. `hot_state` is the pool's own, which the caller has at
    /// hand.
    // The ordinary path is inlined into the caller, and the rest is in functions of its own: a spend takes fewer
    // nanoseconds than a stack frame for the rest would cost.
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

    /// The key; empty if there is none.
    pub(crate) fn key(&self) -> &str {
        self.cold.name.key.as_deref().unwrap_or_default()
    }

    /// Returns what was heard from the vendor, if anything was.
    pub(crate) fn feedback(&self) -> Option<&Mutex<Feedback>> {
        self.cold.feedback.get().map(|feedback| &**feedback)
    }

    /// As [`LocalPool::feedback`], made if there is none yet.
    pub(crate) fn feedback_or_new(&self) -> &Mutex<Feedback> {
        self.cold.feedback.get_or_init(|| Box::new(Mutex::new(self.cold.wake_list.new_feedback())))
    }

    /// Returns the pools of the limit's keys, if this is the plain pool and there are any.
    pub(crate) fn keys(&self) -> Option<&Keys> {
        self.cold.keys.get().map(|keys| &**keys)
    }

    /// As [`LocalPool::keys`], made if there are none yet.
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

    /// Sets whether calls in flight are counted, before the first permits that must be counted are installed. Returns
    /// whether that changed.
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

    /// Returns what the refill needs to know about the calls so far.
    pub(crate) fn seen(&self) -> Seen {
        Seen {
            shadow_refused: self.shadow_refused(),
            refused: self.slot().refused(),
            waiting: self.slow_path().queued(),
            largest: self.cold.largest.load(Ordering::Relaxed),
        }
    }

    /// Permits that can be spent now.
    pub(crate) fn available(&self) -> u64 {
        self.there_at(CLOCK.now())
    }

    /// Locks the line, and returns it with the flags that count the permits it wants.
    pub(crate) fn line(&self) -> (MutexGuard<'_, Rare<Line>>, &SlowPathFlags) {
        (self.cold.line.lock_anyway(), self.slow_path())
    }

    /// Notes what the first in line wants, unless the limit has a steady flow. The caller holds the lock of the line.
    pub(crate) fn first_wants(&self, permits: u64) {
        if !self.is_paced() {
            self.cold.largest.store(permits, Ordering::Relaxed);
        }
    }

    /// Wakes the first in line, because there may be permits for it. Owed permits are paid first.
    pub(crate) fn call_first(&self) {
        self.pay_overdrawn();
        let waker = self.line().0.first_waker();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Wakes all callers in line, because something changed for good.
    pub(crate) fn call_all(&self) {
        let wakers = self.line().0.all_wakers();
        for waker in wakers {
            waker.wake();
        }
    }

    pub(crate) fn refill(&self) -> MutexGuard<'_, Refill> {
        self.cold.refill.lock_anyway()
    }
}
