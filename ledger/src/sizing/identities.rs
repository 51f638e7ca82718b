//! Claims by identity: identities share by weighted max-min, and the sessions of each share its part in the same way.
//! So an identity with a thousand sessions gets no more than one with a single session. While all claims are of one
//! identity, they are kept in one order.

use super::Claim;
use super::by_share::{ByShare, ShareSum};
use super::claims::Name;
use super::level::{Level, Levels, Modest, OfIdentity};
use super::ranked::Ranked;
use crate::share::{Owner, Share};
use std::collections::BTreeMap;

/// All claims of one priority.
#[derive(Clone, Debug)]
pub(super) struct Shares<I: Name> {
    /// Claims of the first identity, while there is no other.
    sole: Sessions<I>,
    owner: Owner,
    several: Option<Box<Several<I>>>,
}

/// The claims of several identities.
#[derive(Clone, Debug)]
struct Several<I: Name> {
    identities: Ranked<ByShare<Owner>>,
    sessions: BTreeMap<Owner, Sessions<I>>,
}

/// The claims of the sessions of one identity.
#[derive(Clone, Debug)]
struct Sessions<I: Name> {
    claims: Ranked<ByShare<I>>,
    count: u64,
}

/// The claims of the identity that asks, but for the session that asks.
struct Beside<'a, I: Name> {
    sessions: Option<&'a Sessions<I>>,
    /// Claim of the session that asks, which is one of `sessions`.
    aside: Option<&'a ByShare<I>>,
    /// Sum and number of the other claims.
    sum: ShareSum,
    count: u64,
}

/// What modest sessions lack, and how permits are divided that do not fill all gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Gaps {
    /// Permits kept for modest sessions.
    pub(super) owed: u64,
    /// Where there are several identities: the weight of the others that lack anything, and of the one that asks.
    identities: Option<(u128, u128)>,
    /// Weight of the other sessions of the asking identity that lack anything.
    lacking: u128,
}

impl Gaps {
    /// Returns the part of `permits` that comes to a session of this `weight`.
    pub(super) fn part(&self, permits: u64, weight: u128) -> u64 {
        let part = |of: u128, lacking: u128, weight: u128| of * weight / (lacking + weight).max(1);
        let of = self.identities.map_or(permits.into(), |(lacking, own)| part(permits.into(), lacking, own));
        u64::try_from(part(of, self.lacking, weight)).unwrap_or(u64::MAX)
    }
}

impl<I: Name> Default for Sessions<I> {
    fn default() -> Self {
        Sessions { claims: Ranked::default(), count: 0 }
    }
}

impl<I: Name> Default for Shares<I> {
    fn default() -> Self {
        Shares { sole: Sessions::default(), owner: Owner::NONE, several: None }
    }
}

/// Returns all claims of `owner`, which has `count` sessions, as one claim. Its weight is their average: more sessions
/// give it no more weight.
fn whole<J>(owner: J, sum: ShareSum, count: u64) -> ByShare<J> {
    let weight = u64::try_from(sum.weight.div_ceil(u128::from(count.max(1)))).unwrap_or(u64::MAX);
    ByShare {
        id: owner,
        mean: sum.mean,
        weight: weight.max(1),
        gap: u64::try_from(sum.gap).unwrap_or(u64::MAX),
    }
}

impl<I: Name> Sessions<I> {
    fn insert(&mut self, claim: ByShare<I>) {
        self.claims.insert(claim);
        self.count += 1;
    }

    fn remove(&mut self, claim: &ByShare<I>) {
        self.claims.remove(claim);
        self.count -= 1;
    }

    /// Returns the sum of the claims but for `aside`, and how many they are.
    fn without(&self, aside: Option<&ByShare<I>>) -> (ShareSum, u64) {
        (self.claims.sum_without(aside), self.count - u64::from(aside.is_some()))
    }
}

impl<I: Name> Several<I> {
    /// Changes the claims of `owner`, and its claim among identities.
    fn change(&mut self, owner: Owner, change: impl FnOnce(&mut Sessions<I>)) {
        let sessions = self.sessions.entry(owner).or_default();
        let as_one = |sessions: &Sessions<I>| whole(owner, sessions.claims.sum(), sessions.count);
        let before = (sessions.count > 0).then(|| as_one(sessions));
        change(sessions);
        let after = (sessions.count > 0).then(|| as_one(sessions));
        if sessions.count == 0 {
            self.sessions.remove(&owner);
        }
        match (before, after) {
            (Some(before), Some(after)) if (before.mean, before.weight) == (after.mean, after.weight) => {
                self.identities.replace(&before, after);
            }
            (before, after) => {
                before.iter().for_each(|before| self.identities.remove(before));
                after.into_iter().for_each(|after| self.identities.insert(after));
            }
        }
    }

    /// Returns the kept claim of the identity `owner`, including what is set aside.
    fn kept(&self, owner: Owner) -> Option<ByShare<Owner>> {
        let sessions = self.sessions.get(&owner)?;
        Some(whole(owner, sessions.claims.sum(), sessions.count))
    }

    /// Returns the claims of `owner` but for `aside`, which may be one of them.
    fn beside<'a>(&'a self, owner: Owner, aside: Option<(Owner, &'a ByShare<I>)>) -> Beside<'a, I> {
        let aside = aside.filter(|(of, _)| *of == owner).map(|(_, aside)| aside);
        let sessions = self.sessions.get(&owner);
        let (sum, count) = sessions.map_or((ShareSum::default(), 0), |sessions| sessions.without(aside));
        Beside { sessions, aside, sum, count }
    }

    fn level(&self, aside: Option<(Owner, &ByShare<I>)>, own: Claim, supply: u64) -> Levels {
        let owner = own.share.owner;
        let Beside { sessions, aside, sum, count } = self.beside(owner, aside);
        let own = ByShare::new((), own);
        let all = ShareSum::join(sum, own.sum());
        let identity = whole((), all, count + 1);
        let level = self.over_identities(owner, &identity, supply);
        let (mean, weight) = (identity.mean, u128::from(identity.weight));
        let within = Level { parts: level.at(weight).unwrap_or(mean), weights: all.weight };
        let empty = Ranked::default();
        let claims = sessions.map_or(&empty, |sessions| &sessions.claims);
        let within = claims.pour(aside, &own, within);
        Levels { identities: Some(OfIdentity { level, mean, weight }), within }
    }

    /// Returns the level over all identities, where `owner` claims `identity`.
    fn over_identities(&self, owner: Owner, identity: &ByShare<()>, supply: u64) -> Level {
        let kept = self.kept(owner);
        let others = self.identities.sum_without(kept.as_ref());
        let level = Level::of(supply, others.weight + u128::from(identity.weight));
        self.identities.pour(kept.as_ref(), identity, level)
    }

    fn gaps(&self, aside: Option<(Owner, &ByShare<I>)>, own: Claim, modest: &Modest) -> Gaps {
        let kept = self.kept(own.share.owner);
        let others = self
            .identities
            .beginning(kept.as_ref(), |entry, _| modest.is_identity(entry.mean, entry.weight.into()));
        let Beside { sessions, aside, sum, count } = self.beside(own.share.owner, aside);
        let within = sessions.map_or(ShareSum::default(), |sessions| sessions.gaps(aside, modest));
        let identity = whole((), ShareSum::join(sum, ByShare::new((), own).sum()), count + 1);
        let owed = within.gap.saturating_add(others.gap);
        Gaps {
            owed: u64::try_from(owed).unwrap_or(u64::MAX),
            identities: Some((others.lacking, identity.weight.into())),
            lacking: within.lacking,
        }
    }

    /// See [`super::Peers::part_of_identity`].
    fn part_of_identity(&self, aside: Option<(Owner, &ByShare<I>)>, own: Share, supply: u64) -> Option<u128> {
        let Beside { sum, count, .. } = self.beside(own.owner, aside);
        let all = ShareSum { weight: sum.weight + u128::from(own.weight.max(1)), ..sum };
        // The identity is taken to want more than there is.
        let identity = ByShare { mean: u128::MAX, ..whole((), all, count + 1) };
        self.over_identities(own.owner, &identity, supply).at(identity.weight.into())
    }
}

impl<I: Name> Sessions<I> {
    /// Returns what modest sessions lack.
    fn gaps(&self, aside: Option<&ByShare<I>>, modest: &Modest) -> ShareSum {
        self.claims.beginning(aside, |entry, _| modest.is(entry.mean, entry.weight.into()))
    }
}

impl<I: Name> Shares<I> {
    /// Whether there is no claim.
    pub(super) fn is_empty(&self) -> bool {
        match &self.several {
            Some(several) => several.sessions.is_empty(),
            None => self.sole.claims.is_empty(),
        }
    }

    /// Whether any claim is of another identity than `owner`.
    pub(super) fn has_other_owners(&self, owner: Owner) -> bool {
        match &self.several {
            Some(several) => several.sessions.keys().any(|other| *other != owner),
            None => self.sole.count > 0 && self.owner != owner,
        }
    }

    /// Adds the `claim` of a session of `owner`.
    pub(super) fn insert(&mut self, owner: Owner, claim: ByShare<I>) {
        if self.several.is_none() && self.sole.count == 0 {
            self.owner = owner;
        }
        if self.several.is_none() && self.owner != owner {
            let sole = std::mem::take(&mut self.sole);
            let mut several = Several { identities: Ranked::default(), sessions: BTreeMap::new() };
            several.change(self.owner, |sessions| *sessions = sole);
            self.several = Some(Box::new(several));
        }
        match &mut self.several {
            Some(several) => several.change(owner, |sessions| sessions.insert(claim)),
            None => self.sole.insert(claim),
        }
    }

    /// Removes the `claim` of a session of `owner`, which is there.
    pub(super) fn remove(&mut self, owner: Owner, claim: &ByShare<I>) {
        match &mut self.several {
            Some(several) => several.change(owner, |sessions| sessions.remove(claim)),
            None => self.sole.remove(claim),
        }
    }

    /// Replaces `before` by `claim`. Both are of the same session of `owner` and have the same rank.
    pub(super) fn replace(&mut self, owner: Owner, before: &ByShare<I>, claim: ByShare<I>) {
        match &mut self.several {
            Some(several) => several.change(owner, |sessions| sessions.claims.replace(before, claim)),
            None => self.sole.claims.replace(before, claim),
        }
    }

    /// Returns what the sessions spend in a term on average, in parts of a permit.
    pub(super) fn mean(&self) -> u128 {
        match &self.several {
            Some(several) => several.identities.sum().mean,
            None => self.sole.claims.sum().mean,
        }
    }

    /// Returns, for each identity, the sum and number of its claims.
    pub(super) fn sums(&self) -> Vec<(Owner, ShareSum, u64)> {
        let sum = |owner: Owner, sessions: &Sessions<I>| (owner, sessions.claims.sum(), sessions.count);
        match &self.several {
            Some(several) => several.sessions.iter().map(|(owner, it)| sum(*owner, it)).collect(),
            None => vec![sum(self.owner, &self.sole)],
        }
    }

    /// Returns the water level of `supply` permits over the claims but for `aside`, and over the claim `own`.
    pub(super) fn level(&self, aside: Option<(Owner, &ByShare<I>)>, own: Claim, supply: u64) -> Levels {
        if let Some(several) = &self.several {
            return several.level(aside, own, supply);
        }
        if self.has_other_owners(own.share.owner) {
            return self.as_one_of_several().level(None, own, supply);
        }
        let aside = aside.map(|(_, aside)| aside);
        let own = ByShare::new((), own);
        let (others, _) = self.sole.without(aside);
        let level = Level::of(supply, others.weight + u128::from(own.weight));
        Levels { identities: None, within: self.sole.claims.pour(aside, &own, level) }
    }

    /// See [`super::Peers::gaps`].
    pub(super) fn gaps(&self, aside: Option<(Owner, &ByShare<I>)>, own: Claim, modest: &Modest) -> Gaps {
        if let Some(several) = &self.several {
            return several.gaps(aside, own, modest);
        }
        if self.has_other_owners(own.share.owner) {
            return self.as_one_of_several().gaps(None, own, modest);
        }
        let sum = self.sole.gaps(aside.map(|(_, aside)| aside), modest);
        let owed = u64::try_from(sum.gap).unwrap_or(u64::MAX);
        Gaps { owed, identities: None, lacking: sum.lacking }
    }

    /// See [`super::Peers::part_of_identity`].
    pub(super) fn part_of_identity(
        &self,
        aside: Option<(Owner, &ByShare<I>)>,
        own: Share,
        supply: u64,
    ) -> Option<u128> {
        if !self.has_other_owners(own.owner) {
            return None;
        }
        match &self.several {
            Some(several) => several.part_of_identity(aside, own, supply),
            None => self.as_one_of_several().part_of_identity(None, own, supply),
        }
    }

    /// Returns the only identity as one of several, without looking at its sessions.
    fn as_one_of_several(&self) -> Several<I> {
        let mut several = Several { identities: Ranked::default(), sessions: BTreeMap::new() };
        several.identities.insert(whole(self.owner, self.sole.claims.sum(), self.sole.count));
        several
    }
}
