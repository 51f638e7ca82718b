//! How big a grant is: arithmetic on needs, shares and what is left. Pools call it once an ask.
//! It keeps no state, so an answer never depends on who asked first.

use crate::share::Share;
use lessor_protocol::moment::nanos;
use lessor_protocol::sizing::PERMIT;
use std::time::Duration;

/// One session that shares in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What it spends in a term on average, and what is queueing, in parts of a permit ([`PERMIT`] to one): what its
    /// share is measured by.
    pub mean: u128,
    /// The same with its safety stock, in permits: what it would hold.
    pub need: u64,
    /// What it must hold to get by until it has asked a few times, when permits are scarce.
    pub bare: u64,
    /// What it counts for, from the limit's configuration.
    pub share: Share,
    /// What it still has of that, as far as can be told.
    pub holds: u64,
}

impl Claim {
    /// What it lacks when permits are scarce.
    fn gap(self) -> u64 {
        self.bare.saturating_sub(self.holds)
    }
}

/// Who asks, and how it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// What it asks for.
    pub want: u64,
    /// Its claim.
    pub claim: Claim,
    /// Time since it last got something, at most a term.
    pub since: Duration,
}

/// What is to be shared when a session asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Supply {
    /// Permits that can be lent now.
    pub left: u64,
    /// Permits that come back by themselves before those who found too few ask again.
    pub soon: u64,
    /// Permits that can be lent within a term: those that are left, and what comes back by itself.
    pub within_term: u64,
    /// Permits that can be lent in a term on average, for as long as all are wanted.
    pub sustained: u64,
    /// The term.
    pub term: Duration,
    /// The time between two asks of a session that found too few.
    pub poll: Duration,
}

/// A newcomer without history gets at most this part of an even share at once: enough to start on, and too
/// little to hurt if it turns out to need nothing. Its second lease is sized by what it really did.
const NEWCOMER_PART: u64 = 4;

/// A pool that drains lends at most this part of what is left to all, for the time that it lasts: so leases grow
/// shorter as it empties, and hardly anything is out when it is empty.
const DRAIN_PART: u64 = 2;

/// When little comes back, a session that wants at most five sevenths of the average share comes first. A larger part would let
/// sessions that want just less than their share leave nothing to sessions that want just more.
const MODEST_PART: (u128, u128) = (5, 7);

/// How many permits to lend. No session gets more than it wants, and:
///
/// - While the supply covers every need for a term, a want is met, up to half of what is left.
/// - A pool that **drains** gives all sessions the same time to spend: what is left, halved, in proportion to needs.
/// - A pool that lives on a **trickle**, on what comes back, shares that by weighted max-min. A session that needs less than
///   the water level gets its need in full, and what it is owed is kept for it. The others accrue the level over time.
///
/// Each session gets something while something is left that is not owed to another session, unless it asks too soon.
pub fn grant(asker: Asker, others: &[Claim], supply: Supply) -> Sized {
    let needs =
        others.iter().map(|claim| u128::from(claim.need)).sum::<u128>() + u128::from(asker.claim.need);
    let half = (supply.left / 2).max(1);
    let (state, share) = match Scarcity::of(needs, supply) {
        Scarcity::Abundant => (State::Abundant, half),
        Scarcity::Draining => {
            let (lasts, share) = drain_share(asker, others, supply);
            (State::Draining { lasts }, share.min(half))
        }
        Scarcity::Scarce => (State::Scarce, trickle_share(asker, others, supply)),
    };
    Sized { permits: asker.want.min(share).min(supply.left), state }
}

/// A grant and what decided it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sized {
    /// Permits to lend.
    pub permits: u64,
    /// How the pool stands.
    pub state: State,
}

/// How a pool stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Every need for a term can be met.
    Abundant,
    /// Not so, and what is left counts for more than what comes back.
    Draining {
        /// How long what is lent now should last.
        lasts: Duration,
    },
    /// What comes back is all there is.
    Scarce,
}

/// The same in a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scarcity {
    /// See [`State::Abundant`].
    #[default]
    Abundant,
    /// See [`State::Draining`].
    Draining,
    /// See [`State::Scarce`].
    Scarce,
}

impl Scarcity {
    /// All there are.
    pub const ALL: [Scarcity; 3] = [Scarcity::Abundant, Scarcity::Draining, Scarcity::Scarce];

    /// That of a pool of which all that share in it need `needs` for a term.
    pub fn of(needs: u128, supply: Supply) -> Self {
        if needs <= u128::from(supply.within_term) {
            Scarcity::Abundant
        } else if supply.left > supply.soon {
            Scarcity::Draining
        } else {
            Scarcity::Scarce
        }
    }

    /// Its stable word.
    pub fn word(self) -> &'static str {
        match self {
            Scarcity::Abundant => "rich",
            Scarcity::Draining => "drain",
            Scarcity::Scarce => "trickle",
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

/// How long what is left lasts, halved, and what brings `asker` to that. A session that says that it needs more than there is gets
/// no more for that.
fn drain_share(asker: Asker, others: &[Claim], supply: Supply) -> (Duration, u64) {
    let believed = |claim: Claim| u128::from(claim.need.min(supply.within_term));
    let needs = others.iter().map(|claim| believed(*claim)).sum::<u128>() + believed(asker.claim);
    let left = u128::from(supply.left / DRAIN_PART);
    let lasts = u128::from(nanos(supply.term)) * left / needs;
    let target = believed(asker.claim) * left / needs;
    let target = u64::try_from(target).unwrap_or(u64::MAX);
    let lasts = Duration::from_nanos(u64::try_from(lasts).unwrap_or(u64::MAX)).min(supply.term);
    (lasts, target.saturating_sub(asker.claim.holds).max(1))
}

/// What `asker` may have of the little that is left, while more trickles in.
fn trickle_share(asker: Asker, others: &[Claim], supply: Supply) -> u64 {
    let all = || others.iter().copied().chain([asker.claim]);
    let level = Level::of(all(), supply.within_term);
    // What comes back now may be less than the average: a session that wants much less than the average is served all the same.
    let average = Level::of(all(), supply.sustained);
    let is_modest = |claim: Claim| level.covers(claim) || average.covers_part(MODEST_PART, claim);
    let modest = || others.iter().filter(|claim| is_modest(**claim));
    let owed = modest().map(|claim| claim.gap()).fold(0, u64::saturating_add);
    let free = supply.left.saturating_sub(owed);
    // In permits first, rounded down: a part of a permit is there sooner or later.
    let share = level.share(asker.claim) / u128::from(nanos(supply.term).max(1));
    let accrued = share * u128::from(nanos(asker.since.min(supply.term))) / PERMIT;
    // At least one, but not at each ask of a session that asks all the time.
    let one = u64::from(asker.since >= supply.poll);
    let accrued = u64::try_from(accrued).unwrap_or(u64::MAX).max(one);
    if !is_modest(asker.claim) {
        return accrued.min(free);
    }
    let gap = asker.claim.gap().max(one);
    if gap <= free {
        return gap;
    }
    // Not all gaps can be filled: each in the same part, with what is there and what comes until all have asked.
    let comes = u128::from(supply.left.saturating_add(supply.soon));
    let part = u128::from(gap) * comes / (u128::from(owed) + u128::from(gap));
    accrued.max(u64::try_from(part).unwrap_or(u64::MAX)).min(supply.left)
}

/// Whether `claim` wants more than its share of a supply of `sustained` permits a term.
pub fn is_greedy(claim: Claim, others: &[Claim], sustained: u64) -> bool {
    let all = others.iter().copied().chain([claim]);
    !Level::of(all, sustained).covers(claim)
}

/// How high a supply stands that is poured over all claims: the level rises for everybody alike, by weight, and a
/// claim that is full drinks no more. In parts of a permit per weight, as a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Level {
    parts: u128,
    /// Of those that are not full; zero if all are.
    weights: u128,
}

impl Level {
    fn of(claims: impl Iterator<Item = Claim>, supply: u64) -> Self {
        let mut claims: Vec<Claim> = claims.collect();
        // The first to be full is the one with the least mean for its weight.
        claims.sort_unstable_by(|a, b| {
            (a.mean.saturating_mul(b.share.weight.into())).cmp(&b.mean.saturating_mul(a.share.weight.into()))
        });
        let weights = claims.iter().map(|claim| u128::from(claim.share.weight)).sum();
        let mut level = Level { parts: u128::from(supply) * PERMIT, weights };
        for claim in &claims {
            if !level.covers(*claim) {
                break;
            }
            level.parts -= claim.mean;
            level.weights -= u128::from(claim.share.weight);
        }
        level
    }

    /// Whether `claim` is met in full.
    fn covers(self, claim: Claim) -> bool {
        claim.mean.saturating_mul(self.weights) <= self.parts.saturating_mul(claim.share.weight.into())
    }

    /// Whether `claim` would be met in full if it were larger by the inverse of `part`.
    fn covers_part(self, part: (u128, u128), claim: Claim) -> bool {
        let mean = claim.mean.saturating_mul(part.1);
        mean.saturating_mul(self.weights)
            <= self.parts.saturating_mul(part.0).saturating_mul(claim.share.weight.into())
    }

    /// What `claim` gets, in parts of a permit.
    fn share(self, claim: Claim) -> u128 {
        if self.covers(claim) {
            claim.mean
        } else {
            self.parts * u128::from(claim.share.weight) / self.weights
        }
    }
}

/// What `asker` may have of `supply` by weighted max-min, in whole permits; `None` if everybody may have what they want.
pub fn even_share(asker: Claim, others: &[Claim], supply: u64) -> Option<u64> {
    let level = Level::of(others.iter().copied().chain([asker]), supply);
    let is_enough = level.weights == 0;
    let share = u64::try_from(level.share(asker) / PERMIT).unwrap_or(u64::MAX);
    (!is_enough).then_some(share)
}

/// The most that a session without history is lent, whatever it says it wants: `waiting` callers are real.
pub fn newcomer_cap(waiting: u64, sessions: u64, supply: Supply) -> u64 {
    (supply.within_term / (NEWCOMER_PART * (sessions + 1))).max(waiting).max(1)
}

#[cfg(test)]
mod tests;
