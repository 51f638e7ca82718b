//! Claims by identity: identities share by weighted max-min, and the sessions of each share its part in the same way. So an identity
//! with a thousand sessions gets no more than one with a single session. While all claims are those of one identity they are kept
//! as one.

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
    /// Those of the first identity, while there is no other.
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

/// The claims of the identity that asks, but for the session that does.
struct Beside<'a, I: Name> {
    sessions: Option<&'a Sessions<I>>,
    /// That session, which is one of them.
    aside: Option<&'a ByShare<I>>,
    /// What the others add up to, and how many they are.
    sum: ShareSum,
    count: u64,
}

/// What the modest lack, and what a session may have of what there is if that does not fill all gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Gaps {
    /// What is kept for them.
    pub(super) owed: u64,
    /// The weight of those that lack anything beside the identity that asks, and its own, where there are several.
    identities: Option<(u128, u128)>,
    /// The same of the sessions beside the one that asks.
    lacking: u128,
}

impl Gaps {
    /// The part of `permits` that comes to a session of this `weight`.
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

/// All that the sessions of `owner` claim, `count` of them, as one claim. More sessions give it no more weight.
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

    /// What they claim but for `aside`, and how many they are.
    fn without(&self, aside: Option<&ByShare<I>>) -> (ShareSum, u64) {
        (self.claims.sum_without(aside), self.count - u64::from(aside.is_some()))
    }
}

impl<I: Name> Several<I> {
    /// Changes the claims of `owner`, and what they are as one.
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

    /// The claim of the identity `owner` as it is kept, with what is set aside.
    fn kept(&self, owner: Owner) -> Option<ByShare<Owner>> {
        let sessions = self.sessions.get(&owner)?;
        Some(whole(owner, sessions.claims.sum(), sessions.count))
    }

    /// The claims of `owner` but for `aside`, which may be one of them.
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

    /// The level over all identities, where `owner` claims `identity`.
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
        // It wants more than there is.
        let identity = ByShare { mean: u128::MAX, ..whole((), all, count + 1) };
        self.over_identities(own.owner, &identity, supply).at(identity.weight.into())
    }
}

impl<I: Name> Sessions<I> {
    /// What those lack that are modest.
    fn gaps(&self, aside: Option<&ByShare<I>>, modest: &Modest) -> ShareSum {
        self.claims.beginning(aside, |entry, _| modest.is(entry.mean, entry.weight.into()))
    }
}

impl<I: Name> Shares<I> {
    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        match &self.several {
            Some(several) => several.sessions.is_empty(),
            None => self.sole.claims.is_empty(),
        }
    }

    /// Whether any is of another identity than `owner`.
    pub(super) fn are_of_others(&self, owner: Owner) -> bool {
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

    /// Puts `claim` in the place of `before`, which is there, of the same session of `owner`, and has the same rank.
    pub(super) fn replace(&mut self, owner: Owner, before: &ByShare<I>, claim: ByShare<I>) {
        match &mut self.several {
            Some(several) => several.change(owner, |sessions| sessions.claims.replace(before, claim)),
            None => self.sole.claims.replace(before, claim),
        }
    }

    /// What they spend in a term on average.
    pub(super) fn mean(&self) -> u128 {
        match &self.several {
            Some(several) => several.identities.sum().mean,
            None => self.sole.claims.sum().mean,
        }
    }

    /// What those of each identity add up to.
    pub(super) fn sums(&self) -> Vec<(Owner, ShareSum, u64)> {
        let sum = |owner: Owner, sessions: &Sessions<I>| (owner, sessions.claims.sum(), sessions.count);
        match &self.several {
            Some(several) => several.sessions.iter().map(|(owner, it)| sum(*owner, it)).collect(),
            None => vec![sum(self.owner, &self.sole)],
        }
    }

    /// How high `supply` permits stand over them, but for `aside`, and the claim `own`.
    pub(super) fn level(&self, aside: Option<(Owner, &ByShare<I>)>, own: Claim, supply: u64) -> Levels {
        if let Some(several) = &self.several {
            return several.level(aside, own, supply);
        }
        if self.are_of_others(own.share.owner) {
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
        if self.are_of_others(own.share.owner) {
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
        if !self.are_of_others(own.owner) {
            return None;
        }
        match &self.several {
            Some(several) => several.part_of_identity(aside, own, supply),
            None => self.as_one_of_several().part_of_identity(None, own, supply),
        }
    }

    /// The only identity, as one of several: none of its sessions is looked at.
    fn as_one_of_several(&self) -> Several<I> {
        let mut several = Several { identities: Ranked::default(), sessions: BTreeMap::new() };
        several.identities.insert(whole(self.owner, self.sole.claims.sum(), self.sole.count));
        several
    }
}
