//! Due moments of a pool's sessions, in time order. Pools look at the first one with each ask, so it is kept apart:
//! finding it takes no search, and a single moment needs no tree.

use super::family::Place;
use lessor_protocol::Moment;
use std::collections::{BTreeSet, VecDeque};
use std::fmt;

/// A moment of a session.
type Due = (Moment, Place);

/// Moments in order, at most one for each session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Agenda {
    first: Option<Due>,
    /// All moments but the first.
    later: Later,
}

/// Moments in order. A lease that is extended is the last one to end, mostly, and the first to end goes next. At the ends of a queue
/// both take a few instructions; in its middle a moment moves the others, so a queue is short.
#[derive(Clone)]
enum Later {
    Few(VecDeque<Due>),
    Many(BTreeSet<Due>),
}

/// Most moments of a queue. Tests reach it with few.
const FEW: usize = if cfg!(test) { 8 } else { 256 };

impl Default for Later {
    fn default() -> Self {
        Later::Few(VecDeque::new())
    }
}

/// A set that has shrunk to a few moments equals a queue of them, and is shown like it.
impl PartialEq for Later {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Later {}

impl fmt::Debug for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Later {
    fn first(&self) -> Option<Due> {
        match self {
            Later::Few(queue) => queue.front().copied(),
            Later::Many(set) => set.first().copied(),
        }
    }

    fn last(&self) -> Option<Due> {
        match self {
            Later::Few(queue) => queue.back().copied(),
            Later::Many(set) => set.last().copied(),
        }
    }

    fn iter(&self) -> impl Iterator<Item = Due> {
        let (few, many) = match self {
            Later::Few(queue) => (Some(queue.iter()), None),
            Later::Many(set) => (None, Some(set.iter())),
        };
        few.into_iter().flatten().chain(many.into_iter().flatten()).copied()
    }

    fn len(&self) -> usize {
        match self {
            Later::Few(queue) => queue.len(),
            Later::Many(set) => set.len(),
        }
    }

    fn contains(&self, due: Due) -> bool {
        match self {
            Later::Few(queue) => queue.binary_search(&due).is_ok(),
            Later::Many(set) => set.contains(&due),
        }
    }

    /// Adds `due`, which is not there.
    fn insert(&mut self, due: Due) {
        if let Later::Few(queue) = self
            && queue.len() == FEW
        {
            *self = Later::Many(queue.iter().copied().collect());
        }
        match self {
            Later::Few(queue) if queue.back().is_none_or(|last| *last < due) => queue.push_back(due),
            Later::Few(queue) => queue.insert(queue.partition_point(|other| *other < due), due),
            Later::Many(set) => _ = set.insert(due),
        }
    }

    fn remove(&mut self, due: Due) {
        match self {
            Later::Few(queue) => {
                if let Ok(place) = queue.binary_search(&due) {
                    queue.remove(place);
                }
            }
            Later::Many(set) => _ = set.remove(&due),
        }
    }

    fn pop_first(&mut self) -> Option<Due> {
        match self {
            Later::Few(queue) => queue.pop_front(),
            Later::Many(set) => set.pop_first(),
        }
    }
}

impl Agenda {
    /// Returns the first moment and its session.
    pub(super) fn first(&self) -> Option<Due> {
        self.first
    }

    /// Returns the last moment and its session.
    pub(super) fn last(&self) -> Option<Due> {
        self.later.last().or(self.first)
    }

    /// Iterates over all moments in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Due> {
        self.first.into_iter().chain(self.later.iter())
    }

    /// Returns the number of moments.
    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.later.len()
    }

    /// Whether the agenda has all of `moments`, which contain no duplicate, and no others.
    pub(super) fn is_of(&self, moments: impl Iterator<Item = Due>) -> bool {
        let (mut count, mut has_all) = (0, true);
        for moment in moments {
            count += 1;
            has_all &= self.first == Some(moment) || self.later.contains(moment);
        }
        has_all && count == self.len() && self.later.first().is_none_or(|later| self.first < Some(later))
    }

    /// Adds the moment `at` of `place`, which has none.
    pub(super) fn insert(&mut self, at: Moment, place: Place) {
        let new = (at, place);
        match self.first {
            Some(first) if first < new => self.later.insert(new),
            Some(first) => {
                self.later.insert(first);
                self.first = Some(new);
            }
            None => self.first = Some(new),
        }
    }

    /// Replaces the moment `before` of `place`, if it has one, by `after`.
    pub(super) fn reschedule(&mut self, place: Place, before: Option<Moment>, after: Option<Moment>) {
        if before != after {
            before.into_iter().for_each(|at| self.remove(at, place));
            after.into_iter().for_each(|at| self.insert(at, place));
        }
    }

    /// Removes the moment `at` of `place`, if it is there.
    pub(super) fn remove(&mut self, at: Moment, place: Place) {
        match self.first {
            Some(first) if first == (at, place) => self.first = self.later.pop_first(),
            Some(_) | None => self.later.remove((at, place)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::SessionId;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_has_what_a_sorted_set_has(steps in prop::collection::vec((any::<bool>(), 0u64..30, 0u64..3), 0..100)) {
            let (mut agenda, mut set) = (Agenda::default(), BTreeSet::new());
            for (adds, at, session) in steps {
                let (at, place) = (Moment::from_nanos(at), Place::own(SessionId(session)));
                match adds {
                    true if set.insert((at, place)) => agenda.insert(at, place),
                    true => {}
                    false => {
                        set.remove(&(at, place));
                        agenda.remove(at, place);
                    }
                }
                prop_assert_eq!((agenda.first(), agenda.last()), (set.first().copied(), set.last().copied()));
                prop_assert!(agenda.len() == set.len() && agenda.iter().eq(set.iter().copied()));
                prop_assert!(agenda.is_of(set.iter().copied()));
                prop_assert!(set.is_empty() || !agenda.is_of(set.iter().skip(1).copied()));
                let other = (Moment::from_nanos(99), place);
                prop_assert!(!agenda.is_of(set.iter().skip(1).copied().chain([other])));
            }
        }
    }
}
