//! Weighted max-min as a water level: over identities, and within one of them over its sessions.

use super::Claim;
use lessor_protocol::sizing::PERMIT;

/// Part of the average share, five sevenths, up to which a claim comes first when little comes back. A larger part
/// would let claims just below a share leave nothing to claims just above it.
const MODEST_PART: (u128, u128) = (5, 7);

/// Water level of a supply that is poured over all claims. It rises alike for each, by weight, and a claim that is full
/// takes no more. A fraction, in parts of a permit per weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Level {
    /// Parts of a permit left for the claims that are not full.
    pub(super) parts: u128,
    /// Weights of the claims that are not full; zero if all are.
    pub(super) weights: u128,
}

impl Level {
    /// Returns the level of `supply` permits over claims with these `weights` together, before any of them is full.
    pub(super) fn of(supply: u64, weights: u128) -> Self {
        Level { parts: u128::from(supply) * PERMIT, weights }
    }

    /// Whether every claim is met in full.
    fn meets_all(self) -> bool {
        self.weights == 0
    }

    /// Whether a claim to `mean` parts is met in full.
    pub(super) fn covers(self, mean: u128, weight: u128) -> bool {
        mean.saturating_mul(self.weights) <= self.parts.saturating_mul(weight)
    }

    /// Whether a claim to `mean` parts would be met in full if it were larger by the inverse of `part`.
    fn covers_part(self, part: (u128, u128), mean: u128, weight: u128) -> bool {
        let mean = mean.saturating_mul(part.1);
        mean.saturating_mul(self.weights) <= self.parts.saturating_mul(part.0).saturating_mul(weight)
    }

    /// Returns what a claim of this `weight` gets if it is not met in full, in parts of a permit. `None` if all claims are met.
    pub(super) fn at(self, weight: u128) -> Option<u128> {
        (self.parts * weight).checked_div(self.weights)
    }
}

/// The level over identities, and over the sessions of the identity that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Levels {
    /// The level over identities, where there are several.
    pub(super) identities: Option<OfIdentity>,
    pub(super) within: Level,
}

/// The level over identities, with the claim of the identity that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OfIdentity {
    pub(super) level: Level,
    pub(super) mean: u128,
    pub(super) weight: u128,
}

impl Levels {
    /// Returns the level over one claim alone.
    pub(super) fn of_one(own: Claim, supply: u64) -> Self {
        let weight = u128::from(own.share.weight.max(1));
        let level = Level::of(supply, weight);
        let within = match level.covers(own.mean, weight) {
            true => Level { parts: level.parts - own.mean, weights: 0 },
            false => level,
        };
        Levels { identities: None, within }
    }

    /// Whether every claim is met in full.
    pub(super) fn meets_all(self) -> bool {
        self.within.meets_all() && self.identities.is_none_or(|all| all.level.meets_all())
    }

    /// Whether a claim to `mean` parts is met in full, of a session of the identity that asks.
    pub(super) fn covers(self, mean: u128, weight: u128) -> bool {
        self.within.covers(mean, weight)
    }

    /// Whether a claim to `mean` parts would be met in full if it were larger by the inverse of [`MODEST_PART`]. Where
    /// all sessions of an identity have what they want, the claim of the identity decides for all of them.
    fn covers_modest(self, mean: u128, weight: u128) -> bool {
        match self.identities.filter(|_| self.within.meets_all()) {
            Some(own) => own.level.covers_part(MODEST_PART, own.mean, own.weight),
            None => self.within.covers_part(MODEST_PART, mean, weight),
        }
    }

    /// Whether another claim is not met in full, beside one of this `weight` that is not either.
    pub(super) fn is_contended(self, weight: u128) -> bool {
        self.within.weights > weight || self.identities.is_some_and(|own| own.level.weights > own.weight)
    }

    /// Returns what `claim` gets, in parts of a permit.
    pub(super) fn share(self, claim: Claim) -> u128 {
        let weight = u128::from(claim.share.weight);
        let is_full = self.within.covers(claim.mean, weight);
        self.within.at(weight).filter(|_| !is_full).unwrap_or(claim.mean)
    }
}

/// Test for modest claims, which come first when permits are scarce: claims met in full by what comes within a term, or
/// by far by what comes on average. No modest claim is larger for its weight than one that is not modest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Modest {
    /// Levels by what comes within a term.
    pub(super) level: Levels,
    /// Levels by what comes on average.
    pub(super) average: Levels,
}

impl Modest {
    /// Whether a session of the identity that asks is modest.
    pub(super) fn is(&self, mean: u128, weight: u128) -> bool {
        self.level.covers(mean, weight) || self.is_small(mean, weight)
    }

    /// Whether a session of the identity that asks wants much less than the average share.
    pub(super) fn is_small(&self, mean: u128, weight: u128) -> bool {
        self.average.covers_modest(mean, weight)
    }

    /// Whether all that another identity claims is modest.
    pub(super) fn is_identity(&self, mean: u128, weight: u128) -> bool {
        let covers = |own: OfIdentity| own.level.covers(mean, weight);
        let covers_part = |own: OfIdentity| own.level.covers_part(MODEST_PART, mean, weight);
        self.level.identities.is_some_and(covers) || self.average.identities.is_some_and(covers_part)
    }
}
