//! Lending from a pool: sizes a grant against what is left and what others need, charges it to every rule, and
//! dates the lease that holds it.

use super::{LesseeId, Pool};
use crate::pacing::{LOW_WATER_PERCENT, Pacer};
use crate::rules::{Ledger, Pace};
use crate::sizing::{self, Claim, Supply};
use lessor_protocol::mutant::{self, Mutant};
use lessor_protocol::sizing::need;
use lessor_protocol::{Ask, Grant, Moment};
use std::time::Duration;

/// The largest lease, in permits: a node keeps its balance in 32 bits of one atomic word. At two seconds a
/// lease that is two billion calls a second on one node.
pub const LEASE_MAX: u64 = u32::MAX as u64;

/// When permits are scarce, nodes ask this many times a term. More polls find permits sooner, fewer cost less;
/// all nodes ask equally often, so that shares do not depend on who asks more.
const POLLS_PER_TERM: u32 = 4;

/// Shortest time between two asks when permits are scarce.
const POLL_MIN: Duration = Duration::from_millis(5);

impl Pool {
    /// Sizes a grant, charges it, and dates the lease that holds it.
    pub(super) fn lend(&mut self, id: LesseeId, ask: &Ask, newcomer: bool) -> Grant {
        let term = self.term();
        let kept = if mutant::is(Mutant::RenewalAsFresh) { ask.held } else { self.lessees[&id].outstanding };
        // Who wants more than its demand explains needs that much: a want beyond every share is nobody's right.
        let need = self.need(ask.demand_milli, ask.waiting).max(ask.want.saturating_add(kept));
        let mine = Claim { need, weight: self.lessees[&id].weight };
        let others = self.other_claims(id);
        let (supply, pace) = self.supply();
        let mut want = ask.want.min(LEASE_MAX.saturating_sub(kept));
        if newcomer {
            want = want.min(sizing::newcomer_cap(ask.waiting, others.len() as u64, supply));
        }
        if term.is_zero() {
            want = 0;
        }
        let sized = sizing::grant(want, mine, &others, supply);
        self.charge(id, sized.permits, term);
        let scarce = sized.scarce || (term.is_zero() && ask.want > 0);
        let (ask_after, retry_after) = if scarce { self.next_chance(pace) } else { (Duration::ZERO, None) };
        let retry_after = if sized.permits < ask.want { retry_after } else { None };
        Grant { kept, permits: sized.permits, term, ceiling: self.ceiling(), ask_after, retry_after }
    }

    fn charge(&mut self, id: LesseeId, permits: u64, term: Duration) {
        let lessee = self.lessees.get_mut(&id).expect("it was admitted");
        for ledger in &mut self.ledgers {
            ledger.charge(permits);
        }
        self.pacer.lent(permits);
        self.books.granted += permits;
        self.books.outstanding += permits;
        lessee.outstanding += permits;
        let is_dated = permits > 0 || !mutant::is(Mutant::RenewalNotDated);
        if lessee.outstanding > 0 && !term.is_zero() && is_dated {
            self.ends.remove(&(lessee.end, id));
            // Never earlier than before: until the node hears of it, the old end is the one it goes by.
            let end = self.plan.terms.grantor_end(self.now, term);
            lessee.end = if mutant::is(Mutant::EndMovesBack) { end } else { lessee.end.max(end) };
            self.ends.insert((lessee.end, id));
        }
    }

    /// How long a lease that is made now may last: zero if none would end in time.
    fn term(&self) -> Duration {
        let end = self.ledgers.iter().filter_map(|ledger| ledger.lease_end()).min();
        let fits = end.map_or(Duration::MAX, |end| self.plan.terms.term_until(self.now, end));
        self.term.min(fits)
    }

    fn need(&self, demand_milli: u64, waiting: u64) -> u64 {
        need(demand_milli, self.term).saturating_add(waiting)
    }

    fn other_claims(&self, id: LesseeId) -> Vec<Claim> {
        let active = self.active();
        let others = self
            .lessees
            .iter()
            .filter(|&(&other, lessee)| other != id && self.now.since(lessee.answered) <= active);
        others
            .map(|(_, lessee)| Claim {
                need: self.need(lessee.demand_milli, lessee.waiting),
                weight: lessee.weight,
            })
            .filter(|claim| claim.need > 0)
            .collect()
    }

    /// What can be shared out now, and the pace at which if the pool eases off.
    fn supply(&mut self) -> (Supply, Option<Pace>) {
        let left = self.available();
        let arriving = |ledger: &dyn Ledger| ledger.available().saturating_add(ledger.arriving(self.term));
        let within_term = self.ledgers.iter().map(|ledger| arriving(ledger.as_ref())).min().unwrap_or(0);
        let low = u128::from(left) * 100 < u128::from(self.ceiling()) * u128::from(LOW_WATER_PERCENT);
        let pace = if self.plan.ease_off && low {
            self.ledgers.iter().filter_map(|ledger| ledger.pace()).reduce(Pace::slower)
        } else {
            None
        };
        let left = match pace {
            Some(pace) => self.pacer.lendable(self.now, left, pace, self.term),
            None => {
                self.pacer = Pacer::Free;
                left
            }
        };
        (Supply { left, within_term }, pace)
    }

    /// When to ask again, and when there will be a permit, for somebody who got less than wanted.
    fn next_chance(&self, pace: Option<Pace>) -> (Duration, Option<Duration>) {
        let poll = (self.term / POLLS_PER_TERM).max(POLL_MIN);
        let paced = pace.map_or(Duration::ZERO, |pace| self.pacer.wait(pace));
        let retry_after = self.ready_at(1).map(|ready| ready.since(self.now).max(paced).max(poll));
        // Others may give back sooner: nobody waits longer than a term to look.
        let ask_after = retry_after.unwrap_or(Duration::MAX).min(self.term.max(poll));
        (ask_after, retry_after)
    }

    /// When every rule can lend `permits`, if nothing is lent or given back meanwhile; `None` if never.
    fn ready_at(&self, permits: u64) -> Option<Moment> {
        let mut ready = self.now;
        for ledger in &self.ledgers {
            let mut ends = self.ends.iter().map(|&(end, id)| (end, self.lessees[&id].outstanding));
            ready = ready.max(ledger.ready_at(permits, &mut ends)?);
        }
        Some(ready)
    }
}
