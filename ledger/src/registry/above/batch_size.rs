//! The number of asks in one exchange with a shared store. A store may need longer for many roots than an exchange may
//! take. The same asks would fail again, so fewer are tried after a failure, and more after successes.

use lessor_protocol::wire::ASKS_MAX;

/// Fewest asks that are tried. If so few fail, it is not because of their number.
const LEAST: usize = 16;

/// Full exchanges until a number that has failed is tried again: the store may have become faster.
const FULL_UNTIL_TRIED: u32 = 50;

/// How many asks go with one exchange.
#[derive(Clone, Copy, Debug)]
pub(in crate::registry) struct BatchSize {
    most: usize,
    /// Fewest asks that have failed lately.
    failed: usize,
    /// Full exchanges since then.
    full: u32,
}

impl Default for BatchSize {
    fn default() -> Self {
        BatchSize { most: ASKS_MAX, failed: usize::MAX, full: 0 }
    }
}

impl BatchSize {
    /// Returns the most asks for the next exchange.
    pub(super) fn most(self) -> usize {
        self.most
    }

    /// Notes that an exchange with that many `asks` failed.
    pub(super) fn on_failure(&mut self, asks: usize) {
        self.most = self.most.min((asks / 2).max(LEAST));
        (self.failed, self.full) = (if asks > LEAST { asks } else { usize::MAX }, 0);
    }

    /// Notes that an exchange with that many `asks` was answered.
    pub(super) fn on_answer(&mut self, asks: usize) {
        if asks < self.most {
            return;
        }
        self.full += 1;
        if self.full >= FULL_UNTIL_TRIED {
            self.failed = usize::MAX;
        }
        let more = (2 * self.most).min(ASKS_MAX);
        if more < self.failed {
            (self.most, self.full) = (more, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Does `exchanges` with a store that answers up to `fit` asks. Returns how many failed.
    fn exchange(size: &mut BatchSize, exchanges: u32, fit: usize) -> u32 {
        let mut failed = 0;
        for _ in 0..exchanges {
            let asks = size.most();
            match asks <= fit {
                true => size.on_answer(asks),
                false => {
                    size.on_failure(asks);
                    failed += 1;
                }
            }
        }
        failed
    }

    #[test]
    fn a_number_that_failed_is_seldom_tried_again() {
        let mut size = BatchSize::default();
        assert_eq!((exchange(&mut size, 2, 300), size.most()), (2, 250));
        assert_eq!((exchange(&mut size, 500, 300), size.most()), (9, 250));
        exchange(&mut size, 52, ASKS_MAX);
        assert_eq!(size.most(), ASKS_MAX, "the store is fast again");
    }

    #[test]
    fn after_a_store_was_silent_all_are_asked_again_soon() {
        let mut size = BatchSize::default();
        assert_eq!((exchange(&mut size, 20, 0), size.most()), (20, LEAST));
        assert_eq!((exchange(&mut size, 6, ASKS_MAX), size.most()), (0, ASKS_MAX));
    }

    #[test]
    fn few_asks_say_nothing_of_more() {
        let mut size = BatchSize::default();
        size.on_failure(ASKS_MAX);
        (0..1_000).for_each(|_| size.on_answer(3));
        assert_eq!(size.most(), ASKS_MAX / 2);
    }
}
