//! Claims in the order in which a rising water level fills them: by what each wants for its weight.

use super::Claim;
use super::claims::peers::Level;
use super::ranked::{Entry, Ranked};
use std::cmp::Ordering;
use std::fmt::Debug;

/// A claim of a session, or of an identity, in that order. For a steady flow, `mean` is a demand for a part of its rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByShare<I> {
    pub(crate) id: I,
    pub(crate) mean: u128,
    pub(crate) weight: u64,
    pub(crate) gap: u64,
}

/// Sum of such claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShareSum {
    pub(crate) mean: u128,
    pub(crate) weight: u128,
    pub(super) gap: u128,
    /// Weight of the claims that have a gap.
    pub(super) lacking: u128,
}

impl<I> ByShare<I> {
    pub(super) fn new(id: I, claim: Claim) -> Self {
        ByShare { id, mean: claim.mean, weight: claim.share.weight.max(1), gap: claim.gap() }
    }

    /// Compares two claims: the one that is full first is less.
    fn ratio_to<J>(&self, other: &ByShare<J>) -> Ordering {
        if self.weight == other.weight {
            return self.mean.cmp(&other.mean);
        }
        // Whole parts per unit of weight first, then the rests: those are less than the weights, so the products fit.
        let (own, others) = (u128::from(self.weight), u128::from(other.weight));
        let rests = || (self.mean % own * others).cmp(&(other.mean % others * own));
        (self.mean / own).cmp(&(other.mean / others)).then_with(rests)
    }

    pub(super) fn sum(&self) -> ShareSum {
        let weight = u128::from(self.weight);
        let lacking = if self.gap > 0 { weight } else { 0 };
        ShareSum { mean: self.mean, weight, gap: self.gap.into(), lacking }
    }
}

impl<I: Copy + Ord + Debug> Ranked<ByShare<I>> {
    /// Pours `level` over all of these claims but `aside`, and over `own`. Returns the level for the claims that are not full.
    pub(crate) fn pour<J>(&self, aside: Option<&ByShare<I>>, own: &ByShare<J>, level: Level) -> Level {
        // Mostly there is enough for all claims.
        if let Some(rest) = level.less(ShareSum::join(self.sum_without(aside), own.sum())) {
            return rest;
        }
        let full = self.beginning(aside, |entry, before| {
            let before = if own.ratio_to(entry).is_lt() { ShareSum::join(before, own.sum()) } else { before };
            level.less(before).is_some_and(|level| level.covers(entry.mean, entry.weight.into()))
        });
        let level = level.less(full).unwrap_or(level);
        match level.covers(own.mean, own.weight.into()) {
            true => level.less(own.sum()).unwrap_or(level),
            false => level,
        }
    }
}

impl Level {
    /// Returns the level without claims that are `full`; `None` if it cannot fill them.
    fn less(self, full: ShareSum) -> Option<Level> {
        let parts = self.parts.checked_sub(full.mean)?;
        Some(Level { parts, weights: self.weights.checked_sub(full.weight)? })
    }
}

impl ShareSum {
    pub(super) fn join(one: Self, other: Self) -> Self {
        ShareSum {
            mean: one.mean.saturating_add(other.mean),
            weight: one.weight + other.weight,
            gap: one.gap + other.gap,
            lacking: one.lacking + other.lacking,
        }
    }

    fn less(all: Self, part: Self) -> Self {
        ShareSum {
            mean: all.mean.saturating_sub(part.mean),
            weight: all.weight - part.weight,
            gap: all.gap - part.gap,
            lacking: all.lacking - part.lacking,
        }
    }
}

impl<I: Copy + Ord + Debug> Entry for ByShare<I> {
    type Sum = ShareSum;

    fn rank(&self, other: &Self) -> Ordering {
        self.ratio_to(other).then_with(|| self.id.cmp(&other.id))
    }

    fn sum(&self) -> ShareSum {
        ByShare::sum(self)
    }

    fn join(one: ShareSum, other: ShareSum) -> ShareSum {
        ShareSum::join(one, other)
    }

    fn less(all: ShareSum, part: ShareSum) -> ShareSum {
        ShareSum::less(all, part)
    }
}
