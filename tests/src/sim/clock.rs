//! One machine's clock: it runs fast or slow, goes on through pauses, and may jump ahead. Hosts of the simulated
//! world read it; it never goes back, as the shipping clock never does.

use lessor_protocol::Moment;

const MILLION: u128 = 1_000_000;

/// A clock that has run at one rate since it was last touched.
#[derive(Clone, Copy, Debug)]
pub struct HostClock {
    real: u64,
    shown: u64,
    /// Parts per million that it runs fast; −1,000,000 is standing still.
    ppm: i64,
}

impl HostClock {
    /// Shows `shown` at real time 0.
    pub fn new(shown: u64, ppm: i64) -> Self {
        HostClock { real: 0, shown, ppm }
    }

    fn rate(&self) -> u128 {
        u128::try_from(1_000_000 + self.ppm).expect("no clock runs backwards")
    }

    /// What it shows at `real`.
    pub fn show(&self, real: u64) -> Moment {
        let gone = u128::from(real - self.real) * self.rate() / MILLION;
        Moment::from_nanos(self.shown + u64::try_from(gone).expect("a few years at most"))
    }

    /// The first real instant at which it shows `moment`, if nothing changes.
    pub fn when(&self, moment: Moment) -> u64 {
        let missing = u128::from(moment.as_nanos().saturating_sub(self.shown));
        let real = (missing * MILLION).div_ceil(self.rate().max(1));
        self.real.saturating_add(u64::try_from(real).unwrap_or(u64::MAX))
    }

    /// From `real` on it runs at another rate.
    pub fn set_rate(&mut self, real: u64, ppm: i64) {
        *self = HostClock { real, shown: self.show(real).as_nanos(), ppm };
    }

    /// At `real` it jumps ahead.
    pub fn jump(&mut self, real: u64, ahead: u64) {
        *self = HostClock { real, shown: self.show(real).as_nanos() + ahead, ppm: self.ppm };
    }

    /// Parts per million that it runs fast.
    pub fn ppm(&self) -> i64 {
        self.ppm
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_is_the_first_instant_at_which_it_shows() {
        for ppm in [-50_000, -1, 0, 1, 50_000] {
            let mut clock = HostClock::new(77, ppm);
            clock.set_rate(1_000, -ppm);
            for shown in [2_000, 2_001, 123_457] {
                let moment = Moment::from_nanos(shown);
                let real = clock.when(moment);
                assert!(clock.show(real) >= moment && clock.show(real - 1) < moment);
            }
        }
    }
}
