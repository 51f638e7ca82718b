//! Calls that wait go before calls that may come. While callers wait for permits that are lent to others, a session whose calls wait as
//! well is lent what its callers wait for, and nothing in advance: each of its calls asks, and none is refused for that. What it would
//! hold until its next call is spent by another session meanwhile. What it holds already comes back when its lease ends, unless that is
//! of a bucket, which takes nothing back then.
//!
//! It only ever makes a grant smaller, or lets a lease end.

use super::Pool;
use super::family::Place;
use super::rare::Usual;
use crate::pacing::Excess;
use crate::packed::Carrier;
use lessor_protocol::{Ask, Moment};
use std::time::Duration;

/// The calls of a session wait if one of them did so that many seconds ago.
const PATIENT_FOR: u32 = 5;

/// Where leases last longer, a call that finds nothing in hand waits longer than its caller may.
const TERM_MAX: Duration = Duration::from_millis(200);

/// Callers wait, and were not lent all that they wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shortage {
    /// Of the first among them.
    priority: u64,
    /// They have asked again by then, or do not wait any more.
    until: Moment,
}

/// What a pool knows of more being wanted than it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanting {
    pub(super) excess: Excess,
    shortage: Shortage,
}

impl Usual for Wanting {
    const USUAL: &'static Self =
        &Wanting { excess: Excess::NONE, shortage: Shortage { priority: 0, until: Moment::ORIGIN } };
}

impl Wanting {
    /// Carries what it is.
    pub(super) fn carry(&mut self, carrier: &mut Carrier<'_>) {
        self.excess.carry(carrier);
        carrier.number(&mut self.shortage.priority);
        carrier.moment(&mut self.shortage.until);
    }
}

/// The second of the pool's clock that `at` is in, counted from one.
fn second(at: Moment) -> u32 {
    u32::try_from(at.since(Moment::ORIGIN).as_secs() + 1).unwrap_or(u32::MAX)
}

impl Pool {
    /// Notes that `permits` would be lent for `ask` of `id`, some of whose calls wait, or none. A pool that leases does
    /// not: what its callers wait for is on its way from above. Nor does a root, which is put away after each exchange.
    pub(super) fn note_patience(&mut self, id: Place, ask: &Ask, permits: u64) {
        if ask.waiting == 0 || self.term > TERM_MAX || self.plan.is_root || self.plan.is_borrowed {
            return;
        }
        let now = self.now;
        self.sessions.note(id, |session| session.waited = second(now));
        if permits < ask.waiting {
            let session = &self.sessions[id];
            let (own, until) = (session.share.priority, now + 2 * session.term + session.rtt);
            let is_over = self.wanting.shortage.until <= now;
            let priority = if is_over { own } else { self.wanting.shortage.priority.max(own) };
            let until = self.wanting.shortage.until.max(until);
            self.wanting.shortage = Shortage { priority, until };
        }
    }

    /// Whether `id` leaves what it would hold in advance to callers that wait now.
    pub(super) fn yields(&self, id: Place) -> bool {
        let (session, shortage) = (&self.sessions[id], self.wanting.shortage);
        let waits = session.waited > 0 && second(self.now).saturating_sub(session.waited) <= PATIENT_FOR;
        waits && self.now < shortage.until && session.share.priority <= shortage.priority
    }
}
