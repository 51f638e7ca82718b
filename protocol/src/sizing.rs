//! How many permits a demand needs for a while, and how long permits in hand must last. A node computes its want with
//! it, and an allocator the needs of all its nodes, and its own want if it leases: one formula on all sides, in
//! integers.

use crate::PERMITS_MAX;
use crate::moment::{nanos, span_of};
use std::time::Duration;

/// Factor from permits a second to permits per 1,000 s, the unit of demand, in which one call a minute is still a
/// number.
pub const MILLI: u64 = 1_000;

/// Standard deviations of safety stock. Independent arrivals vary by √n around n, and exceed three deviations once in
/// 740 terms. A larger stock would sit idle, a smaller one run dry sooner.
const DEVIATIONS: u64 = 3;

/// Parts of one permit in which averages are counted: milli-permits a second · nanoseconds.
pub const PERMIT: u128 = 1_000_000_000_000;
const PERMIT_64: u64 = PERMIT as u64;

/// Round trips that the permits in hand of a borrower must outlast before it asks for more. Two would be enough on a
/// quiet network; the third is for an answer that takes half as long again.
const LOW_WATER_RTTS: u32 = 3;

/// Time added for late timers and a busy runtime.
pub const GUARD: Duration = Duration::from_millis(10);

/// Returns how long the permits in hand of a borrower must last. If they last no longer, it asks for more.
pub fn low_water_span(rtt: Duration) -> Duration {
    rtt * LOW_WATER_RTTS + GUARD
}

/// Returns the average that a demand of `demand_milli` permits per 1,000 s spends in `span`, in parts of a permit.
pub fn mean(demand_milli: u64, span: Duration) -> u128 {
    u128::from(demand_milli) * u128::from(nanos(span))
}

/// Returns how long `permits` last at a demand of `demand_milli` permits per 1,000 s. A demand of zero counts as one.
pub fn lasts(permits: u64, demand_milli: u64) -> Duration {
    span_of(u128::from(permits) * PERMIT / u128::from(demand_milli.max(1)))
}

/// Returns the permits that a demand of `demand_milli` permits per 1,000 s hardly ever exceeds in `term`. This is the mean,
/// rounded to the nearest, plus a safety stock of three standard deviations.
///
/// A demand below a tenth of a permit a term needs nothing. Such a node asks for each call, rather than holding a
/// permit that is rarely used.
pub fn need(demand_milli: u64, term: Duration) -> u64 {
    // A demand of millions of permits a second still fits in 64 bits, where a root and a quotient are faster.
    match u64::try_from(mean(demand_milli, term)) {
        Ok(scaled) if scaled < PERMIT_64 / 10 => 0,
        Ok(scaled) => need_of_64_bits(scaled),
        Err(_) => need_of_128_bits(mean(demand_milli, term)),
    }
}

fn need_of_64_bits(scaled: u64) -> u64 {
    let mean = scaled / PERMIT_64 + u64::from(scaled % PERMIT_64 >= PERMIT_64 / 2);
    mean + deviation_of_64_bits(scaled)
}

/// Returns three standard deviations of `scaled` parts of a permit, rounded up: ⌈3·⌊√scaled⌋ / 10^6⌉. A root of 28 bits
/// takes half as long as the root of all these parts. It is that number, or one less.
fn deviation_of_64_bits(scaled: u64) -> u64 {
    let small = u32::try_from(scaled / (PERMIT_64 / DEVIATIONS.pow(2))).unwrap_or(u32::MAX);
    let deviation = u64::from(small.isqrt());
    // The least root of `scaled` that is too large for this deviation.
    let beyond = deviation * 1_000_000 / DEVIATIONS + 1;
    deviation + u64::from(beyond * beyond <= scaled)
}

fn need_of_128_bits(scaled: u128) -> u64 {
    let mean = (scaled + PERMIT / 2) / PERMIT;
    // √(scaled / 10^12) = √scaled / 10^6, one integer square root for the whole product.
    let deviation = (u128::from(DEVIATIONS) * scaled.isqrt()).div_ceil(1_000_000);
    u64::try_from(mean + deviation).unwrap_or(u64::MAX).min(PERMITS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_need_is_the_same_in_64_bits_as_in_128(bits in 37u32..64, scaled: u64) {
            let scaled = scaled >> (63 - bits) >> 1 | 1 << bits;
            prop_assert_eq!(need_of_64_bits(scaled), need_of_128_bits(scaled.into()));
        }
    }

    #[test]
    fn the_largest_need_of_64_bits_is_the_same_in_128() {
        for scaled in [u64::MAX, u64::MAX - 1, (1 << 63) + 1] {
            assert_eq!(need_of_64_bits(scaled), need_of_128_bits(scaled.into()), "{scaled}");
        }
    }

    #[test]
    fn a_need_is_the_same_in_128_bits_where_its_deviation_changes() {
        for deviation in 0..=12_884u64 {
            let beyond = deviation * 1_000_000 / DEVIATIONS + 1;
            for scaled in beyond.pow(2) - 1..=beyond.pow(2) {
                assert_eq!(need_of_64_bits(scaled), need_of_128_bits(scaled.into()), "{scaled}");
            }
        }
    }

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
    fn permits_last_until_the_demand_has_spent_them() {
        assert_eq!(lasts(10, 4 * MILLI), Duration::from_millis(2_500));
        assert_eq!(lasts(1, 1), Duration::from_secs(1_000));
        assert_eq!(lasts(0, 0), Duration::ZERO);
        assert_eq!(lasts(PERMITS_MAX, 0), Duration::from_nanos(u64::MAX));
    }

    #[test]
    fn absurd_demand_saturates() {
        assert_eq!(need(u64::MAX, Duration::from_secs(2)), PERMITS_MAX);
    }
}
