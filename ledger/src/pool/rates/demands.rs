//! Demands of sessions or identities for the rate of a flow, ordered by demand per weight. A water level that rises
//! over all demands meets them in this order. One descent of the order finds the level.

use crate::sizing::{ByShare, Level, Ranked};
use std::fmt::Debug;

/// A demand for a part of the rate, of [`SHARES`](crate::rule::SHARES).
pub(super) type Demand<I> = ByShare<I>;

/// Demands, ordered by share per weight.
pub(super) type Demands<I> = Ranked<Demand<I>>;

impl<I> Demand<I> {
    /// Makes the demand for `share` of the rate. The weight is at least 1.
    pub(super) fn for_rate(id: I, share: u64, weight: u64) -> Self {
        ByShare { id, mean: share.into(), weight, gap: 0 }
    }
}

impl<I: Copy + Ord + Debug> Demands<I> {
    /// Returns the part of `all` that `own` gets beside these demands, by weighted max-min. `aside`, one of these
    /// demands, is left out. Rate that no demand takes is shared by weight.
    pub(super) fn share_beside<J>(&self, aside: Option<&Demand<I>>, own: &Demand<J>, all: u64) -> u64 {
        let weight = u128::from(own.weight);
        let weights = self.sum_without(aside).weight + weight;
        let left = self.pour(aside, own, Level { parts: all.into(), weights });
        let share = match left.at(weight) {
            // All demands are met.
            None => own.mean + left.parts * weight / weights,
            Some(_) if left.covers(own.mean, weight) => own.mean.max(1),
            Some(share) => share,
        };
        u64::try_from(share).unwrap_or(u64::MAX)
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
        let demand = |(id, &(share, weight))| Demand::for_rate(id, share, weight);
        let own = Demand::for_rate((), claims[0].0, claims[0].1);
        let mut demands = Demands::default();
        claims.iter().enumerate().skip(1).for_each(|claim| demands.insert(demand(claim)));
        let share = demands.share_beside(None, &own, SHARES);
        let aside = Demand::for_rate(0, SHARES / 3, 2);
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
