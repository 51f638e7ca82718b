//! Pools above each other, and the line of the calls that wait in any of them. A call names the lowest pool. Its
//! permits are charged to that pool and to all above it, or to none. The caller says what time it is; a time before the
//! latest one counts as the latest one.
//!
//! A call of [`Family::acquire`] that must wait is told at once when its turn comes. Until then its permits are not
//! taken: `served` are the books of a pool without the calls that wait. `booked` are the books in which all of those
//! calls have been served, so the next call is decided behind them. All calls share the pool above all others, so there
//! is one line. When something changes (a refund, a top-up, other rules), all calls that wait are decided anew.

use super::books::Books;
use super::{Admission, Outcome, Verdict};
use crate::{CarryOver, Rule};
use lessor_protocol::Moment;
use std::collections::VecDeque;
use std::time::Duration;

/// A pool and all pools below it.
#[derive(Debug)]
pub struct Family {
    now: Moment,
    /// Pools by place; the places of removed pools are `free`.
    pools: Vec<Option<Pool>>,
    free: Vec<Place>,
    /// Calls that wait: first come, first served, in the order of `turn`.
    line: VecDeque<Waiter>,
    admitted: Vec<(Place, Admission)>,
    gave_up: u64,
}

/// The place of a pool in a family, which stays the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(usize);

/// A pool of a family.
#[derive(Debug)]
struct Pool {
    above: Option<Place>,
    /// Number of pools right below it.
    below: usize,
    /// The books as if all calls that wait had been served.
    booked: Books,
    /// The books without the calls that wait; `None` if none waits.
    served: Option<Books>,
    /// Number of calls that wait.
    waiting: usize,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    place: Place,
    since: Moment,
    permits: u64,
    /// When the call is served, as things are.
    turn: Moment,
    /// When the call gives up unless it has been served by then.
    patience: Moment,
}

impl Place {
    /// The pool that a family begins with, above all others.
    pub const FIRST: Place = Place(0);

    /// Returns the number of the place, counted from 0. No two pools of a family have the same place.
    pub fn index(self) -> usize {
        self.0
    }
}

/// A pool that is not in use. It follows the changes of its limit.
#[derive(Debug)]
pub struct Unused {
    books: Books,
}

impl Unused {
    /// Creates an unused pool with `rules`, fresh at `now`.
    pub fn new(rules: &[Rule], now: Moment) -> Self {
        Unused { books: Books::new(rules, now) }
    }

    /// Goes on by `rules` from `now` on.
    pub fn set(&mut self, rules: &[Rule], carry_over: CarryOver, now: Moment) {
        self.books.advance(now);
        self.books.set(rules, carry_over, now);
    }

    /// Whether the pool cannot be told from a new one at `now`.
    pub fn is_fresh(&mut self, now: Moment) -> bool {
        self.books.advance(now);
        self.books.is_fresh()
    }
}

impl Family {
    /// Creates a family of one pool with `rules`, fresh at `now`, at [`Place::FIRST`].
    pub fn new(rules: &[Rule], now: Moment) -> Self {
        let first = Some(Pool::new(rules, None, now));
        Family { now, pools: vec![first], free: vec![], line: VecDeque::new(), admitted: vec![], gave_up: 0 }
    }

    /// Adds a pool right below the one at `above`.
    pub fn add(&mut self, above: Place, rules: &[Rule], now: Moment) -> Place {
        self.pool_mut(above).below += 1;
        let pool = Some(Pool::new(rules, Some(above), now.max(self.now)));
        let place = self.free.pop().unwrap_or(Place(self.pools.len()));
        match self.pools.get_mut(place.0) {
            Some(free) => *free = pool,
            None => self.pools.push(pool),
        }
        place
    }

    /// Limits the pool at `place`, which is new, to what it would have if it had been there as long as `unused`.
    pub fn begin_as(&mut self, place: Place, unused: &mut Unused) {
        unused.books.advance(self.now);
        self.pool_mut(place).booked.begin_as(&unused.books);
    }

    /// Removes the pool at `place`. No pool may be below it, and no call may wait in it.
    pub fn remove(&mut self, place: Place) {
        let pool = self.pools[place.0].take().expect("it is there");
        assert!(pool.below == 0 && pool.waiting == 0, "a pool or call needs it");
        self.free.push(place);
        if let Some(above) = pool.above {
            self.pool_mut(above).below -= 1;
        }
    }

    /// Whether no pool is left.
    pub fn is_empty(&self) -> bool {
        self.free.len() == self.pools.len()
    }

    /// Returns what [`Family::acquire`] with a patience of zero would say, and takes nothing.
    pub fn peek(&mut self, now: Moment, place: Place, permits: u64) -> Outcome {
        self.advance(now, place);
        let verdict = match self.turn(place, permits) {
            Ok(turn) if turn == self.now => Verdict::Served(Duration::ZERO),
            Ok(turn) => Verdict::NotFor(turn.since(self.now)),
            Err(never) => never,
        };
        self.outcome(place, verdict)
    }

    /// Takes `permits` as soon as the turn of the call comes, if that is within `patience`; with `None` the call waits
    /// for as long as it takes. Otherwise nothing is taken. A call for no permits is a probe, and succeeds.
    pub fn acquire(
        &mut self,
        now: Moment,
        place: Place,
        permits: u64,
        patience: Option<Duration>,
    ) -> Outcome {
        self.advance(now, place);
        let turn = match self.turn(place, permits) {
            Ok(turn) => turn,
            Err(never) => return self.outcome(place, never),
        };
        let wait = turn.since(self.now);
        if patience.is_some_and(|patience| wait > patience) {
            return self.outcome(place, Verdict::NotFor(wait));
        }
        if permits > 0 {
            let patience = patience.map_or(Moment::NEVER, |patience| self.now + patience);
            self.enter(Waiter { place, since: self.now, permits, turn, patience });
        }
        self.outcome(place, Verdict::Served(wait))
    }

    /// Takes back `permits` unused, in the pool at `place` and all above it: in each as many as it still counts.
    pub fn refund(&mut self, now: Moment, place: Place, permits: u64) -> Outcome {
        self.change(now, |family| {
            family.advance(now, place);
            family.each_up(place, |pool| pool.booked.refund(permits));
        });
        self.outcome(place, Verdict::Served(Duration::ZERO))
    }

    /// Adds `permits` once, to the pool at `place` alone.
    pub fn top_up(&mut self, now: Moment, place: Place, permits: u64) -> Outcome {
        self.change(now, |family| {
            family.advance(now, place);
            family.pool_mut(place).booked.top_up(permits);
        });
        self.outcome(place, Verdict::Served(Duration::ZERO))
    }

    /// Goes on by `rules` in the pools at `places`, from `now` on.
    pub fn set(&mut self, now: Moment, places: &[Place], rules: &[Rule], carry_over: CarryOver) {
        self.change(now, |family| {
            for &place in places {
                family.advance(now, place);
                let now = family.now;
                family.pool_mut(place).booked.set(rules, carry_over, now);
            }
        });
    }

    /// Lets time pass up to `now`, and serves each call whose turn comes.
    pub fn pass(&mut self, now: Moment) {
        self.now = self.now.max(now);
        while let Some(first) = self.line.front().copied()
            && first.turn <= self.now
        {
            self.line.pop_front();
            self.each_up(first.place, |pool| pool.serve(first.turn, first.permits));
            self.admit(first);
        }
    }

    /// Lets time pass until no call waits any more.
    pub fn run_out(&mut self) {
        if let Some(last) = self.line.back() {
            self.pass(last.turn);
        }
    }

    /// Drains the calls admitted since the last call of this, in order, each with its pool.
    pub fn admitted(&mut self) -> std::vec::Drain<'_, (Place, Admission)> {
        self.admitted.drain(..)
    }

    /// Returns the number of calls that were told to wait and, after a change, would have had to wait for too long.
    pub fn gave_up(&self) -> u64 {
        self.gave_up
    }

    /// Whether the pool at `place` can be removed at `now`: it cannot be told from a new one, and no pool or call needs
    /// it.
    pub fn is_fresh(&mut self, now: Moment, place: Place) -> bool {
        self.advance(now, place);
        let pool = self.pool(place);
        let is_answered = self.admitted.iter().all(|(other, _)| *other != place);
        is_answered && pool.below == 0 && pool.waiting == 0 && pool.booked.is_fresh()
    }

    /// Lets time pass for all, and for the books of the pool at `place` and those above it.
    fn advance(&mut self, now: Moment, place: Place) {
        self.pass(now);
        let now = self.now;
        self.each_up(place, |pool| pool.booked.advance(now));
    }

    fn outcome(&self, place: Place, verdict: Verdict) -> Outcome {
        let left = self.up(place).map(|pool| pool.booked.available()).min();
        Outcome { verdict, remaining: if self.line.is_empty() { left.unwrap_or(0) } else { 0 } }
    }

    /// Returns when a call for `permits` that comes now is served. Where calls wait, the pools are not ready before
    /// those are served.
    fn turn(&self, place: Place, permits: u64) -> Result<Moment, Verdict> {
        if permits == 0 {
            return Ok(self.now);
        }
        let ceiling = self.up(place).map(|pool| pool.booked.ceiling()).min().unwrap_or(0);
        if permits > ceiling {
            return Err(Verdict::TooLarge(ceiling));
        }
        let mut latest = self.now;
        for pool in self.up(place) {
            latest = latest.max(pool.booked.ready_at(permits).ok_or(Verdict::Never)?);
        }
        // Looks again, in copies, only where a top-up may be over by then.
        while self.up(place).any(|pool| pool.booked.lapse()) {
            let at = latest;
            for pool in self.up(place) {
                latest = latest.max(pool.booked.ready_from(at, permits).ok_or(Verdict::Never)?);
            }
            if latest == at {
                break;
            }
        }
        Ok(latest)
    }

    /// Serves `waiter` if its turn has come, or else puts it in the line.
    fn enter(&mut self, waiter: Waiter) {
        if waiter.turn <= self.now {
            self.admit(waiter);
        } else {
            self.each_up(waiter.place, Pool::queue);
            self.line.push_back(waiter);
        }
        self.each_up(waiter.place, |pool| pool.booked.take(waiter.turn, waiter.permits));
    }

    fn admit(&mut self, waiter: Waiter) {
        let Waiter { place, turn: at, permits, since, .. } = waiter;
        self.admitted.push((place, Admission { at, permits, since }));
    }

    /// Changes the books as they are without the calls that wait, and decides anew about those.
    fn change(&mut self, now: Moment, change: impl FnOnce(&mut Family)) {
        self.pass(now);
        let line = std::mem::take(&mut self.line);
        for waiter in &line {
            self.each_up(waiter.place, Pool::clear);
        }
        change(self);
        for waiter in line {
            self.advance(now, waiter.place);
            match self.turn(waiter.place, waiter.permits) {
                Ok(turn) if turn <= waiter.patience => self.enter(Waiter { turn, ..waiter }),
                Ok(_) | Err(_) => self.gave_up += 1,
            }
        }
    }

    fn pool(&self, place: Place) -> &Pool {
        self.pools[place.0].as_ref().expect("it is there")
    }

    fn pool_mut(&mut self, place: Place) -> &mut Pool {
        self.pools[place.0].as_mut().expect("it is there")
    }

    /// Returns the pool at `place` and those above it.
    fn up(&self, place: Place) -> impl Iterator<Item = &Pool> {
        std::iter::successors(Some(self.pool(place)), |pool| pool.above.map(|above| self.pool(above)))
    }

    fn each_up(&mut self, place: Place, mut act: impl FnMut(&mut Pool)) {
        let mut next = Some(place);
        while let Some(place) = next {
            let pool = self.pool_mut(place);
            act(pool);
            next = pool.above;
        }
    }
}

impl Pool {
    fn new(rules: &[Rule], above: Option<Place>, now: Moment) -> Self {
        Pool { above, below: 0, booked: Books::new(rules, now), served: None, waiting: 0 }
    }

    /// Records that one more call waits.
    fn queue(&mut self) {
        self.waiting += 1;
        self.served.get_or_insert_with(|| self.booked.copy());
    }

    /// Records that one of the calls that wait has been served.
    fn serve(&mut self, turn: Moment, permits: u64) {
        self.waiting -= 1;
        self.served.as_mut().expect("a call waits").take(turn, permits);
        if self.waiting == 0 {
            self.served = None;
        }
    }

    /// Goes back to the books without the calls that wait.
    fn clear(&mut self) {
        self.waiting = 0;
        if let Some(served) = self.served.take() {
            self.booked = served;
        }
    }
}
