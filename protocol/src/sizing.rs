//! How many permits a demand needs for a while. A node computes its want with it and an allocator the needs of
//! all its nodes: one formula on both sides, in integers.

use crate::PERMITS_MAX;
use crate::moment::nanos;
use std::time::Duration;

/// Demand is kept in permits per 1,000 s (milli-permits a second), so that one call a minute is still a number.
pub const MILLI: u64 = 1_000;

/// Standard deviations of safety stock. Arrivals that are independent of each other vary by √n around n, and
/// three deviations are missed once in 740 terms; a larger stock would sit idle, a smaller one run dry sooner.
const DEVIATIONS: u64 = 3;

/// Parts of a permit in which averages are counted: milli-permits a second · nanoseconds.
pub const PERMIT: u128 = 1_000_000_000_000;

/// What a demand of `demand_milli` permits per 1,000 s spends in `span` on average, in parts of a permit.
pub fn mean(demand_milli: u64, span: Duration) -> u128 {
    u128::from(demand_milli) * u128::from(nanos(span))
}

/// What a demand of `demand_milli` permits per 1,000 s spends in `term` at most, nearly always: the mean, rounded
/// to the nearest, plus a safety stock of three standard deviations.
///
/// Demand below a tenth of a permit a term needs nothing: that node asks when it must, rather than holding one
/// permit in a hundred terms for the call that may come.
pub fn need(demand_milli: u64, term: Duration) -> u64 {
    let scaled = mean(demand_milli, term);
    if scaled * 10 < PERMIT {
        return 0;
    }
    let mean = (scaled + PERMIT / 2) / PERMIT;
    // √(scaled / 10^12) = √scaled / 10^6, one integer square root for the whole product.
    let deviation = (u128::from(DEVIATIONS) * scaled.isqrt()).div_ceil(1_000_000);
    u64::try_from(mean + deviation).unwrap_or(u64::MAX).min(PERMITS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_need_is_the_mean_and_three_deviations() {
        let second = Duration::from_secs(1);
        assert_eq!(need(100 * MILLI, second), 100 + 30);
        assert_eq!(need(10_000 * MILLI, second), 10_000 + 300);
        assert_eq!(need(MILLI, second), 1 + 3);
        assert_eq!(need(0, second), 0);
    }

    #[test]
    fn hardly_any_demand_needs_nothing() {
        assert_eq!(need(99, Duration::from_secs(1)), 0);
        assert_eq!(need(100, Duration::from_secs(1)), 1);
        assert_eq!(need(MILLI, Duration::from_millis(20)), 0);
    }

    #[test]
    fn absurd_demand_saturates() {
        assert_eq!(need(u64::MAX, Duration::from_secs(2)), PERMITS_MAX);
    }
}
