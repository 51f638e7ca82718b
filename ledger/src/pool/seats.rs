//! Who leaves a safe share to whom. As many sessions have one as were configured, so an identity with many leaves none to others. Where
//! one of another identity wants one and finds none, those that have more get no new ones. The newest of them are told no more that they
//! may go on with theirs, until both identities have as many. Until when that was told before, they may.

use super::family::Place;
use super::{Pool, SessionId};
use crate::share::{Owner, Safe};
use lessor_protocol::{Moment, SafeShare};
use std::time::Duration;

/// For so long an identity wants a safe share whose session has found none: each session asks more often.
const WANTED_FOR: Duration = Duration::from_secs(10);

impl Pool {
    /// What the session `id` may go on with while no allocator answers it, if there is a safe share for it.
    pub fn safe_share(&mut self, now: Moment, id: SessionId) -> Option<SafeShare> {
        self.advance(now);
        let safe = self.plan.sharing.safe?;
        if self.leaves_seat(id, safe) {
            return None;
        }
        let share = self.take_safe_share(id, safe);
        if share.is_none() && !self.safe_shares.has(id) {
            self.wants_seat(self.owner_of(id));
        }
        share
    }

    /// A session of `owner` found none. Of several identities the one with the fewest comes first; only then they are counted.
    fn wants_seat(&mut self, owner: Owner) {
        let has_fewer = |other| self.seats_of(other).count() >= self.seats_of(owner).count();
        let is_first = self.wanting().is_none_or(|other| other == owner || has_fewer(other));
        if is_first {
            self.safe_shares.is_wanted(owner, self.now);
        }
    }

    /// Which identity wants one.
    fn wanting(&self) -> Option<Owner> {
        let (owner, at) = self.safe_shares.wanted()?;
        (self.now.since(at) <= WANTED_FOR).then_some(owner)
    }

    /// Which sessions of `owner` have one.
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

    /// The identity of the session `id`, if it is known.
    pub(super) fn owner_of(&self, id: SessionId) -> Owner {
        self.sessions.get(Place::own(id)).map_or(Owner::NONE, |session| session.share.owner)
    }

    /// Whether the session `id` has no safe share for another identity that wants one and has fewer. All that are taken are looked at
    /// only while that is so.
    fn leaves_seat(&self, id: SessionId, Safe { nodes, .. }: Safe) -> bool {
        let owner = self.owner_of(id);
        let Some(other) = self.wanting().filter(|other| *other != owner) else { return false };
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
