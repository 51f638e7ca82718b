//! The reference: the same formulas, looking at every claim at each ask. Written for clarity, not for speed.

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
    let levels = levels(others, asker.claim, parts(supply.within_term));
    let target = match levels.identities {
        Some(_) => levels.share(asker.claim) / PERMIT * left / u128::from(supply.within_term),
        None => believed(asker.claim) * left / needs,
    };
    let target = u64::try_from(target).unwrap_or(u64::MAX);
    let lasts = span_of(lasts).min(supply.term);
    let one = u64::from(asker.turn <= supply.poll || asker.since >= asker.turn);
    (lasts, target.saturating_sub(asker.claim.holds).max(one))
}

fn trickle_share(asker: Asker, others: &[Claim], supply: Supply) -> u64 {
    let modest = Modest {
        level: levels(others, asker.claim, parts(supply.within_term)),
        average: levels(others, asker.claim, supply.sustained),
    };
    let is_small = modest.is_small(asker.claim.mean, u128::from(asker.claim.share.weight));
    let is_modest = |claim: &Claim| modest.is(claim.mean, u128::from(claim.share.weight));
    let of_own = || others.iter().filter(|claim| claim.share.owner == asker.claim.share.owner);
    let of_others: Vec<&Claim> =
        others.iter().filter(|claim| claim.share.owner != asker.claim.share.owner).collect();
    let (mut owed, mut lacking) = (0_u64, 0);
    for claim in of_own().filter(|claim| is_modest(claim)) {
        owed = owed.saturating_add(claim.gap());
        lacking += if claim.gap() > 0 { u128::from(claim.share.weight) } else { 0 };
    }
    let mut lacking_others = 0;
    for (mean, weight, gap) in identities(&of_others) {
        if modest.is_identity(mean, weight) {
            owed = owed.saturating_add(gap);
            lacking_others += if gap > 0 { weight } else { 0 };
        }
    }
    let most = if is_small { supply.stock } else { supply.left };
    let free = most.min(supply.stock.saturating_sub(owed));
    let share = modest.level.share(asker.claim) / u128::from(nanos(supply.term).max(1));
    let accrued = share * u128::from(nanos(asker.since.min(asker.accrues_for)));
    let is_in_time = asker.since >= asker.turn;
    let one = u64::from(is_in_time);
    let rounds_up = one == 1 && supply.stock > supply.left;
    let accrued = if rounds_up { accrued.div_ceil(PERMIT) } else { accrued / PERMIT };
    let accrued = u64::try_from(accrued).unwrap_or(u64::MAX);
    let waits = accrued == 1 && asker.turn > supply.poll;
    let accrued = if waits { 0 } else { accrued }.max(one);
    if !is_modest(&asker.claim) {
        return accrued.min(free);
    }
    let gap = asker.claim.gap().max(one);
    if gap <= free {
        return gap;
    }
    let weight = u128::from(asker.claim.share.weight);
    let mut part = u128::from(supply.left.saturating_add(supply.soon));
    if let Some(own) = modest.level.identities {
        part = part * own.weight / (lacking_others + own.weight);
    }
    part = part * weight / (lacking + weight);
    accrued.max(u64::try_from(part).unwrap_or(u64::MAX).min(gap)).min(most)
}

/// Returns what each identity claims: its mean, its weight and its gap.
fn identities(claims: &[&Claim]) -> Vec<(u128, u128, u64)> {
    let mut owners: Vec<Owner> = claims.iter().map(|claim| claim.share.owner).collect();
    owners.sort_unstable();
    owners.dedup();
    let of = |owner: Owner| {
        let claims: Vec<_> = claims.iter().filter(|claim| claim.share.owner == owner).collect();
        let weights = claims.iter().map(|claim| u128::from(claim.share.weight)).sum::<u128>();
        (
            claims.iter().map(|claim| claim.mean).sum(),
            weights.div_ceil(claims.len() as u128),
            claims.iter().map(|claim| claim.gap()).sum(),
        )
    };
    owners.into_iter().map(of).collect()
}

/// Returns the levels of a supply of `parts` over `others` and `own`: over identities, and over the sessions of its own identity.
pub(super) fn levels(others: &[Claim], own: Claim, parts: u128) -> Levels {
    let claim = |claim: &Claim| (claim.mean, u128::from(claim.share.weight));
    let (mine, theirs): (Vec<&Claim>, Vec<&Claim>) =
        others.iter().partition(|other| other.share.owner == own.share.owner);
    let mine: Vec<&Claim> = mine.into_iter().chain([&own]).collect();
    let sessions = || mine.iter().map(|it| claim(it)).collect();
    if theirs.is_empty() {
        return Levels { identities: None, within: level(sessions(), parts) };
    }
    let (mean, weight, _) = identities(&mine)[0];
    let all = identities(&theirs).into_iter().map(|(mean, weight, _)| (mean, weight)).chain([(mean, weight)]);
    let over = level(all.collect(), parts);
    let parts = (over.parts * weight).checked_div(over.weights).unwrap_or(mean);
    Levels { identities: Some(OfIdentity { level: over, mean, weight }), within: level(sessions(), parts) }
}

/// Returns the level of `parts` over claims of a mean and a weight. Claims are filled one by one, the least mean for
/// its weight first.
fn level(mut claims: Vec<(u128, u128)>, parts: u128) -> Level {
    claims.sort_by(|(one, weight), (other, others)| (one * others).cmp(&(other * weight)));
    let mut level = Level { parts, weights: claims.iter().map(|(_, weight)| weight).sum() };
    for (mean, weight) in claims {
        if !level.covers(mean, weight) {
            break;
        }
        level.parts -= mean;
        level.weights -= weight;
    }
    level
}

/// Returns what sessions of higher priorities than `priority` claim together.
pub(super) fn before(claims: &[Claim], priority: u64) -> Before {
    let mut before = Before::default();
    for claim in claims.iter().filter(|claim| claim.share.priority > priority) {
        before.needs += u128::from(claim.need);
        before.lacking += u128::from(claim.need.saturating_sub(claim.holds));
        before.mean += claim.mean;
    }
    before
}
