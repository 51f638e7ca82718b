//! The sessions of one identity that wait for their turn of a flow, in the order in which they began to wait. One
//! descent finds how many began before a moment, and the sum of their largest calls.

use crate::pool::family::Place;
use crate::sizing::{Entry, Ranked};
use lessor_protocol::Moment;
use std::cell::Cell;
use std::cmp::Ordering;

/// A session that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    pub(super) since: Moment,
    pub(super) place: Place,
    /// Its largest call, in permits.
    pub(super) largest: u64,
}

/// Waiting sessions in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting(Ranked<Waiter>);

/// Sums over waiting sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Waiters {
    pub(super) count: u64,
    /// The sum of their largest calls.
    pub(super) largest: u128,
}

impl Waiters {
    /// Adds up both.
    pub(super) fn and(self, other: Waiters) -> Waiters {
        Waiters { count: self.count + other.count, largest: self.largest + other.largest }
    }
}

impl Entry for Waiter {
    type Sum = Waiters;

    fn rank(&self, other: &Self) -> Ordering {
        (self.since, self.place).cmp(&(other.since, other.place))
    }

    fn sum(&self) -> Waiters {
        Waiters { count: 1, largest: self.largest.into() }
    }

    fn join(one: Waiters, other: Waiters) -> Waiters {
        one.and(other)
    }

    fn less(all: Waiters, part: Waiters) -> Waiters {
        Waiters { count: all.count - part.count, largest: all.largest - part.largest }
    }
}

impl Waiting {
    /// Adds `waiter`.
    pub(super) fn insert(&mut self, waiter: Waiter) {
        self.0.insert(waiter);
    }

    /// Removes `waiter`, which is there.
    pub(super) fn remove(&mut self, waiter: &Waiter) {
        self.0.remove(waiter);
    }

    /// Returns the sums over all of them.
    pub(super) fn sum(&self) -> Waiters {
        self.0.sum()
    }

    /// Returns the sums over the sessions that began to wait before `moment`.
    pub(super) fn before(&self, moment: Moment) -> Waiters {
        self.0.beginning(None, |waiter, _| waiter.since < moment)
    }

    /// Returns the sums over the sessions with a turn before `turn`, or at `turn` if they have waited since before
    /// `since`. A session with `n` waiters before it has its turn at `turn_after(n)`, which never falls as `n` grows.
    pub(super) fn ahead_of(
        &self,
        (turn, since): (Moment, Moment),
        turn_after: impl Fn(u64) -> Moment,
    ) -> Waiters {
        let sooner = self.last_of(self.while_it_holds(|before| turn_after(before) < turn));
        let at_once = self.last_of(self.while_it_holds(|before| turn_after(before) <= turn));
        let is_up_to = |last: Option<Moment>, waiter: &Waiter| last.is_some_and(|last| waiter.since <= last);
        self.0.beginning(None, |waiter, _| {
            is_up_to(sooner, waiter) || (waiter.since < since && is_up_to(at_once, waiter))
        })
    }

    /// Returns how many numbers of waiters, from zero on, fulfil `holds`, by bisection. Above a number that does not,
    /// none may.
    fn while_it_holds(&self, holds: impl Fn(u64) -> bool) -> u64 {
        let (mut from, mut to) = (0, self.sum().count);
        while from < to {
            let middle = from + (to - from) / 2;
            if holds(middle) { from = middle + 1 } else { to = middle }
        }
        from
    }

    /// Returns since when the last of the first `count` sessions has waited.
    fn last_of(&self, count: u64) -> Option<Moment> {
        let last = Cell::new(None);
        self.0.beginning(None, |waiter, before| {
            let is_one = before.count < count;
            if is_one {
                last.set(Some(waiter.since));
            }
            is_one
        });
        last.get()
    }
}
