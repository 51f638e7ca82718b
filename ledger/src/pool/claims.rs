//! What sessions claim of a pool when one of them asks: what each needs, holds and counts for, and which of them share. Lending
//! sizes a grant by these claims, and this changes nothing.

use super::Pool;
use super::family::Place;
use super::forecast::draw;
use super::lend::poll;
use super::session::Session;
use crate::rule::Draw;
use crate::share::{self, Share};
use crate::sizing::{Asker, Claim, Supply};
use lessor_protocol::Ask;
use lessor_protocol::sizing::{PERMIT, mean, need};

/// Permits that a session may want beyond what demand and queue explain: a first lease, and a spare permit.
const UNEXPLAINED: u64 = 8;

/// When permits are scarce, what a session holds should last until it can ask this often.
const BARE_POLLS: u32 = 8;

/// What is owed to a session is kept for so many polls after it asked, and its way here. By then it has asked again, or has
/// enough, or is not there any more. Kept for longer, it would leave nothing to be lent to other sessions.
const KEPT_POLLS: u32 = 6;

impl Pool {
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
        let claim = self.claim(ask.demand_milli, ask.waiting.saturating_add(unexplained));
        Asker {
            want: ask.want.min(self.plan.sharing.lease_max.saturating_sub(kept)),
            claim: Claim { share: session.share, holds, ..claim },
            since: self.now.since(session.lent).min(self.term),
        }
    }

    /// The claims that a session with `share` shares with, the supply that is shared, and what is owed to the session in any case.
    pub(super) fn peers(
        &self,
        share: Share,
        others: Vec<Claim>,
        supply: Supply,
    ) -> (Vec<Claim>, Supply, u64) {
        let group = share.group;
        let kept = self.guarantees.kept_from(group);
        let left = supply.left.saturating_sub(kept);
        let supply = Supply { left, within_term: supply.within_term.saturating_sub(kept), ..supply };
        let members = others.iter().filter(|claim| claim.share.group == group).count() as u64 + 1;
        let owed = self.guarantees.owed(group).div_ceil(members).min(left);
        let (others, supply) = share::below(share.priority, others, supply);
        (others, supply, owed)
    }

    /// What all others claim who have asked lately, as far as it is anything, and what they take.
    pub(super) fn other_claims(&self, id: Place) -> (Vec<Claim>, Draw) {
        let (active, mut draws) = (self.active(), Draw::default());
        let others = self
            .sessions
            .iter()
            .filter(|&(other, session)| other != id && self.now.since(session.answered) <= active);
        let others = others.map(|(_, session)| {
            draws = draws.and(draw(session.demand_milli, session.waiting, session.outstanding));
            self.likely_claim(session)
        });
        (others.filter(|claim| claim.need > 0).collect(), draws)
    }

    /// The claim of a session that said its demand a while ago: it has spent since.
    fn likely_claim(&self, session: &Session) -> Claim {
        let silent = self.now.since(session.answered);
        // It has spent since: about as much as until a session asks again that found too few.
        let holds = match session.outstanding {
            0 => 0,
            out => out.saturating_sub(need(session.demand_milli, poll(self.term))),
        };
        let claim = self.claim(session.demand_milli, session.waiting);
        let is_awaited = silent <= KEPT_POLLS * poll(self.term) + session.rtt;
        let bare = if is_awaited { claim.bare } else { 0 };
        Claim { share: session.share, holds, bare, ..claim }
    }

    /// The claim of a session with that demand, and a queue on top, that holds nothing.
    fn claim(&self, demand_milli: u64, queue: u64) -> Claim {
        Claim {
            mean: mean(demand_milli, self.term).saturating_add(u128::from(queue) * PERMIT),
            need: need(demand_milli, self.term).saturating_add(queue),
            bare: need(demand_milli, BARE_POLLS * poll(self.term)).saturating_add(queue),
            share: Share::EVEN,
            holds: 0,
        }
    }
}
