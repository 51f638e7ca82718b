//! The claims of all other sessions, as the session that asks sees them. Shares follow weighted max-min: a water level
//! over identities, and within one of them over its sessions. Where little comes back, modest sessions come first.

use super::{ByNeed, Claim, Claims, Class, Name, NeedSum, Sessions, Several, Shares, whole};
use crate::share::{Owner, Share};
use crate::sizing::MILLION;
use crate::sizing::by_share::{ByShare, ShareSum};
use crate::sizing::ranked::Ranked;
use std::collections::BTreeMap;

impl<I: Name> Claims<I> {
    /// Returns what all sessions need.
    pub fn needs(&self) -> u128 {
        self.classes.iter().map(|class| self.within(class).need_sum().need).sum()
    }

    /// Returns what sessions of higher priorities than `priority` claim together.
    pub fn before(&self, priority: u64) -> Before {
        let classes = self.classes.iter().take_while(|class| class.priority > priority);
        classes.map(|class| self.within(class)).fold(Before::default(), |sum, peers| Before {
            needs: sum.needs + peers.need_sum().need,
            lacking: sum.lacking + peers.lacking(),
            mean: sum.mean.saturating_add(peers.mean()),
        })
    }

    /// Returns the claims of `priority`.
    pub fn peers(&self, priority: u64) -> Peers<'_, I> {
        let class = self.classes.iter().find(|class| class.priority == priority);
        class.map_or(Peers { class: None, aside: None }, |class| self.within(class))
    }

    fn within<'a>(&'a self, class: &'a Class<I>) -> Peers<'a, I> {
        let aside = self.aside.filter(|(_, claim)| claim.share.priority == class.priority);
        Peers { class: Some(class), aside: aside.map(|(id, claim)| Aside::new(id, claim)) }
    }
}

/// What sessions of higher priorities claim together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Before {
    /// Permits needed in a term.
    pub needs: u128,
    /// Permits lacking of those needs.
    pub lacking: u128,
    /// Permits spent in a term on average, in parts of a permit.
    pub mean: u128,
}

/// The claims that one session shares with.
#[derive(Clone, Copy, Debug)]
pub struct Peers<'a, I: Name> {
    class: Option<&'a Class<I>>,
    aside: Option<Aside<I>>,
}

/// A claim that is set aside, in each order.
#[derive(Clone, Copy, Debug)]
struct Aside<I> {
    owner: Owner,
    by_share: ByShare<I>,
    by_need: ByNeed<I>,
    lacking: u64,
}

impl<I: Name> Aside<I> {
    fn new(id: I, claim: Claim) -> Self {
        let by_need = ByNeed { id, need: claim.need };
        let (owner, by_share) = (claim.share.owner, ByShare::new(id, claim));
        Aside { owner, by_share, by_need, lacking: claim.lacking() }
    }
}

impl<I: Name> Peers<'_, I> {
    /// Returns how many claims there are.
    pub fn count(self) -> u64 {
        self.need_sum().count
    }

    /// Returns what the sessions need together.
    pub(in crate::sizing) fn needs(self) -> u128 {
        self.need_sum().need
    }

    /// Whether any claim is of another identity than `owner`.
    pub fn has_other_owners(self, owner: Owner) -> bool {
        self.class.is_some_and(|class| class.by_share.has_other_owners(owner))
    }

    /// Returns what the sessions need together if none of them needs more than `most`.
    pub(in crate::sizing) fn needs_at_most(self, most: u64) -> u128 {
        let Some(class) = self.class else { return 0 };
        let aside = self.aside.as_ref().map(|aside| &aside.by_need);
        let small = class.by_need.beginning(aside, |entry, _| entry.need <= most);
        small.need + u128::from(self.count() - small.count) * u128::from(most)
    }

    /// Returns the water level of a supply of `parts` of a permit over these claims and the claim `own`.
    pub(in crate::sizing) fn level(self, own: Claim, parts: u128) -> Levels {
        match self.class {
            Some(class) => class.by_share.level(self.aside_by_share(), own, parts),
            None => Levels::of_one(own, parts),
        }
    }

    /// Returns what modest sessions lack when permits are scarce, as far as it is kept from the claim `own`.
    pub(in crate::sizing) fn gaps(self, own: Claim, modest: &Modest) -> Gaps {
        self.class.map_or(Gaps::default(), |class| class.by_share.gaps(self.aside_by_share(), own, modest))
    }

    /// Returns the part of a supply of `parts` of a permit, in millionths, that the identity of `own` may have by weighted
    /// max-min if it wants all of it. `None` where no other identity claims any, or there are none.
    pub fn part_of_identity(self, own: Share, parts: u128) -> Option<u32> {
        let part = self.class?.by_share.part_of_identity(self.aside_by_share(), own, parts)?;
        let millionths = part.saturating_mul(MILLION.into()).checked_div(parts);
        u32::try_from(millionths?).ok()
    }

    fn aside_by_share(&self) -> Option<(Owner, &ByShare<I>)> {
        self.aside.as_ref().map(|aside| (aside.owner, &aside.by_share))
    }

    fn need_sum(self) -> NeedSum {
        let aside = self.aside.as_ref().map(|aside| &aside.by_need);
        self.class.map_or(NeedSum::default(), |class| class.by_need.sum_without(aside))
    }

    fn mean(self) -> u128 {
        let aside = self.aside.map_or(0, |aside| aside.by_share.mean);
        self.class.map_or(0, |class| class.by_share.mean().saturating_sub(aside))
    }

    fn lacking(self) -> u128 {
        let aside = self.aside.map_or(0, |aside| aside.lacking);
        self.class.map_or(0, |class| class.lacking - u128::from(aside))
    }
}

/// Part of the average share, five sevenths, up to which a claim comes first when little comes back. A larger part
/// would let claims just below a share leave nothing to claims just above it.
const MODEST_PART: (u128, u128) = (5, 7);

/// Water level of a supply that is poured over all claims. It rises alike for each, by weight, and a claim that is full
/// takes no more. A fraction, in parts of a permit per weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    /// Parts of a permit left for the claims that are not full.
    pub(crate) parts: u128,
    /// Weights of the claims that are not full; zero if all are.
    pub(crate) weights: u128,
}

impl Level {
    /// Returns the level of a supply of `parts` over claims with these `weights` together, before any of them is full.
    pub(crate) fn of(parts: u128, weights: u128) -> Self {
        Level { parts, weights }
    }

    /// Whether every claim is met in full.
    fn meets_all(self) -> bool {
        self.weights == 0
    }

    /// Whether a claim to `mean` parts is met in full.
    pub(crate) fn covers(self, mean: u128, weight: u128) -> bool {
        mean.saturating_mul(self.weights) <= self.parts.saturating_mul(weight)
    }

    /// Whether a claim to `mean` parts would be met in full if it were larger by the inverse of `part`.
    fn covers_part(self, part: (u128, u128), mean: u128, weight: u128) -> bool {
        let mean = mean.saturating_mul(part.1);
        mean.saturating_mul(self.weights) <= self.parts.saturating_mul(part.0).saturating_mul(weight)
    }

    /// Returns what a claim of this `weight` gets if it is not met in full, in parts of a permit. `None` if all claims are met.
    pub(crate) fn at(self, weight: u128) -> Option<u128> {
        (self.parts * weight).checked_div(self.weights)
    }
}

/// The level over identities, and over the sessions of the identity that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sizing) struct Levels {
    /// The level over identities, where there are several.
    pub(in crate::sizing) identities: Option<OfIdentity>,
    pub(in crate::sizing) within: Level,
}

/// The level over identities, with the claim of the identity that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sizing) struct OfIdentity {
    pub(in crate::sizing) level: Level,
    pub(in crate::sizing) mean: u128,
    pub(in crate::sizing) weight: u128,
}

impl Levels {
    /// Returns the level over one claim alone.
    pub(in crate::sizing) fn of_one(own: Claim, parts: u128) -> Self {
        let weight = u128::from(own.share.weight.max(1));
        let level = Level::of(parts, weight);
        let within = match level.covers(own.mean, weight) {
            true => Level { parts: level.parts - own.mean, weights: 0 },
            false => level,
        };
        Levels { identities: None, within }
    }

    /// Whether every claim is met in full.
    pub(in crate::sizing) fn meets_all(self) -> bool {
        self.within.meets_all() && self.identities.is_none_or(|all| all.level.meets_all())
    }

    /// Whether a claim to `mean` parts is met in full, of a session of the identity that asks.
    pub(in crate::sizing) fn covers(self, mean: u128, weight: u128) -> bool {
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
    pub(in crate::sizing) fn is_contended(self, weight: u128) -> bool {
        self.within.weights > weight || self.identities.is_some_and(|own| own.level.weights > own.weight)
    }

    /// Returns what `claim` gets, in parts of a permit.
    pub(in crate::sizing) fn share(self, claim: Claim) -> u128 {
        let weight = u128::from(claim.share.weight);
        let is_full = self.within.covers(claim.mean, weight);
        self.within.at(weight).filter(|_| !is_full).unwrap_or(claim.mean)
    }
}

/// Test for modest claims, which come first when permits are scarce: claims met in full by what comes within a term, or
/// by far by what comes on average. No modest claim is larger for its weight than one that is not modest.
#[derive(Clone, Copy, Debug)]
pub(in crate::sizing) struct Modest {
    /// Levels by what comes within a term.
    pub(in crate::sizing) level: Levels,
    /// Levels by what comes on average.
    pub(in crate::sizing) average: Levels,
}

impl Modest {
    /// Whether a session of the identity that asks is modest.
    pub(in crate::sizing) fn is(&self, mean: u128, weight: u128) -> bool {
        self.level.covers(mean, weight) || self.is_small(mean, weight)
    }

    /// Whether a session of the identity that asks wants much less than the average share.
    pub(in crate::sizing) fn is_small(&self, mean: u128, weight: u128) -> bool {
        self.average.covers_modest(mean, weight)
    }

    /// Whether all that another identity claims is modest.
    pub(in crate::sizing) fn is_identity(&self, mean: u128, weight: u128) -> bool {
        let covers = |own: OfIdentity| own.level.covers(mean, weight);
        let covers_part = |own: OfIdentity| own.level.covers_part(MODEST_PART, mean, weight);
        self.level.identities.is_some_and(covers) || self.average.identities.is_some_and(covers_part)
    }
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
pub(in crate::sizing) struct Gaps {
    /// Permits kept for modest sessions.
    pub(in crate::sizing) owed: u64,
    /// Where there are several identities: the weight of the others that lack anything, and of the one that asks.
    identities: Option<(u128, u128)>,
    /// Weight of the other sessions of the asking identity that lack anything.
    lacking: u128,
}

impl Gaps {
    /// Returns the part of `permits` that comes to a session of this `weight`.
    pub(in crate::sizing) fn part(&self, permits: u64, weight: u128) -> u64 {
        let part = |of: u128, lacking: u128, weight: u128| of * weight / (lacking + weight).max(1);
        let of = self.identities.map_or(permits.into(), |(lacking, own)| part(permits.into(), lacking, own));
        u64::try_from(part(of, self.lacking, weight)).unwrap_or(u64::MAX)
    }
}

impl<I: Name> Sessions<I> {
    /// Returns the sum of the claims but for `aside`, and how many they are.
    fn without(&self, aside: Option<&ByShare<I>>) -> (ShareSum, u64) {
        (self.claims.sum_without(aside), self.count - u64::from(aside.is_some()))
    }

    /// Returns what modest sessions lack.
    fn gaps(&self, aside: Option<&ByShare<I>>, modest: &Modest) -> ShareSum {
        self.claims.beginning(aside, |entry, _| modest.is(entry.mean, entry.weight.into()))
    }
}

impl<I: Name> Several<I> {
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

    fn level(&self, aside: Option<(Owner, &ByShare<I>)>, own: Claim, parts: u128) -> Levels {
        let owner = own.share.owner;
        let Beside { sessions, aside, sum, count } = self.beside(owner, aside);
        let own = ByShare::new((), own);
        let all = ShareSum::join(sum, own.sum());
        let identity = whole((), all, count + 1);
        let level = self.over_identities(owner, &identity, parts);
        let (mean, weight) = (identity.mean, u128::from(identity.weight));
        let within = Level { parts: level.at(weight).unwrap_or(mean), weights: all.weight };
        let empty = Ranked::default();
        let claims = sessions.map_or(&empty, |sessions| &sessions.claims);
        let within = claims.pour(aside, &own, within);
        Levels { identities: Some(OfIdentity { level, mean, weight }), within }
    }

    /// Returns the level over all identities, of a supply of `parts`, where `owner` claims `identity`.
    fn over_identities(&self, owner: Owner, identity: &ByShare<()>, parts: u128) -> Level {
        let kept = self.kept(owner);
        let others = self.identities.sum_without(kept.as_ref());
        let level = Level::of(parts, others.weight + u128::from(identity.weight));
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

    /// See [`Peers::part_of_identity`].
    fn part_of_identity(&self, aside: Option<(Owner, &ByShare<I>)>, own: Share, parts: u128) -> Option<u128> {
        let Beside { sum, count, .. } = self.beside(own.owner, aside);
        let all = ShareSum { weight: sum.weight + u128::from(own.weight.max(1)), ..sum };
        // The identity is taken to want more than there is.
        let identity = ByShare { mean: u128::MAX, ..whole((), all, count + 1) };
        self.over_identities(own.owner, &identity, parts).at(identity.weight.into())
    }
}

impl<I: Name> Shares<I> {
    /// Returns the water level of a supply of `parts` over the claims but for `aside`, and over the claim `own`.
    fn level(&self, aside: Option<(Owner, &ByShare<I>)>, own: Claim, parts: u128) -> Levels {
        if let Some(several) = &self.several {
            return several.level(aside, own, parts);
        }
        if self.has_other_owners(own.share.owner) {
            return self.as_one_of_several().level(None, own, parts);
        }
        let aside = aside.map(|(_, aside)| aside);
        let own = ByShare::new((), own);
        let (others, _) = self.sole.without(aside);
        let level = Level::of(parts, others.weight + u128::from(own.weight));
        Levels { identities: None, within: self.sole.claims.pour(aside, &own, level) }
    }

    /// See [`Peers::gaps`].
    fn gaps(&self, aside: Option<(Owner, &ByShare<I>)>, own: Claim, modest: &Modest) -> Gaps {
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

    /// See [`Peers::part_of_identity`].
    fn part_of_identity(&self, aside: Option<(Owner, &ByShare<I>)>, own: Share, parts: u128) -> Option<u128> {
        if !self.has_other_owners(own.owner) {
            return None;
        }
        match &self.several {
            Some(several) => several.part_of_identity(aside, own, parts),
            None => self.as_one_of_several().part_of_identity(None, own, parts),
        }
    }

    /// Returns the only identity as one of several, without looking at its sessions.
    fn as_one_of_several(&self) -> Several<I> {
        let mut several = Several { identities: Ranked::default(), sessions: BTreeMap::new() };
        several.identities.insert(whole(self.owner, self.sole.claims.sum(), self.sole.count));
        several
    }
}
