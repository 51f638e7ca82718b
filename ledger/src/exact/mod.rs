//! Limits and keys as a single omniscient limiter would keep them: exact to the nanosecond, without leases, a margin
//! for a vendor far away, clock drift or sub-windows. `lessor replay` answers with it, and leasing is measured against
//! it. It lends nothing and never runs in a server.
//!
//! In reading order: [`limiter`] (one pool), [`family`] (pools above each other, and the line of the calls that wait),
//! `books` (several rules), `sliding`, `fixed`, `bucket` (one kind of books each), `carry_over` (what
//! becomes of the books when a rule is changed).

mod books;
mod bucket;
mod carry_over;
pub mod family;
mod fixed;
pub mod limiter;
mod sliding;
#[cfg(test)]
mod tests;

pub use family::{Family, Place, Unused};
pub use limiter::{Admission, Limiter, Outcome, Verdict};

use crate::{CarryOver, Rule};
use bucket::Bucket;
use fixed::Fixed;
use lessor_protocol::Moment;
use sliding::Sliding;
use std::fmt::Debug;

/// What a limiter needs of the books of a rule. Without calls, the permits that can be taken only grow, except when a
/// top-up is over.
trait Exact: Debug + Send {
    /// Lets time pass up to `now`.
    fn advance(&mut self, now: Moment);

    /// Returns the most that a call could take now.
    fn available(&self) -> u64;

    /// Returns the first instant at which `permits` could be taken, not before now. `None` if never.
    fn ready_at(&self, permits: u64) -> Option<Moment>;

    /// Takes `permits`, at most [`Exact::available`].
    fn take(&mut self, permits: u64);

    /// Takes back `permits` unused: as many as still count.
    fn refund(&mut self, permits: u64);

    /// Adds `permits` once, beyond what the rule says.
    fn top_up(&mut self, permits: u64);

    /// Whether a top-up lets more be taken now than later, even without a call in between.
    fn lapses(&self) -> bool {
        false
    }

    /// Returns these books under `rule`, which is of the same kind and period.
    fn carried(&self, rule: &Rule, carry_over: CarryOver) -> Box<dyn Exact>;

    /// Whether the books cannot be told from new ones.
    fn is_fresh(&self) -> bool;

    /// Returns a copy of the books.
    fn copy(&self) -> Box<dyn Exact>;
}

/// Creates books for `rule` at `now`.
fn exact(rule: &Rule, now: Moment) -> Box<dyn Exact> {
    match rule {
        Rule::SlidingWindow(_) | Rule::SlidingLog(_) | Rule::Concurrency(_) => {
            Box::new(Sliding::new(rule, now))
        }
        Rule::FixedWindow(rule) => Box::new(Fixed::new(rule, now)),
        Rule::TokenBucket(rule) => Box::new(Bucket::new(rule, now)),
        Rule::LeakyBucket(rule) => Box::new(Bucket::steady(rule, now)),
    }
}
