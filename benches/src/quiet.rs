//! Whether a thread had its core to itself. While another program runs on the core, a sample measures that program. So
//! does a program on the core's other hardware thread, which a virtual machine may hide.

use lessor_protocol::Clock;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Largest part of a sample without a core. Interrupts take a part of a percent; much more is another program, and two
/// threads that take turns on one core no longer contend for anything.
const AWAY_MAX: f64 = 0.02;

/// Largest slowdown of the sums on an undisturbed core, against the fastest so far. A program on the core's other
/// hardware thread takes a quarter to a half of the core from a row with many steps to make, and nothing from a row
/// that waits for one step. Ratios of rows would show which row was disturbed.
const SLOWER_MAX: f64 = 1.15;

/// Rounds of sums, some ten microseconds long: short beside a sample, and long beside a reading of the clock.
const ROUNDS: u64 = 4_000;

/// Shortest time of the sums so far, in nanoseconds.
static BEST: AtomicU64 = AtomicU64::new(u64::MAX);

/// Whether this core does as much as ever at this instant.
pub(crate) fn has_whole_core() -> bool {
    let clock = Clock::since_boot();
    let begin = clock.now();
    // Eight sums, each of which waits only for its own last step: enough to fill a core.
    let mut sums = black_box([1_u64, 2, 3, 4, 5, 6, 7, 8]);
    for round in 0..ROUNDS {
        for sum in &mut sums {
            *sum = (*sum ^ round).rotate_left(7).wrapping_add(*sum >> 3);
        }
    }
    black_box(sums);
    let took = clock.now().since(begin).as_nanos() as u64;
    let best = BEST.fetch_min(took, Ordering::Relaxed).min(took);
    took as f64 <= best as f64 * SLOWER_MAX
}

/// CPU time of this thread so far, where the platform tells.
#[cfg(target_os = "linux")]
pub(crate) fn core_time() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).ok()
}

/// CPU time of this thread so far, where the platform tells.
#[cfg(not(target_os = "linux"))]
pub(crate) fn core_time() -> Option<Duration> {
    None
}

/// Whether a thread with `had` of CPU time in `elapsed` was undisturbed. If that is unknown, it counts as undisturbed.
pub(crate) fn was_alone(had: Option<Duration>, elapsed: Duration) -> bool {
    had.is_none_or(|had| had.as_secs_f64() >= elapsed.as_secs_f64() * (1.0 - AWAY_MAX))
}
