//! Whether a thread had its core to itself: a sample during which somebody else ran there is about them.

use std::time::Duration;

/// Time without a core that a sample may have, as a part of it. Interrupts take a part of a percent; much more is
/// another program, and two threads that take turns on one core no longer contend for anything.
const AWAY_MAX: f64 = 0.02;

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
