//! When the calls of a scenario come, at random: five a second for three minutes, rising to fifty over three minutes,
//! then a hundred for four. That is for each user on each instance. One seed makes one list.

use super::LASTS;
use crate::demo::line::DealtCall;
use fastrand::Rng;
use std::time::Duration;

/// The most calls a second.
const MOST: f64 = 100.0;

/// Returns the calls of all `users` that come to instance `node`, in the order they come due. At a `speed` of two, the
/// load rises twice as fast and lasts half as long.
pub(crate) fn deal(node: usize, users: usize, speed: f64, seed: u64) -> Vec<DealtCall> {
    // Each instance has its own seed. The odd constant (2^64 / golden ratio) keeps neighbours apart.
    let mut rng = Rng::with_seed((seed ^ node as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut calls = Vec::new();
    for user in 0..users {
        let mut at = 0.0;
        loop {
            // Draws arrivals at the highest rate, and keeps the share that the current rate needs.
            at -= (1.0 - rng.f64()).ln() / MOST;
            if at * speed >= LASTS.as_secs_f64() {
                break;
            }
            if rng.f64() * MOST < a_second(at * speed) {
                let due = Duration::from_secs_f64(at);
                calls.push(DealtCall { due_ns: due.as_nanos() as u64, client: name(user) });
            }
        }
    }
    calls.sort_by_key(|call| call.due_ns);
    calls
}

/// Returns the name of user number `user`.
pub(crate) fn name(user: usize) -> String {
    format!("user-{user}")
}

/// Returns the calls a second of one user on one instance, `at` seconds after the beginning at a speed of one.
fn a_second(at: f64) -> f64 {
    match at {
        ..180.0 => 5.0,
        180.0..360.0 => 5.0 + 45.0 * (at - 180.0) / 180.0,
        _ => MOST,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ever_more_calls_come_as_was_said() {
        let calls = deal(0, 1, 2.0, 1);
        let within = |from: u64, until: u64| {
            let (from, until) = (from * 1_000_000_000 / 2, until * 1_000_000_000 / 2);
            calls.iter().filter(|call| (from..until).contains(&call.due_ns)).count() as f64
        };
        // All are Poisson: five deviations either side.
        let check = |found: f64, expected: f64| {
            assert!((found - expected).abs() < 5.0 * expected.sqrt(), "{found} calls, not {expected}");
        };
        check(within(0, 180), 900.0 / 2.0);
        check(within(180, 360), 27.5 * 180.0 / 2.0);
        check(within(350, 360), 48.75 * 10.0 / 2.0);
        check(within(360, 600), 24_000.0 / 2.0);
        assert!(calls.is_sorted_by_key(|call| call.due_ns));
        assert!(within(0, 600) as usize == calls.len());
    }

    #[test]
    fn instances_and_seeds_have_lists_of_their_own() {
        assert_eq!(deal(0, 2, 1.0, 1), deal(0, 2, 1.0, 1));
        assert_ne!(deal(0, 2, 1.0, 1), deal(1, 2, 1.0, 1));
        assert_ne!(deal(0, 2, 1.0, 1), deal(0, 2, 1.0, 2));
    }
}
