//! Whether a thread had its core to itself. A sample during which another program ran on that core measures that program. A
//! program on the core's other hardware thread counts too, also where a virtual machine hides it.

use lessor_protocol::Clock;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Time without a core that a sample may have, as a part of it. Interrupts take a part of a percent; much more is
/// another program, and two threads that take turns on one core no longer contend for anything.
const AWAY_MAX: f64 = 0.02;

/// How much slower than ever before sums may be made on a core that no other program uses. The core's other hardware thread takes
/// a quarter to a half of the core from a row with many steps to make. It takes nothing from a row that waits for one step.
/// Ratios of rows would say which row it happened to.
const SLOWER_MAX: f64 = 1.15;

/// Rounds of sums that take some ten microseconds: little beside a sample, and much beside a look at the clock.
const ROUNDS: u64 = 4_000;

/// The least time that those have taken, in nanoseconds.
static BEST: AtomicU64 = AtomicU64::new(u64::MAX);

/// Whether this core does as much as ever in this instant.
pub(crate) fn has_whole_core() -> bool {
    let clock = Clock::since_boot();
    let begin = clock.now();
    // Eight sums that wait for nothing but their own last step: a core has more than enough to do.
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

/// For how long this thread has had a core so far, where the platform says.
#[cfg(target_os = "linux")]
pub(crate) fn core_time() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).ok()
}

/// For how long this thread has had a core so far, where the platform says.
#[cfg(not(target_os = "linux"))]
pub(crate) fn core_time() -> Option<Duration> {
    None
}

/// Whether a thread that had a core for `had` of `elapsed` was left alone. Not knowing is a yes.
pub(crate) fn was_alone(had: Option<Duration>, elapsed: Duration) -> bool {
    had.is_none_or(|had| had.as_secs_f64() >= elapsed.as_secs_f64() * (1.0 - AWAY_MAX))
}
