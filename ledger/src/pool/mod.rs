//! The books of one limit and key: one pure state machine. Allocators drive it, with the time as an argument; it does
//! no IO, reads no clock and draws no random number.
//!
//! Everything happens in [`Pool::renew`]: a session reports in totals what it spent and what it holds, and is lent
//! more. A grant is charged to every rule of the limit, or to none.
//!
//! An ask goes through `renew` (the exchange), `session` (what a report settles), `lend` (a grant is sized, charged and
//! dated) with `claims` (what is shared, by whom, and the part of an identity), and `ledgers` (all rules as one).
//! `sessions` keeps the sums that lending needs.

mod agenda;
mod ages;
mod books;
mod borrow;
mod calls;
mod change;
mod checkpoint;
mod claims;
mod earlier_shares;
mod family;
mod feedback;
mod fixed_parts;
mod forecast;
mod forget;
mod greed;
mod groups;
mod large;
mod ledgers;
mod lend;
mod loan;
mod orphaned_calls;
mod past;
mod patience;
mod plan;
mod rare;
mod rates;
mod renew;
mod reset;
mod resting;
mod safe_loan;
mod safe_shares;
mod seats;
mod session;
mod sessions;
mod snapshot;
#[cfg(test)]
mod tests;
mod unspent;

pub use books::Books;
pub use borrow::GrantOutcome;
pub use checkpoint::{CHECKPOINT_LASTS, Checkpoint, HighWater};
pub use earlier_shares::{EarlierShares, SavedShares};
pub use family::Above;
pub use feedback::ObservationEffect;
pub use fixed_parts::FixedParts;
pub use forecast::Forecast;
pub use groups::GroupAsk;
pub use past::{Past, SavedPast};
pub use plan::{AskError, Holder, Plan, PoolView};
pub use resting::Resting;
pub use safe_loan::SafeAsk;
pub use safe_shares::safe_span;
pub use session::{Goodbye, Holding, SessionId};
pub use snapshot::Snapshot;

use crate::Rule;
use crate::pacing::Pacer;
use crate::rule::Flow;
use ages::Ages;
use borrow::Borrower;
use checkpoint::Checkpoints;
use claims::Takings;
use family::Place;
use feedback::Feedback;
use groups::Groups;
use ledgers::Ledgers;
use lessor_protocol::Moment;
use loan::Loan;
use patience::ExcessDemand;
use rare::Rare;
use safe_shares::SafeShares;
use sessions::Sessions;
use std::sync::Arc;
use std::time::Duration;
use unspent::Walked;

/// The books of one limit and key.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Tells the pool apart from other pools below the same pool.
    number: u64,
    plan: Arc<Plan>,
    ledgers: Ledgers,
    /// State of the rule that is a steady flow, if there is one.
    flow: Option<Box<Flow>>,
    /// Exchange with the allocator above, if the pool leases from one.
    borrower: Option<Box<Borrower>>,
    /// Length of a lease that nothing clips.
    term: Duration,
    sessions: Sessions,
    /// Longest time that a call may take; `None` if no rule counts calls in flight.
    longest: Option<Duration>,
    books: Books,
    shadow_refused: u64,
    pacer: Rare<Pacer>,
    excess_demand: Rare<ExcessDemand>,
    forecast: Forecast,
    groups: Rare<Groups>,
    takings: Takings,
    feedback: Feedback,
    /// See [`Pool::unspent`].
    walked: Option<Box<Walked>>,
    safe_shares: SafeShares,
    checkpoints: Checkpoints,
    now: Moment,
    /// Nothing is granted before this.
    quarantine_until: Moment,
    /// Until then leases may be out that were lent under earlier rules.
    old_rules_until: Moment,
}

impl Pool {
    /// Creates a pool with full buckets and empty windows at `now`.
    pub fn new(plan: Arc<Plan>, now: Moment) -> Self {
        let ledgers = Ledgers::of(&plan, now);
        let borrower = plan.is_borrowed.then(|| Box::new(Borrower::new()));
        let term = plan.term();
        let term = borrower.as_ref().map_or(term, |borrower| borrower.lends_for(term));
        let ages = Ages { term, source: ledgers.source(&plan.rules) };
        Pool {
            number: family::number(),
            term,
            borrower,
            groups: Groups::of(&plan, &ledgers, now),
            takings: Takings::default(),
            longest: ledgers.longest(),
            sessions: match (Sessions::new(ages), plan.is_borrowed) {
                (sessions, true) => sessions.with_distances(),
                (sessions, false) => sessions,
            },
            ledgers,
            flow: plan
                .rules
                .iter()
                .find_map(Rule::flow)
                .map(|rule| Box::new(Flow::new(rule, plan.clocks, now))),
            plan,
            books: Books::default(),
            shadow_refused: 0,
            pacer: Rare::default(),
            excess_demand: Rare::default(),
            forecast: Forecast::default(),
            feedback: Feedback::default(),
            walked: None,
            safe_shares: SafeShares::new(now),
            checkpoints: Checkpoints::default(),
            now,
            quarantine_until: now,
            old_rules_until: now,
        }
    }

    /// Creates a pool whose books may have been lost at `lost`, the latest moment at which an earlier life of the
    /// allocator ended. It grants nothing until all that the earlier life lent has ended and left every window.
    pub fn after_loss(plan: Arc<Plan>, lost: Moment, now: Moment) -> Self {
        Pool::after_loss_by(plan, lost, Moment::ORIGIN, now)
    }

    /// [`Pool::after_loss`] for a limit whose `plan` took effect only at `since`: what refills by the plan does so from then on.
    pub fn after_loss_by(plan: Arc<Plan>, lost: Moment, since: Moment, now: Moment) -> Self {
        let quarantined = lost + plan.clocks.quarantine();
        let mut pool = Pool::new(plan, now);
        pool.forget_safe_shares(lost);
        pool.quarantine_until = pool.ledgers.forget(quarantined, since);
        if let Some(flow) = &mut pool.flow {
            flow.forget(quarantined.max(since));
        }
        pool
    }

    /// Advances the pool to `now` and returns its books.
    pub fn let_pass(&mut self, now: Moment) -> &Books {
        self.advance(now);
        &self.books
    }

    /// Burns leases that end by `now`, before anything else is done at that moment, and returns the books.
    pub fn burn_ended(&mut self, now: Moment) -> &Books {
        if self.sessions.expired(now).is_some() {
            self.advance(now);
        }
        &self.books
    }

    /// Returns a view of the pool at `now`.
    pub fn view(&mut self, now: Moment) -> PoolView {
        self.advance(now);
        let forecast = self.forecast();
        PoolView {
            available: if self.now < self.quarantine_until { 0 } else { self.available() },
            over: self.ledgers.excess(),
            withheld: self.withheld(),
            vendor_pause: self.vendor_pause(),
            books: self.books,
            in_flight: self.sessions.in_flight(),
            shadow_refused: self.shadow_refused,
            sessions: self.sessions.len() as u64,
            quarantine: self.quarantine_until.since(self.now),
            shut: self.shut_for_shares(),
            forecast,
            time_to_empty: forecast.time_to_empty(self.now),
        }
    }

    /// Returns a view of the pool at the last moment that it was advanced to.
    pub(crate) fn current_view(&mut self) -> PoolView {
        self.view(self.now)
    }

    /// Returns the most permits that can ever be lent at once.
    pub fn ceiling(&self) -> u64 {
        let above = self.ledgers.loan().map_or(u64::MAX, Loan::ceiling);
        self.plan.ceiling().min(above).saturating_sub(self.reserve())
    }

    /// Returns the most permits that one call can ever take.
    pub fn call_max(&self) -> u64 {
        self.ceiling().min(self.plan.sharing.lease_max)
    }

    /// Returns the most permits that one call of `place` can ever take: it leaves to groups what they are guaranteed. A
    /// root lends to allocators, whose nodes may be of any group.
    fn call_max_of(&self, place: Place) -> u64 {
        if self.plan.is_root || self.groups.is_usual() {
            return self.call_max();
        }
        let above = self.ledgers.loan().map_or(u64::MAX, Loan::ceiling);
        // A steady flow keeps nothing for groups.
        let lends = self.plan.ceiling_beside_flow().min(above).saturating_sub(self.reserve());
        let kept = self.kept_at_most(self.sessions[place].share.group);
        self.call_max().min(lends.saturating_sub(kept))
    }

    /// Whether the quarantine is over. Before that, the pool reads no report.
    pub(crate) fn is_open(&self) -> bool {
        self.now >= self.quarantine_until
    }

    /// Returns the plan of the pool.
    pub(crate) fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Returns the rules that the pool keeps.
    pub fn rules(&self) -> &[Rule] {
        &self.plan.rules
    }

    /// Whether the pool is a root. The time of its store is inexact, so no allocator knows for sure on which side of a
    /// window boundary it is.
    fn is_clock_uncertain(&self) -> bool {
        self.plan.is_root
    }

    /// Returns the instant that no lease may outlive, unless its permits are charged ahead.
    pub(super) fn lease_end(&self) -> Option<Moment> {
        if self.is_clock_uncertain() { self.ledgers.lease_end_in_doubt() } else { self.ledgers.lease_end() }
    }

    /// Returns the instant that no lease may outlive even if its permits are charged ahead. For a root this is the next
    /// boundary, because no allocator knows for sure on which side of it the time is.
    pub(super) fn lease_end_ahead(&self) -> Option<Moment> {
        if self.is_clock_uncertain() { self.lease_end() } else { self.ledgers.lease_end_ahead() }
    }

    /// Notes that the time of the calling allocator is inexact: the true time is at most `latest`.
    pub fn doubt(&mut self, latest: Moment) {
        self.ledgers.doubt(latest);
    }

    /// Returns the permits that can be lent now, whatever a steady flow has.
    fn left(&self) -> u64 {
        if !self.shut_for_shares().is_zero() {
            return 0;
        }
        let kept_back = self.reserve().saturating_add(self.withheld());
        self.ledgers.available().saturating_sub(kept_back).min(self.ease_in_max())
    }

    /// Returns the window of the rule with the lowest ceiling, if that rule has one.
    pub fn window(&self) -> Option<Duration> {
        self.plan.window()
    }

    /// Returns the permits that could be lent and spent now, a steady flow included.
    fn available(&self) -> u64 {
        let level = self.flow.as_deref().map_or(u64::MAX, Flow::level);
        self.left().min(level.saturating_sub(self.reserve()))
    }
}
