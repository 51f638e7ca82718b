//! The books of single rules: what is charged against each promise, and from when it no longer is.
//! Pools call them, with every permit at every change; they know neither sessions nor leases.
//!
//! One principle: **charge a permit from the moment it is lent; let it go only from the last instant at which
//! it could have been spent.** That instant is the `at` of [`Account::settle`].

use super::{Draw, Rule, Saved, Since};
use crate::CarryOver;
use lessor_protocol::{ClockBounds, Moment};
use std::fmt::Debug;
use std::time::Duration;

/// The ends of live leases with the permits that are out on each; soonest first, but for assertions.
pub type Ends<'a> = &'a mut dyn Iterator<Item = (Moment, u64)>;

/// What a pool needs of every promise that it keeps. Permits are *outstanding* between [`Account::charge`] and one of
/// [`Account::settle`] and [`Account::release`]; a caller never ends more than it charged.
pub trait Account: Debug {
    /// Lets time pass up to `now`. Called with every lease end on the way, in order: refill that pauses while
    /// permits are out must not be computed across the instant at which they came back.
    fn advance(&mut self, now: Moment);

    /// Permits that can be lent now.
    fn available(&self) -> u64;

    /// Lends `permits`, at most [`Account::available`].
    fn charge(&mut self, permits: u64);

    /// `permits` that were lent were spent, at `at` at the latest; the account has been advanced to `at`.
    fn settle(&mut self, permits: u64, at: Moment);

    /// `permits` are presumed spent: their lease ended without a report at `at`, which the account has been advanced to.
    fn burn(&mut self, permits: u64, at: Moment) {
        self.settle(permits, at);
    }

    /// `permits` that were lent came back unspent.
    fn release(&mut self, permits: u64);

    /// `permits` that were settled at `at`, because their lease ended without a report, prove unspent after all.
    fn credit(&mut self, permits: u64, at: Moment);

    /// When `permits` can be lent if nothing is lent or given back meanwhile and every lease in `ends` burns.
    /// Never too early; `None` if never.
    fn ready_at(&self, permits: u64, ends: Ends<'_>) -> Option<Moment>;

    /// Permits that become available by themselves within `span`, as far as can be told now.
    fn arriving(&self, span: Duration) -> u64;

    /// Permits that it lends in `span` on average for as long as all are wanted.
    fn sustained(&self, span: Duration) -> u64;

    /// In how long the first permit is wanted that is not there, if nodes take `draw` and what they do not take comes back
    /// as it always does; `None` if that is not to be expected. For people.
    fn lasts(&self, draw: Draw) -> Option<Duration>;

    /// The fastest constant rate at which what is left can be lent without running dry, as permits over a span.
    /// `None` where the rule does not ease off.
    fn pace(&self) -> Option<Pace>;

    /// The instant that no lease may outlive, unless what it holds is charged ahead.
    fn lease_end(&self) -> Option<Moment>;

    /// Whether it cannot be told from a new one.
    fn is_fresh(&self) -> bool;

    /// Whether nothing that it lent keeps anything back now. A new one may have less.
    fn has_all(&self) -> bool {
        self.is_fresh()
    }

    /// How long after its settlement a permit may still matter.
    fn memory(&self) -> Duration;

    /// Permits lent and not yet settled or released, as this account counts them.
    fn outstanding(&self) -> u64;

    /// Empties an account that may have forgotten what it lent before `quarantined`. No session can be spending that from then on.
    /// Returns the first instant from which it may lend again.
    fn forget(&mut self, quarantined: Moment) -> Moment;

    /// Takes over `permits` that were lent before there was such a promise, the last lease of which ends at `until`. The
    /// account is new: whatever was settled before, it knows nothing of.
    fn adopt(&mut self, permits: u64, until: Moment);

    /// Permits that are charged beyond what it allows, as there may be once it was changed. While there are, nothing
    /// that is out is extended: a lease's length later every window holds what it may.
    fn excess(&self) -> u64;

    /// Its own invariant, for assertions.
    fn is_sound(&self) -> bool;
}

/// What the account of a rule does besides: an operator changes it, and it is written down.
pub trait RuleAccount: Account {
    /// Goes on by `rule`, which was changed just now, if it is of the same kind and period; `false` if it is not, and
    /// nothing changes then. With [`CarryOver::Reset`] only a cap on calls in flight goes on.
    fn change(&mut self, rule: &Rule, clocks: ClockBounds, carry_over: CarryOver) -> bool;

    /// Lets `permits` more be lent, once, beyond what the rule says.
    fn top_up(&mut self, permits: u64);

    /// The most that it may be charged as it stands, with what it was topped up. 0 where nothing is topped up.
    fn most(&self) -> u64;

    /// What is written down of it, but for what is out.
    fn save(&self) -> Saved;

    /// Takes over what was `saved`, with `out` permits that may be spent until `until`. The account is new, and begins when
    /// that was written, as far as can be told. `false` if no account of this rule can have been so.
    fn restore(&mut self, saved: &Saved, since: Since, out: (u64, Moment)) -> bool;
}

/// What an account does that counts calls in flight.
pub trait Calls {
    /// `permits` of those that were settled are in flight, as far as is known. Such a permit was never out of sight: it is
    /// settled and in flight, or landed, in one step.
    fn begin(&mut self, permits: u64);

    /// `permits` that were in flight are not any more.
    fn finish(&mut self, permits: u64);

    /// Permits that are.
    fn in_flight(&self) -> u64;

    /// The longest that a call may take as a clock of ours shows it, where that is known.
    fn longest(&self) -> Option<Duration>;
}

/// `part` of `whole`, so many of `of`: rounded up, for it is a charge. Of a limit of 0 nothing says how much a part is:
/// it stays what it is.
pub(crate) fn scaled_up(part: u64, whole: u64, of: u64) -> u64 {
    if whole == 0 {
        return part;
    }
    let scaled = (u128::from(part) * u128::from(of)).div_ceil(u128::from(whole));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// A rate, as permits over a span of nanoseconds. The span is never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Permits.
    pub permits: u64,
    /// Nanoseconds.
    pub over: u64,
}

impl Pace {
    /// Permits in `span`.
    pub fn within(self, span: Duration) -> u64 {
        let permits = u128::from(self.permits) * span.as_nanos() / u128::from(self.over.max(1));
        u64::try_from(permits).unwrap_or(u64::MAX)
    }

    /// The slower of two.
    pub fn slower(self, other: Pace) -> Pace {
        let faster = u128::from(self.permits) * u128::from(other.over)
            > u128::from(other.permits) * u128::from(self.over);
        if faster { other } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_pace_wins() {
        let (slow, fast) = (Pace { permits: 1, over: 10 }, Pace { permits: 3, over: 10 });
        assert_eq!(slow.slower(fast), slow);
        assert_eq!(fast.slower(slow), slow);
    }
}
