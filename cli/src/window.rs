//! Finds the fullest window over a list of admissions, exactly.

use lessor_protocol::Moment;
use std::time::Duration;

/// Returns the most permits in any half-open window of length `per`, of admissions in the order of time, with their
/// permits.
pub(crate) fn most_in_any(admitted: impl Iterator<Item = (Moment, u64)> + Clone, per: Duration) -> u64 {
    // Thousands of the largest calls are more than 64 bits hold.
    let (mut sum, mut most) = (0u128, 0);
    let mut oldest = admitted.clone().peekable();
    // A window is fullest when it takes in one more, so the windows that end at an admission are enough.
    for (last, permits) in admitted {
        sum += u128::from(permits);
        while let Some((_, permits)) = oldest.next_if(|(first, _)| last.since(*first) >= per) {
            sum -= u128::from(permits);
        }
        most = most.max(sum);
    }
    u64::try_from(most).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(nanos: &[u64], per: u64, expected: u64) {
        let admitted = nanos.iter().map(|&at| (Moment::from_nanos(at), 2));
        let most = most_in_any(admitted, Duration::from_nanos(per));
        assert_eq!(most, 2 * expected, "in {nanos:?}, windows of {per} ns");
    }

    #[test]
    fn a_window_is_half_open_and_not_aligned() {
        check(&[], 10, 0);
        check(&[5], 10, 1);
        check(&[0, 10], 10, 1);
        check(&[0, 9], 10, 2);
        check(&[8, 9, 11, 12], 10, 4);
        check(&[0, 5, 10, 15, 20], 10, 2);
    }

    #[test]
    fn it_agrees_with_looking_at_every_window() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..200 {
            let mut instants: Vec<u64> = (0..rng.usize(0..40)).map(|_| rng.u64(0..100)).collect();
            instants.sort_unstable();
            let within =
                |start: u64| instants.iter().filter(|&&at| (start..start + 13).contains(&at)).count();
            check(&instants, 13, (0..100).map(within).max().unwrap_or(0) as u64);
        }
    }
}
