//! A coarse clock, which tells cheaply that time has gone on: a few nanoseconds a reading, where [`crate::Clock`] takes
//! sixty or more. Callers on a node read it at every spend. It does not tell how late it is.

use std::time::Duration;

/// A reading of a coarse clock. If two ticks differ, time has gone on between them; nothing else can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick(u64);

impl Tick {
    /// Creates the tick with this number, which no other tick has.
    pub const fn of(number: u64) -> Self {
        Tick(number)
    }

    /// Returns its number.
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// The system's coarse clock: `CLOCK_MONOTONIC_COARSE`, which Linux moves with each of its timer interrupts, whatever
/// our process and its threads do. A reading that has passed never comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoarseClock {
    step_ns: u32,
}

impl CoarseClock {
    /// Steps of a coarse clock that is worth using. A coarser one than the coarsest kernel (100 interrupts a second)
    /// would hardly help. A finer one is not kept by interrupts, and may cost as much as an exact clock.
    const STEP: std::ops::RangeInclusive<Duration> = Duration::from_micros(100)..=Duration::from_millis(10);

    /// Returns the system's coarse clock, if there is one.
    #[cfg(target_os = "linux")]
    pub fn try_new() -> Option<Self> {
        let step = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
        let step = Duration::try_from(step).ok().filter(|step| Self::STEP.contains(step))?;
        Some(CoarseClock { step_ns: step.subsec_nanos() })
    }

    /// Returns `None`: this platform has no coarse clock.
    #[cfg(not(target_os = "linux"))]
    pub fn try_new() -> Option<Self> {
        None
    }

    /// Returns how far the clock moves at a time.
    pub fn step(self) -> Duration {
        Duration::from_nanos(u64::from(self.step_ns))
    }

    /// Reads the clock. Costs one `clock_gettime` through the vDSO without a look at the hardware: 2 to 5 ns.
    #[cfg(target_os = "linux")]
    #[inline(always)]
    pub fn tick(self) -> Tick {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
        // Nanoseconds are less than 2^30, and 2^34 seconds are 500 years: no two readings make one number.
        Tick((time.tv_sec as u64) << 30 | time.tv_nsec as u64)
    }

    /// Reads the clock.
    #[cfg(not(target_os = "linux"))]
    pub fn tick(self) -> Tick {
        unreachable!("this platform has no tick clock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Clock;

    /// The property on which users of a coarse clock rely: it moves with no help but the kernel's.
    #[test]
    #[cfg(target_os = "linux")]
    fn it_moves_by_itself_and_never_back() {
        let Some(coarse) = CoarseClock::try_new() else { return };
        let clock = Clock::since_boot();
        let (mut last, begin) = (coarse.tick(), clock.now());
        let mut moves = 0;
        while moves < 5 {
            let tick = coarse.tick();
            assert!(tick.number() >= last.number());
            moves += u32::from(tick != last);
            last = tick;
            assert!(clock.now().since(begin) < Duration::from_secs(60), "the tick clock stands still");
        }
    }
}
