//! Clocks that run at the rate of the hardware and go on while the machine is suspended. The shells of allocator and
//! node read them and pass the [`Moment`] to the core. They never go backwards, and no daemon slews them.

use crate::moment::Moment;
use std::time::Duration;

/// A suspend-aware clock that no daemon slews, whose origin is the boot of the machine. For nodes, and for measuring
/// spans.
///
/// On Linux it is `CLOCK_MONOTONIC_RAW` plus the time for which the machine was suspended: see [`crate::steady`]. std's
/// `Instant` stops while a laptop sleeps or a machine is suspended. A lease counted on it would be spent long after the
/// allocator took it back. On a Mac it is `CLOCK_MONOTONIC`, which goes on in sleep there. Elsewhere it is `Instant`,
/// which may stop.
#[derive(Clone, Copy, Debug)]
pub struct Clock(());

/// The clock of the machine.
pub const CLOCK: Clock = Clock::since_boot();

/// Two clocks of the machine at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instants {
    /// Time at the rate of the hardware, by which spans are measured.
    pub steady: Moment,
    /// Time as a daemon disciplines and slews it: it follows the wall clock except for its steps.
    pub disciplined: Moment,
}

impl Clock {
    /// Returns the clock of the machine.
    pub const fn since_boot() -> Self {
        Clock(())
    }

    /// Returns this instant. Costs three `clock_gettime` through the vDSO, 60 to 120 ns.
    #[inline]
    pub fn now(&self) -> Moment {
        Instants::now().steady
    }
}

impl Instants {
    /// Reads both clocks.
    #[cfg(target_os = "linux")]
    pub fn now() -> Self {
        use crate::steady::Readings;
        use rustix::time::{ClockId, clock_gettime};
        use std::sync::atomic::{AtomicI64, Ordering};

        /// Time for which the machine has been suspended, in nanoseconds, as far as this process knows: a lower bound.
        static ASLEEP: AtomicI64 = AtomicI64::new(i64::MIN);

        let nanos = |clock| {
            let time = clock_gettime(clock);
            // Neither field is ever negative, and 2^64 ns are 584 years: no cast can change the value.
            time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
        };
        let (boot, monotonic) = (nanos(ClockId::Boottime), nanos(ClockId::Monotonic));
        let found = Readings::asleep(boot, monotonic);
        // Relaxed suffices: a thread that has seen a moment of another thread finds at least that thread's value here.
        let mut asleep = ASLEEP.load(Ordering::Relaxed);
        if found > asleep {
            asleep = ASLEEP.fetch_max(found, Ordering::Relaxed).max(found);
        }
        // The raw clock is read last, so that the result is not before the start of this reading, whatever happened in
        // between.
        let readings = Readings { boot, monotonic, raw: nanos(ClockId::MonotonicRaw) };
        Instants { steady: readings.steady(asleep), disciplined: Moment::from_nanos(boot) }
    }

    /// Reads the clock, which serves as both.
    #[cfg(target_vendor = "apple")]
    pub fn now() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        // Neither field is ever negative, and 2^64 ns are 584 years: no cast can change the value.
        let now = Moment::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64);
        Instants { steady: now, disciplined: now }
    }

    /// Reads the clock, which serves as both.
    #[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
    pub fn now() -> Self {
        /// The first reading in this process, which stands in for the boot.
        static ORIGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        #[expect(clippy::disallowed_methods, reason = "the best clock that std offers on this platform")]
        let origin = ORIGIN.get_or_init(std::time::Instant::now);
        let now = Moment::from_nanos(crate::moment::nanos(origin.elapsed()));
        Instants { steady: now, disciplined: now }
    }
}

/// A stopwatch for work of this process, for metrics. It stands still while the machine is suspended, and no lease
/// depends on it. It costs one reading where a [`Clock`] costs three.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(std::time::Instant);

impl Stopwatch {
    /// Starts a stopwatch.
    pub fn start() -> Self {
        #[expect(clippy::disallowed_methods, reason = "no lease goes by it")]
        Stopwatch(std::time::Instant::now())
    }

    /// Returns the time since the start.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Returns the time of the wall clock since the Unix epoch.
pub fn wall() -> Moment {
    #[expect(clippy::disallowed_methods, reason = "the one reading that aligns fixed windows to the epoch")]
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Moment::from_nanos(crate::moment::nanos(wall))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_goes_backwards() {
        let clock = Clock::since_boot();
        let mut last = clock.now();
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= last, "{now:?} came after {last:?}");
            last = now;
        }
    }

    #[test]
    fn the_wall_clock_shows_this_century() {
        let seconds = wall().as_nanos() / 1_000_000_000;
        assert!((1_600_000_000..4_000_000_000).contains(&seconds), "{seconds} s since the epoch");
    }
}
