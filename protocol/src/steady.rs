//! Combines the kernel's clocks into a time at the rate of the hardware, suspends included. [`crate::Clock`] reads the
//! clocks, and simulated machines make them up; nothing here reads a clock.
//!
//! A daemon may *slew* `CLOCK_BOOTTIME`, `CLOCK_MONOTONIC` and the wall clock: chrony by up to 83,333 ppm by default,
//! and the kernel allows 100,000. No useful bound on drift holds for these clocks. `CLOCK_MONOTONIC_RAW` is not slewed,
//! but stands still while the machine is suspended. The time suspended is `CLOCK_BOOTTIME − CLOCK_MONOTONIC`: both are
//! slewed alike, so the difference has no slew.

use crate::moment::Moment;

/// One reading of the clocks, in nanoseconds, in the order in which they are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readings {
    /// `CLOCK_BOOTTIME`: slewed, goes on while suspended.
    pub boot: u64,
    /// `CLOCK_MONOTONIC`: slewed, stands still while suspended.
    pub monotonic: u64,
    /// `CLOCK_MONOTONIC_RAW`: not slewed, stands still while suspended.
    pub raw: u64,
}

impl Readings {
    /// Returns how long the machine has been suspended, in nanoseconds, less the time between the two readings: never
    /// too much. Negative in a namespace whose clocks begin elsewhere.
    pub const fn asleep(boot: u64, monotonic: u64) -> i64 {
        // Both clocks stay below 2^63 ns for another 292 years.
        boot.wrapping_sub(monotonic).cast_signed()
    }

    /// Returns the time at the rate of the hardware, on a machine that was suspended for `asleep` nanoseconds. `asleep`
    /// is the maximum over all readings so far. While it never falls, successive readings never go back.
    pub fn steady(self, asleep: i64) -> Moment {
        Moment::from_nanos(self.raw.saturating_add_signed(asleep))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A machine that was suspended, and what its clocks show. Its disciplined clocks run `ppm` fast.
    #[derive(Clone, Copy, Default)]
    struct Machine {
        disciplined: u64,
        raw: u64,
        slept: u64,
    }

    impl Machine {
        fn run(&mut self, span: u64, ppm: i64) {
            self.raw += span;
            self.disciplined +=
                u64::try_from(i128::from(span) * i128::from(1_000_000 + ppm) / 1_000_000).expect("forwards");
        }

        fn sleep(&mut self, span: u64) {
            self.slept += span;
        }

        fn boot(self) -> u64 {
            self.disciplined + self.slept
        }
    }

    proptest! {
        /// Each reading shows an instant between its first and its last step, however clocks are slewed and wherever in
        /// a reading the machine is suspended.
        #[test]
        fn a_reading_shows_an_instant_within_it(
            steps in prop::collection::vec((0u64..100_000, 0u64..100_000, 0u64..100_000, 0u64..1_000_000_000), 1..30),
            ppm in -100_000i64..100_000,
        ) {
            let mut machine = Machine::default();
            let (mut asleep, mut last) = (i64::MIN, Moment::ORIGIN);
            for (between, within, slept_within, slept_between) in steps {
                machine.run(between, ppm);
                machine.sleep(slept_between);
                let began = machine.raw + machine.slept;
                let boot = machine.boot();
                machine.run(within, ppm);
                machine.sleep(slept_within);
                let monotonic = machine.disciplined;
                asleep = asleep.max(Readings::asleep(boot, monotonic));
                machine.run(within, ppm);
                let shown = Readings { boot, monotonic, raw: machine.raw }.steady(asleep);
                let ended = machine.raw + machine.slept;
                // A slew adds at most a tenth of the time that a reading takes.
                let blur = within / 10 + 1;
                prop_assert!(shown.as_nanos() + blur >= began, "{shown:?} is before {began}");
                prop_assert!(shown.as_nanos() <= ended, "{shown:?} is after {ended}");
                prop_assert!(shown >= last);
                last = shown;
            }
        }
    }

    #[test]
    fn a_namespace_may_set_one_clock_ahead_of_the_other() {
        assert_eq!(Readings::asleep(5, 1_000), -995);
        let readings = Readings { boot: 5, monotonic: 1_000, raw: 1_010 };
        assert_eq!(readings.steady(-995), Moment::from_nanos(15));
        assert_eq!(readings.steady(-2_000), Moment::ORIGIN);
    }
}
