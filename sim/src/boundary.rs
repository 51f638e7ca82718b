//! Counts what happens just after a fixed window has ended, when all nodes might have to ask anew: the calls that find
//! nothing and the asks that come at once. The world reports each call and ask; nothing here judges them.

use crate::MILLI;
use lessor_ledger::Rule;
use lessor_ledger::rule::Windows;
use lessor_protocol::Moment;
use lessor_protocol::moment::nanos;

/// Nanoseconds after a boundary that count as just after it: two round trips of a fleet that is not too far away, and a
/// timer.
const JUST_AFTER: u64 = 50 * MILLI;

/// Calls and asks just after the boundaries of one rule.
#[derive(Clone, Copy, Debug)]
pub struct Boundary {
    per: u64,
    first: Option<u64>,
    last: u64,
    calls: u64,
    short: u64,
    asks: u64,
}

impl Boundary {
    /// Makes the counters for the first of `rules` whose windows follow an epoch and are longer than `JUST_AFTER`.
    pub fn new(rules: &[Rule]) -> Option<Self> {
        let per = rules.iter().filter_map(Rule::fixed).find_map(|rule| match rule.windows() {
            Windows::Epoch { per } => Some(nanos(per)).filter(|&per| per > JUST_AFTER),
            Windows::FirstUse { .. } | Windows::Calendar(_) => None,
        })?;
        Some(Boundary { per, first: None, last: 0, calls: 0, short: 0, asks: 0 })
    }

    /// Counts a call that came when the allocator's clock showed `at`, and that found nothing if `is_short`.
    pub fn called(&mut self, at: Moment, is_short: bool) {
        if self.is_just_after(at) {
            self.calls += 1;
            self.short += u64::from(is_short);
        }
    }

    /// Counts an ask that reached the allocator at `at`.
    pub fn asked(&mut self, at: Moment) {
        self.asks += u64::from(self.is_just_after(at));
    }

    /// Returns the share of the calls just after a boundary that found nothing.
    pub(crate) fn short_share(&self) -> f64 {
        self.short as f64 / self.calls.max(1) as f64
    }

    /// Returns the mean number of asks just after a boundary.
    pub(crate) fn asks_each(&self) -> f64 {
        self.first.map_or(0.0, |first| self.asks as f64 / (self.last - first).max(1) as f64)
    }

    fn is_just_after(&mut self, at: Moment) -> bool {
        let window = at.as_nanos() / self.per;
        let first = *self.first.get_or_insert(window);
        self.last = self.last.max(window);
        // The first window began before the first caller came.
        window > first && at.as_nanos() % self.per < JUST_AFTER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_comes_just_after_a_boundary_counts() {
        let rules = crate::setup::parse_rules("fixed_window 10/1s").expect("a rule");
        let mut boundary = Boundary::new(&rules).expect("it has boundaries");
        let at = |millis: u64| Moment::from_nanos(millis * MILLI);
        for millis in [10, 1_010, 1_049, 1_050, 1_999, 3_000] {
            boundary.called(at(millis), millis == 1_049);
            boundary.asked(at(millis));
        }
        assert_eq!((boundary.calls, boundary.short, boundary.asks), (3, 1, 3));
        assert!((boundary.asks_each() - 1.0).abs() < 1e-9, "three asks, three boundaries");
    }
}
