//! All rules of a limit, each in its shipping ledger, where permits count as spent once they are given out. Rivals use
//! it as the central counter, or as a node's own share. It knows no leases: unspent permits never come back.

use lessor_ledger::Rule;
use lessor_ledger::rule::Ledger;
use lessor_protocol::{ClockBounds, Moment};
use std::time::Duration;

/// The books of the rules of a limit.
#[derive(Debug)]
pub(super) struct Ledgers {
    clocks: ClockBounds,
    ledgers: Vec<Ledger>,
}

impl Ledgers {
    /// Makes the books of `rules` with nothing spent.
    pub(super) fn new(rules: &[Rule], clocks: ClockBounds, now: Moment) -> Self {
        Ledgers { clocks, ledgers: rules.iter().map(|rule| Ledger::new(rule, clocks, now)).collect() }
    }

    fn advance(&mut self, now: Moment) {
        self.ledgers.iter_mut().for_each(|ledger| ledger.account_mut().advance(now));
    }

    /// Returns the permits that every rule can give.
    pub(super) fn available(&mut self, now: Moment) -> u64 {
        self.advance(now);
        self.ledgers.iter().map(|ledger| ledger.account().available()).min().unwrap_or(0)
    }

    /// Gives out `permits`, or as many as there are.
    pub(super) fn give(&mut self, permits: u64, now: Moment) -> u64 {
        let permits = permits.min(self.available(now));
        for ledger in self.ledgers.iter_mut().map(Ledger::account_mut) {
            ledger.charge(permits);
            ledger.settle(permits, now);
        }
        permits
    }

    /// Returns how long permits given now may be kept: until the first window ends, if one does.
    pub(super) fn lasts(&mut self, now: Moment) -> Option<Duration> {
        self.advance(now);
        let end = self.ledgers.iter().filter_map(|ledger| ledger.account().lease_end()).min()?;
        Some(self.clocks.term_until(now, end))
    }
}
