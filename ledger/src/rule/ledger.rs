//! The books of one rule of any kind: what all kinds support, and what only some of them do.

use super::Windows;
use super::{
    Account, BucketLedger, Calls, ConcurrencyLedger, FirstUseLedger, FixedLedger, FlowLedger, RuleAccount,
    SlidingLedger,
};
use crate::Rule;
use crate::packed::Carrier;
use lessor_protocol::{ClockBounds, Moment};
use std::time::Duration;

/// The books of one rule. A clone costs as much as the books remember.
#[derive(Clone, Debug)]
pub enum Ledger {
    /// A sliding window or a sliding log.
    Sliding(SlidingLedger),
    /// A fixed window whose boundaries are known ahead.
    Fixed(FixedLedger),
    /// A fixed window that its first use opens.
    FirstUse(FirstUseLedger),
    /// A token bucket.
    Bucket(BucketLedger),
    /// The permits of a steady flow.
    Flow(FlowLedger),
    /// A cap on calls in flight.
    Concurrency(ConcurrencyLedger),
}

/// Evaluates an expression with the books, whatever kind they are of.
macro_rules! of_any_kind {
    ($books:expr, $ledger:ident => $value:expr) => {
        match $books {
            Ledger::Sliding($ledger) => $value,
            Ledger::Fixed($ledger) => $value,
            Ledger::FirstUse($ledger) => $value,
            Ledger::Bucket($ledger) => $value,
            Ledger::Flow($ledger) => $value,
            Ledger::Concurrency($ledger) => $value,
        }
    };
}

/// What each ask needs of the books, several times. Nothing is looked up to call it.
impl Ledger {
    /// As [`Account::advance`].
    #[inline]
    pub(crate) fn advance(&mut self, now: Moment) {
        of_any_kind!(self, ledger => ledger.advance(now));
    }

    /// As [`Account::available`].
    #[inline]
    pub(crate) fn available(&self) -> u64 {
        of_any_kind!(self, ledger => ledger.available())
    }

    /// As [`Account::charge`].
    #[inline]
    pub(crate) fn charge(&mut self, permits: u64) {
        of_any_kind!(self, ledger => ledger.charge(permits));
    }

    /// As [`Account::settle`].
    #[inline]
    pub(crate) fn settle(&mut self, permits: u64, at: Moment) {
        of_any_kind!(self, ledger => ledger.settle(permits, at));
    }

    /// As [`Account::release`].
    #[inline]
    pub(crate) fn release(&mut self, permits: u64) {
        of_any_kind!(self, ledger => ledger.release(permits));
    }

    /// As [`Account::arriving`].
    #[inline]
    pub(crate) fn arriving(&self, span: Duration) -> u64 {
        of_any_kind!(self, ledger => ledger.arriving(span))
    }

    /// As [`Account::sustained`].
    #[inline]
    pub(crate) fn sustained(&self, span: Duration) -> u64 {
        of_any_kind!(self, ledger => ledger.sustained(span))
    }

    /// As [`Account::excess`].
    #[inline]
    pub(crate) fn excess(&self) -> u64 {
        of_any_kind!(self, ledger => ledger.excess())
    }

    /// As [`Account::lease_end`].
    #[inline]
    pub(crate) fn lease_end(&self) -> Option<Moment> {
        of_any_kind!(self, ledger => ledger.lease_end())
    }
}

impl Ledger {
    /// Creates the books of `rule` at `now`.
    pub fn new(rule: &Rule, clocks: ClockBounds, now: Moment) -> Self {
        match rule {
            Rule::SlidingWindow(rule) => Ledger::Sliding(SlidingLedger::new(rule, clocks, now)),
            Rule::SlidingLog(rule) => Ledger::Sliding(SlidingLedger::log(rule, clocks, now)),
            Rule::FixedWindow(rule) => match rule.windows() {
                Windows::Epoch { .. } | Windows::Calendar(_) => Ledger::Fixed(FixedLedger::new(rule, now)),
                Windows::FirstUse { .. } => Ledger::FirstUse(FirstUseLedger::new(rule, now)),
            },
            Rule::TokenBucket(rule) => Ledger::Bucket(BucketLedger::new(rule, clocks, now)),
            Rule::LeakyBucket(_) => Ledger::Flow(FlowLedger::default()),
            Rule::Concurrency(rule) => Ledger::Concurrency(ConcurrencyLedger::new(rule, clocks, now)),
        }
    }

    /// Returns the interface of the books of every rule.
    pub fn account(&self) -> &dyn RuleAccount {
        of_any_kind!(self, ledger => ledger)
    }

    /// Mutable version of [`Ledger::account`].
    pub fn account_mut(&mut self) -> &mut dyn RuleAccount {
        of_any_kind!(self, ledger => ledger)
    }

    /// Returns the books if they charge a lease to the next window, too.
    pub fn ahead(&self) -> Option<&FixedLedger> {
        if let Ledger::Fixed(ledger) = self { Some(ledger) } else { None }
    }

    /// Mutable version of [`Ledger::ahead`].
    pub fn ahead_mut(&mut self) -> Option<&mut FixedLedger> {
        if let Ledger::Fixed(ledger) = self { Some(ledger) } else { None }
    }

    /// Returns the books if they count calls in flight.
    pub fn calls(&self) -> Option<&dyn Calls> {
        if let Ledger::Concurrency(ledger) = self { Some(ledger) } else { None }
    }

    /// Mutable version of [`Ledger::calls`].
    pub fn calls_mut(&mut self) -> Option<&mut dyn Calls> {
        if let Ledger::Concurrency(ledger) = self { Some(ledger) } else { None }
    }

    /// Returns the books if they are those of a token bucket.
    pub fn bucket(&self) -> Option<&BucketLedger> {
        if let Ledger::Bucket(ledger) = self { Some(ledger) } else { None }
    }

    /// Mutable version of [`Ledger::bucket`].
    pub fn bucket_mut(&mut self) -> Option<&mut BucketLedger> {
        if let Ledger::Bucket(ledger) = self { Some(ledger) } else { None }
    }

    /// Returns the books if they are those of a sliding window or log.
    pub fn sliding(&self) -> Option<&SlidingLedger> {
        if let Ledger::Sliding(ledger) = self { Some(ledger) } else { None }
    }

    /// Carries what is charged. Nothing may be outstanding, and the rule says the rest. Returns `false` for a steady
    /// flow, which cannot be carried.
    pub(crate) fn carry(&mut self, carrier: &mut Carrier<'_>) -> bool {
        match self {
            Ledger::Sliding(ledger) => ledger.carry(carrier),
            Ledger::Fixed(ledger) => ledger.carry(carrier),
            Ledger::FirstUse(ledger) => ledger.carry(carrier),
            Ledger::Bucket(ledger) => ledger.carry(carrier),
            Ledger::Concurrency(ledger) => ledger.carry(carrier),
            Ledger::Flow(_) => return false,
        }
        true
    }

    /// Returns until when the books lend as much as now, and are as fresh as now, if nothing is outstanding and nothing
    /// is lent or settled.
    pub(crate) fn rests_until(&self) -> Moment {
        match self {
            Ledger::Sliding(ledger) => ledger.rests_until(),
            Ledger::Fixed(ledger) => ledger.rests_until(),
            Ledger::FirstUse(ledger) => ledger.rests_until(),
            Ledger::Bucket(ledger) => ledger.rests_until(),
            Ledger::Concurrency(_) | Ledger::Flow(_) => Moment::NEVER,
        }
    }

    /// Whether a permit held unspent is missing later, too, because it counts for a window from its spend on.
    pub fn counts_from_spend(&self) -> bool {
        matches!(self, Ledger::Sliding(_))
    }
}
