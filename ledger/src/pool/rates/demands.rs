//! Demands of sessions or identities for the rate of a flow, ordered by demand per weight. A water level that rises
//! over all demands meets them in this order. One descent of the order finds the level.

use crate::sizing::{Entry, Ranked};
use std::cmp::Ordering;
use std::fmt::Debug;

/// A demand for a part of the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Demand<I> {
    /// The session or identity that demands it.
    pub(super) id: I,
    /// A share of the rate, of [`SHARES`](crate::rule::SHARES).
    pub(super) share: u64,
    /// At least 1.
    pub(super) weight: u64,
}

/// Sums over demands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DemandSum {
    share: u128,
    weight: u128,
}

/// Demands, ordered by share per weight.
#[derive(Clone, Debug)]
pub(super) struct Demands<I: Copy + Ord + Debug>(Ranked<Demand<I>>);

impl<I> Demand<I> {
    /// Compares by share per weight: the smaller ratio is met first.
    fn ratio_to<J>(&self, other: &Demand<J>) -> Ordering {
        let ratio = |share: u64, weight: u64| u128::from(share) * u128::from(weight);
        ratio(self.share, other.weight).cmp(&ratio(other.share, self.weight))
    }

    fn sum(&self) -> DemandSum {
        DemandSum { share: self.share.into(), weight: self.weight.into() }
    }
}

impl DemandSum {
    fn plus(self, other: DemandSum) -> DemandSum {
        DemandSum { share: self.share + other.share, weight: self.weight + other.weight }
    }

    fn less(self, part: DemandSum) -> DemandSum {
        DemandSum { share: self.share - part.share, weight: self.weight - part.weight }
    }

    /// Whether `demand` is met in full if the share of this sum is left of the rate for its weights.
    fn covers<I>(self, demand: &Demand<I>) -> bool {
        u128::from(demand.share) * self.weight <= self.share * u128::from(demand.weight)
    }

    /// Returns the part of the share that is due to a demand of `weight`.
    fn part(self, weight: u64) -> u64 {
        (self.share * u128::from(weight) / self.weight.max(1)) as u64
    }
}

impl<I: Copy + Ord + Debug> Entry for Demand<I> {
    type Sum = DemandSum;

    fn rank(&self, other: &Self) -> Ordering {
        self.ratio_to(other).then_with(|| self.id.cmp(&other.id))
    }

    fn sum(&self) -> DemandSum {
        Demand::sum(self)
    }

    fn join(one: DemandSum, other: DemandSum) -> DemandSum {
        one.plus(other)
    }

    fn less(all: DemandSum, part: DemandSum) -> DemandSum {
        all.less(part)
    }
}

impl<I: Copy + Ord + Debug> Default for Demands<I> {
    fn default() -> Self {
        Demands(Ranked::default())
    }
}

impl<I: Copy + Ord + Debug> Demands<I> {
    /// Adds `demand`.
    pub(super) fn insert(&mut self, demand: Demand<I>) {
        self.0.insert(demand);
    }

    /// Removes `demand`, which is there.
    pub(super) fn remove(&mut self, demand: &Demand<I>) {
        self.0.remove(demand);
    }

    /// Returns the sums over all demands.
    pub(super) fn sum(&self) -> DemandSum {
        self.0.sum()
    }

    /// Returns the part of `all` that `own` gets beside these demands, by weighted max-min. `aside`, one of these
    /// demands, is left out. Rate that no demand takes is shared by weight.
    pub(super) fn share_beside<J>(&self, aside: Option<&Demand<I>>, own: &Demand<J>, all: u64) -> u64 {
        let whole = DemandSum { share: all.into(), weight: self.0.sum_without(aside).plus(own.sum()).weight };
        let left = |met: DemandSum| {
            let share = whole.share.checked_sub(met.share)?;
            Some(DemandSum { share, weight: whole.weight - met.weight })
        };
        let met = self.0.beginning(aside, |entry, before| {
            let before = if own.ratio_to(entry).is_lt() { before.plus(own.sum()) } else { before };
            left(before).is_some_and(|left| left.covers(entry))
        });
        let left = left(met).unwrap_or_default();
        if !left.covers(own) {
            return left.part(own.weight);
        }
        let left = left.less(own.sum());
        match left.weight {
            0 => own.share + DemandSum { weight: whole.weight, ..left }.part(own.weight),
            _ => own.share.max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::rates::tests::walk::water_level;
    use crate::rule::SHARES;
    use proptest::prelude::*;

    /// Returns the part of the whole rate for the first of `claims`, each a demand and a weight, beside the others.
    /// Checks that a demand which is set aside makes no difference.
    fn share_of(claims: &[(u64, u64)]) -> u64 {
        let demand = |(id, &(share, weight))| Demand { id, share, weight };
        let own = Demand { id: (), share: claims[0].0, weight: claims[0].1 };
        let mut demands = Demands::default();
        claims.iter().enumerate().skip(1).for_each(|claim| demands.insert(demand(claim)));
        let share = demands.share_beside(None, &own, SHARES);
        let aside = Demand { id: 0, share: SHARES / 3, weight: 2 };
        demands.insert(aside);
        assert_eq!(demands.share_beside(Some(&aside), &own, SHARES), share);
        share
    }

    #[test]
    fn what_no_session_demands_is_shared_by_weight() {
        assert_eq!(share_of(&[(10, 1)]), SHARES);
        assert_eq!(share_of(&[(0, 3), (0, 1)]), SHARES / 4 * 3);
    }

    #[test]
    fn the_modest_get_what_they_demand_and_the_others_share_the_rest() {
        let (large, modest) = ((SHARES, 1), (SHARES / 10, 1));
        assert_eq!(share_of(&[modest, large, large]), SHARES / 10);
        assert_eq!(share_of(&[large, large, modest]), (SHARES - SHARES / 10) / 2);
    }

    proptest! {
        #[test]
        fn the_level_is_that_of_a_walk_over_all(claims in prop::collection::vec((0..SHARES + 1, 1..6_u64), 1..12), part in 1..9_u64) {
            let claims: Vec<_> = claims.into_iter().map(|(demand, weight)| (demand / part / part, weight)).collect();
            prop_assert_eq!(share_of(&claims), water_level(&mut claims.clone(), claims[0], SHARES));
        }
    }
}
