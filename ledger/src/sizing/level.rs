//! Weighted max-min as a water level.

use super::Claim;
use lessor_protocol::sizing::PERMIT;

/// How high a supply stands that is poured over all claims: the level rises alike for each, by weight, and a claim that is full
/// drinks no more. In parts of a permit per weight, as a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Level {
    /// What is left for the claims that are not full.
    pub(super) parts: u128,
    /// Of the claims that are not full; zero if all are.
    pub(super) weights: u128,
}

impl Level {
    /// Of `supply` permits, before any of the claims is full, which have these `weights` together.
    pub(super) fn of(supply: u64, weights: u128) -> Self {
        Level { parts: u128::from(supply) * PERMIT, weights }
    }

    /// Whether every claim is met in full.
    pub(super) fn meets_all(self) -> bool {
        self.weights == 0
    }

    /// Whether a claim to `mean` parts is met in full.
    pub(super) fn covers(self, mean: u128, weight: u128) -> bool {
        mean.saturating_mul(self.weights) <= self.parts.saturating_mul(weight)
    }

    /// Whether it would be met in full if it were larger by the inverse of `part`.
    pub(super) fn covers_part(self, part: (u128, u128), mean: u128, weight: u128) -> bool {
        let mean = mean.saturating_mul(part.1);
        mean.saturating_mul(self.weights) <= self.parts.saturating_mul(part.0).saturating_mul(weight)
    }

    /// What `claim` gets, in parts of a permit.
    pub(super) fn share(self, claim: Claim) -> u128 {
        let weight = u128::from(claim.share.weight);
        if self.covers(claim.mean, weight) { claim.mean } else { self.parts * weight / self.weights }
    }
}
