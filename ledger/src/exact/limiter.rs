//! One limit and key: a family of one pool. A caller whose limit has no parents asks here; the family decides.

use super::family::{Family, Place};
use crate::{CarryOver, Rule};
use lessor_protocol::Moment;
use std::time::Duration;

/// One limit and key.
#[derive(Debug)]
pub struct Limiter(Family);

/// What was admitted, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// When.
    pub at: Moment,
    /// How many permits.
    pub permits: u64,
    /// Since when it had waited.
    pub since: Moment,
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether it may.
    pub verdict: Verdict,
    /// The most that a call could take now, after this one.
    pub remaining: u64,
}

/// What is said to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Yes, after this wait.
    Served(Duration),
    /// Not now, and not in time: it would be served after this wait.
    NotFor(Duration),
    /// Never: no refill will bring so much.
    Never,
    /// Never: more than the limit can ever hold, which is this much.
    TooLarge(u64),
}

impl Limiter {
    /// A limit with `rules`, fresh at `now`.
    pub fn new(rules: &[Rule], now: Moment) -> Self {
        Limiter(Family::new(rules, now))
    }

    /// Takes `permits` now or not at all. No call overtakes those that wait. A call for no permits is a probe, and
    /// succeeds.
    pub fn try_acquire(&mut self, now: Moment, permits: u64) -> Outcome {
        self.acquire(now, permits, Some(Duration::ZERO))
    }

    /// What [`Limiter::try_acquire`] would say; nothing is taken.
    pub fn peek(&mut self, now: Moment, permits: u64) -> Outcome {
        self.0.peek(now, Place::FIRST, permits)
    }

    /// Takes `permits` as soon as its turn comes, see [`Family::acquire`].
    pub fn acquire(&mut self, now: Moment, permits: u64, patience: Option<Duration>) -> Outcome {
        self.0.acquire(now, Place::FIRST, permits, patience)
    }

    /// `permits` that were taken come back unused: as many as still count.
    pub fn refund(&mut self, now: Moment, permits: u64) -> Outcome {
        self.0.refund(now, Place::FIRST, permits)
    }

    /// Lets `permits` more be taken, once, beyond what the rules say.
    pub fn top_up(&mut self, now: Moment, permits: u64) -> Outcome {
        self.0.top_up(now, Place::FIRST, permits)
    }

    /// From now on `rules` hold.
    pub fn set(&mut self, now: Moment, rules: &[Rule], carry_over: CarryOver) -> Outcome {
        self.0.set(now, &[Place::FIRST], rules, carry_over);
        self.peek(now, 0)
    }

    /// Lets time pass until no call waits any more.
    pub fn run_out(&mut self) {
        self.0.run_out();
    }

    /// What was admitted since this was last asked, in order.
    pub fn admitted(&mut self) -> impl Iterator<Item = Admission> + '_ {
        self.0.admitted().map(|(_, admission)| admission)
    }

    /// Those that were told to wait and, after a change, would have had to wait for too long.
    pub fn gave_up(&self) -> u64 {
        self.0.gave_up()
    }

    /// Whether it cannot be told from a new one at `now`.
    pub fn is_fresh(&mut self, now: Moment) -> bool {
        self.0.is_fresh(now, Place::FIRST)
    }
}
