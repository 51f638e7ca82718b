//! What no shared counter can beat on this machine: one clock reading, one change of an atomic.

use crate::sample::Case;
use lessor_protocol::Clock;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

const CLOCK: Clock = Clock::since_boot();

/// An atomic alone in its cache line.
#[repr(align(64))]
struct Counter(AtomicU64);

impl Counter {
    /// More than all samples take.
    const fn full() -> Self {
        Counter(AtomicU64::new(u64::MAX))
    }

    fn subtract(&self) -> bool {
        self.0.fetch_sub(1, Ordering::AcqRel) > 0
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

pub(super) fn cases() -> Vec<Case> {
    let (alone, swapped, shared) = (Counter::full(), Counter::full(), Counter::full());
    vec![
        Case::new("floor/clock", || {
            black_box(CLOCK.now());
            true
        }),
        Case::new("floor/fetch_sub", move || black_box(&alone).subtract()),
        Case::new("floor/cas", move || black_box(&swapped).exchange()),
        Case::new("floor/fetch_sub-2-threads", move || black_box(&shared).subtract()).on_two_threads(),
    ]
}
