//! How big a grant is: arithmetic on needs, shares and what is left. Pools call it once an ask.
//! It keeps no state, so an answer never depends on who asked first.

/// One lessee that shares in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What it needs for a term: measured demand with its safety stock, and what is queueing.
    pub need: u64,
    /// Its weight from the limit's configuration, at least 1.
    pub weight: u64,
}

/// What is to be shared when somebody asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Supply {
    /// Permits that can be lent now.
    pub left: u64,
    /// Permits that can be lent within a term: those, and what comes back by itself.
    pub within_term: u64,
}

/// A newcomer without history gets at most this part of an even share at once: enough to start on, and too
/// little to hurt if it turns out to need nothing. Its second lease is sized by what it really did.
const NEWCOMER_PART: u64 = 4;

/// How many permits to lend.
///
/// `want` is what the lessee asked for, `mine` its claim, `others` the claims of all other active lessees. While
/// the supply covers every need, a want is met. Where it does not, weighted max-min: whoever needs less than the
/// water level gets it in full; the rest share what is left in proportion to their targets. Nobody gets more
/// than half of what is left, so grants shrink geometrically as a pool drains and the last permits go one by
/// one to whoever asks; and nobody gets nothing while anything is left.
pub fn grant(want: u64, mine: Claim, others: &[Claim], supply: Supply) -> Sized {
    if want == 0 || supply.left == 0 {
        return Sized { permits: 0, scarce: want > 0 };
    }
    let half = (supply.left / 2).max(1);
    let share = share(mine, others, supply);
    let permits = want.min(share).min(half).max(1);
    Sized { permits, scarce: permits < want && share <= half }
}

/// A grant and what decided it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sized {
    /// Permits to lend.
    pub permits: u64,
    /// Whether others' needs, or an empty pool, kept it below the want: asking again at once would not help.
    pub scarce: bool,
}

/// The most that the holder of `mine` may be lent now without taking what others need more.
fn share(mine: Claim, others: &[Claim], supply: Supply) -> u64 {
    let needs = others.iter().map(|claim| u128::from(claim.need)).sum::<u128>() + u128::from(mine.need);
    if needs <= u128::from(supply.within_term) {
        return u64::MAX;
    }
    let target = water_fill(mine, others, supply.within_term);
    if target >= mine.need {
        return u64::MAX;
    }
    // All targets together are what there is within the term: this is that part of what is left already.
    let part = u128::from(supply.left) * u128::from(target) / u128::from(supply.within_term.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}

/// What `mine` gets when `supply` is poured over all claims: the level rises for everybody alike, by weight, and
/// a claim that is full drinks no more.
fn water_fill(mine: Claim, others: &[Claim], supply: u64) -> u64 {
    let mut claims: Vec<Claim> = others.iter().copied().chain([mine]).collect();
    // The first to be full is the one with the least need for its weight.
    claims.sort_unstable_by(|a, b| {
        (u128::from(a.need) * u128::from(b.weight)).cmp(&(u128::from(b.need) * u128::from(a.weight)))
    });
    let mut supply = u128::from(supply);
    let mut weights: u128 = claims.iter().map(|claim| u128::from(claim.weight)).sum();
    for claim in &claims {
        let (need, weight) = (u128::from(claim.need), u128::from(claim.weight));
        if need * weights > supply * weight {
            break;
        }
        supply -= need;
        weights -= weight;
    }
    // The level is supply/weights; whoever is not full stands at it.
    let level = match weights {
        0 => u128::from(mine.need),
        weights => supply * u128::from(mine.weight) / weights,
    };
    u64::try_from(level).unwrap_or(u64::MAX).min(mine.need)
}

/// The most that a lessee without history is lent, whatever it says it wants: `waiting` callers are real.
pub fn newcomer_cap(waiting: u64, lessees: u64, supply: Supply) -> u64 {
    (supply.within_term / (NEWCOMER_PART * (lessees + 1))).max(waiting).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claim(need: u64) -> Claim {
        Claim { need, weight: 1 }
    }

    fn supply(left: u64) -> Supply {
        Supply { left, within_term: left }
    }

    #[test]
    fn a_rich_pool_gives_what_is_wanted() {
        assert_eq!(
            grant(100, claim(120), &[claim(300), claim(80)], supply(9_000)),
            Sized { permits: 100, scarce: false }
        );
    }

    #[test]
    fn a_draining_pool_gives_halves_down_to_single_permits() {
        let mut left = 100;
        let mut grants = vec![];
        while left > 0 {
            let lent = grant(1_000, claim(1_000), &[], supply(left)).permits;
            grants.push(lent);
            left -= lent;
        }
        assert_eq!(grants, [50, 25, 12, 6, 3, 2, 1, 1]);
    }

    #[test]
    fn modest_needs_are_met_before_large_ones_share_the_rest() {
        let (modest, large) = (claim(10), claim(1_000));
        let scarce = Supply { left: 60, within_term: 300 };
        assert_eq!(grant(10, modest, &[large, large], scarce).permits, 10);
        // The large ones stand at 145 of 300 each: that part of the 60 that are there.
        assert_eq!(grant(900, large, &[modest, large], scarce), Sized { permits: 29, scarce: true });
    }

    #[test]
    fn weights_tilt_the_shares() {
        let (heavy, light) = (Claim { need: 1_000, weight: 3 }, claim(1_000));
        let scarce = Supply { left: 100, within_term: 400 };
        assert_eq!(water_fill(heavy, &[light], 400), 300);
        assert_eq!(water_fill(light, &[heavy], 400), 100);
        assert_eq!(grant(900, light, &[heavy], scarce).permits, 25);
    }

    #[test]
    fn a_newcomer_starts_small() {
        assert_eq!(newcomer_cap(0, 7, supply(9_000)), 281);
        assert_eq!(newcomer_cap(500, 7, supply(9_000)), 500);
        assert_eq!(newcomer_cap(0, 1_000, supply(30)), 1);
    }

    fn claims() -> impl Strategy<Value = Vec<Claim>> {
        prop::collection::vec(
            (0u64..10_000, 1u64..5).prop_map(|(need, weight)| Claim { need, weight }),
            1..20,
        )
    }

    proptest! {
        #[test]
        fn a_grant_is_wanted_there_and_at_most_half(
            want in 0u64..10_000, left in 0u64..10_000, more in 0u64..10_000, claims in claims(),
        ) {
            let lent = grant(want, claims[0], &claims[1..], Supply { left, within_term: left + more }).permits;
            prop_assert!(lent <= want && lent <= left);
            prop_assert!(lent <= (left / 2).max(1));
            prop_assert_eq!(lent == 0, want == 0 || left == 0, "something, while anything is left");
        }

        #[test]
        fn water_filling_is_max_min(supply in 0u64..30_000, claims in claims()) {
            let fills: Vec<u64> = (0..claims.len())
                .map(|i| {
                    let others: Vec<Claim> = claims.iter().enumerate().filter(|&(j, _)| j != i).map(|(_, c)| *c).collect();
                    water_fill(claims[i], &others, supply)
                })
                .collect();
            let total: u64 = fills.iter().sum();
            let needs: u64 = claims.iter().map(|claim| claim.need).sum();
            prop_assert!(total <= supply.min(needs));
            // Rounding down loses less than a permit a claim.
            prop_assert!(total + claims.len() as u64 > supply.min(needs));
            for (claim, fill) in claims.iter().zip(&fills) {
                for (other, theirs) in claims.iter().zip(&fills) {
                    // Whoever is short stands at least as high, by weight, as anybody else.
                    if fill < &claim.need {
                        prop_assert!((fill + 1) * other.weight >= theirs * claim.weight);
                    }
                }
            }
        }
    }
}
