//! A change of the term of a pool's leases, or of where its permits come from, which changes what each session claims. No
//! exchange waits until all sessions are read anew: whenever the pool lets time pass, a few more are, in the order of their
//! places. Only how much is lent depends on it.

use super::Sessions;
use super::reading::Reading;
use crate::pool::ages::{Age, Ages};
use crate::pool::family::Place;

/// Part of the term, as a divisor, by which another term may differ and still be about the same.
const NEAR_PARTS: u32 = 8;

/// Sessions that are read anew at once. More would make an ask slower, fewer would have sessions claim as before
/// for longer. All of 10,000 are read anew within 313 asks, and each of them asks at least once a term.
pub(super) const READ_AT_ONCE: usize = 32;

/// A change from one reading of sessions to another, one session after the other.
#[derive(Clone, Debug)]
pub(super) struct Change {
    before: Reading,
    after: Reading,
    /// Sessions up to this place are read by `after`.
    done: Option<Place>,
}

impl Change {
    /// Makes a change, or `None` if there is no difference.
    fn between(before: Reading, after: Reading) -> Option<Box<Self>> {
        (before != after).then(|| Box::new(Change { before, after, done: None }))
    }

    /// Returns how the session at `place` is read.
    pub(super) fn reading_of(&self, place: Place) -> Reading {
        if Some(place) <= self.done { self.after } else { self.before }
    }
}

impl Sessions {
    /// Sets how claims age as [`Sessions::go_by`], but keeps the current term if the new one is about the same. A term
    /// that the allocator above tells changes a little with each exchange.
    pub(in crate::pool) fn go_by_about(&mut self, ages: Ages) {
        let known = self.reading.term;
        let is_near = ages.term.abs_diff(known) * NEAR_PARTS <= known;
        self.go_by(Ages { term: if is_near { known } else { ages.term }, ..ages });
    }

    /// Sets how claims age: what each session claims changes with it. The first few sessions are read anew at once, and
    /// the others by and by. While a change is under way the next one waits for its end: each session is read in one of two
    /// ways.
    pub(in crate::pool) fn go_by(&mut self, ages: Ages) {
        let reading = Reading { term: ages.term, source: ages.source, ..self.reading };
        let before = std::mem::replace(&mut self.reading, reading);
        let Some(orders) = &mut self.orders else {
            for (place, session) in self.by_place.iter_mut().filter(|_| before != reading) {
                session.age = Age::Fresh;
                reading.note(place, session, None);
            }
            return;
        };
        if orders.change.is_none() {
            orders.change = Change::between(before, reading);
        }
        // A session is told its part of all permits that are spent again. Beside half of the claims to such permits,
        // its part would be too large.
        let is_other_use = before.are_reusable() != reading.are_reusable();
        self.reread_some(if is_other_use { usize::MAX } else { READ_AT_ONCE });
    }

    /// Returns how the session at `place` is read.
    pub(super) fn reading_of(&self, place: Place) -> Reading {
        self.orders.as_deref().map_or(self.reading, |orders| orders.reading_of(place, self.reading))
    }

    /// Whether all sessions are read by the current reading.
    pub(super) fn are_read(&self) -> bool {
        self.orders.as_deref().is_none_or(|orders| orders.change.is_none())
    }

    /// Reads up to `count` more sessions by the current reading.
    pub(super) fn reread_some(&mut self, count: usize) {
        for _ in 0..count {
            let Some(orders) = self.orders.as_deref_mut() else { return };
            let Some(change) = orders.change.as_deref_mut() else { return };
            let Some(place) = self.by_place.next(change.done) else {
                // The reading may have changed again meanwhile.
                orders.change = Change::between(change.after, self.reading);
                continue;
            };
            change.done = Some(place);
            let readings = (change.before, change.after);
            // The next `Sessions::age` finds its age anew.
            self.reread(place, readings, |session| session.age = Age::Fresh);
        }
    }
}

#[cfg(test)]
mod tests;
