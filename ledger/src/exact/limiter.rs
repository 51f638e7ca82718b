//! One limit and key: a family of one pool, for callers whose limit has no parents. The family decides.

use super::family::{Family, Place};
use crate::{CarryOver, Rule};
use lessor_protocol::Moment;
use std::time::Duration;

/// The exact limiter of one limit and key.
#[derive(Debug)]
pub struct Limiter(Family);

/// A call that was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// When it was admitted.
    pub at: Moment,
    /// Permits that it took.
    pub permits: u64,
    /// When the call came.
    pub since: Moment,
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether the call may go on.
    pub verdict: Verdict,
    /// The most that a call could take now, after this one.
    pub remaining: u64,
}

/// What a call is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Yes, after this wait.
    Served(Duration),
    /// Not now, and not in time: it would be served after this wait.
    NotFor(Duration),
    /// Never: no refill will bring enough.
    Never,
    /// Never: the call is larger than the most that the limit can ever hold, which is this.
    TooLarge(u64),
}

impl Limiter {
    /// Creates a limiter with `rules`, fresh at `now`.
    pub fn new(rules: &[Rule], now: Moment) -> Self {
        Limiter(Family::new(rules, now))
    }

    /// Takes `permits` now or not at all. No call overtakes the calls that wait. A call for no permits is a probe, and
    /// succeeds.
    pub fn try_acquire(&mut self, now: Moment, permits: u64) -> Outcome {
        self.acquire(now, permits, Some(Duration::ZERO))
    }

    /// Returns what [`Limiter::try_acquire`] would say, and takes nothing.
    pub fn peek(&mut self, now: Moment, permits: u64) -> Outcome {
        self.0.peek(now, Place::FIRST, permits)
    }

    /// Takes `permits` as soon as the turn of the call comes, see [`Family::acquire`].
    pub fn acquire(&mut self, now: Moment, permits: u64, patience: Option<Duration>) -> Outcome {
        self.0.acquire(now, Place::FIRST, permits, patience)
    }

    /// Takes back `permits` unused: as many as still count.
    pub fn refund(&mut self, now: Moment, permits: u64) -> Outcome {
        self.0.refund(now, Place::FIRST, permits)
    }

    /// Allows `permits` more to be taken, once, beyond what the rules say.
    pub fn top_up(&mut self, now: Moment, permits: u64) -> Outcome {
        self.0.top_up(now, Place::FIRST, permits)
    }

    /// Goes on by `rules` from `now` on.
    pub fn set(&mut self, now: Moment, rules: &[Rule], carry_over: CarryOver) -> Outcome {
        self.0.set(now, &[Place::FIRST], rules, carry_over);
        self.peek(now, 0)
    }

    /// Lets time pass until no call waits any more.
    pub fn run_out(&mut self) {
        self.0.run_out();
    }

    /// Drains the calls admitted since the last call of this, in order.
    pub fn admitted(&mut self) -> impl Iterator<Item = Admission> + '_ {
        self.0.admitted().map(|(_, admission)| admission)
    }

    /// Returns the number of calls that were told to wait and, after a change, would have had to wait for too long.
    pub fn gave_up(&self) -> u64 {
        self.0.gave_up()
    }

    /// Whether the limiter cannot be told from a new one at `now`.
    pub fn is_fresh(&mut self, now: Moment) -> bool {
        self.0.is_fresh(now, Place::FIRST)
    }
}
