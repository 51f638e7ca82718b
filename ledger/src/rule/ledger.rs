//! The books of one rule, whichever it is: what all rules do, and what only some of them can do.

use super::Windows;
use super::{
    BucketLedger, Calls, ConcurrencyLedger, FirstUseLedger, FixedLedger, FlowLedger, RuleAccount,
    SlidingLedger,
};
use crate::Rule;
use crate::packed::Carrier;
use lessor_protocol::{ClockBounds, Moment};

/// The books of one rule. Copying one costs what it remembers.
#[derive(Clone, Debug)]
pub enum Ledger {
    /// Of a sliding window or a sliding log.
    Sliding(SlidingLedger),
    /// Of a fixed window whose boundaries are known ahead.
    Fixed(FixedLedger),
    /// Of a fixed window that its first use opens.
    FirstUse(FirstUseLedger),
    /// Of a token bucket.
    Bucket(BucketLedger),
    /// Of the permits of a steady flow.
    Flow(FlowLedger),
    /// Of a cap on calls in flight.
    Concurrency(ConcurrencyLedger),
}

impl Ledger {
    /// The books of `rule`, new at `now`.
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

    /// What the books of every rule do.
    pub fn account(&self) -> &dyn RuleAccount {
        match self {
            Ledger::Sliding(ledger) => ledger,
            Ledger::Fixed(ledger) => ledger,
            Ledger::FirstUse(ledger) => ledger,
            Ledger::Bucket(ledger) => ledger,
            Ledger::Flow(ledger) => ledger,
            Ledger::Concurrency(ledger) => ledger,
        }
    }

    /// The same, to be changed.
    pub fn account_mut(&mut self) -> &mut dyn RuleAccount {
        match self {
            Ledger::Sliding(ledger) => ledger,
            Ledger::Fixed(ledger) => ledger,
            Ledger::FirstUse(ledger) => ledger,
            Ledger::Bucket(ledger) => ledger,
            Ledger::Flow(ledger) => ledger,
            Ledger::Concurrency(ledger) => ledger,
        }
    }

    /// The books that charge a lease to the next window, too, if these do.
    pub fn ahead(&self) -> Option<&FixedLedger> {
        if let Ledger::Fixed(ledger) = self { Some(ledger) } else { None }
    }

    /// The same, to be changed.
    pub fn ahead_mut(&mut self) -> Option<&mut FixedLedger> {
        if let Ledger::Fixed(ledger) = self { Some(ledger) } else { None }
    }

    /// The books that count calls in flight, if these do.
    pub fn calls(&self) -> Option<&dyn Calls> {
        if let Ledger::Concurrency(ledger) = self { Some(ledger) } else { None }
    }

    /// The same, to be changed.
    pub fn calls_mut(&mut self) -> Option<&mut dyn Calls> {
        if let Ledger::Concurrency(ledger) = self { Some(ledger) } else { None }
    }

    /// The books that refill, if these do.
    pub fn bucket(&self) -> Option<&BucketLedger> {
        if let Ledger::Bucket(ledger) = self { Some(ledger) } else { None }
    }

    /// The same, to be changed.
    pub fn bucket_mut(&mut self) -> Option<&mut BucketLedger> {
        if let Ledger::Bucket(ledger) = self { Some(ledger) } else { None }
    }

    /// The books of a sliding window, if these are.
    pub fn sliding(&self) -> Option<&SlidingLedger> {
        if let Ledger::Sliding(ledger) = self { Some(ledger) } else { None }
    }

    /// Carries what it has charged, of which nothing is out; its rule says the rest. False if that cannot be carried.
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

    /// Until when it lends as much as it does now and is as much like a new one, if nothing is out, and nothing begins or ends.
    pub(crate) fn rests_until(&self) -> Moment {
        match self {
            Ledger::Sliding(ledger) => ledger.rests_until(),
            Ledger::Fixed(ledger) => ledger.rests_until(),
            Ledger::FirstUse(ledger) => ledger.rests_until(),
            Ledger::Bucket(ledger) => ledger.rests_until(),
            Ledger::Concurrency(_) | Ledger::Flow(_) => Moment::NEVER,
        }
    }

    /// Whether a permit that is held unspent is missing later, too: it counts for a window after it was spent.
    pub fn counts_from_spend(&self) -> bool {
        matches!(self, Ledger::Sliding(_))
    }
}
