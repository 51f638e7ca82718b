//! What lessees claim of a pool when one of them asks: what each needs, holds and counts for, and which of them share. Lending
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

/// Permits that a lessee may want beyond what demand and queue explain: a first lease, and a spare permit.
const UNEXPLAINED: u64 = 8;

/// When permits are scarce, what a lessee holds should last until it can ask this often.
const BARE_POLLS: u32 = 8;

/// What is owed to a lessee is kept for so many polls after it asked, and its way here. By then it has asked again, or has
/// enough, or is not there any more. Kept for longer, it would leave nothing to be lent to other lessees.
const KEPT_POLLS: u32 = 6;

impl Pool {
    /// Who asks, and how it stands.
    pub(super) fn asker(&self, id: Place, ask: &Ask) -> Asker {
        let lessee = &self.lessees[&id];
        let kept = lessee.outstanding;
        // What demand and queue do not explain is a need all the same: no lessee gets more by saying less.
        let explained =
            need(ask.demand_milli, lessee.term).saturating_add(ask.waiting).saturating_add(UNEXPLAINED);
        let unexplained = ask.want.saturating_add(kept).saturating_sub(explained);
        // What is in hand is too little for callers that wait in spite of it.
        let holds = if ask.waiting > 0 { 0 } else { kept };
        let claim = self.claim(ask.demand_milli, ask.waiting.saturating_add(unexplained));
        Asker {
            want: ask.want.min(self.plan.sharing.lease_max.saturating_sub(kept)),
            claim: Claim { share: lessee.share, holds, ..claim },
            since: self.now.since(lessee.lent).min(self.term),
        }
    }

    /// The claims that a lessee with `share` shares with, the supply that is shared, and what is owed to the lessee in any case.
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
            .lessees
            .iter()
            .filter(|&(&other, lessee)| other != id && self.now.since(lessee.answered) <= active);
        let others = others.map(|(_, lessee)| {
            draws = draws.and(draw(lessee.demand_milli, lessee.waiting, lessee.outstanding));
            self.likely_claim(lessee)
        });
        (others.filter(|claim| claim.need > 0).collect(), draws)
    }

    /// The claim of a lessee that said its demand a while ago: it has spent since.
    fn likely_claim(&self, lessee: &Session) -> Claim {
        let silent = self.now.since(lessee.answered);
        let holds = match lessee.outstanding {
            0 => 0,
            out => out.saturating_sub(need(lessee.demand_milli, silent)),
        };
        let claim = self.claim(lessee.demand_milli, lessee.waiting);
        let is_awaited = silent <= KEPT_POLLS * poll(self.term) + lessee.rtt;
        let bare = if is_awaited { claim.bare } else { 0 };
        Claim { share: lessee.share, holds, bare, ..claim }
    }

    /// The claim of a lessee with that demand, and a queue on top, that holds nothing.
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
