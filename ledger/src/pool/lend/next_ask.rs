//! When a session that was lent less than it wants asks next: at once if it can report a spend that a full bucket waits
//! for, as a window begins that has permits for it, or after a poll.

use super::Offer;
use crate::pool::Pool;
use crate::pool::claims::{POLL_MIN, poll};
use crate::pool::family::Place;
use crate::rule::Pace;
use crate::sizing::State;
use lessor_protocol::{Ask, Moment, TERM_MAX};
use std::time::Duration;

/// Wait of a node that could not be back before the next window begins. Zero would say that permits are not scarce.
const AT_ONCE: Duration = Duration::from_millis(1);

impl Pool {
    /// Returns how long to wait until the next ask, and until there is a permit, if fewer `permits` are lent than wanted.
    pub(super) fn next_ask(
        &self,
        place: Place,
        ask: &Ask,
        permits: u64,
        offer: &Offer,
    ) -> (Duration, Option<Duration>) {
        if let Some(wait) = offer.wait {
            return (wait, Some(wait));
        }
        let scarce = match offer.state {
            State::Scarce => permits < ask.want,
            State::Abundant | State::Draining { .. } => permits == 0 && ask.want > 0,
        };
        if !scarce {
            return (Duration::ZERO, None);
        }
        let (ask_after, retry_after) = self.next_chance(place, offer.pace);
        // A bucket full of permits there and lent mints nothing until a session reports a spend.
        let reports = permits > 0 && ask.waiting > 0;
        let Some(full_at) = self.ledgers.full_at().filter(|_| reports) else {
            return (ask_after, retry_after);
        };
        // A node may report any round trip.
        let rtt = self.sessions[place].rtt.min(self.sessions[place].term);
        let report_after = full_at.since(self.now).saturating_sub(rtt);
        (ask_after.min(report_after.max(AT_ONCE)), retry_after)
    }

    /// Returns how long to wait until the next ask, and until there is a permit, for a session that got less than it wanted.
    fn next_chance(&self, place: Place, pace: Option<Pace>) -> (Duration, Option<Duration>) {
        let term = self.sessions[place].term;
        let paced = pace.map_or(Duration::ZERO, |pace| self.pacer.wait(pace));
        let ready = self.lends_at(place);
        // Permits on their way from the allocator above arrive soon.
        let poll = if self.is_being_lent() { POLL_MIN } else { poll(term) };
        let retry_after = ready.map(|ready| ready.since(self.now).max(paced).max(poll));
        // Others may give permits back sooner, so no session waits longer than a term to look. For a root it is a poll
        // longer, so that no allocator swaps the root just before there is something.
        let soon = (term.max(poll) + poll * u32::from(self.plan.is_root)).min(TERM_MAX);
        let ask_after = retry_after.filter(|wait| *wait <= soon).unwrap_or(term.max(poll));
        (self.in_time(place, ready, ask_after), retry_after)
    }

    /// Returns `wait`, or a wait that brings the next ask of `place` here just as a window begins that has permits for it. `ready`
    /// is when there are permits for `place`. The wait counts from the arrival of this answer, and the ask takes its way too.
    fn in_time(&self, place: Place, ready: Option<Moment>, wait: Duration) -> Duration {
        let (Some(begins), Some(ready)) = (self.lease_end(), ready) else { return wait };
        let (left, rtt) = (begins.since(self.now), self.sessions[place].rtt);
        // There may be a permit before, or at least time to ask again.
        let is_sooner = wait + if ready < begins { rtt } else { 2 * rtt } < left;
        // No session is told to wait for longer than any lease lasts.
        let just_then = left.saturating_sub(rtt).clamp(AT_ONCE, TERM_MAX);
        if is_sooner || ready > begins { wait } else { just_then }
    }

    /// Returns when there will be a permit for `place`. Permits withheld because of the vendor come back by themselves.
    fn lends_at(&self, place: Place) -> Option<Moment> {
        let (kept, withheld) = (self.kept_back(place) + 1, self.withheld());
        let ready = self.ready_at(kept)?;
        if withheld == 0 {
            return Some(ready);
        }
        let beside = self.ready_at(kept.saturating_add(withheld)).unwrap_or(Moment::NEVER);
        Some(ready.max(beside.min(self.withheld_until())))
    }

    /// Returns when every rule can lend `permits`, if nothing is lent or given back meanwhile; `None` if never.
    fn ready_at(&self, permits: u64) -> Option<Moment> {
        self.ledgers.ready_at(self.now, permits, || self.sessions.leases())
    }
}
