//! The interface of the books of one rule: which permits are charged against its promise, and when they are let go.
//! Pools call it for every permit at every change. Books know neither sessions nor leases.
//!
//! One principle: **charge a permit from the moment it is lent; let it go only from the last instant at which
//! it could have been spent.** That instant is the `at` of [`Account::settle`].

use super::{Draw, Rule, Saved, Since};
use crate::CarryOver;
use lessor_protocol::{ClockBounds, Moment, PERMITS_MAX};
use std::fmt::Debug;
use std::time::Duration;

/// Ends of live leases, each with the permits outstanding on it: soonest first for [`Account::ready_at`], in any order
/// for books that count ahead.
pub type Ends<'a> = &'a mut dyn Iterator<Item = (Moment, u64)>;

/// What a pool needs of the books of each rule. Permits are *outstanding* from [`Account::charge`] until
/// [`Account::settle`], [`Account::burn`] or [`Account::release`]. A caller never ends more than it charged.
pub trait Account: Debug {
    /// Lets time pass up to `now`. Called with every lease end on the way, in order: refill that pauses while
    /// permits are out must not be computed across the instant at which they came back.
    fn advance(&mut self, now: Moment);

    /// Returns the permits that can be lent now.
    fn available(&self) -> u64;

    /// Lends `permits`, at most [`Account::available`].
    fn charge(&mut self, permits: u64);

    /// Records that `permits` lent were spent, by `at` at the latest. The account has been advanced to `at`.
    fn settle(&mut self, permits: u64, at: Moment);

    /// Presumes `permits` spent: their lease ended without a report at `at`, to which the account has been advanced.
    fn burn(&mut self, permits: u64, at: Moment) {
        self.settle(permits, at);
    }

    /// Takes back `permits` that were lent and not spent.
    fn release(&mut self, permits: u64);

    /// Records that `permits` burned at `at` prove unspent after all.
    fn credit(&mut self, permits: u64, at: Moment);

    /// Returns when `permits` can be lent if nothing is lent or given back meanwhile and every lease in `ends` burns.
    /// `None` if never. Never too early, except that calls in flight may end at any moment.
    fn ready_at(&self, permits: u64, ends: Ends<'_>) -> Option<Moment>;

    /// Returns the permits that become available by themselves within `span`, as far as is known now.
    fn arriving(&self, _span: Duration) -> u64 {
        0
    }

    /// Returns the permits lent in `span` on average while all of them are wanted.
    fn sustained(&self, span: Duration) -> u64;

    /// Forecasts, for people, how long until a permit is missing if nodes take `draw` and permits come back as the rule
    /// says. `None` if none is expected to be missing, or if the books cannot tell: calls in flight end when they end.
    fn lasts(&self, _draw: Draw) -> Option<Duration> {
        None
    }

    /// Returns the fastest constant rate at which the permits left can be lent without running out. `None` where the
    /// rule does not ease off.
    fn pace(&self) -> Option<Pace> {
        None
    }

    /// Returns the instant that no lease may outlive, unless its permits are charged ahead. `None` if there is none.
    fn lease_end(&self) -> Option<Moment> {
        None
    }

    /// Whether the account cannot be told from a new one.
    fn is_fresh(&self) -> bool;

    /// Whether no earlier grant lessens what the account can lend now. A new bucket may have less: it may begin below
    /// its capacity.
    fn has_all(&self) -> bool {
        self.is_fresh()
    }

    /// Returns how long after its settlement a permit may still matter.
    fn memory(&self) -> Duration;

    /// Returns the permits lent and not yet settled or released, as this account counts them.
    fn outstanding(&self) -> u64;

    /// Assumes the worst of grants before `quarantined` that the account may have forgotten; no session can spend them
    /// from then on. Returns the first instant from which the account may lend again.
    fn forget(&mut self, quarantined: Moment) -> Moment;

    /// Returns the permits charged beyond what the rule allows, as there may be after a change. While there are any, no
    /// lease is extended, so one term later every window holds what it may.
    fn excess(&self) -> u64;

    /// Whether the account's own invariant holds, for assertions.
    fn is_sound(&self) -> bool {
        true
    }
}

/// What the account of a rule supports besides: changes by an operator, and saving and restoring.
pub trait RuleAccount: Account {
    /// Continues under `rule`, changed just now, if that is of the same kind and period. Otherwise returns `false` and
    /// changes nothing. With [`CarryOver::Reset`] a pool only lets a cap on calls in flight continue.
    fn change(&mut self, rule: &Rule, clocks: ClockBounds, carry_over: CarryOver) -> bool;

    /// Takes over `permits` lent before the limit had this rule; the last of their leases ends at `until`. The account
    /// is new and knows of no earlier settlement.
    fn adopt(&mut self, permits: u64, until: Moment);

    /// Allows `permits` more to be lent, once, beyond what the rule says.
    fn top_up(&mut self, permits: u64);

    /// Returns the most that may be charged now, top-ups included. 0 where the rule takes no top-up.
    fn most(&self) -> u64;

    /// Returns the state to write down, without outstanding permits.
    fn save(&self) -> Saved;

    /// Restores the state `saved`, with `out` permits outstanding until a moment. The account is new and begins when
    /// the state was written, as far as is known. Returns `false` if no account of this rule can have been in that
    /// state.
    fn restore(&mut self, saved: &Saved, since: Since, out: (u64, Moment)) -> bool;
}

/// An account that counts calls in flight.
pub trait Calls {
    /// Records that `permits` of the settled ones are in flight. A permit is settled and its call begun, or already
    /// ended, in one step, so none goes uncounted.
    fn begin(&mut self, permits: u64);

    /// Records that `permits` are no longer in flight.
    fn finish(&mut self, permits: u64);

    /// Returns the permits in flight.
    fn in_flight(&self) -> u64;

    /// Returns the longest that a call may take by the allocator's clock, if that is known.
    fn longest(&self) -> Option<Duration>;
}

/// Scales a charge of `part` in `whole` to the same proportion of `of`, rounded up, and to `PERMITS_MAX` at most: a
/// top-up may have allowed much more than `whole`. A `whole` of 0 gives no proportion, so `part` stays as it is.
pub(crate) fn scaled_up(part: u64, whole: u64, of: u64) -> u64 {
    if whole == 0 {
        return part;
    }
    let scaled = (u128::from(part) * u128::from(of)).div_ceil(u128::from(whole));
    u64::try_from(scaled).unwrap_or(u64::MAX).min(PERMITS_MAX)
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
    /// Returns the permits in `span`, rounded down.
    pub fn within(self, span: Duration) -> u64 {
        let permits = u128::from(self.permits) * span.as_nanos() / u128::from(self.over.max(1));
        u64::try_from(permits).unwrap_or(u64::MAX)
    }

    /// Returns the slower of two rates.
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
