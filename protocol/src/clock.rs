//! Where moments come from: a clock that goes on while the machine is suspended. The shells of allocator and
//! node read it and hand the moment to the core. It never goes backwards and never steps with the wall clock.

use crate::moment::Moment;

/// A suspend-aware clock.
///
/// On Linux it is `CLOCK_BOOTTIME`: std's `Instant` stops while a laptop sleeps or a machine is suspended, and
/// a lease counted on it would be spent long after the allocator took it back. Elsewhere it is `Instant`.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Added to each reading: zero on a node, the wall-clock time at start on an allocator.
    offset: u64,
}

impl Clock {
    /// A clock whose origin is the machine's own (its boot). For nodes.
    pub const fn since_boot() -> Self {
        Clock { offset: 0 }
    }

    /// A clock whose origin is the Unix epoch, as the wall clock showed it *now*, once. Later steps of the wall
    /// clock do not reach it. For allocators, whose fixed windows are aligned to the epoch.
    pub fn since_epoch() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "the one reading that aligns fixed windows to the epoch"
        )]
        let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let mut clock = Clock::since_boot();
        clock.offset = crate::moment::nanos(wall).saturating_sub(clock.now().as_nanos());
        clock
    }

    /// The clock that an earlier process of this boot went by, and said that [`Clock::origin`] of.
    pub const fn going_on(origin: u64) -> Self {
        Clock { offset: origin }
    }

    /// What it shows when the machine's own clock shows zero, in nanoseconds.
    pub const fn origin(&self) -> u64 {
        self.offset
    }

    /// This instant. Costs one `clock_gettime` through the vDSO, some 20 to 40 ns.
    #[cfg(target_os = "linux")]
    #[inline]
    pub fn now(&self) -> Moment {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        // Boot time is never negative, and 2^64 ns are 584 years: neither cast can change the value.
        Moment::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64 + self.offset)
    }

    /// This instant.
    #[cfg(not(target_os = "linux"))]
    pub fn now(&self) -> Moment {
        /// The first reading in this process, which stands in for the boot.
        static ORIGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        #[expect(clippy::disallowed_methods, reason = "the best clock that std offers on this platform")]
        let origin = ORIGIN.get_or_init(std::time::Instant::now);
        Moment::from_nanos(crate::moment::nanos(origin.elapsed()).saturating_add(self.offset))
    }
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
    fn an_epoch_clock_shows_this_century() {
        let seconds = Clock::since_epoch().now().as_nanos() / 1_000_000_000;
        assert!((1_600_000_000..4_000_000_000).contains(&seconds), "{seconds} s since the epoch");
    }
}
