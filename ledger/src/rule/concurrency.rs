//! `concurrency`: At most N in flight. A permit is charged while it is lent, and then while its call is in flight,
//! until its session says that the call has ended. If the session falls silent, the call counts for the longest
//! duration of a call after the end of its lease. Pools count the calls of each session (`pool/calls.rs`); these books
//! have only the sum.
//!
//! Why it holds: between two reports a session can only turn permits that it holds into calls, and calls into nothing
//! or into permits that it holds again. So what was held and in flight at one report bounds what is in flight until the
//! next.

use super::{Account, Calls, Ends, Pace, RuleAccount, RuleError, Saved, Since, check_permits, check_span};
use crate::packed::Carrier;
use crate::{CarryOver, Rule};
use lessor_protocol::moment::nanos;
use lessor_protocol::{ClockBounds, Moment, PERMITS_MAX};
use std::time::Duration;

/// At most `limit` permits in flight at any instant, each for at most `longest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    limit: u64,
    longest: Duration,
}

impl Concurrency {
    /// Checks the numbers.
    ///
    /// # Errors
    /// If `limit` is above 2^53 − 1, or `longest` is zero or above 366 days.
    pub fn try_new(limit: u64, longest: Duration) -> Result<Self, RuleError> {
        check_permits("limit", limit)?;
        check_span("longest", longest, "a call takes some time, for example \"2m\"")?;
        Ok(Concurrency { limit, longest })
    }

    /// Permits in flight at once. 0 refuses everything.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Longest duration of a call. A caller gives up its call by then: the permit of a silent session is free that long
    /// after the end of its lease.
    pub fn longest(&self) -> Duration {
        self.longest
    }
}

/// The books of a cap on calls in flight.
#[derive(Clone, Debug)]
pub struct ConcurrencyLedger {
    limit: u64,
    /// The longest call, stretched by the drift.
    longest: Duration,
    now: Moment,
    outstanding: u64,
    in_flight: u64,
}

impl ConcurrencyLedger {
    /// Creates books with nothing in flight at `now`.
    pub fn new(rule: &Concurrency, clocks: ClockBounds, now: Moment) -> Self {
        let longest = clocks.stretched(rule.longest());
        ConcurrencyLedger { limit: rule.limit(), longest, now, outstanding: 0, in_flight: 0 }
    }
}

impl ConcurrencyLedger {
    /// See [`super::Ledger::carry`].
    pub(super) fn carry(&mut self, carrier: &mut Carrier<'_>) {
        carrier.moment(&mut self.now);
        carrier.number(&mut self.in_flight);
    }
}

impl Account for ConcurrencyLedger {
    fn advance(&mut self, now: Moment) {
        self.now = self.now.max(now);
    }

    fn available(&self) -> u64 {
        self.limit.saturating_sub(self.outstanding + self.in_flight)
    }

    fn charge(&mut self, permits: u64) {
        self.outstanding += permits;
    }

    fn settle(&mut self, permits: u64, _at: Moment) {
        self.outstanding -= permits;
    }

    fn release(&mut self, permits: u64) {
        self.outstanding -= permits;
    }

    /// Permits that a late report frees were presumed in flight until then; [`Calls::finish`] frees them.
    fn credit(&mut self, _permits: u64, _at: Moment) {}

    /// Any call may end at any moment, so permits may be there as soon as a session asks.
    fn ready_at(&self, permits: u64, _ends: Ends<'_>) -> Option<Moment> {
        (permits <= self.limit).then_some(self.now)
    }

    /// All permits at once, and again each time that the longest call has ended. Mostly they come back sooner.
    fn sustained(&self, span: Duration) -> u64 {
        Pace { permits: self.limit, over: nanos(self.longest).max(1) }.within(span).max(self.limit)
    }

    fn is_fresh(&self) -> bool {
        self.outstanding == 0 && self.in_flight == 0
    }

    fn memory(&self) -> Duration {
        self.longest
    }

    fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// Calls that earlier processes let begin until `quarantined` end within the longest duration after it.
    fn forget(&mut self, quarantined: Moment) -> Moment {
        quarantined + self.longest
    }

    fn excess(&self) -> u64 {
        (self.outstanding + self.in_flight).saturating_sub(self.limit)
    }
}

impl RuleAccount for ConcurrencyLedger {
    /// Calls in flight stay charged, whatever the carry-over.
    fn change(&mut self, rule: &Rule, clocks: ClockBounds, _carry_over: CarryOver) -> bool {
        let Rule::Concurrency(rule) = rule else { return false };
        let is_same = clocks.stretched(rule.longest()) == self.longest;
        if is_same {
            self.limit = rule.limit();
        }
        is_same
    }

    /// Permits come back by themselves as calls end: there is nothing to add once.
    fn adopt(&mut self, permits: u64, _until: Moment) {
        self.outstanding = permits;
    }

    fn top_up(&mut self, _permits: u64) {}

    fn most(&self) -> u64 {
        0
    }

    fn save(&self) -> Saved {
        Saved::InFlight { in_flight: self.in_flight }
    }

    /// The pool knows which of the calls end when.
    fn restore(&mut self, saved: &Saved, _since: Since, (out, _): (u64, Moment)) -> bool {
        let &Saved::InFlight { in_flight } = saved else { return false };
        (self.outstanding, self.in_flight) = (out, in_flight);
        in_flight <= PERMITS_MAX
    }
}

impl Calls for ConcurrencyLedger {
    fn begin(&mut self, permits: u64) {
        self.in_flight += permits;
    }

    fn finish(&mut self, permits: u64) {
        self.in_flight -= permits;
    }

    fn in_flight(&self) -> u64 {
        self.in_flight
    }

    fn longest(&self) -> Option<Duration> {
        Some(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_is_charged_while_it_is_lent_and_while_its_call_is_in_flight() {
        let minute = Duration::from_secs(60);
        let rule = Concurrency::try_new(10, minute).expect("valid");
        let mut ledger = ConcurrencyLedger::new(&rule, ClockBounds::default(), Moment::ORIGIN);
        ledger.charge(6);
        assert_eq!(ledger.available(), 4);
        ledger.settle(5, Moment::ORIGIN);
        ledger.begin(5);
        assert_eq!(ledger.available(), 4, "spent, and in flight");
        ledger.finish(3);
        ledger.release(1);
        assert_eq!((ledger.available(), ledger.is_fresh()), (8, false));
        ledger.finish(2);
        assert!(ledger.is_fresh() && ledger.is_sound());
        assert_eq!(ledger.memory(), ClockBounds::default().stretched(minute));
    }

    #[test]
    fn what_is_in_flight_stays_so_when_the_cap_is_lowered() {
        let rule = |limit| Concurrency::try_new(limit, Duration::from_secs(60)).expect("valid");
        let mut ledger = ConcurrencyLedger::new(&rule(10), ClockBounds::default(), Moment::ORIGIN);
        ledger.charge(8);
        ledger.settle(5, Moment::ORIGIN);
        ledger.begin(5);
        for carry_over in CarryOver::ALL {
            assert!(ledger.change(&Rule::Concurrency(rule(6)), ClockBounds::default(), carry_over));
            assert_eq!((ledger.available(), ledger.excess()), (0, 2), "{carry_over:?}");
        }
        ledger.finish(4);
        assert_eq!((ledger.available(), ledger.excess()), (2, 0));
        let longer = Concurrency::try_new(6, Duration::from_secs(61)).expect("valid");
        assert!(!ledger.change(&Rule::Concurrency(longer), ClockBounds::default(), CarryOver::AsIs));
    }

    #[test]
    fn lost_books_stay_shut_until_the_longest_call_has_ended() {
        let rule = Concurrency::try_new(10, Duration::from_secs(60)).expect("valid");
        let mut ledger =
            ConcurrencyLedger::new(&rule, ClockBounds::try_new(0).expect("no drift"), Moment::ORIGIN);
        let seconds = |seconds: u64| Moment::from_nanos(seconds * 1_000_000_000);
        assert_eq!(ledger.forget(seconds(2)), seconds(62));
    }
}
