//! Checks of what must be true of the sessions of a pool. Debug builds make them after an exchange.

use super::reading::{Entry, Totals};
use super::{Sessions, SessionsByOwner};
use crate::pool::agenda::Agenda;
use lessor_protocol::Moment;

/// In debug builds one instant in this many is audited; in unit tests each one, up to [`MANY`] sessions. Moments of tests
/// that are worked out by hand are multiples of it.
const AUDITED: u64 = 16;
const MANY: usize = 16;

/// Claims are made anew for their audit, so it is made at one instant in this many.
const CLAIMS_AUDITED: u64 = 4;

/// Whether a pool with `sessions` is audited at `now`. An audit takes as long as all else that a test does.
pub(in crate::pool) fn is_due(now: Moment, sessions: usize) -> bool {
    let one_in = if cfg!(test) && sessions <= MANY { 1 } else { AUDITED };
    cfg!(debug_assertions) && now.as_nanos().is_multiple_of(one_in)
}

impl Sessions {
    /// Asserts that all orders and sums are true of each session.
    pub(in crate::pool) fn audit(&self, now: Moment) {
        debug_assert!(self.iter().all(|(place, session)| {
            let next = self.reading_of(place).next_age(session);
            let is_looked_at =
                next.is_none_or(|(next, _)| session.age_reviewed.get().is_some_and(|at| at <= next));
            is_looked_at && session.expires.get() == self.reading.expires(session)
        }));
        let mut owners = SessionsByOwner::default();
        let own = self.iter().filter(|(place, _)| !place.is_mirror());
        own.for_each(|(_, session)| owners.add(session.share.owner));
        debug_assert_eq!(self.owners, owners);
        debug_assert_eq!(self.orders.is_some(), self.len() > 1);
        let Some(orders) = self.orders.as_deref() else { return };
        let entry = |(place, session)| (place, self.reading_of(place).entry(place, session));
        let entries: Vec<_> = self.iter().map(entry).collect();
        let entries = || entries.iter().copied();
        let holds = |agenda: &Agenda, at: fn(Entry) -> Option<Moment>| {
            agenda.is_of(entries().filter_map(|(place, entry)| Some((at(entry)?, place))))
        };
        debug_assert!(holds(&orders.expiries, |entry| entry.expires), "{orders:?}");
        debug_assert!(holds(&orders.call_expiries, |entry| entry.calls_expire), "{orders:?}");
        debug_assert!(holds(&orders.reviews, |entry| entry.reviewed), "{orders:?}");
        debug_assert!(holds(&orders.idle, |entry| entry.idle.used()), "{orders:?}");
        debug_assert!(holds(&orders.unused, |entry| entry.idle.unused()), "{orders:?}");
        let reviews = self.iter().filter_map(|(place, session)| Some((session.age_reviewed.get()?, place)));
        debug_assert!(orders.ages.is_of(reviews), "{orders:?}");
        let sums = entries().fold(Totals::default(), |sums, (_, entry)| sums.plus(entry.adds));
        debug_assert_eq!(orders.sums, sums);
        let by_group = |group: &usize| {
            let adds =
                entries().filter(|(_, entry)| entry.group == Some(*group)).map(|(_, entry)| entry.adds);
            adds.fold(Totals::default(), Totals::plus)
        };
        debug_assert!(orders.by_group.iter().all(|(group, sums)| *sums == by_group(group)), "{orders:?}");
        let distances = entries().filter_map(|(_, entry)| entry.distance);
        let (farthest, place) = (orders.farthest, |place| self[place].rtt);
        debug_assert!(distances.max().is_none_or(|far| far <= farthest.0), "{orders:?}");
        debug_assert!(farthest.1.is_none_or(|at| place(at) == farthest.0), "{orders:?}");
        debug_assert_eq!(orders.in_flight, entries().map(|(_, entry)| entry.in_flight).sum::<u64>());
        let sharing =
            || self.iter().map(|(place, it)| (place, it, self.reading_of(place).ages().active(it.rtt)));
        orders.sharers.iter().for_each(|sharers| sharers.audit(sharing()));
        if now.as_nanos().is_multiple_of(CLAIMS_AUDITED) {
            orders.claims.audit(entries().filter_map(|(place, entry)| Some((place, entry.claim?))));
            orders.wanted.audit(entries().filter_map(|(place, entry)| Some((place, entry.wanted?))));
        }
    }
}
