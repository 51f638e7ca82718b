//! An experiment that ended, and no part of the product: a thread spends from a part of a slot that only it writes, with plain
//! loads and stores. These rows are its hits alone, without what takes a part back. `docs/design/client.md` says why it went.

use crate::sample::Case;
use lessor_protocol::{Clock, CoarseClock, Moment};
use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, compiler_fence};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const CLOCK: Clock = Clock::since_boot();

/// Threads that have a part. More than live at once, for each sample starts some.
const PLACES: usize = 64;

/// Permits that a part gets at a time, and then the exact clock is read again: as often as in the shipping slot.
const SHARE: u64 = 512;

/// How late a reading of the coarse clock may be, as in the shipping slot.
const LATE: Duration = Duration::from_millis(27);

/// No tick has this number.
const NONE: u64 = u64::MAX;

thread_local! {
    static PLACE: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// What one thread spends from.
#[repr(align(128))]
struct Part {
    /// What the coarse clock shows while the part may be spent. The one that takes it back sets it to [`NONE`], has all threads
    /// pass a barrier, and then reads what is left.
    armed: AtomicU64,
    /// Only the thread of this place writes it.
    left: AtomicU64,
}

struct Slot {
    clock: CoarseClock,
    /// Callers in line, for whom others make way.
    queued: AtomicU64,
    parts: [Part; PLACES],
    deadline: Moment,
    free: Mutex<u64>,
}

impl Slot {
    /// A slot with more permits than samples take, of a lease that outlasts them.
    fn new(clock: CoarseClock) -> Self {
        let part = |_| Part { armed: AtomicU64::new(NONE), left: AtomicU64::new(0) };
        Slot {
            clock,
            queued: AtomicU64::new(0),
            parts: std::array::from_fn(part),
            deadline: CLOCK.now() + Duration::from_secs(24 * 3600),
            free: Mutex::new(u64::MAX / 2),
        }
    }

    #[inline(always)]
    fn try_acquire(&self, permits: u64) -> bool {
        let tick = self.clock.tick().number();
        let Some(part) = self.parts.get(PLACE.get()) else { return self.try_slowly(permits, tick, false) };
        let left = part.left.load(Ordering::Relaxed);
        if left < permits || self.queued.load(Ordering::Relaxed) > 0 {
            return self.try_slowly(permits, tick, false);
        }
        part.left.store(left - permits, Ordering::Relaxed);
        // A barrier of all threads makes it one of the processor: this store is seen by it, or this thread sees `NONE`.
        compiler_fence(Ordering::SeqCst);
        part.armed.load(Ordering::Acquire) == tick || self.try_slowly(permits, tick, true)
    }

    /// `took`: the permits are out of the part, which was not armed for this tick.
    #[cold]
    fn try_slowly(&self, permits: u64, tick: u64, took: bool) -> bool {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if CLOCK.now() + LATE >= self.deadline || self.queued.load(Ordering::Relaxed) > 0 {
            return false;
        }
        let part = &self.parts[place()];
        if !took {
            let more = SHARE.max(permits).min(*free);
            *free -= more;
            let left = part.left.load(Ordering::Relaxed) + more;
            part.left.store(left.saturating_sub(permits), Ordering::Relaxed);
        }
        part.armed.store(tick, Ordering::Release);
        true
    }
}

/// The place of this thread. The first is the thread that takes all samples, which shares its place with no later one.
fn place() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    if PLACE.get() == usize::MAX {
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        PLACE.set(if next == 0 { 0 } else { 1 + next % (PLACES - 1) });
    }
    PLACE.get()
}

pub(super) fn cases() -> Vec<Case> {
    let Some(clock) = CoarseClock::try_new() else { return vec![] };
    let row = |name| {
        let slot = Slot::new(clock);
        Case::new(name, move || black_box(&slot).try_acquire(1))
    };
    vec![row("floor/own-part"), row("floor/own-part-2-threads").on_two_threads()]
}
