//! The callers that wait for permits of one pool, and which of them is first. Their wakers are kept behind the pool's
//! lock, by priority and order of arrival. The line wakes no caller and takes no permits.

use crate::priority::Priority;
use lessor_protocol::rare::Usual;
use std::collections::BTreeMap;
use std::task::Waker;

/// Most callers in one line. A longer one is memory spent on calls that will hardly be served in time.
const LINE_MAX: usize = 100_000;

/// One in this many callers served is the one that has waited longest, whatever its priority. Less would make a high
/// priority worth little; more would let the lowest priority wait longer behind a busy high one.
const OLDEST_EACH: u64 = 8;

/// The callers in line. Joining, leaving and asking cost the logarithm of their number.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// For each priority, its callers in order of arrival.
    places: [BTreeMap<u64, Caller>; Priority::ALL.len()],
    next_id: u64,
    served: u64,
}

/// A caller in line: how to wake it, once it has told, and how many permits it wants.
#[derive(Clone, Debug)]
struct Caller {
    waker: Option<Waker>,
    permits: u64,
}

/// No caller has waited yet.
impl Usual for Line {
    const USUAL: &'static Self =
        &Line { places: [const { BTreeMap::new() }; Priority::ALL.len()], next_id: 0, served: 0 };
}

/// A place in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    priority: Priority,
    id: u64,
}

impl Line {
    pub(crate) fn first_waker(&self) -> Option<Waker> {
        self.first_caller()?.waker.clone()
    }

    /// Permits that the first in line wants; zero if there is no line.
    pub(crate) fn first_permits(&self) -> u64 {
        self.first_caller().map_or(0, |caller| caller.permits)
    }

    fn first_caller(&self) -> Option<&Caller> {
        let Ticket { priority, id } = self.first()?;
        self.places[rank(priority)].get(&id)
    }

    pub(crate) fn all_wakers(&self) -> Vec<Waker> {
        self.places.iter().flat_map(BTreeMap::values).filter_map(|caller| caller.waker.clone()).collect()
    }

    /// Adds a place for `permits` behind all of its priority; `None` if the line has its maximum length.
    pub(crate) fn join(&mut self, priority: Priority, permits: u64) -> Option<Ticket> {
        if self.places.iter().map(BTreeMap::len).sum::<usize>() >= LINE_MAX {
            return None;
        }
        let id = self.next_id;
        self.next_id += 1;
        self.places[rank(priority)].insert(id, Caller { waker: None, permits });
        Some(Ticket { priority, id })
    }

    /// Removes the caller with `ticket`, wherever it stands; `is_served` says whether it got its permits. Returns
    /// whether another caller may be first now, and the waker of the removed one, to be dropped without the pool's lock.
    /// (The served caller may have been overtaken since, and serving it may change whose turn it is.)
    pub(crate) fn leave(&mut self, ticket: Ticket, is_served: bool) -> (bool, Option<Waker>) {
        let (was_first, waker) = self.step_aside(ticket);
        self.served += u64::from(is_served);
        (was_first || is_served, waker)
    }

    /// Makes a place behind all of its priority that stands aside from the start, see [`Line::step_aside`].
    pub(crate) fn join_aside(&mut self, priority: Priority) -> Ticket {
        let id = self.next_id;
        self.next_id += 1;
        Ticket { priority, id }
    }

    /// Makes the caller with `ticket` stand aside: it keeps its place, but is not first in line until
    /// [`Line::come_back`]. Returns the same as [`Line::leave`].
    pub(crate) fn step_aside(&mut self, ticket: Ticket) -> (bool, Option<Waker>) {
        let was_first = self.first() == Some(ticket);
        let caller = self.places[rank(ticket.priority)].remove(&ticket.id);
        (was_first, caller.and_then(|caller| caller.waker))
    }

    /// Undoes [`Line::step_aside`], for a caller that wants `permits`.
    pub(crate) fn come_back(&mut self, ticket: Ticket, waker: &Waker, permits: u64) {
        let caller = Caller { waker: Some(waker.clone()), permits };
        self.places[rank(ticket.priority)].insert(ticket.id, caller);
    }

    /// Whether the caller with `ticket` is first, or would be if it came back.
    pub(crate) fn would_be_first(&self, ticket: Ticket) -> bool {
        self.first_with(Some(ticket)) == Some(ticket)
    }

    /// Notes how to wake the caller with `ticket`. Returns whether it is first, and the waker that was noted before if it
    /// is another one, to be dropped without the pool's lock.
    pub(crate) fn wait(&mut self, ticket: Ticket, waker: &Waker) -> (bool, Option<Waker>) {
        let caller = self.places[rank(ticket.priority)].get_mut(&ticket.id);
        let replaced = caller.and_then(|caller| match &caller.waker {
            Some(known) if known.will_wake(waker) => None,
            Some(_) | None => caller.waker.replace(waker.clone()),
        });
        (self.first() == Some(ticket), replaced)
    }

    /// The next caller: the first of the highest priority or, at every eighth service, the first of all.
    fn first(&self) -> Option<Ticket> {
        self.first_with(None)
    }

    /// As [`Line::first`], if the caller with the ticket `aside` came back.
    fn first_with(&self, aside: Option<Ticket>) -> Option<Ticket> {
        let firsts = Priority::ALL.into_iter().filter_map(|priority| {
            let here = self.places[rank(priority)].first_key_value().map(|(&id, _)| id);
            let aside = aside.filter(|aside| aside.priority == priority).map(|aside| aside.id);
            Some(Ticket { priority, id: here.into_iter().chain(aside).min()? })
        });
        if self.served % OLDEST_EACH == OLDEST_EACH - 1 {
            return firsts.min_by_key(|ticket| ticket.id);
        }
        firsts.max_by_key(|ticket| ticket.priority)
    }
}

fn rank(priority: Priority) -> usize {
    priority as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use Priority::{High, Low, Normal};
    use std::sync::Arc;

    /// Serves all callers, and returns their tickets in order.
    fn served(line: &mut Line) -> Vec<(Priority, u64)> {
        std::iter::from_fn(|| {
            let first = line.first()?;
            line.leave(first, true);
            Some((first.priority, first.id))
        })
        .collect()
    }

    #[test]
    fn the_higher_priority_is_served_first_and_those_of_one_in_the_order_they_came() {
        let mut line = Line::USUAL.clone();
        for priority in [Low, Normal, High, Normal, High, Low] {
            line.join(priority, 1);
        }
        let order = [(High, 2), (High, 4), (Normal, 1), (Normal, 3), (Low, 0), (Low, 5)];
        assert_eq!(served(&mut line), order);
    }

    #[test]
    fn the_caller_that_has_waited_longest_is_served_behind_a_high_priority_that_never_ends() {
        let mut line = Line::USUAL.clone();
        let low = line.join(Low, 1).expect("there is room");
        let mut behind = 0;
        line.join(High, 1);
        while line.first() != Some(low) {
            let first = line.first().expect("two callers are in line");
            line.leave(first, true);
            line.join(High, 1);
            behind += 1;
        }
        assert_eq!(behind, OLDEST_EACH - 1);
        // The low caller stays first until it is served, however much it wants: other callers that come or go change
        // nothing.
        let other = line.join(High, 1).expect("there is room");
        assert_eq!(line.first(), Some(low));
        assert!(!line.leave(other, false).0, "no other caller becomes first");
        assert_eq!(line.first(), Some(low));
        assert!(line.leave(low, true).0);
        assert_eq!(line.first().expect("the high ones wait").priority, High);
    }

    #[test]
    fn a_caller_that_stands_aside_keeps_its_place() {
        let mut line = Line::USUAL.clone();
        let [one, two] = [Normal, Normal].map(|priority| line.join(priority, 1).expect("there is room"));
        let three = line.join_aside(Normal);
        assert_eq!(
            (line.step_aside(two).0, line.step_aside(one).0),
            (false, true),
            "only the first caller was first"
        );
        let four = line.join(Normal, 1).expect("there is room");
        assert_eq!(line.first(), Some(four));
        assert_eq!([one, two, three, four].map(|ticket| line.would_be_first(ticket)), [true; 4]);
        line.come_back(two, Waker::noop(), 1);
        assert_eq!(
            [one, two, three, four].map(|ticket| line.would_be_first(ticket)),
            [true, true, false, false]
        );
        assert!(!line.leave(three, false).0, "the caller stood aside");
        assert!(line.leave(two, true).0 && line.first() == Some(four));
    }

    /// The bug: wakers were dropped under the lock of the pool. The last waker of a caller may drop its future, which
    /// leaves the line by the same lock.
    #[test]
    fn no_waker_is_dropped_in_the_line() {
        struct Unwoken;
        impl std::task::Wake for Unwoken {
            fn wake(self: Arc<Self>) {}
        }
        let (old, new) = (Arc::new(Unwoken), Arc::new(Unwoken));
        let (mut line, mut removed) = (Line::USUAL.clone(), vec![]);
        let [one, two] = [Normal, Normal].map(|priority| line.join(priority, 1).expect("there is room"));
        for ticket in [one, two] {
            for waker in [&old, &old, &new] {
                removed.push(line.wait(ticket, &Waker::from(waker.clone())).1);
            }
        }
        removed.extend([line.step_aside(one).1, line.leave(two, false).1]);
        let counts = || (Arc::strong_count(&old), Arc::strong_count(&new));
        assert_eq!(counts(), (3, 3), "the old and the new waker of each caller");
        drop(removed);
        assert_eq!(counts(), (1, 1));
    }

    #[test]
    fn a_line_is_as_long_as_it_may_be_and_no_longer() {
        let mut line = Line::USUAL.clone();
        let tickets: Vec<_> = (0..LINE_MAX).map_while(|_| line.join(Normal, 1)).collect();
        assert_eq!((tickets.len(), line.join(High, 1)), (LINE_MAX, None));
        // From the back: a linear search for each would take minutes.
        tickets.into_iter().rev().for_each(|ticket| {
            line.leave(ticket, false);
        });
        assert!(line.join(Low, 1).is_some() && line.all_wakers().is_empty());
    }
}
