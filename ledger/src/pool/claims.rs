//! Claims of sessions on a pool, the supply that they share, and what their identities have taken. A claim says what a
//! session needs, holds and weighs. [`super::sessions::Sessions`] keeps all claims as sums. The supply is the permits that
//! can be lent now and within a term, at a pace while the pool is low or more is wanted than comes back. Lending sizes a
//! grant by both.
//!
//! An identity may be lent all that is left beyond what others are expected to want, and in any case its share of the
//! limit by weighted max-min. Its new sessions are lent a small part together until they have reported what became of it:
//! an identity gains nothing by making up sessions. This only makes a grant smaller: no promise depends on it.

use super::Pool;
use super::ages::{Age, Ages};
use super::family::Place;
use super::forecast::draw;
use super::rare::Rare;
use super::session::Session;
use crate::pacing::Excess;
use crate::packed::Carrier;
use crate::rule::{Draw, Pace, THOUSAND_SECONDS};
use crate::share::{self, Owner, Share};
use crate::sizing::{self, Asker, Claim, MILLION, Peers, Supply};
use lessor_protocol::moment::nanos;
use lessor_protocol::sizing::{PERMIT, need};
use lessor_protocol::{Ask, Moment};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Permits that a session may want beyond what demand and queue explain: a first lease, and a spare permit.
const UNEXPLAINED: u64 = 8;

/// Asks of a node in a term when permits are scarce. More polls find permits sooner, fewer cost less. All nodes ask
/// equally often, so that shares do not depend on the number of asks.
const POLLS_PER_TERM: u32 = 4;

/// Shortest time between two asks when permits are scarce.
pub(super) const POLL_MIN: Duration = Duration::from_millis(10);

/// Longest pause in which excess demand still counts as going on: demand is an average over at most a second.
const EXCESS_PAUSE: Duration = Duration::from_secs(2);

/// Number of other identities that one looks at, to make room or to see whether there are any.
const LOOKED_AT: usize = 3;

/// Longest time for which permits of new sessions that never report count, where no other identity is known. Sessions that
/// are made up would leave too little to others that come now, and processes that die keep nothing from the next ones.
const ALONE_FOR: Duration = Duration::from_secs(10);

/// Returns the time between two asks of a session that found too little, where leases last for `term`.
pub(super) fn poll(term: Duration) -> Duration {
    (term / POLLS_PER_TERM).max(POLL_MIN)
}

/// Returns the claim to `wanted` permits in hand and in use.
pub(super) fn of_all(share: Share, wanted: u64) -> Claim {
    Claim { mean: u128::from(wanted) * PERMIT, need: wanted, bare: wanted, share, holds: 0 }
}

impl Session {
    /// Whether the session shares with one that asks. A session that has not yet accounted for its first grant keeps
    /// nothing from others.
    pub(super) fn shares(&self) -> bool {
        matches!(self.age, Age::Fresh | Age::Silent) && !self.is_unproven
    }

    /// Returns what the session takes from now on.
    pub(super) fn draw(&self) -> Draw {
        if self.shares() { draw(self.demand_milli, self.waiting, self.outstanding) } else { Draw::default() }
    }
}

/// What each identity has taken.
#[derive(Clone, Debug, Default)]
pub(super) struct Takings(pub(super) Rare<BTreeMap<Owner, Taking>>);

/// What one identity has taken. It fades as the limit's own count does: of permits taken a span ago, at most about a
/// third is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taking {
    /// Permits taken, less those that came back, in parts of a permit, as of `at`.
    taken: u128,
    at: Moment,
    /// Parts of a permit lent to new sessions that have not reported what became of them, as of `unproven_at`.
    unproven: u128,
    /// When such a session was last lent anything.
    unproven_at: Moment,
}

impl Taking {
    /// Fades all of the taking up to `now`, where the limit lends its ceiling in `span`.
    fn fade(&mut self, now: Moment, span: Duration) {
        self.fade_taken(now, span);
        self.fade_unproven(now, span);
    }

    fn fade_taken(&mut self, now: Moment, span: Duration) {
        (self.taken, self.at) = faded(self.taken, self.at, now, span);
    }

    fn fade_unproven(&mut self, now: Moment, span: Duration) {
        (self.unproven, self.unproven_at) = faded(self.unproven, self.unproven_at, now, span);
    }

    fn is_over(&self) -> bool {
        self.taken < PERMIT && self.unproven < PERMIT
    }
}

/// Returns what is left of `parts`, as of `at`, after fading up to `now`, and as of when.
fn faded(parts: u128, at: Moment, now: Moment, span: Duration) -> (u128, Moment) {
    let (elapsed, span) = (u128::from(nanos(now.since(at))), u128::from(nanos(span)));
    let lost = parts.saturating_mul(elapsed).checked_div(span).unwrap_or(parts);
    (parts.saturating_sub(lost), at.max(now))
}

impl Takings {
    /// Returns what `owner` has taken by `now`.
    fn of(&self, owner: Owner, now: Moment, span: Duration) -> Taking {
        let mut taking = self.0.get(&owner).copied().unwrap_or_default();
        taking.fade(now, span);
        taking
    }

    /// Whether another identity than `owner` has taken permits lately. If many are remembered, this looks at a few, and
    /// takes it that one of the others has.
    fn has_other(&self, owner: Owner, now: Moment, span: Duration) -> bool {
        let mut others = self.0.iter().filter(|(other, _)| **other != owner);
        let mut first = others.by_ref().take(LOOKED_AT);
        first.any(|(other, _)| !self.of(*other, now, span).is_over()) || others.next().is_some()
    }

    /// Changes what `owner` has taken by `now`. Unproven permits fade from their own moment on: how long they count is up to
    /// the reader, and a session that is lent more does not begin that time anew.
    fn change(&mut self, owner: Owner, now: Moment, span: Duration, change: impl FnOnce(&mut Taking)) {
        if !self.0.contains_key(&owner) {
            self.make_room(owner, now, span);
        }
        let all = &mut self.0;
        let taking = all.entry(owner).or_default();
        taking.fade_taken(now, span);
        change(taking);
    }

    /// Forgets identities next to `owner` that have taken nothing lately. A new identity looks at only a few, whose
    /// numbers come in no order. So few more are kept than have taken something lately, and no single one pays for all.
    fn make_room(&mut self, owner: Owner, now: Moment, span: Duration) {
        let next = self.0.range(owner..).chain(self.0.range(..owner)).take(LOOKED_AT);
        let is_over = |taking: &Taking| {
            let mut taking = *taking;
            taking.fade(now, span);
            taking.is_over()
        };
        let over: Vec<Owner> = next.filter(|(_, taking)| is_over(taking)).map(|(owner, _)| *owner).collect();
        if let Some(all) = self.0.unusual() {
            over.iter().for_each(|owner| _ = all.remove(owner));
        }
    }

    /// Carries all identities.
    pub(super) fn carry(&mut self, carrier: &mut Carrier<'_>) {
        carrier.rare(&mut self.0, carry_all);
    }
}

fn carry_all(takings: &mut BTreeMap<Owner, Taking>, carrier: &mut Carrier<'_>) {
    let mut all: VecDeque<(Owner, Taking)> = std::mem::take(takings).into_iter().collect();
    let blank = || (Owner::NONE, Taking::default());
    carrier.list(&mut all, blank, |carrier, (owner, taking)| {
        carrier.number(&mut owner.0);
        carrier.wide(&mut taking.taken);
        carrier.moment(&mut taking.at);
        carrier.wide(&mut taking.unproven);
        carrier.moment(&mut taking.unproven_at);
    });
    *takings = all.into_iter().collect();
}

impl Pool {
    /// Returns how long after its last ask a session shares that is near.
    pub(super) fn active(&self) -> Duration {
        self.sessions.ages().active(Duration::ZERO)
    }

    /// Returns how claims age by the rules and the term that are in force.
    pub(super) fn ages_now(&self) -> Ages {
        Ages { term: self.term, source: self.ledgers.source(&self.plan.rules) }
    }

    /// Builds the [`Asker`] for `ask` of the session at `place`.
    pub(super) fn asker(&self, place: Place, ask: &Ask) -> Asker {
        let session = &self.sessions[place];
        let kept = session.outstanding;
        // A want that demand and queue do not explain is still a need: no session gets more by saying less.
        let explained =
            need(ask.demand_milli, session.term).saturating_add(ask.waiting).saturating_add(UNEXPLAINED);
        let unexplained = ask.want.saturating_add(kept).saturating_sub(explained);
        // Permits in hand do not count if callers wait in spite of them.
        let holds = if ask.waiting > 0 { 0 } else { kept };
        let queue = ask.waiting.saturating_add(unexplained);
        let claim = self.sessions.ages().claim_to(ask.demand_milli, queue);
        Asker {
            want: ask.want.min(self.plan.sharing.lease_max.saturating_sub(kept)),
            claim: Claim { share: *session.share, holds, ..claim },
            since: self.now.since(session.lent),
            accrues_for: self.accrues_for(place),
            turn: poll(self.term),
        }
    }

    /// Returns the claims that a session with `share` shares with, the supply to share, and the permits owed to the
    /// session in any case.
    pub(super) fn peers(&self, share: Share, supply: Supply) -> (Peers<'_, Place>, Supply, u64) {
        let claims = self.sessions.claims();
        // Guaranteed permits can be lent even while the rest is lent at a pace.
        let is_all_for_all = self.groups.is_usual();
        let (kept, owed) = if is_all_for_all { (0, 0) } else { self.guaranteed_to(share, self.left()) };
        let supply = supply.less(kept);
        let supply = share::after(claims.before(share.priority), supply);
        (claims.peers(share.priority), supply, owed)
    }

    /// Returns what can be shared of the `left` permits, and the pace if the pool eases off or lends evenly as
    /// `evens_out` says.
    pub(super) fn supply(
        &mut self,
        place: Place,
        left: u64,
        evens_out: Option<(Duration, Duration)>,
    ) -> (Supply, Option<Pace>) {
        let (term, saved_for) = (self.term, self.saves_for(place));
        let kept_back = self.reserve().saturating_add(self.withheld());
        let even = evens_out.and_then(|evens_out| self.even_pace(kept_back, evens_out));
        // While the pool eases in after a pause, no more will be there than is now.
        let most = self.ease_in_max();
        let within = |span| self.ledgers.within(span).saturating_sub(kept_back).min(most).max(left);
        let rules = &self.plan.rules;
        if self.excess_demand.excess != Excess::NONE && self.ledgers.evens_out_low(rules, kept_back) {
            self.excess_demand.excess.found_low();
        }
        let is_even = even.is_some();
        let eases_off = self.plan.ease_off && !is_even;
        let pace = if eases_off { self.ledgers.low_pace(rules, kept_back) } else { even };
        let sustained = self.sustained();
        let (stock, poll) = (left, poll(term));
        let supply = match pace {
            Some(pace) => {
                let left = self.pacer.lendable(self.now, left, pace, saved_for);
                let within_term = left.saturating_add(pace.within(term));
                // Permits that an even pace keeps for later are there for a session that wants little.
                let stock = if is_even { stock } else { left };
                // A pool that eases off is a trickle, however full.
                Supply { left, stock, soon: left, within_term, sustained, term, poll }
            }
            None => {
                let (soon, within_term) = (within(poll) - left, within(term));
                self.pacer.reset();
                Supply { left, stock, soon, within_term, sustained, term, poll }
            }
        };
        (supply, pace)
    }

    /// Returns the permits that must be left beyond what the session wants: the reserve, and those kept for others.
    pub(super) fn kept_back(&self, place: Place) -> u64 {
        let kept = self.kept_at_most(self.sessions[place].share.group);
        kept.min(self.ceiling().saturating_sub(1)) + self.reserve()
    }

    /// Returns for how long more must be wanted than comes back before the pool lends evenly, and how long a plan for
    /// that holds.
    pub(super) fn evens_out(&self) -> Option<(Duration, Duration)> {
        if self.plan.ease_off { self.ledgers.evens_out() } else { None }
    }

    /// Returns the even pace, if more has been wanted than the limit has for a whole window.
    fn even_pace(&mut self, kept_back: u64, (window, plan): (Duration, Duration)) -> Option<Pace> {
        let (ledgers, now) = (&self.ledgers, self.now);
        let is_steady = self.excess_demand.excess.is_steady(now, window);
        let pace = || ledgers.even_pace(kept_back).unwrap_or(Pace { permits: 0, over: 1 });
        is_steady.then(|| self.excess_demand.excess.pace(now, plan, pace))
    }

    /// Notes whether more is wanted than comes back, where all sessions take `draw` and the pool can lend evenly.
    pub(super) fn note_excess(&mut self, draw: Draw) {
        let is_excess = draw.demand_milli > 0 && draw.demand_milli > self.ledgers.sustained(THOUSAND_SECONDS);
        if is_excess || self.excess_demand.excess != Excess::NONE {
            self.excess_demand.excess.see(self.now, is_excess, EXCESS_PAUSE.max(2 * self.term));
        }
    }

    /// Returns the time in which the limit lends its ceiling, and in which takings fade.
    fn identity_span(&self) -> Duration {
        self.ledgers.span(self.plan.ceiling())
    }

    /// Returns the most that the session at `place` may be lent of `supply` because of its identity. If permits are not spent
    /// for good (`is_spent`), only the bound on new sessions applies. A pool that leases sets no bound, because its
    /// future supply is up to the allocator above.
    pub(super) fn identity_may_take(
        &self,
        place: Place,
        others: Peers<'_, Place>,
        supply: Supply,
        is_spent: bool,
    ) -> u64 {
        let (session, now) = (&self.sessions[place], self.now);
        let share = *session.share;
        if share.owner == Owner::NONE || self.plan.is_borrowed {
            return u64::MAX;
        }
        let span = self.identity_span();
        let taking = self.takings.of(share.owner, now, span);
        let part = if is_spent { others.part_of_identity(share, supply.sustained) } else { None };
        let most = part.map_or(u64::MAX, |millionths| {
            let all = u128::from(self.ceiling());
            let fair = (all * u128::from(millionths)).div_ceil(MILLION.into()).max(1);
            // Permits that others are expected to want until there are more.
            let until = self.lease_end().map_or(span, |end| end.since(now).min(span));
            let kept = all.saturating_sub(fair) * u128::from(nanos(until));
            let kept = kept.div_ceil(u128::from(nanos(span)).max(1));
            let beyond = u128::from(supply.left).saturating_sub(kept);
            let left = fair.saturating_sub(taking.taken / PERMIT);
            u64::try_from(beyond.max(left)).unwrap_or(u64::MAX)
        });
        if !session.is_unproven {
            return most;
        }
        let is_alone = !self.is_beside_others(share.owner, others);
        let counts_for = if is_alone { span.min(ALONE_FOR) } else { span };
        let unproven = self.takings.of(share.owner, now, counts_for).unproven / PERMIT;
        let unproven = u64::try_from(unproven).unwrap_or(u64::MAX);
        most.min(sizing::newcomers_part(others.count(), unproven, supply))
    }

    /// Whether another identity than `owner` is known: `others` claim permits, it has sessions, or it has taken permits
    /// lately. New sessions claim nothing yet, and sessions of pools below are not known by their identity.
    fn is_beside_others(&self, owner: Owner, others: Peers<'_, Place>) -> bool {
        others.has_other_owners(owner)
            || self.sessions.are_of_others(owner)
            || self.takings.has_other(owner, self.now, self.identity_span())
    }

    /// Records that `permits` were lent to the session at `place`.
    pub(super) fn identity_was_lent(&mut self, place: Place, permits: u64) {
        let session = &self.sessions[place];
        let (owner, is_unproven) = (session.share.owner, session.is_unproven);
        if permits == 0 || owner == Owner::NONE || self.plan.is_borrowed {
            return;
        }
        let (now, span, parts) = (self.now, self.identity_span(), u128::from(permits) * PERMIT);
        self.takings.change(owner, now, span, |taking| {
            taking.taken = taking.taken.saturating_add(parts);
            if is_unproven {
                taking.fade_unproven(now, span);
                taking.unproven = taking.unproven.saturating_add(parts);
            }
        });
    }

    /// Records that `permits` came back from a session of `owner`, and that it has accounted for `proven` permits,
    /// which it was lent when it was new.
    pub(super) fn identity_has_said(&mut self, owner: Owner, permits: u64, proven: u64) {
        if (permits == 0 && proven == 0) || owner == Owner::NONE || self.plan.is_borrowed {
            return;
        }
        let span = self.identity_span();
        self.takings.change(owner, self.now, span, |taking| {
            taking.taken = taking.taken.saturating_sub(u128::from(permits) * PERMIT);
            taking.unproven = taking.unproven.saturating_sub(u128::from(proven) * PERMIT);
        });
    }
}
