//! Sizing of grants: arithmetic on needs, shares and what is left. Pools call this once an ask, with the [`Claims`] of
//! all other sessions. The result never depends on the order in which claims were made.

mod by_share;
mod claims;
mod ranked;

pub(crate) use by_share::ByShare;
pub(crate) use claims::peers::Level;
use claims::peers::Modest;
use lessor_protocol::moment::{nanos, span_of};
use lessor_protocol::sizing::PERMIT;
use std::time::Duration;

pub use claims::{Before, Claim, Claims, Name, Peers};
pub(crate) use ranked::{Entry, Ranked};

/// The session that asks: what it wants, what it claims, and when it was last served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// Permits that the session asks for.
    pub want: u64,
    /// Claim of the session.
    pub claim: Claim,
    /// Time since the session last got something.
    pub since: Duration,
    /// The time for which its share accrues at most.
    pub accrues_for: Duration,
    /// That time at which the session has its turn at a single permit: a poll, and more while others ask less often.
    pub turn: Duration,
}

/// Permits to be shared when a session asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Supply {
    /// Permits that can be lent now.
    pub left: u64,
    /// Permits that are there, some of which are kept for later.
    pub stock: u64,
    /// Permits that come back by themselves before sessions that found too few ask again.
    pub soon: u64,
    /// Permits that can be lent within a term: those that are left, and those that come back by themselves.
    pub within_term: u64,
    /// What can be lent in a term on average, for as long as all is wanted, in parts of a permit: it may be less than one.
    pub sustained: u128,
    /// Length of a term.
    pub term: Duration,
    /// The time between two asks of a session that found too few.
    pub poll: Duration,
}

impl Supply {
    /// Returns the supply without `permits` that are kept for others. They come out of what is kept for later first.
    /// What can be lent now can be lent within a term.
    #[must_use]
    pub fn less(self, permits: u64) -> Supply {
        let stock = self.stock.saturating_sub(permits);
        let left = self.left.min(stock);
        let within_term = self.within_term.saturating_sub(permits).max(left);
        Supply { stock, left, within_term, ..self }
    }
}

/// Part of an even share, a quarter, that a session without history gets at first: enough to start on, and too little
/// to hurt if it needs nothing. Its second lease is sized by what it really did.
const NEWCOMER_PART: u64 = 4;

/// Part of a term's supply, a twentieth, that all new sessions of one identity are lent together until they have
/// reported what became of it.
const NEWCOMERS_PART: u64 = 20;

/// Part of the rest of that, an eighth, that one new session of an identity is lent.
const NEWCOMERS_AT_ONCE: u64 = 8;

/// Unit of the parts of identities: millionths.
pub const MILLION: u32 = 1_000_000;

/// Part of what is left, one half, that a draining pool lends to all sessions for the time that it lasts. So leases
/// grow shorter as the pool empties, and hardly anything is out when it is empty.
const DRAIN_PART: u64 = 2;

/// Number of terms of others' spending that come first: a session that holds permits without spending them may hold its
/// share of what is left after that.
const HELD_APART: u64 = 4;

/// Sizes a grant. No session gets more than it wants, and:
///
/// - While the supply covers every need for a term, a want is met, up to half of what is left.
/// - A pool that **drains** gives all sessions the same time to spend: what is left, halved, in proportion to needs.
/// - A pool that lives on a **trickle**, on what comes back, shares that by weighted max-min. A session that needs less
///   than the water level gets its need in full, and what it is owed is kept for it. The others accrue the level over time.
///
/// Each session gets something while something is left that is not owed to another session, unless it asks too soon.
pub fn grant<I: Name>(asker: Asker, others: Peers<'_, I>, supply: Supply) -> Sized {
    let needs = others.needs() + u128::from(asker.claim.need);
    let half = (supply.left / 2).max(1).min(supply.left);
    let (state, share) = match Scarcity::of(needs, supply) {
        Scarcity::Abundant => (State::Abundant, half),
        Scarcity::Draining => {
            let (lasts, share) = drain_share(asker, others, supply);
            (State::Draining { lasts }, share.min(half))
        }
        Scarcity::Scarce => (State::Scarce, trickle_share(asker, others, supply)),
    };
    Sized { permits: asker.want.min(share), state }
}

/// A grant, and the state of the pool that decided it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sized {
    /// Permits to lend.
    pub permits: u64,
    /// State of the pool.
    pub state: State,
}

/// How scarce the permits of a pool are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Every need for a term can be met.
    Abundant,
    /// Not every need can be met, and more is left than comes back before the next ask.
    Draining {
        /// Time for which permits that are lent now should last.
        lasts: Duration,
    },
    /// Not every need can be met, and permits that come back are all there is.
    Scarce,
}

lessor_protocol::words! {
    /// A [`State`] without its figures, for metrics and pages.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Scarcity {
        /// See [`State::Abundant`].
        #[default]
        Abundant = "rich",
        /// See [`State::Draining`].
        Draining = "drain",
        /// See [`State::Scarce`].
        Scarce = "trickle",
    }
}

impl Scarcity {
    /// Classifies a pool whose sessions need `needs` permits in a term.
    pub fn of(needs: u128, supply: Supply) -> Self {
        if needs <= u128::from(supply.within_term) {
            Scarcity::Abundant
        } else if supply.left > supply.soon {
            Scarcity::Draining
        } else {
            Scarcity::Scarce
        }
    }
}

impl From<State> for Scarcity {
    fn from(state: State) -> Self {
        match state {
            State::Abundant => Scarcity::Abundant,
            State::Draining { .. } => Scarcity::Draining,
            State::Scarce => Scarcity::Scarce,
        }
    }
}

/// Returns how long half of what is left lasts, and the permits that let `asker` last as long. A session that claims to
/// need more than there is gets no more for it.
fn drain_share<I: Name>(asker: Asker, others: Peers<'_, I>, supply: Supply) -> (Duration, u64) {
    let most = supply.within_term;
    let own = u128::from(asker.claim.need.min(most));
    let needs = others.needs_at_most(most) + own;
    let left = u128::from(supply.left / DRAIN_PART);
    let lasts = u128::from(nanos(supply.term)) * left / needs;
    // In proportion to needs, but an identity gets at most its share.
    let target = match others.has_other_owners(asker.claim.share.owner) {
        true => {
            others.level(asker.claim, parts(most)).share(asker.claim) / PERMIT * left
                / u128::from(most.max(1))
        }
        false => own * left / needs,
    };
    let target = u64::try_from(target).unwrap_or(u64::MAX);
    let lasts = span_of(lasts).min(supply.term);
    // One at least, but not at each ask of a session that is nearer than others.
    let one = u64::from(asker.turn <= supply.poll || asker.since >= asker.turn);
    (lasts, target.saturating_sub(asker.claim.holds).max(one))
}

/// Returns what `asker` may have of the little that is left, while more trickles in.
fn trickle_share<I: Name>(asker: Asker, others: Peers<'_, I>, supply: Supply) -> u64 {
    let (mean, weight) = (asker.claim.mean, u128::from(asker.claim.share.weight));
    // Less may come back now than on average. A session that wants much less than the average is served all the same.
    let modest = Modest {
        level: others.level(asker.claim, parts(supply.within_term)),
        average: others.level(asker.claim, supply.sustained),
    };
    let gaps = others.gaps(asker.claim, &modest);
    // Permits that are kept for later are there for such a session too.
    let most = if modest.is_small(mean, weight) { supply.stock } else { supply.left };
    let free = most.min(supply.stock.saturating_sub(gaps.owed));
    // Rounded down, because a part of a permit is there sooner or later. If permits are kept for later it is there now.
    let share = modest.level.share(asker.claim) / u128::from(nanos(supply.term).max(1));
    let accrued = share * u128::from(nanos(asker.since.min(asker.accrues_for)));
    let is_in_time = asker.since >= asker.turn;
    let rounds_up = is_in_time && supply.stock > supply.left;
    let accrued = if rounds_up { accrued.div_ceil(PERMIT) } else { accrued / PERMIT };
    // One at least, but not at each ask of a session that asks all the time. A single permit is lent in turns, as long as
    // others ask less often.
    let accrued = u64::try_from(accrued).unwrap_or(u64::MAX);
    let waits = accrued == 1 && asker.turn > supply.poll;
    let accrued = if waits { 0 } else { accrued }.max(u64::from(is_in_time));
    if !modest.is(mean, weight) {
        return accrued.min(free);
    }
    let gap = asker.claim.gap().max(u64::from(is_in_time));
    if gap <= free {
        return gap;
    }
    // Not all gaps can be filled: small ones come first, with what is there and what comes until all have asked.
    let part = gaps.part(supply.left.saturating_add(supply.soon), weight);
    accrued.max(part.min(gap)).min(most)
}

/// Whether `claim` wants more than its share of a supply of `sustained` parts of a permit a term.
pub fn is_greedy<I: Name>(claim: Claim, others: Peers<'_, I>, sustained: u128) -> bool {
    !others.level(claim, sustained).covers(claim.mean, claim.share.weight.into())
}

/// Returns what `asker` may have of `supply` by weighted max-min, in whole permits; `None` if every session may have
/// what it wants.
pub fn even_share<I: Name>(asker: Claim, others: Peers<'_, I>, supply: u64) -> Option<u64> {
    let level = others.level(asker, parts(supply));
    let share = u64::try_from(level.share(asker) / PERMIT).unwrap_or(u64::MAX);
    (!level.meets_all()).then_some(share)
}

/// Returns the most that a session with `claim` may hold without spending it, of `supply` permits and the `held` ones that
/// it has: its share by weighted max-min after others have spent for four terms, and one at least. `None` if it claims no
/// more than its share, or if no other session claims more of the supply than its own: what the session holds serves no
/// other.
pub fn may_hold<I: Name>(claim: Claim, others: Peers<'_, I>, supply: u64, held: u64) -> Option<u64> {
    let all = supply.saturating_add(held);
    let weight = u128::from(claim.share.weight);
    let is_within = others.level(claim, parts(all)).covers(claim.mean, weight);
    if is_within || !others.level(claim, parts(supply)).is_contended(weight) {
        return None;
    }
    let share = others.level(claim, parts(all / HELD_APART)).share(claim) / PERMIT;
    Some(u64::try_from(share).unwrap_or(u64::MAX).saturating_mul(HELD_APART).max(1))
}

/// Returns the time in which the share of `claim` in what comes back amounts to `permits`; none beside no other session.
pub fn pays_in<I: Name>(claim: Claim, others: Peers<'_, I>, supply: Supply, permits: u64) -> Duration {
    if others.count() == 0 {
        return Duration::ZERO;
    }
    let share = others.level(claim, supply.sustained).share(claim).max(1);
    span_of(parts(permits).saturating_mul(nanos(supply.term).into()) / share)
}

/// Returns what a session with `claim` may have of a supply of `parts` of a permit by weighted max-min, in parts.
pub fn share_of<I: Name>(claim: Claim, others: Peers<'_, I>, parts: u128) -> u128 {
    others.level(claim, parts).share(claim)
}

/// Returns the part of `all` permits that a session with the share of `claim` may have by weighted max-min if it wants
/// them all, where `sustained` parts of a permit come back in a term.
pub fn part_of_all<I: Name>(claim: Claim, others: Peers<'_, I>, sustained: u128, all: u64) -> u64 {
    let term = if sustained == 0 { PERMIT } else { sustained };
    let greedy = Claim { mean: term, ..claim };
    let millionths = others.level(greedy, term).share(greedy) * u128::from(MILLION) / term;
    u64::try_from(u128::from(all) * millionths / u128::from(MILLION)).unwrap_or(u64::MAX)
}

/// Returns `permits` in parts of a permit.
fn parts(permits: u64) -> u128 {
    u128::from(permits) * PERMIT
}

/// Returns the most that a session without history is lent, whatever it asks for. Its `waiting` callers are taken for real.
pub fn newcomer_cap(waiting: u64, sessions: u64, supply: Supply) -> u64 {
    (supply.within_term / (NEWCOMER_PART * (sessions + 1))).max(waiting).max(1)
}

/// Returns the most that a session without history is lent because of its identity, beside `sessions` others. The
/// identity's new sessions have `unproven` permits. Each gets a part of what they may have together, so that many that
/// begin at once all get something.
pub fn newcomers_part(sessions: u64, unproven: u64, supply: Supply) -> u64 {
    let all = newcomer_cap(0, sessions, supply).min(supply.within_term / NEWCOMERS_PART).max(1);
    all.saturating_sub(unproven).div_ceil(NEWCOMERS_AT_ONCE)
}

#[cfg(test)]
mod tests;
