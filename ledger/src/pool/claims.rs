//! What sessions claim of a pool: what each needs, holds and counts for, and which of them share. [`super::sessions::Sessions`] keeps
//! the claims of all as sums; lending sizes a grant by them.

use super::Pool;
use super::family::Place;
use super::forecast::draw;
use super::session::Session;
use crate::rule::Draw;
use crate::share::{self, Share};
use crate::sizing::{Asker, Claim, Peers, Supply};
use lessor_protocol::sizing::{PERMIT, mean, need};
use lessor_protocol::{Ask, Moment};
use std::time::Duration;

/// Permits that a session may want beyond what demand and queue explain: a first lease, and a spare permit.
const UNEXPLAINED: u64 = 8;

/// When permits are scarce, what a session holds should last until it can ask this often.
const BARE_POLLS: u32 = 8;

/// When permits are scarce, nodes ask this many times a term. More polls find permits sooner, fewer cost less;
/// all nodes ask equally often, so that shares do not depend on who asks more.
const POLLS_PER_TERM: u32 = 4;

/// Shortest time between two asks when permits are scarce.
pub(super) const POLL_MIN: Duration = Duration::from_millis(10);

/// What is owed to a session is kept for so many polls after it asked, and its way here. By then it has asked again, or has
/// enough, or is not there any more. Kept for longer, it would leave nothing to be lent to other sessions.
const KEPT_POLLS: u32 = 6;

/// A session counts among those that share for this many terms after its last ask. A session that holds or wants permits asks at
/// least once a term.
const ACTIVE_TERMS: u32 = 3;

/// How long after its last ask a session still claims something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ages {
    /// How long a lease of the pool lasts where nothing clips it.
    term: Duration,
}

/// How long ago a session asked, as far as that changes what it claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Age {
    /// It asks now: it is sized by what it says, and is none of the others.
    Asking,
    /// What it is owed is kept.
    #[default]
    Fresh,
    /// It shares, and nothing is kept for it.
    Silent,
    /// It does not share any more.
    Gone,
}

impl Ages {
    /// Of a pool whose leases last for `term`.
    pub(super) fn new(term: Duration) -> Self {
        Ages { term }
    }

    /// How long a lease of the pool lasts where nothing clips it.
    pub(super) fn term(&self) -> Duration {
        self.term
    }

    /// How long after its last ask a session counts among those that share.
    pub(super) fn active(&self) -> Duration {
        self.term * ACTIVE_TERMS
    }

    /// What a session is owed is kept for so long, and its way here.
    fn kept(&self) -> Duration {
        KEPT_POLLS * poll(self.term)
    }

    /// The age that `session` has next, and when; `None` if it stays as it is.
    pub(super) fn next(&self, session: &Session) -> Option<(Moment, Age)> {
        let after = |span: Duration| session.answered + span + Duration::from_nanos(1);
        let kept = self.kept() + session.rtt;
        match session.age {
            Age::Fresh if kept < self.active() => Some((after(kept), Age::Silent)),
            Age::Fresh | Age::Silent => Some((after(self.active()), Age::Gone)),
            Age::Asking | Age::Gone => None,
        }
    }

    /// What `session` claims as one of the others, if that is anything.
    pub(super) fn claim(&self, session: &Session) -> Option<Claim> {
        if !session.shares() {
            return None;
        }
        let claim = self.claim_to(session.demand_milli, session.waiting);
        // It has spent since: half of what it spends until a session asks again that found too few.
        let holds = match session.outstanding {
            0 => 0,
            out => out.saturating_sub(need(session.demand_milli, poll(self.term) / 2)),
        };
        let bare = if session.age == Age::Fresh { claim.bare } else { 0 };
        Some(Claim { share: *session.share, holds, bare, ..claim }).filter(|claim| claim.need > 0)
    }

    /// The same where permits are spent again when their calls end: all that it would have in hand and in use.
    pub(super) fn wanted(&self, session: &Session) -> Option<Claim> {
        (session.shares() && session.wanted > 0).then(|| of_all(*session.share, session.wanted))
    }

    /// The claim of a session with that demand, and a queue on top, that holds nothing.
    fn claim_to(&self, demand_milli: u64, queue: u64) -> Claim {
        Claim {
            mean: mean(demand_milli, self.term).saturating_add(u128::from(queue) * PERMIT),
            need: need(demand_milli, self.term).saturating_add(queue),
            bare: need(demand_milli, BARE_POLLS * poll(self.term)).saturating_add(queue),
            share: Share::EVEN,
            holds: 0,
        }
    }
}

/// Time between two asks of a session that found too little, where leases last for `term`.
pub(super) fn poll(term: Duration) -> Duration {
    (term / POLLS_PER_TERM).max(POLL_MIN)
}

/// The claim to `wanted` permits in hand and in use.
pub(super) fn of_all(share: Share, wanted: u64) -> Claim {
    Claim { mean: u128::from(wanted) * PERMIT, need: wanted, bare: wanted, share, holds: 0 }
}

impl Session {
    /// Whether it shares with a session that asks. What a session says that has never said what became of a grant keeps nothing from
    /// others.
    pub(super) fn shares(&self) -> bool {
        matches!(self.age, Age::Fresh | Age::Silent) && !self.is_unproven
    }

    /// What it takes from now on.
    pub(super) fn draw(&self) -> Draw {
        if self.shares() { draw(self.demand_milli, self.waiting, self.outstanding) } else { Draw::default() }
    }
}

impl Pool {
    /// How long after its last ask a session counts among those that share.
    pub(super) fn active(&self) -> Duration {
        self.sessions.ages().active()
    }

    /// Who asks, and how it stands.
    pub(super) fn asker(&self, id: Place, ask: &Ask) -> Asker {
        let session = &self.sessions[id];
        let kept = session.outstanding;
        // What demand and queue do not explain is a need all the same: no session gets more by saying less.
        let explained =
            need(ask.demand_milli, session.term).saturating_add(ask.waiting).saturating_add(UNEXPLAINED);
        let unexplained = ask.want.saturating_add(kept).saturating_sub(explained);
        // What is in hand is too little for callers that wait in spite of it.
        let holds = if ask.waiting > 0 { 0 } else { kept };
        let queue = ask.waiting.saturating_add(unexplained);
        let claim = self.sessions.ages().claim_to(ask.demand_milli, queue);
        Asker {
            want: ask.want.min(self.plan.sharing.lease_max.saturating_sub(kept)),
            claim: Claim { share: *session.share, holds, ..claim },
            since: self.now.since(session.lent).min(self.term),
        }
    }

    /// The claims that a session with `share` shares with, the supply that is shared, and what is owed to the session in any case.
    pub(super) fn peers(&self, share: Share, supply: Supply) -> (Peers<'_, Place>, Supply, u64) {
        let claims = self.sessions.claims();
        // What is guaranteed is there also while the rest is lent at a pace.
        let is_all_for_all = self.groups.is_usual();
        let (kept, owed) = if is_all_for_all { (0, 0) } else { self.guaranteed_to(share, self.left()) };
        let supply = supply.less(kept);
        let supply = share::after(claims.before(share.priority), supply);
        (claims.peers(share.priority), supply, owed)
    }
}
