//! How long to wait after a failed exchange. Pure: the background task reports events and passes random numbers.

use std::time::Duration;

/// Wait after the first failure; it doubles with each further one.
const FIRST: Duration = Duration::from_millis(50);

/// Longest wait, also used when the budget is spent. One try a second from each node is no storm, and finds an allocator that
/// came back within a second.
const LONGEST: Duration = Duration::from_secs(1);

/// Retries that may be saved up, in tenths: a long healthy stretch buys ten quick ones.
const BUDGET_MAX: u32 = 100;

/// Longest wait before the next allocator is asked after one failed. It is half of the guard time with which nodes ask ahead.
/// A larger value would have calls refused, a smaller one would have a fleet arrive at once.
const ELSEWHERE: Duration = Duration::from_millis(5);

/// Cost of a retry, in tenths; a success earns one tenth. So quick retries add at most 10 % to the load.
const RETRY_COST: u32 = 10;

/// An exponential, jittered backoff with a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    failures: u32,
    /// Tenths of a retry.
    budget: u32,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { failures: 0, budget: BUDGET_MAX }
    }
}

impl Backoff {
    /// Records a completed exchange: the next failure counts as the first.
    pub fn succeeded(&mut self) {
        self.failures = 0;
        self.budget = (self.budget + 1).min(BUDGET_MAX);
    }

    /// Records a failure and returns how long to wait before the next try. `random` is any number: it draws the wait
    /// between half of its full length and all of it.
    pub fn failed(&mut self, random: u64) -> Duration {
        let full = if self.budget < RETRY_COST {
            LONGEST
        } else {
            self.budget -= RETRY_COST;
            (FIRST * 2u32.pow(self.failures.min(10))).min(LONGEST)
        };
        self.failures = self.failures.saturating_add(1);
        full / 2 + full / 200 * u32::try_from(random % 101).expect("at most 100")
    }

    /// Returns how long to wait before trying another allocator that has not failed yet: very briefly, while the budget
    /// lasts. It makes no later wait longer.
    pub fn elsewhere(&mut self, random: u64) -> Duration {
        if self.budget < RETRY_COST {
            return self.failed(random);
        }
        self.budget -= RETRY_COST;
        ELSEWHERE / 100 * u32::try_from(random % 101).expect("at most 100")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_second_and_start_again_after_a_success() {
        let mut backoff = Backoff::default();
        let waits: Vec<u128> = (0..7).map(|_| backoff.failed(100).as_millis()).collect();
        assert_eq!(waits, [50, 100, 200, 400, 800, 1_000, 1_000]);
        backoff.succeeded();
        assert_eq!(backoff.failed(100).as_millis(), 50);
        assert_eq!(backoff.failed(0).as_millis(), 50, "half of 100");
    }

    #[test]
    fn another_one_is_tried_at_once_and_within_the_same_budget() {
        let mut backoff = Backoff::default();
        assert_eq!([backoff.elsewhere(0), backoff.elsewhere(100)], [Duration::ZERO, ELSEWHERE]);
        assert_eq!(backoff.failed(100), FIRST, "a move to another allocator is no failure in a row");
        assert_eq!((0..100).filter(|_| backoff.elsewhere(100) == ELSEWHERE).count(), 7);
    }

    #[test]
    fn quick_retries_are_at_most_a_tenth_of_the_load() {
        let mut backoff = Backoff::default();
        // Every other exchange fails, a thousand times.
        let quick = (0..1_000).filter(|_| {
            backoff.succeeded();
            backoff.failed(100) < LONGEST
        });
        assert!(quick.count() <= 110, "ten saved up and one for each ten successes");
    }
}
