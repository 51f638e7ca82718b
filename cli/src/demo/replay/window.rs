//! Finds the fullest window over a list of instants, exactly. The replay judges the admissions with it.

use lessor_protocol::Moment;
use std::time::Duration;

/// Returns the most instants in any half-open window of length `per`. Sorts them.
pub(crate) fn most_in_any(instants: &mut [Moment], per: Duration) -> u64 {
    instants.sort_unstable();
    let mut first = 0;
    let mut most = 0;
    // A window is fullest when it takes in one more, so the windows that end at an instant are enough.
    for (last, instant) in instants.iter().enumerate() {
        while instant.since(instants[first]) >= per {
            first += 1;
        }
        most = most.max(last + 1 - first);
    }
    most as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(nanos: &[u64], per: u64, expected: u64) {
        let mut instants: Vec<Moment> = nanos.iter().copied().map(Moment::from_nanos).collect();
        let most = most_in_any(&mut instants, Duration::from_nanos(per));
        assert_eq!(most, expected, "in {nanos:?}, windows of {per} ns");
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
    fn order_does_not_matter() {
        check(&[100, 3, 101, 1, 2], 10, 3);
    }

    #[test]
    fn it_agrees_with_looking_at_every_window() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..200 {
            let instants: Vec<u64> = (0..rng.usize(0..40)).map(|_| rng.u64(0..100)).collect();
            let within =
                |start: u64| instants.iter().filter(|&&at| (start..start + 13).contains(&at)).count();
            check(&instants, 13, (0..100).map(within).max().unwrap_or(0) as u64);
        }
    }
}
