//! Calls that wait go before calls that may come. While callers wait for permits that are lent to others, a session
//! whose calls wait too is lent what its callers wait for, and nothing in advance. Each of its calls then asks, and
//! none is refused for that. Permits that it would hold until its next call are spent by other sessions meanwhile.
//! Permits that it already holds come back when its lease ends, except from a bucket, which takes nothing back then.
//!
//! This only makes a grant smaller, or lets a lease end.

use super::Pool;
use super::claims::poll;
use super::family::Place;
use super::greed::{Farthest, RTT_MAX};
use super::large::LargeCall;
use super::lend::millis_above;
use super::rare::Usual;
use crate::pacing::Excess;
use crate::packed::Carrier;
use lessor_protocol::{Ask, Moment};
use std::time::Duration;

/// Seconds after one of its calls waited for which a session counts as one whose calls wait.
const PATIENT_FOR: u32 = 5;

/// Longest term at which sessions hold nothing in advance while callers wait. With longer leases, a call that finds nothing
/// in hand waits longer than its caller may.
const TERM_MAX: Duration = Duration::from_millis(200);

/// A shortage: callers wait that were not lent all that they wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shortage {
    /// Highest priority of these callers.
    priority: u64,
    /// End of the shortage: by then the callers have asked again, or no longer wait.
    until: Moment,
}

/// What a pool knows of demand beyond its supply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExcessDemand {
    pub(super) excess: Excess,
    shortage: Shortage,
    pub(super) farthest: Farthest,
    /// The call that has the turn, of those that take more than their sessions are lent at a time.
    pub(super) large: Option<LargeCall>,
    /// Parts of a permit that claims above were rounded down by.
    pub(super) unclaimed: u128,
    /// When an operator last ended all waits that sessions were told.
    pub(super) waits_ended: Moment,
}

impl Usual for ExcessDemand {
    const USUAL: &'static Self = &ExcessDemand {
        excess: Excess::NONE,
        shortage: Shortage { priority: 0, until: Moment::ORIGIN },
        farthest: Farthest { priority: 0, rtt: Duration::ZERO, until: Moment::ORIGIN },
        large: None,
        unclaimed: 0,
        waits_ended: Moment::ORIGIN,
    };
}

impl ExcessDemand {
    /// Returns the same for a pool that rests at `now`: no session keeps to a wait any more, and no large call gathers.
    pub(super) fn at_rest(&self, now: Moment) -> Self {
        let usual = Self::USUAL;
        let shortage = if self.shortage.until > now { self.shortage } else { usual.shortage };
        let farthest = if self.farthest.until > now { self.farthest } else { usual.farthest };
        ExcessDemand { excess: self.excess, shortage, farthest, ..usual.clone() }
    }

    /// Carries every field of a pool at rest.
    pub(super) fn carry(&mut self, carrier: &mut Carrier<'_>) {
        self.excess.carry(carrier);
        carrier.number(&mut self.shortage.priority);
        carrier.moment(&mut self.shortage.until);
        carrier.number(&mut self.farthest.priority);
        carrier.span(&mut self.farthest.rtt);
        carrier.moment(&mut self.farthest.until);
        carrier.moment(&mut self.waits_ended);
    }
}

/// Returns the second of the pool's clock that `at` is in, counted from one.
fn second(at: Moment) -> u32 {
    u32::try_from(at.since(Moment::ORIGIN).as_secs() + 1).unwrap_or(u32::MAX)
}

impl Pool {
    /// Notes whether callers of `place` wait, and whether the `permits` to be lent for `ask` are too few for them. A pool
    /// that leases does not: permits for its callers are on their way from above. Nor does a root, which is put away
    /// after each exchange.
    pub(super) fn note_patience(&mut self, place: Place, ask: &Ask, permits: u64) {
        if ask.waiting == 0 || self.plan.is_root || self.plan.is_borrowed {
            return;
        }
        let now = self.now;
        self.sessions.note(place, |session| session.waited = second(now));
        if permits < ask.waiting {
            let session = &self.sessions[place];
            let (priority, until) =
                (session.share.priority, now + 2 * session.term + session.rtt.min(RTT_MAX));
            let known = self.excess_demand.shortage;
            // Callers of a lower priority do not make the shortage of higher ones last.
            if priority >= known.priority || known.until <= now {
                let until = if priority == known.priority { until.max(known.until) } else { until };
                self.excess_demand.shortage = Shortage { priority, until };
            }
        }
    }

    /// Whether `place` leaves permits that it would hold in advance to callers that wait now.
    pub(super) fn yields(&self, place: Place) -> bool {
        self.term <= TERM_MAX && self.is_patient(place)
    }

    /// Returns for how long `place`, which wants permits in advance, leaves one of the last to callers that wait now: until
    /// a poll after it was lent something. A draining pool has a permit for each ask, however soon it comes. Leases may be
    /// long, as this pool makes no call of the session wait for longer than that.
    pub(super) fn leaves_last(&self, place: Place, ask: &Ask) -> Option<Duration> {
        let rest = poll(self.term).saturating_sub(self.now.since(self.sessions[place].lent));
        // A session that was never lent anything waits without a claim.
        let is_alone = self.sessions.len() == 1;
        let leaves = ask.waiting == 0 && !rest.is_zero() && !is_alone && self.is_patient(place);
        leaves.then(|| millis_above(rest))
    }

    /// Whether calls of `place` waited lately, and callers that it does not go before wait now.
    fn is_patient(&self, place: Place) -> bool {
        let (session, shortage) = (&self.sessions[place], self.excess_demand.shortage);
        let waits = session.waited > 0 && second(self.now).saturating_sub(session.waited) <= PATIENT_FOR;
        waits && self.now < shortage.until && session.share.priority <= shortage.priority
    }
}
