//! How identities share the safe shares of a pool. Their number is configured, so an identity with many would leave
//! none to others. Once a session of another identity finds none, an identity with more gets no new ones. Its newest
//! holders are not told again that they may go on, until both identities have as many. They may spend until the end
//! that they were told before.

use super::family::Place;
use super::{Pool, SessionId};
use crate::share::{Owner, Safe};
use lessor_protocol::{Moment, SafeShare};
use std::time::Duration;

/// How long an identity wants a safe share after a session of it found none: each session asks more often.
const WANTED_FOR: Duration = Duration::from_secs(10);

impl Pool {
    /// Returns the safe share with which the session `id` may go on while no allocator answers, if there is one for it.
    pub fn safe_share(&mut self, now: Moment, id: SessionId) -> Option<SafeShare> {
        self.advance(now);
        let safe = self.plan.sharing.safe?;
        if self.yields_safe_share(id, safe) {
            return None;
        }
        let share = self.take_safe_share(id, safe);
        if share.is_none() && !self.safe_shares.has(id) {
            self.wants_seat(self.owner_of(id));
        }
        share
    }

    /// Records that a session of `owner` found none. If several identities want one, the identity with the fewest comes
    /// first. Shares are counted only then.
    fn wants_seat(&mut self, owner: Owner) {
        let has_as_many = |other| self.seats_of(other).count() >= self.seats_of(owner).count();
        let is_first = self.owner_wanting_seat().is_none_or(|other| other == owner || has_as_many(other));
        if is_first {
            self.safe_shares.note_wanted(owner, self.now);
        }
    }

    /// Returns the identity that wants a safe share, if any.
    fn owner_wanting_seat(&self) -> Option<Owner> {
        let (owner, at) = self.safe_shares.wanted()?;
        (self.now.since(at) <= WANTED_FOR).then_some(owner)
    }

    /// Returns the sessions of `owner` that have a safe share.
    fn seats_of(&self, owner: Owner) -> impl Iterator<Item = SessionId> {
        self.safe_shares.taken().filter(move |(_, taken)| taken.owner == owner).map(|(holder, _)| holder)
    }

    fn take_safe_share(&mut self, id: SessionId, Safe { nodes, lasts }: Safe) -> Option<SafeShare> {
        let reserve = self.plan.sharing.reserve;
        let most = usize::try_from(nodes).unwrap_or(usize::MAX);
        let permits = reserve / nodes.max(1);
        if self.borrower.is_some() {
            return self.hand_out_safe_share(id, permits, lasts, most);
        }
        let share = SafeShare { permits, span: self.safe_span()?, lasts };
        let permits = reserve.min(self.safe_shares.permits().saturating_add(self.safe_room()));
        let id = (id, self.owner_of(id));
        let is_granted =
            share.is_sane() && self.safe_shares.take(id, share, (permits, most), self.now, self.plan.clocks);
        is_granted.then_some(share)
    }

    /// Returns the identity of the session `id`, if it is known.
    pub(super) fn owner_of(&self, id: SessionId) -> Owner {
        self.sessions.get(Place::own(id)).map_or(Owner::NONE, |session| session.share.owner)
    }

    /// Whether the session `id` goes without a safe share for another identity, which wants one and has fewer. All
    /// shares are looked at only while an identity wants one.
    fn yields_safe_share(&self, id: SessionId, Safe { nodes, .. }: Safe) -> bool {
        let owner = self.owner_of(id);
        let Some(other) = self.owner_wanting_seat().filter(|other| *other != owner) else { return false };
        let (own, others) = (self.seats_of(owner).count(), self.seats_of(other).count());
        let taken = self.safe_shares.taken().count();
        let free = usize::try_from(nodes).unwrap_or(usize::MAX).saturating_sub(taken);
        let most = own.saturating_add(others).saturating_add(free).div_ceil(2);
        if !self.safe_shares.has(id) {
            return own >= most;
        }
        self.seats_of(owner).filter(|holder| *holder >= id).count() <= own.saturating_sub(most)
    }
}
