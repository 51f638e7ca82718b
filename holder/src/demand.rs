//! How fast this process tries to spend: an average over time of attempts, refused ones included. The refill passes it
//! totals whenever it looks. It computes in integers.

use lessor_protocol::Moment;
use lessor_protocol::moment::nanos;
use lessor_protocol::sizing::PERMIT;
use std::time::Duration;

/// 1.0 in the fixed point of weights.
const ONE: u64 = 1 << 32;

/// Bounds of the half-life, which is a term within them. A shorter one follows noise, a longer one is late when a hot
/// spot moves.
const HALF_LIFE_MIN: Duration = Duration::from_millis(500);
const HALF_LIFE_MAX: Duration = Duration::from_secs(1);

/// A time-aware exponential average: an observation counts half after a half-life, however often the average is
/// updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Permits per 1,000 s.
    milli: u64,
    /// Total of attempts at the last observation.
    attempts: u64,
    at: Moment,
}

impl Demand {
    /// Creates an average of zero.
    pub fn new(now: Moment) -> Self {
        Demand { milli: 0, attempts: 0, at: now }
    }

    /// Observes that `attempts` is the total at `now`, in permits. A total that fell counts as no attempt.
    pub fn observe(&mut self, attempts: u64, now: Moment, term: Duration) {
        let elapsed = nanos(now.since(self.at));
        if elapsed == 0 {
            return;
        }
        let tried = u128::from(attempts.saturating_sub(self.attempts));
        let rate = tried * PERMIT / u128::from(elapsed);
        let half_life = nanos(term.clamp(HALF_LIFE_MIN, HALF_LIFE_MAX));
        let old = u128::from(remaining(elapsed, half_life));
        let mixed = (u128::from(self.milli) * old + rate * (u128::from(ONE) - old)) / u128::from(ONE);
        self.milli = u64::try_from(mixed).unwrap_or(u64::MAX);
        self.attempts = attempts;
        self.at = now;
    }

    /// Returns the demand in permits per 1,000 s.
    pub fn milli(&self) -> u64 {
        self.milli
    }

    /// Returns the total at the last observation.
    pub fn attempts(&self) -> u64 {
        self.attempts
    }

    /// Sets the demand to zero, after so long a silence that the past says nothing.
    pub fn reset(&mut self) {
        self.milli = 0;
    }
}

/// Returns `2^(−elapsed/half_life)`, as a part of [`ONE`]: whole half-lives by shifting, the rest by the cubic that
/// starts with the curve's slope and ends at ½. The error is below a twentieth of a percent everywhere.
fn remaining(elapsed: u64, half_life: u64) -> u64 {
    let halvings = elapsed / half_life;
    if halvings >= 32 {
        return 0;
    }
    let part = u64::try_from(u128::from(elapsed % half_life) * u128::from(ONE) / u128::from(half_life))
        .expect("less than one");
    // 1 − 0.6931·f + 0.2343·f² − 0.0412·f³, as ((−0.0412·f + 0.2343)·f − 0.6931)·f + 1
    let ten_thousandths = |parts: u64| ONE / 10_000 * parts;
    let inner = ten_thousandths(2_343) - mul(part, ten_thousandths(412));
    let fall = mul(part, ten_thousandths(6_931) - mul(part, inner));
    (ONE - fall) >> halvings
}

/// Multiplies two parts of [`ONE`].
fn mul(a: u64, b: u64) -> u64 {
    u64::try_from(u128::from(a) * u128::from(b) / u128::from(ONE)).expect("both are at most one")
}

#[cfg(test)]
mod tests {
    use super::*;
    use lessor_protocol::moment::millis;

    const TERM: Duration = Duration::from_secs(1);

    /// Returns the demand after `attempts_per_step` every `step` for `steps`, in permits a second.
    fn after(steps: u64, step: u64, attempts_per_step: u64) -> u64 {
        let mut demand = Demand::new(millis(0));
        for i in 1..=steps {
            demand.observe(i * attempts_per_step, millis(i * step), TERM);
        }
        demand.milli() / 1_000
    }

    #[test]
    fn a_steady_rate_is_found() {
        // 500/s for ten seconds, looked at each 10 ms or each second.
        assert!((495..=500).contains(&after(1_000, 10, 5)), "{}", after(1_000, 10, 5));
        assert!((495..=500).contains(&after(10, 1_000, 500)), "{}", after(10, 1_000, 500));
    }

    #[test]
    fn half_of_a_change_is_seen_after_a_half_life() {
        // Term 1 s: half-life 1 s.
        let seen = after(100, 10, 5);
        assert!((245..=255).contains(&seen), "{seen} of 500/s after one half-life");
        let seen = after(1, 1_000, 500);
        assert!((245..=255).contains(&seen), "{seen} when looked at more often");
    }

    #[test]
    fn it_forgets() {
        let mut demand = Demand::new(millis(0));
        demand.observe(1_000_000, millis(1_000), TERM);
        demand.observe(1_000_000, millis(60_000), TERM);
        assert_eq!(demand.milli(), 0);
    }

    #[test]
    fn absurd_totals_saturate_and_falling_ones_count_as_none() {
        let mut demand = Demand::new(millis(0));
        demand.observe(u64::MAX, Moment::from_nanos(1), TERM);
        demand.observe(3, millis(10_000), TERM);
        assert!(demand.milli() < u64::MAX);
    }
}
