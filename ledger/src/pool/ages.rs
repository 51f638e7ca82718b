//! How a session's claim shrinks with the time since its last ask: first nothing is kept for it any more, and then it no
//! longer shares.

use super::claims::{of_all, poll};
use super::ledgers::Source;
use super::session::Session;
use crate::share::Share;
use crate::sizing::Claim;
use lessor_protocol::Moment;
use lessor_protocol::sizing::{PERMIT, mean, need};
use std::time::Duration;

/// Number of polls for which a session's permits should last when permits are scarce.
const BARE_POLLS: u32 = 8;

/// Number of polls, plus a round trip, for which permits owed to a session are kept after its ask. By then the session
/// has asked again, has enough, or is gone. A longer time would leave nothing to lend to other sessions.
pub(super) const KEPT_POLLS: u32 = 6;

/// Number of terms for which a session shares after its last ask. A session that holds or wants permits asks at least
/// once a term.
const ACTIVE_TERMS: u32 = 3;

/// Longest round trip by which a session of a bucket shares for longer: between continents. A session may say any round
/// trip. If it asks seldom, its share lies idle.
pub(super) const FAR: Duration = Duration::from_millis(200);

/// How a session's claim shrinks with the time since its last ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ages {
    /// Length of a lease that nothing clips.
    pub(super) term: Duration,
    /// Where the permits come from.
    pub(super) source: Source,
}

/// How long ago a session asked, as far as its claim depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Age {
    /// The session asks now: it is sized by that ask and is not one of the others.
    Asking,
    /// The session shares, and permits owed to it are kept.
    #[default]
    Fresh,
    /// The session shares, and nothing is kept for it.
    Silent,
    /// The session no longer shares.
    Gone,
}

impl Ages {
    /// Returns how long after its last ask a session shares that is `rtt` away. While a pool drains it asks again within a
    /// round trip and a term. A bucket still has what it leaves idle until then. A window has lost it.
    pub(super) fn active(&self, rtt: Duration) -> Duration {
        let near = self.term * ACTIVE_TERMS;
        if self.source == Source::Buckets { near.max(rtt.min(FAR) + self.term) } else { near }
    }

    /// Returns how long permits owed to a session are kept, not counting its round trip.
    fn kept(&self) -> Duration {
        KEPT_POLLS * poll(self.term)
    }

    /// Returns the next age of `session`, and when it begins; `None` if the age stays as it is.
    pub(super) fn next(&self, session: &Session) -> Option<(Moment, Age)> {
        if matches!(session.age, Age::Asking | Age::Gone) {
            return None;
        }
        let after = |span: Duration| session.answered + span + Duration::from_nanos(1);
        let (kept, active) = (self.kept() + session.rtt, self.active(session.rtt));
        Some(match session.age == Age::Fresh && kept < active {
            true => (after(kept), Age::Silent),
            false => (after(active), Age::Gone),
        })
    }

    /// Returns the claim of `session` while another one asks, if it has any.
    pub(super) fn claim(&self, session: &Session) -> Option<Claim> {
        if !session.shares() {
            return None;
        }
        let claim = self.claim_to(session.demand_milli, session.waiting);
        // The session has spent since its last ask: on average half of what it spends in a poll.
        let holds = match session.outstanding {
            0 => 0,
            out => out.saturating_sub(need(session.demand_milli, poll(self.term) / 2)),
        };
        let bare = if session.age == Age::Fresh { claim.bare } else { 0 };
        Some(Claim { share: *session.share, holds, bare, ..claim }).filter(|claim| claim.need > 0)
    }

    /// Returns the claim of `session` where permits are spent again when their calls end: all that it wants in hand and in use.
    pub(super) fn wanted(&self, session: &Session) -> Option<Claim> {
        (session.shares() && session.wanted > 0).then(|| of_all(*session.share, session.wanted))
    }

    /// Returns the claim of a session that holds nothing and has this demand and queue.
    pub(super) fn claim_to(&self, demand_milli: u64, queue: u64) -> Claim {
        Claim {
            mean: mean(demand_milli, self.term).saturating_add(u128::from(queue) * PERMIT),
            need: need(demand_milli, self.term).saturating_add(queue),
            bare: need(demand_milli, BARE_POLLS * poll(self.term)).saturating_add(queue),
            share: Share::EVEN,
            holds: 0,
        }
    }
}
