//! Orders of time and sums over several sessions. A single session says all of that itself: a pool has these from the
//! second session on.

use super::change::Change;
use super::reading::{Entry, Reading, Totals};
use crate::pool::agenda::Agenda;
use crate::pool::family::Place;
use crate::pool::rates::Sharers;
use crate::pool::session::Session;
use crate::sizing::{Claim, Claims};
use std::collections::{BTreeMap, btree_map};
use std::time::Duration;

/// Orders and sums over two sessions or more.
#[derive(Clone, Debug, Default)]
pub(super) struct Orders {
    /// The end of each live lease.
    pub(super) expiries: Agenda,
    /// When the next orphaned calls expire, for each session that has any.
    pub(super) call_expiries: Agenda,
    /// When to look whether a mirror can be forgotten, for each mirror.
    pub(super) reviews: Agenda,
    /// Since when each of the pool's own sessions has had nothing live and said nothing, if it has used anything.
    pub(super) idle: Agenda,
    /// Since when each of the pool's own sessions has been idle that has used nothing: it is forgotten sooner.
    pub(super) unused: Agenda,
    /// When to review whether a session claims less because it has not asked for long. Each ask puts that off, so a
    /// review may find that it is too early: most asks need not move it.
    pub(super) ages: Agenda,
    /// Claims of the sessions that share, and their claims to permits that are spent again.
    pub(super) claims: Claims<Place>,
    pub(super) wanted: Claims<Place>,
    pub(super) sums: Totals,
    /// The sums over each guaranteed group that has any.
    pub(super) by_group: BTreeMap<usize, Totals>,
    /// The longest round-trip time that any session may have, where distances count, and the session that has it, if
    /// known.
    pub(super) farthest: (Duration, Option<Place>),
    /// Permits in flight, for people.
    pub(super) in_flight: u64,
    /// The sessions that share a steady flow, from the first ask to it on.
    pub(super) sharers: Option<Box<Sharers>>,
    /// The change of reading that is under way, if any.
    pub(super) change: Option<Box<Change>>,
}

impl Orders {
    /// Replaces the entry `before` of the session at `place` by `after`.
    pub(super) fn index(&mut self, place: Place, before: Entry, after: Entry) {
        if before == after {
            return;
        }
        self.expiries.reschedule(place, before.expires, after.expires);
        self.call_expiries.reschedule(place, before.calls_expire, after.calls_expire);
        self.reviews.reschedule(place, before.reviewed, after.reviewed);
        self.idle.reschedule(place, before.idle.used(), after.idle.used());
        self.unused.reschedule(place, before.idle.unused(), after.idle.unused());
        let has_asked = before.is_asking && !after.is_asking;
        let claimed =
            |claims: &mut Claims<Place>, before: Option<Claim>, claim: Option<Claim>| match (before, claim) {
                (Some(before), _) if after.is_asking => claims.set_aside(place, before),
                (Some(before), Some(claim)) => claims.replace(place, before, claim),
                (Some(before), None) => claims.remove(place, before),
                (None, Some(claim)) => claims.insert(place, claim),
                (None, None) if has_asked => claims.drop_aside(place),
                (None, None) => {}
            };
        claimed(&mut self.claims, before.claim, after.claim);
        claimed(&mut self.wanted, before.wanted, after.wanted);
        self.in_flight = self.in_flight - before.in_flight + after.in_flight;
        self.sums = self.sums.less(before.adds).plus(after.adds);
        if before.distance != after.distance {
            self.measure(place, after.distance);
        }
        if before.group.or(after.group).is_some() {
            self.count_in_groups(before, after);
        }
    }

    /// Returns how the session at `place` is read, where `last` is the reading of all sessions after the change.
    pub(super) fn reading_of(&self, place: Place, last: Reading) -> Reading {
        self.change.as_deref().map_or(last, |change| change.reading_of(place))
    }

    /// Returns the sums over the sessions of `group`, or over the sessions of no group.
    pub(super) fn totals_of(&self, group: Option<usize>) -> Totals {
        match group {
            Some(group) => self.by_group.get(&group).copied().unwrap_or_default(),
            None => self.by_group.values().fold(self.sums, |rest, group| rest.less(*group)),
        }
    }

    /// Notes that the session at `place` is `after` away, or does not count.
    fn measure(&mut self, place: Place, after: Option<Duration>) {
        match after {
            Some(after) if after >= self.farthest.0 => self.farthest = (after, Some(place)),
            Some(_) | None if self.farthest.1 == Some(place) => self.farthest.1 = None,
            Some(_) | None => {}
        }
    }

    fn count_in_groups(&mut self, before: Entry, after: Entry) {
        if let Some(btree_map::Entry::Occupied(mut sums)) =
            before.group.map(|group| self.by_group.entry(group))
        {
            let left = sums.get().less(before.adds);
            *sums.get_mut() = left;
            if left == Totals::default() {
                sums.remove();
            }
        }
        if let Some(group) = after.group.filter(|_| after.adds != Totals::default()) {
            let sums = self.by_group.entry(group).or_default();
            *sums = sums.plus(after.adds);
        }
    }

    /// Counts the session at `place` as it stands, where a steady flow is shared.
    pub(super) fn count(&mut self, place: Place, session: &Session, reading: &Reading) {
        if let Some(sharers) = &mut self.sharers {
            sharers.count(place, session, reading.ages().active(session.rtt));
        }
    }
}
