//! The reference: the same formulas, for which every claim is looked at, at each ask. Written for clearness, not for speed.

use super::*;

/// See [`super::super::grant`].
pub(super) fn grant(asker: Asker, others: &[Claim], supply: Supply) -> Sized {
    let needs =
        others.iter().map(|claim| u128::from(claim.need)).sum::<u128>() + u128::from(asker.claim.need);
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

fn drain_share(asker: Asker, others: &[Claim], supply: Supply) -> (Duration, u64) {
    let believed = |claim: Claim| u128::from(claim.need.min(supply.within_term));
    let needs = others.iter().map(|claim| believed(*claim)).sum::<u128>() + believed(asker.claim);
    let left = u128::from(supply.left / DRAIN_PART);
    let lasts = u128::from(nanos(supply.term)) * left / needs;
    let target = u64::try_from(believed(asker.claim) * left / needs).unwrap_or(u64::MAX);
    let lasts = Duration::from_nanos(u64::try_from(lasts).unwrap_or(u64::MAX)).min(supply.term);
    (lasts, target.saturating_sub(asker.claim.holds).max(1))
}

fn trickle_share(asker: Asker, others: &[Claim], supply: Supply) -> u64 {
    let all = || others.iter().copied().chain([asker.claim]);
    let (level, average) = (level(all(), supply.within_term), level(all(), supply.sustained));
    let is_small =
        |claim: &Claim| average.covers_part(MODEST_PART, claim.mean, u128::from(claim.share.weight));
    let is_modest =
        |claim: &Claim| level.covers(claim.mean, u128::from(claim.share.weight)) || is_small(claim);
    let modest = || others.iter().filter(|claim| is_modest(claim));
    let owed = modest().map(|claim| claim.gap()).fold(0, u64::saturating_add);
    let most = if is_small(&asker.claim) { supply.stock } else { supply.left };
    let free = most.min(supply.stock.saturating_sub(owed));
    let share = level.share(asker.claim) / u128::from(nanos(supply.term).max(1));
    let accrued = share * u128::from(nanos(asker.since.min(supply.term)));
    let one = u64::from(asker.since >= supply.poll);
    let rounds_up = one == 1 && supply.stock > supply.left;
    let accrued = if rounds_up { accrued.div_ceil(PERMIT) } else { accrued / PERMIT };
    let accrued = u64::try_from(accrued).unwrap_or(u64::MAX).max(one);
    if !is_modest(&asker.claim) {
        return accrued.min(free);
    }
    let gap = asker.claim.gap().max(one);
    if gap <= free {
        return gap;
    }
    let weight = u128::from(asker.claim.share.weight);
    let lacking =
        modest().filter(|claim| claim.gap() > 0).map(|claim| u128::from(claim.share.weight)).sum::<u128>();
    let part = u128::from(supply.left.saturating_add(supply.soon)) * weight / (lacking + weight);
    accrued.max(u64::try_from(part).unwrap_or(u64::MAX).min(gap)).min(most)
}

/// How high `supply` stands over `claims`: they are full one after the other, the one with the least mean for its weight first.
pub(super) fn level(claims: impl Iterator<Item = Claim>, supply: u64) -> Level {
    let mut claims: Vec<Claim> = claims.collect();
    let weight = |claim: &Claim| u128::from(claim.share.weight);
    claims.sort_by(|a, b| (a.mean * weight(b)).cmp(&(b.mean * weight(a))));
    let mut level = Level::of(supply, claims.iter().map(weight).sum());
    for claim in &claims {
        if !level.covers(claim.mean, weight(claim)) {
            break;
        }
        level.parts -= claim.mean;
        level.weights -= weight(claim);
    }
    level
}

/// What sessions claim that come before those of `priority`.
pub(super) fn before(claims: &[Claim], priority: u64) -> Before {
    let mut before = Before::default();
    for claim in claims.iter().filter(|claim| claim.share.priority > priority) {
        before.needs += u128::from(claim.need);
        before.lacking += u128::from(claim.need.saturating_sub(claim.holds));
        before.mean += claim.mean;
    }
    before
}
