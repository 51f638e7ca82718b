//! The clocks of one machine. Hardware runs fast or slow, goes on through pauses, and may be suspended; a daemon slews
//! the disciplined clock. Hosts of the simulated world go by the clock that the shipping code derives from both, which
//! never goes back.

use lessor_ledger::steering::{Course, Steering};
use lessor_protocol::clock::Instants;
use lessor_protocol::steady::Readings;
use lessor_protocol::{ClockBounds, Moment};

const MILLION: u128 = 1_000_000;

/// The clocks of a host, which have run at one rate since `real`.
#[derive(Clone, Copy, Debug)]
pub struct HostClock {
    real: u64,
    /// What `CLOCK_BOOTTIME` and `CLOCK_MONOTONIC_RAW` showed at `real`, in nanoseconds.
    disciplined: u64,
    raw: u64,
    /// How long the host was suspended before `real`, in nanoseconds.
    slept: u64,
    /// Parts per million by which the hardware runs fast; −1,000,000 is standing still.
    ppm: i64,
    /// Parts per million by which the disciplined clock runs faster than the hardware: now, and while nothing slews it.
    slew_ppm: i64,
    discipline_ppm: i64,
    /// How an allocator combines both clocks; `None` on a node.
    steering: Option<Steering>,
    /// Whether the disciplined clock ever ran apart from the hardware.
    is_apart: bool,
}

impl HostClock {
    /// Makes a clock that shows `shown` nanoseconds at real time 0.
    pub fn new(shown: u64, ppm: i64) -> Self {
        HostClock {
            real: 0,
            disciplined: shown,
            raw: shown,
            slept: 0,
            ppm,
            slew_ppm: 0,
            discipline_ppm: 0,
            steering: None,
            is_apart: false,
        }
    }

    /// Turns the clock into an allocator's, which is steered towards the disciplined clock as far as `clocks` allow.
    pub fn steered(self, clocks: ClockBounds) -> Self {
        let now = self.instants(self.real);
        let steering = Steering::new(Course::at(now.steady, now), clocks);
        HostClock { steering: Some(steering), ..self }
    }

    /// Returns what the clock shows at `real`.
    pub fn show(&self, real: u64) -> Moment {
        let now = self.instants(real);
        match self.steering {
            // Both clocks are the same as long as nothing slews.
            Some(mut steering) if self.is_apart => steering.show(now),
            Some(_) | None => now.steady,
        }
    }

    fn instants(&self, real: u64) -> Instants {
        let gone = scaled(real - self.real, self.ppm);
        let (raw, disciplined) = (self.raw + gone, self.disciplined + scaled(gone, self.slew_ppm));
        let monotonic = disciplined - self.slept;
        let readings = Readings { boot: disciplined, monotonic, raw };
        let steady = readings.steady(Readings::asleep(disciplined, monotonic));
        Instants { steady, disciplined: Moment::from_nanos(disciplined) }
    }

    /// Returns the first real instant at which the clock shows `moment`, if nothing changes.
    pub fn when(&self, moment: Moment) -> u64 {
        let missing = moment.as_nanos().saturating_sub(self.show(self.real).as_nanos());
        if !self.is_apart {
            let real = (u128::from(missing) * MILLION).div_ceil(rate(self.ppm).max(1));
            return self.real.saturating_add(u64::try_from(real).unwrap_or(u64::MAX));
        }
        // A few years at most, in which no number here overflows.
        let (mut early, mut late) = (self.real, self.real + missing.min(1 << 57));
        while self.show(late) < moment {
            early = late;
            late = self.real + (late - self.real).saturating_mul(2).max(1);
            if late - self.real > 1 << 58 {
                return u64::MAX;
            }
        }
        if missing == 0 {
            return self.real;
        }
        // The clock shows `moment` at `late`, and not at `early`.
        while late - early > 1 {
            let middle = early + (late - early) / 2;
            match self.show(middle) < moment {
                true => early = middle,
                false => late = middle,
            }
        }
        late
    }

    /// Lets the hardware run `ppm` fast from `real` on.
    pub(crate) fn set_rate(&mut self, real: u64, ppm: i64) {
        self.touch(real);
        self.ppm = ppm;
    }

    /// Lets a daemon run the disciplined clock faster than the hardware by `ppm`, from `real` on.
    pub fn slew(&mut self, real: u64, ppm: i64) {
        self.touch(real);
        self.slew_ppm = ppm;
        self.is_apart |= ppm != 0;
    }

    /// Ends the slew at `real`.
    pub(crate) fn unslew(&mut self, real: u64) {
        self.slew(real, self.discipline_ppm);
    }

    /// Sets by how much the disciplined clock runs faster than the hardware while nothing slews it.
    pub(crate) fn discipline(&mut self, ppm: i64) {
        self.discipline_ppm = ppm;
        self.unslew(self.real);
    }

    /// Suspends the host at `real`: its clocks show `ahead` nanoseconds more.
    pub fn jump(&mut self, real: u64, ahead: u64) {
        self.touch(real);
        self.disciplined += ahead;
        self.slept += ahead;
    }

    /// Returns the parts per million by which the hardware runs fast.
    pub fn ppm(&self) -> i64 {
        self.ppm
    }

    /// Moves the state to `real`, so that another rate can apply from there.
    fn touch(&mut self, real: u64) {
        let now = self.instants(real);
        if let Some(steering) = &mut self.steering {
            steering.show(now);
        }
        let gone = scaled(real - self.real, self.ppm);
        (self.disciplined, self.raw) = (now.disciplined.as_nanos(), self.raw + gone);
        self.real = real;
    }
}

fn rate(ppm: i64) -> u128 {
    u128::try_from(1_000_000 + ppm).expect("no clock runs backwards")
}

/// Returns what a clock that runs `ppm` fast shows of `span`.
fn scaled(span: u64, ppm: i64) -> u64 {
    u64::try_from(u128::from(span) * rate(ppm) / MILLION).expect("a few years at most")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(clock: &HostClock) {
        for shown in [2_000, 2_001, 123_457] {
            let moment = Moment::from_nanos(shown);
            let real = clock.when(moment);
            assert!(clock.show(real) >= moment && clock.show(real - 1) < moment, "{clock:?}: {shown}");
        }
    }

    #[test]
    fn when_is_the_first_instant_at_which_it_shows() {
        for ppm in [-50_000, -1, 0, 1, 50_000] {
            let mut clock = HostClock::new(77, ppm);
            clock.set_rate(1_000, -ppm);
            first(&clock);
            for slew in [-900_000, 490, 900_000] {
                let mut clock = clock.steered(ClockBounds::default());
                clock.slew(1_100, slew);
                first(&clock);
            }
        }
    }

    /// A suspend counts, a slew does not.
    #[test]
    fn a_slew_moves_an_allocator_by_what_it_is_steered_and_a_node_not_at_all() {
        const SECOND: u64 = 1_000_000_000;
        for slew in [-833_333, 833_333] {
            let mut node = HostClock::new(SECOND, 0);
            let mut allocator = node.steered(ClockBounds::default());
            for clock in [&mut node, &mut allocator] {
                clock.slew(0, slew);
                clock.jump(SECOND, 5 * SECOND);
            }
            assert_eq!(node.show(2 * SECOND), Moment::from_nanos(8 * SECOND));
            let moved = allocator.show(2 * SECOND).as_nanos().abs_diff(8 * SECOND);
            assert_eq!(moved, 7 * 490_000, "as far as 2 s and 5 s of sleep allow");
        }
    }
}
