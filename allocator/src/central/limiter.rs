//! Several rules as one limit, all or nothing, and the line of those that wait. The caller says what time it is; a
//! time before the latest one that was said is that one.
//!
//! An `acquire` that must wait is told at once when its turn comes. Until then its permits are not taken: `served` are
//! the books without those that wait, `booked` those in which all of them have been served, so whoever comes next is
//! decided behind them. When something changes (a refund, a top-up, other rules), all that wait are decided anew.

use super::carry::{self, Carry};
use super::{Exact, exact};
use lessor_protocol::{Moment, Rule};
use std::collections::VecDeque;
use std::time::Duration;

/// One limit and key.
#[derive(Debug)]
pub struct Limiter {
    now: Moment,
    /// As if all that wait had been served.
    booked: Books,
    /// Without those that wait; `None` if nobody does.
    served: Option<Books>,
    /// First come, first served, in the order of `turn`.
    line: VecDeque<Waiter>,
    admitted: Vec<Admission>,
    gave_up: u64,
}

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

#[derive(Clone, Copy, Debug)]
struct Waiter {
    since: Moment,
    permits: u64,
    /// When it is served, as things are.
    turn: Moment,
    /// When it gives up unless it has been served by then.
    patience: Moment,
}

/// The rules, each with its books.
#[derive(Debug)]
struct Books(Vec<(Rule, Box<dyn Exact>)>);

impl Limiter {
    /// A limit with `rules`, fresh at `now`.
    pub fn new(rules: &[Rule], now: Moment) -> Self {
        let books = rules.iter().map(|rule| (*rule, exact(rule, now)));
        Limiter {
            now,
            booked: Books(books.collect()),
            served: None,
            line: VecDeque::new(),
            admitted: vec![],
            gave_up: 0,
        }
    }

    /// Takes `permits` now or not at all. Nobody overtakes those that wait; none at all is a probe, and succeeds.
    pub fn try_acquire(&mut self, now: Moment, permits: u64) -> Outcome {
        self.acquire(now, permits, Some(Duration::ZERO))
    }

    /// What [`Limiter::try_acquire`] would say; nothing is taken.
    pub fn peek(&mut self, now: Moment, permits: u64) -> Outcome {
        self.advance(now);
        let verdict = match self.turn(permits) {
            Ok(turn) if turn == self.now => Verdict::Served(Duration::ZERO),
            Ok(turn) => Verdict::NotFor(turn.since(self.now)),
            Err(never) => never,
        };
        self.outcome(verdict)
    }

    /// Takes `permits` as soon as its turn comes, if that is within `patience`; without one it waits for as long as
    /// it takes. Otherwise nothing is booked.
    pub fn acquire(&mut self, now: Moment, permits: u64, patience: Option<Duration>) -> Outcome {
        self.advance(now);
        let turn = match self.turn(permits) {
            Ok(turn) => turn,
            Err(never) => return self.outcome(never),
        };
        let wait = turn.since(self.now);
        if patience.is_some_and(|patience| wait > patience) {
            return self.outcome(Verdict::NotFor(wait));
        }
        if permits > 0 {
            let patience = patience.map_or(Moment::NEVER, |patience| self.now + patience);
            self.enter(Waiter { since: self.now, permits, turn, patience });
        }
        self.outcome(Verdict::Served(wait))
    }

    /// `permits` that were taken come back unused: as many as still count.
    pub fn refund(&mut self, now: Moment, permits: u64) -> Outcome {
        self.change(now, |books| books.each(|books| books.refund(permits)))
    }

    /// Adds `permits` once, as far as there is room.
    pub fn top_up(&mut self, now: Moment, permits: u64) -> Outcome {
        self.change(now, |books| books.each(|books| books.top_up(permits)))
    }

    /// From now on `rules` hold.
    pub fn set(&mut self, now: Moment, rules: &[Rule], carry: Carry) -> Outcome {
        let now = now.max(self.now);
        self.change(now, |books| books.0 = carry::carried(&books.0, rules, carry, now))
    }

    /// Lets time pass up to `now`.
    pub fn advance(&mut self, now: Moment) {
        self.now = self.now.max(now);
        while let Some(first) = self.line.front().copied()
            && first.turn <= self.now
        {
            self.line.pop_front();
            let served = self.served.as_mut().expect("somebody waits");
            served.take(first.turn, first.permits);
            self.admitted.push(Admission { at: first.turn, permits: first.permits, since: first.since });
        }
        if self.line.is_empty() {
            self.served = None;
        }
        self.booked.advance(self.now);
    }

    /// Lets time pass until nobody waits any more.
    pub fn run_out(&mut self) {
        if let Some(last) = self.line.back() {
            self.advance(last.turn);
        }
    }

    /// What was admitted since this was last asked, in order.
    pub fn admitted(&mut self) -> std::vec::Drain<'_, Admission> {
        self.admitted.drain(..)
    }

    /// Those that were told to wait and, after a change, would have had to wait for too long.
    pub fn gave_up(&self) -> u64 {
        self.gave_up
    }

    /// Whether it cannot be told from a new one.
    pub fn is_fresh(&self) -> bool {
        self.line.is_empty()
            && self.admitted.is_empty()
            && self.booked.0.iter().all(|(_, books)| books.is_fresh())
    }

    fn outcome(&self, verdict: Verdict) -> Outcome {
        let remaining = if self.line.is_empty() { self.booked.available() } else { 0 };
        Outcome { verdict, remaining }
    }

    /// When a call for `permits` that comes now is served.
    fn turn(&self, permits: u64) -> Result<Moment, Verdict> {
        if permits == 0 {
            return Ok(self.now);
        }
        let ceiling = self.booked.ceiling();
        if permits > ceiling {
            return Err(Verdict::TooLarge(ceiling));
        }
        self.booked.ready_at(permits).ok_or(Verdict::Never)
    }

    /// Serves `waiter` if its turn has come, or lets it wait as the last.
    fn enter(&mut self, waiter: Waiter) {
        if waiter.turn <= self.now {
            let Waiter { turn: at, permits, since, .. } = waiter;
            self.admitted.push(Admission { at, permits, since });
        } else {
            self.served.get_or_insert_with(|| self.booked.copy());
            self.line.push_back(waiter);
        }
        self.booked.take(waiter.turn, waiter.permits);
    }

    /// Changes the books as they are now, and decides anew about all that wait.
    fn change(&mut self, now: Moment, change: impl FnOnce(&mut Books)) -> Outcome {
        self.advance(now);
        if let Some(mut served) = self.served.take() {
            served.advance(self.now);
            self.booked = served;
        }
        change(&mut self.booked);
        for waiter in std::mem::take(&mut self.line) {
            match self.turn(waiter.permits) {
                Ok(turn) if turn <= waiter.patience => self.enter(Waiter { turn, ..waiter }),
                Ok(_) | Err(_) => self.gave_up += 1,
            }
        }
        self.outcome(Verdict::Served(Duration::ZERO))
    }
}

impl Books {
    fn each(&mut self, mut act: impl FnMut(&mut dyn Exact)) {
        for (_, books) in &mut self.0 {
            act(&mut **books);
        }
    }

    fn advance(&mut self, now: Moment) {
        self.each(|books| books.advance(now));
    }

    /// Takes `permits` at `at`, from every rule.
    fn take(&mut self, at: Moment, permits: u64) {
        self.advance(at);
        self.each(|books| books.take(permits));
    }

    fn available(&self) -> u64 {
        self.0.iter().map(|(_, books)| books.available()).min().unwrap_or(0)
    }

    fn ceiling(&self) -> u64 {
        self.0.iter().map(|(rule, _)| rule.ceiling()).min().unwrap_or(0)
    }

    /// Each rule admits at every instant from its own on, so all of them do from the last on.
    fn ready_at(&self, permits: u64) -> Option<Moment> {
        let mut latest = Moment::ORIGIN;
        for (_, books) in &self.0 {
            latest = latest.max(books.ready_at(permits)?);
        }
        Some(latest)
    }

    fn copy(&self) -> Books {
        Books(self.0.iter().map(|(rule, books)| (*rule, books.copy())).collect())
    }
}
