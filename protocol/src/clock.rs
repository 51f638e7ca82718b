//! Where moments come from: clocks at the rate of the hardware, which go on while the machine is suspended. The shells of
//! allocator and node read them and hand the moment to the core. They never go backwards, and no daemon slews them.

use crate::moment::Moment;
use std::time::Duration;

/// A suspend-aware clock that is not slewed, whose origin is the machine's own (its boot). For nodes, and for whatever
/// measures a span.
///
/// On Linux it is `CLOCK_MONOTONIC_RAW`, and how long the machine was suspended: see [`crate::steady`]. std's `Instant`
/// stops while a laptop sleeps or a machine is suspended, and a lease counted on it would be spent long after the
/// allocator took it back. On a Mac it is `CLOCK_MONOTONIC`, which goes on in sleep there. Elsewhere it is `Instant`, which may
/// stop.
#[derive(Clone, Copy, Debug)]
pub struct Clock(());

/// Two clocks of the machine at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instants {
    /// At the rate of the hardware: what spans are measured by.
    pub steady: Moment,
    /// As a daemon disciplines it, and slews it: what follows the wall clock but for its steps.
    pub disciplined: Moment,
}

impl Clock {
    /// The one there is.
    pub const fn since_boot() -> Self {
        Clock(())
    }

    /// This instant. Costs three `clock_gettime` through the vDSO, 60 to 120 ns.
    #[inline]
    pub fn now(&self) -> Moment {
        Instants::now().steady
    }
}

impl Instants {
    /// This instant.
    #[cfg(target_os = "linux")]
    pub fn now() -> Self {
        use crate::steady::Readings;
        use rustix::time::{ClockId, clock_gettime};
        use std::sync::atomic::{AtomicI64, Ordering};

        /// How long the machine has been suspended, as far as this process has seen: each reading says at most that.
        static ASLEEP: AtomicI64 = AtomicI64::new(i64::MIN);

        let nanos = |clock| {
            let time = clock_gettime(clock);
            // Neither is ever negative, and 2^64 ns are 584 years: no cast can change the value.
            time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
        };
        let (boot, monotonic) = (nanos(ClockId::Boottime), nanos(ClockId::Monotonic));
        let found = Readings::asleep(boot, monotonic);
        // Relaxed: a thread that has heard of a moment of another's finds what that one found, or more.
        let mut asleep = ASLEEP.load(Ordering::Relaxed);
        if found > asleep {
            asleep = ASLEEP.fetch_max(found, Ordering::Relaxed).max(found);
        }
        // Last: what is shown is not before this reading began, whatever came in between.
        let readings = Readings { boot, monotonic, raw: nanos(ClockId::MonotonicRaw) };
        Instants { steady: readings.steady(asleep), disciplined: Moment::from_nanos(boot) }
    }

    /// This instant.
    #[cfg(target_vendor = "apple")]
    pub fn now() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        // Neither is ever negative, and 2^64 ns are 584 years: no cast can change the value.
        let now = Moment::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64);
        Instants { steady: now, disciplined: now }
    }

    /// This instant.
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

/// Measures how long work of this process takes, for metrics. It stands still while the machine is suspended, and no lease goes
/// by it. It costs one reading where a [`Clock`] costs three.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(std::time::Instant);

impl Stopwatch {
    /// One that runs from now on.
    pub fn start() -> Self {
        #[expect(clippy::disallowed_methods, reason = "no lease goes by it")]
        Stopwatch(std::time::Instant::now())
    }

    /// The time since it was started.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// What the wall clock shows: the time since the Unix epoch.
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
