//! The books of one limit and key: one pure state machine. Allocators drive it, with the time as an argument;
//! it does no IO, reads no clock and rolls no dice.
//!
//! Everything happens in [`Pool::renew`]: a session says in totals what it spent and what it holds, and is lent
//! more. What is lent is charged to every rule of the limit at once, or to none.

mod books;
mod lessee;
#[cfg(test)]
mod tests;

pub use books::Books;
pub use lessee::LesseeId;

use crate::pacing::{LOW_WATER_PERCENT, Pacer};
use crate::rules::{self, Ledger, Pace};
use crate::sizing::{self, Claim, Supply};
use lessee::Lessee;
use lessor_protocol::lease::whole_millis;
use lessor_protocol::sizing::need;
use lessor_protocol::{Answer, Ask, Grant, Moment, Refusal, RefusalReason, Rule, Terms};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The largest lease, in permits: a node keeps its balance in 32 bits of one atomic word. At two seconds a
/// lease that is two billion calls a second on one node.
pub const LEASE_MAX: u64 = u32::MAX as u64;

/// A lessee counts among those who share for this many terms after its last ask. Whoever holds or wants
/// permits asks at least once a term.
const ACTIVE_TERMS: u32 = 3;

/// When permits are scarce, nodes ask this many times a term. More polls find permits sooner, fewer cost less;
/// all nodes ask equally often, so that shares do not depend on who asks more.
const POLLS_PER_TERM: u32 = 4;

/// Shortest time between two asks when permits are scarce.
const POLL_MIN: Duration = Duration::from_millis(5);

/// What a pool is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What must hold, all of it.
    pub rules: Vec<Rule>,
    /// The assumption about clocks.
    pub terms: Terms,
    /// Whether it eases off below its low-water mark.
    pub ease_off: bool,
    /// Most sessions it remembers.
    pub lessees_max: usize,
}

/// Why an ask was not answered. The books are untouched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// A newer ask was answered already.
    #[error("seq {seq} is older than {last}, which was answered already")]
    Stale {
        /// The one given.
        seq: u64,
        /// The newest one.
        last: u64,
    },
    /// More than was ever granted, or less spent than before.
    #[error(
        "spent_total {spent_total} with held {held} cannot be: {spent} was reported before and {out} is unaccounted for"
    )]
    Totals {
        /// The total given.
        spent_total: u64,
        /// The holding given.
        held: u64,
        /// The highest total before.
        spent: u64,
        /// Granted and neither reported spent nor returned.
        out: u64,
    },
    /// The session is not known here and does not start at zero.
    #[error(
        "this session is not known here, but says it has spent {spent_total} and holds {held}: start again from 0"
    )]
    LeaseUnknown {
        /// The total given.
        spent_total: u64,
        /// The holding given.
        held: u64,
    },
    /// As many sessions as it may remember.
    #[error("the pool has {max} sessions, as many as it may remember; old ones go on")]
    Full {
        /// How many that is.
        max: usize,
    },
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The session.
    pub id: LesseeId,
    /// Its weight from the limit's configuration, at least 1.
    pub weight: u64,
}

/// A look at a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolView {
    /// Permits that can be lent now.
    pub available: u64,
    /// The totals.
    pub books: Books,
    /// Sessions that it remembers.
    pub lessees: u64,
    /// How long it stays in quarantine.
    pub quarantine: Duration,
}

/// The books of one limit and key.
#[derive(Debug)]
pub struct Pool {
    plan: Arc<Plan>,
    ledgers: Vec<Box<dyn Ledger + Send>>,
    /// How long a lease lasts where nothing clips it.
    term: Duration,
    /// Whom it lent to. Ordered, so that the same asks give the same answers.
    lessees: BTreeMap<LesseeId, Lessee>,
    /// The end of each live lease: exactly the lessees with something outstanding.
    ends: BTreeSet<(Moment, LesseeId)>,
    books: Books,
    pacer: Pacer,
    now: Moment,
    /// Nothing is granted before this.
    opens: Moment,
}

impl Pool {
    /// A pool with full buckets and empty windows at `now`.
    pub fn new(plan: Arc<Plan>, now: Moment) -> Self {
        let ledgers = plan
            .rules
            .iter()
            .map(|rule| rules::ledger(rule, plan.terms, now))
            .collect();
        Pool {
            term: rules::term(&plan.rules),
            plan,
            ledgers,
            lessees: BTreeMap::new(),
            ends: BTreeSet::new(),
            books: Books::default(),
            pacer: Pacer::Free,
            now,
            opens: now,
        }
    }

    /// A pool whose books may have been lost at `lost`, when an earlier life of the allocator ended at the
    /// latest. It grants nothing until whatever that life lent has ended and left every window.
    pub fn after_loss(plan: Arc<Plan>, lost: Moment, now: Moment) -> Self {
        let quarantined = lost + plan.terms.quarantine();
        let mut pool = Pool::new(plan, now);
        let opens = pool
            .ledgers
            .iter_mut()
            .map(|ledger| ledger.forget(quarantined))
            .max();
        pool.opens = opens.unwrap_or(quarantined);
        pool
    }

    /// One exchange: settles what `ask` reports, extends what it holds, lends more.
    ///
    /// A `seq` that was answered gets the same grant again, with what is left of its term.
    ///
    /// # Errors
    /// If the ask cannot be true or is out of order. Nothing changes then.
    pub fn renew(&mut self, now: Moment, holder: Holder, seq: u64, ask: Ask) -> Result<Answer, AskError> {
        self.advance(now);
        if self.now < self.opens {
            let retry_after = self.opens.since(self.now);
            return Ok(Answer::Refusal(Refusal {
                reason: RefusalReason::Quarantine,
                retry_after,
            }));
        }
        if let Some(answer) = self.replay(holder.id, seq)? {
            return Ok(answer);
        }
        let newcomer = !self.lessees.contains_key(&holder.id);
        if newcomer {
            self.admit(holder, &ask)?;
        }
        self.settle(holder.id, &ask)?;
        let grant = self.lend(holder.id, &ask, newcomer);
        self.record(holder, seq, &ask, grant);
        self.audit();
        Ok(Answer::Grant(grant))
    }

    /// The session ends with a total of `spent_total` and holds nothing. Returns what came back unspent.
    ///
    /// # Errors
    /// As [`Pool::renew`]. A session that is not known returns nothing.
    pub fn leave(&mut self, now: Moment, id: LesseeId, seq: u64, spent_total: u64) -> Result<u64, AskError> {
        self.advance(now);
        if self.replay(id, seq)?.is_some() || !self.lessees.contains_key(&id) {
            return Ok(0);
        }
        let before = self.books.returned;
        self.settle(
            id,
            &Ask {
                spent_total,
                ..Ask::default()
            },
        )?;
        let lessee = self.lessees.get_mut(&id).expect("it was there a moment ago");
        (lessee.seq, lessee.demand_milli, lessee.waiting) = (seq, 0, 0);
        self.audit();
        Ok(self.books.returned - before)
    }

    /// What it looks like at `now`.
    pub fn view(&mut self, now: Moment) -> PoolView {
        self.advance(now);
        PoolView {
            available: if self.now < self.opens {
                0
            } else {
                self.available()
            },
            books: self.books,
            lessees: self.lessees.len() as u64,
            quarantine: self.opens.since(self.now),
        }
    }

    /// Forgets sessions that can make no difference any more, and tells whether the whole pool can be told from
    /// a new one: if not, it may be dropped.
    pub fn is_forgettable(&mut self, now: Moment) -> bool {
        self.advance(now);
        self.forget_idle();
        self.now >= self.opens && self.ends.is_empty() && self.ledgers.iter().all(|ledger| ledger.is_fresh())
    }

    /// The most one call can ever take.
    pub fn ceiling(&self) -> u64 {
        self.plan.rules.iter().map(Rule::ceiling).min().unwrap_or(0)
    }

    /// Permits that every rule can lend now.
    fn available(&self) -> u64 {
        self.ledgers
            .iter()
            .map(|ledger| ledger.available())
            .min()
            .unwrap_or(0)
    }

    /// Lets time pass: leases end in order, and at the end of each the rules stand exactly there.
    fn advance(&mut self, now: Moment) {
        self.now = self.now.max(now);
        while let Some((end, id)) = self.ends.first().copied()
            && end <= self.now
        {
            self.ends.pop_first();
            let burned = self
                .lessees
                .get_mut(&id)
                .expect("every end has its lessee")
                .burn();
            for ledger in &mut self.ledgers {
                ledger.advance(end);
                ledger.settle(burned, end);
            }
            self.books.outstanding -= burned;
            self.books.burned += burned;
        }
        for ledger in &mut self.ledgers {
            ledger.advance(self.now);
        }
    }

    /// The answer that `seq` was given before, with what is left of its term.
    fn replay(&self, id: LesseeId, seq: u64) -> Result<Option<Answer>, AskError> {
        let Some(lessee) = self.lessees.get(&id) else {
            return Ok(None);
        };
        if seq < lessee.seq {
            return Err(AskError::Stale {
                seq,
                last: lessee.seq,
            });
        }
        if seq > lessee.seq {
            return Ok(None);
        }
        let gone = self.now.since(lessee.answered);
        Ok(Some(match lessee.answer {
            Answer::Grant(grant) => Answer::Grant(Grant {
                term: whole_millis(grant.term.saturating_sub(gone)),
                ..grant
            }),
            refusal @ Answer::Refusal(_) => refusal,
        }))
    }

    fn admit(&mut self, holder: Holder, ask: &Ask) -> Result<(), AskError> {
        let Ask {
            spent_total, held, ..
        } = *ask;
        if spent_total > 0 || held > 0 {
            return Err(AskError::LeaseUnknown { spent_total, held });
        }
        if self.lessees.len() >= self.plan.lessees_max {
            self.forget_idle();
            if self.lessees.len() >= self.plan.lessees_max {
                return Err(AskError::Full {
                    max: self.plan.lessees_max,
                });
            }
        }
        self.lessees
            .insert(holder.id, Lessee::new(holder.weight, self.now));
        Ok(())
    }

    /// Moves what the ask reports to where it belongs, in the lessee, in every rule and in the books.
    fn settle(&mut self, id: LesseeId, ask: &Ask) -> Result<(), AskError> {
        let lessee = self.lessees.get_mut(&id).expect("it was admitted");
        let Some(settlement) = lessee.settlement(ask) else {
            return Err(AskError::Totals {
                spent_total: ask.spent_total,
                held: ask.held,
                spent: lessee.spent,
                out: lessee.outstanding + lessee.burned,
            });
        };
        lessee.settle(&settlement);
        if lessee.outstanding == 0 {
            self.ends.remove(&(lessee.end, id));
        }
        for ledger in &mut self.ledgers {
            ledger.settle(settlement.spent, self.now);
            ledger.release(settlement.returned);
            for credit in &settlement.credits {
                ledger.credit(credit.permits, credit.at);
            }
        }
        self.books.outstanding -= settlement.spent + settlement.returned;
        self.books.burned -= settlement.spent_late + settlement.credited;
        self.books.spent += settlement.spent + settlement.spent_late;
        self.books.returned += settlement.returned + settlement.credited;
        Ok(())
    }

    /// Sizes a grant, charges it, and dates the lease that holds it.
    fn lend(&mut self, id: LesseeId, ask: &Ask, newcomer: bool) -> Grant {
        let term = self.term();
        let kept = self.lessees[&id].outstanding;
        let mine = Claim {
            need: self.need(ask.demand_milli, ask.waiting),
            weight: self.lessees[&id].weight,
        };
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
        let (ask_after, retry_after) = if scarce {
            self.next_chance(pace)
        } else {
            (Duration::ZERO, None)
        };
        let retry_after = if sized.permits < ask.want {
            retry_after
        } else {
            None
        };
        Grant {
            kept,
            permits: sized.permits,
            term,
            ceiling: self.ceiling(),
            ask_after,
            retry_after,
        }
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
        if lessee.outstanding > 0 && !term.is_zero() {
            self.ends.remove(&(lessee.end, id));
            // Never earlier than before: until the node hears of it, the old end is the one it goes by.
            lessee.end = lessee.end.max(self.plan.terms.grantor_end(self.now, term));
            self.ends.insert((lessee.end, id));
        }
    }

    fn record(&mut self, holder: Holder, seq: u64, ask: &Ask, grant: Grant) {
        let lessee = self.lessees.get_mut(&holder.id).expect("it was admitted");
        lessee.weight = holder.weight;
        lessee.seq = seq;
        lessee.answer = Answer::Grant(grant);
        lessee.answered = self.now;
        lessee.demand_milli = ask.demand_milli;
        lessee.waiting = ask.waiting;
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
        let active = self.term * ACTIVE_TERMS;
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
        let within_term = self
            .ledgers
            .iter()
            .map(|ledger| arriving(ledger.as_ref()))
            .min()
            .unwrap_or(0);
        let low = u128::from(left) * 100 < u128::from(self.ceiling()) * u128::from(LOW_WATER_PERCENT);
        let pace = if self.plan.ease_off && low {
            self.ledgers
                .iter()
                .filter_map(|ledger| ledger.pace())
                .reduce(Pace::slower)
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
        let retry_after = self
            .ready_at(1)
            .map(|ready| ready.since(self.now).max(paced).max(poll));
        // Others may give back sooner: nobody waits longer than a term to look.
        let ask_after = retry_after.unwrap_or(Duration::MAX).min(self.term.max(poll));
        (ask_after, retry_after)
    }

    /// When every rule can lend `permits`, if nothing is lent or given back meanwhile; `None` if never.
    fn ready_at(&self, permits: u64) -> Option<Moment> {
        let mut ready = self.now;
        for ledger in &self.ledgers {
            let mut ends = self
                .ends
                .iter()
                .map(|&(end, id)| (end, self.lessees[&id].outstanding));
            ready = ready.max(ledger.ready_at(permits, &mut ends)?);
        }
        Some(ready)
    }

    /// Forgets sessions whose leases have all ended, and whose burned permits no rule counts any more. A late
    /// copy of an old ask is then a stranger's: it starts at zero or is refused, and what it is lent is charged.
    fn forget_idle(&mut self) {
        let memory = self
            .ledgers
            .iter()
            .map(|ledger| ledger.memory())
            .max()
            .unwrap_or_default();
        let memory = memory.max(self.term * ACTIVE_TERMS);
        let now = self.now;
        self.lessees
            .retain(|_, lessee| lessee.outstanding > 0 || lessee.end.max(lessee.answered) + memory > now);
    }

    /// The books balance and every rule is within its limit, or there is a bug here.
    fn audit(&self) {
        debug_assert!(self.books.balance(), "{:?}", self.books);
        debug_assert_eq!(
            self.books.outstanding,
            self.lessees
                .values()
                .map(|lessee| lessee.outstanding)
                .sum::<u64>()
        );
        for ledger in &self.ledgers {
            debug_assert!(ledger.is_sound(), "{ledger:?}");
            debug_assert_eq!(ledger.outstanding(), self.books.outstanding, "{ledger:?}");
        }
        debug_assert_eq!(
            self.ends.len(),
            self.lessees
                .values()
                .filter(|lessee| lessee.outstanding > 0)
                .count()
        );
    }
}
