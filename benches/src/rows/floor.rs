//! The least that a shared counter can cost on this machine: one reading of a clock, one change of an atomic.

use crate::sample::Case;
use lessor_protocol::{CLOCK, CoarseClock};
use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

/// The clock that a call reads.
#[derive(Clone, Copy)]
struct HotClock(Option<CoarseClock>);

impl HotClock {
    /// Whether the clock shows a time, which it always does.
    #[inline(always)]
    fn is_read(self) -> bool {
        self.0.map_or_else(|| CLOCK.now().as_nanos(), |clock| clock.tick().number()) != u64::MAX
    }
}

/// An atomic without a neighbour in its pair of cache lines, which common processors fetch together.
#[repr(align(128))]
struct Counter(AtomicU64);

impl Counter {
    /// Makes a counter with more than all samples take.
    const fn full() -> Self {
        Counter(AtomicU64::new(u64::MAX))
    }

    fn subtract(&self) -> bool {
        self.0.fetch_sub(1, Ordering::AcqRel) > 0
    }

    /// Subtracts without an atomic operation, for a counter that only this thread writes.
    fn subtract_plainly(&self) -> bool {
        let count = self.0.load(Ordering::Relaxed);
        self.0.store(count.wrapping_sub(1), Ordering::Relaxed);
        count > 0
    }

    fn exchange(&self) -> bool {
        let mut count = self.0.load(Ordering::Acquire);
        while count > 0 {
            match self.0.compare_exchange_weak(count, count - 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(current) => count = current,
            }
        }
        false
    }
}

thread_local! {
    static OWN: Cell<u64> = const { Cell::new(u64::MAX) };
}

fn decrement_own() -> bool {
    OWN.with(|own| {
        let count = black_box(own).get();
        own.set(count - 1);
        count > 0
    })
}

pub(super) fn cases() -> Vec<Case> {
    let (alone, swapped) = (Counter::full(), Counter::full());
    let (shared, contended) = (Counter::full(), Counter::full());
    let (one, other) = (Counter::full(), Counter::full());
    let (timed, plain) = (Counter::full(), Counter::full());
    let clock = HotClock(CoarseClock::try_new());
    let mut cases = clocks(clock);
    cases.extend([
        Case::new("floor/thread-local", decrement_own),
        Case::new("floor/thread-local-2-threads", decrement_own).on_two_threads(),
        Case::new("floor/fetch_sub", move || black_box(&alone).subtract()),
        Case::new("floor/cas", move || black_box(&swapped).exchange()),
        // The cost of both in one call, which is less than their sum: a processor overlaps them.
        Case::new("floor/clock-and-cas", move || clock.is_read() && black_box(&timed).exchange()),
        Case::new("floor/clock-and-store", move || clock.is_read() && black_box(&plain).subtract_plainly()),
        Case::new("floor/fetch_sub-2-threads", move || black_box(&shared).subtract()).on_two_threads(),
        Case::new("floor/cas-2-threads", move || black_box(&contended).exchange()).on_two_threads(),
        Case::new("floor/cas-2-threads-2-words", move || black_box(&one).exchange())
            .beside(move || black_box(&other).exchange()),
    ]);
    cases
}

/// `floor/clock` is the clock that a call reads; the others are alternatives.
fn clocks(hot: HotClock) -> Vec<Case> {
    let system = |name, id| {
        Case::new(name, move || {
            black_box(clock_gettime(id));
            true
        })
    };
    vec![
        Case::new("floor/clock", move || hot.is_read()),
        Case::new("floor/clock-2-threads", move || hot.is_read()).on_two_threads(),
        Case::new("floor/clock-exact", || {
            black_box(CLOCK.now());
            true
        }),
        system("floor/clock-boottime", ClockId::Boottime),
        system("floor/clock-raw", ClockId::MonotonicRaw),
        system("floor/clock-monotonic", ClockId::Monotonic),
        tsc(),
    ]
}

/// The processor's own counter, read as by the crate that governor uses.
fn tsc() -> Case {
    let clock = quanta::Clock::new();
    Case::new("floor/clock-tsc", move || {
        black_box(clock.raw());
        true
    })
}
