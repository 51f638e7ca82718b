//! Limits and keys as a single omniscient limiter would keep them: no leases, no margin for a vendor far away, no
//! clock drift, no sub-windows, so exact to the nanosecond. `lessor replay` answers with it, and it is what leasing is
//! measured against. It lends nothing and never runs in a server.
//!
//! In reading order: [`limiter`] (one pool), [`family`] (pools above each other, and the line of those that wait), `books`
//! (several rules), `sliding`, `fixed`, `bucket`, `in_flight` (one kind of rule each), `carry_over` (what becomes of the
//! books when a rule is changed).

mod books;
mod bucket;
mod carry_over;
pub mod family;
mod fixed;
mod in_flight;
pub mod limiter;
mod sliding;
#[cfg(test)]
mod tests;

pub use family::{Family, Place, Unused};
pub use limiter::{Admission, Limiter, Outcome, Verdict};

use crate::{CarryOver, Rule};
use bucket::Bucket;
use fixed::Fixed;
use in_flight::InFlight;
use lessor_protocol::Moment;
use sliding::Sliding;
use std::fmt::Debug;

/// What a limiter needs of a rule. What can be taken only grows while time passes without a call, except for what a top-up
/// allowed and is over.
trait Exact: Debug + Send {
    /// Lets time pass up to `now`.
    fn advance(&mut self, now: Moment);

    /// The most that a call could take now.
    fn available(&self) -> u64;

    /// The first instant at which `permits` could be taken, not before now; `None` if never.
    fn ready_at(&self, permits: u64) -> Option<Moment>;

    /// Takes `permits`, at most [`Exact::available`].
    fn take(&mut self, permits: u64);

    /// `permits` come back unused: those that still count, and no more.
    fn refund(&mut self, permits: u64);

    /// `permits` more, once, beyond what the rule says.
    fn top_up(&mut self, permits: u64);

    /// Whether a top-up lets more be taken now than later, even without a call in between.
    fn lapses(&self) -> bool {
        false
    }

    /// These books under `rule`, which is of the same kind and period.
    fn carried(&self, rule: &Rule, carry_over: CarryOver) -> Box<dyn Exact>;

    /// Whether they cannot be told from new ones.
    fn is_fresh(&self) -> bool;

    /// A copy.
    fn copy(&self) -> Box<dyn Exact>;
}

/// New books for `rule` at `now`.
fn exact(rule: &Rule, now: Moment) -> Box<dyn Exact> {
    match rule {
        Rule::SlidingWindow(rule) => Box::new(Sliding::new(rule, now)),
        Rule::SlidingLog(rule) => Box::new(Sliding::of(rule.limit(), rule.per() + rule.margin(), now)),
        Rule::FixedWindow(rule) => Box::new(Fixed::new(rule, now)),
        Rule::TokenBucket(rule) => Box::new(Bucket::new(rule, now)),
        Rule::LeakyBucket(rule) => Box::new(Bucket::steady(rule, now)),
        Rule::Concurrency(rule) => Box::new(InFlight::new(rule, now)),
    }
}
