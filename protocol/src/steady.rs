//! What the kernel's clocks showed at one reading, and the time that follows: at the rate of the hardware, suspends included.
//! [`crate::Clock`] reads them, and simulated machines show them; nothing here reads a clock.
//!
//! A daemon may *slew* `CLOCK_BOOTTIME`, `CLOCK_MONOTONIC` and the wall clock: chrony by up to 83,333 ppm unless it is
//! told otherwise, and the kernel lets it by 100,000. No bound on drift worth having holds for those. `CLOCK_MONOTONIC_RAW`
//! is not slewed, and stands still while the machine is suspended. How long it was suspended is the difference of two
//! clocks that are slewed alike, `CLOCK_BOOTTIME − CLOCK_MONOTONIC`, so no slew is in it.

use crate::moment::Moment;

/// What the clocks showed, in nanoseconds, in the order in which they are read.
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
    /// How long the machine has been suspended, less what passed between the two readings: never too much. Negative in a
    /// namespace whose clocks begin elsewhere.
    pub const fn asleep(boot: u64, monotonic: u64) -> i64 {
        // Both are less than 2^63 for another 292 years.
        boot.wrapping_sub(monotonic).cast_signed()
    }

    /// The time at the rate of the hardware, on a machine that was suspended for `asleep`: the most that any reading so far
    /// has said. Readings one after the other, with an `asleep` that never falls, never go back.
    pub fn steady(self, asleep: i64) -> Moment {
        Moment::from_nanos(self.raw.saturating_add_signed(asleep))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A machine whose disciplined clocks run `ppm` fast, and that was suspended: what its clocks show.
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
        /// Between any two readings lies what lies between the first step of one and the last of the other, however clocks
        /// are slewed and wherever in a reading the machine is suspended.
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
                // What a slew adds while one reading takes is a tenth of that, and of a second reading nothing.
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
