//! Sessions of a pool at rest, while none of them makes a difference to the others: how they are carried, and until
//! when they stay as they are. The orders and sums over all of them follow from the sessions.

use super::Sessions;
use crate::packed::Carrier;
use crate::pool::family::Place;
use crate::pool::session::{Session, SessionId};
use crate::share::Share;
use lessor_protocol::Moment;
use std::time::Duration;

/// Most sessions of a pool at rest: more would be a lot to carry for each look at the pool.
const FEW: usize = 64;

impl Sessions {
    /// Whether no session holds, wants or awaits anything, and there are few sessions.
    pub(in crate::pool) fn are_at_rest(&self) -> bool {
        self.len() <= FEW
            && self.live() == 0
            && self.are_read()
            && self.first_age().is_none()
            && self.iter().all(|(place, session)| {
                let entry = self.reading.entry(place, session);
                session.is_at_rest() && entry.claim.is_none() && entry.wanted.is_none()
            })
    }

    /// Carries all sessions.
    pub(in crate::pool) fn carry(&mut self, carrier: &mut Carrier<'_>) {
        let mut count = self.len() as u64;
        carrier.number(&mut count);
        if !carrier.reads() {
            for (mut place, session) in self.by_place.iter_mut() {
                place.carry(carrier);
                session.carry(carrier);
            }
            return;
        }
        for _ in 0..count {
            let mut place = Place::own(SessionId(0));
            place.carry(carrier);
            let mut session = Session::new(Share::EVEN, Moment::ORIGIN);
            session.carry(carrier);
            self.insert(place, session);
        }
    }

    /// Returns the moment until which the number of sessions and the permits in flight stay as they are. An idle
    /// session is remembered for `memory`, or for `brief` if it has used nothing.
    pub(in crate::pool) fn rest_until(&self, memory: Duration, brief: Duration) -> Moment {
        let idle = self.first_idle().map(|(since, _)| since + memory);
        let unused = self.first_unused().map(|(since, _)| since + brief);
        let others = [self.first_calls(), self.next_review()].into_iter().flatten().map(|(at, _)| at);
        idle.into_iter().chain(unused).chain(others).min().unwrap_or(Moment::NEVER)
    }
}
