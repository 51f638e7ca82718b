//! What identities take of a pool. An identity may be lent all that is left beyond what others are expected to want
//! until there is more, and in any case its share of the limit by weighted max-min. Its new sessions are lent only a
//! small part together until they have reported what became of it. So an identity gains nothing by making up sessions,
//! or by keeping silent about its grants. This only makes a grant smaller: no promise depends on it.

use super::Pool;
use super::family::Place;
use super::rare::Rare;
use crate::packed::Carrier;
use crate::share::Owner;
use crate::sizing::{self, MILLION, Peers, Supply};
use lessor_protocol::Moment;
use lessor_protocol::moment::nanos;
use lessor_protocol::sizing::PERMIT;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Number of other identities that one looks at, to make room or to see whether there are any.
const LOOKED_AT: usize = 3;

/// Longest time for which permits of new sessions that never report count, where no other identity is known. Sessions that
/// are made up would leave too little to others that come now, and processes that die keep nothing from the next ones.
const ALONE_FOR: Duration = Duration::from_secs(10);

/// What each identity has taken.
#[derive(Clone, Debug, Default)]
pub(super) struct Takings(Rare<BTreeMap<Owner, Taking>>);

/// What one identity has taken. It fades as the limit's own count does: of permits taken a span ago, at most about a
/// third is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Taking {
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
    /// Returns how many identities are remembered.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns what `owner` has taken by `now`.
    fn of(&self, owner: Owner, now: Moment, span: Duration) -> Taking {
        let known = self.0.get(&owner).copied();
        let mut taking = known.unwrap_or_default();
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
