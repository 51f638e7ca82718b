//! What sessions claim of a pool, as sums and orders that are changed when one session changes. A grant is sized by these in a
//! time that grows with the logarithm of the number of sessions; the reference that walks them all is in the tests.

use super::level::Level;
use super::ranked::{Entry, Ranked};
use crate::share::Share;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Debug;

/// One session that shares in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What it spends in a term on average, and what is queueing, in parts of a permit
    /// ([`PERMIT`](lessor_protocol::sizing::PERMIT) to one): what its share is measured by.
    pub mean: u128,
    /// The same with its safety stock, in permits: what it would hold.
    pub need: u64,
    /// What it must hold to get by until it has asked a few times, when permits are scarce.
    pub bare: u64,
    /// What it counts for, from the limit's configuration.
    pub share: Share,
    /// What it still has of that, as far as can be told.
    pub holds: u64,
}

impl Claim {
    /// What it lacks when permits are scarce.
    pub(super) fn gap(self) -> u64 {
        self.bare.saturating_sub(self.holds)
    }

    /// What it lacks of its need.
    fn lacking(self) -> u64 {
        self.need.saturating_sub(self.holds)
    }
}

/// What names a session.
pub trait Name: Copy + Ord + Debug {}

impl<I: Copy + Ord + Debug> Name for I {}

/// The claims of all sessions that share in a pool. `I` names a session.
#[derive(Clone, Debug)]
pub struct Claims<I: Name> {
    /// Those with any claim, the highest priority first.
    classes: Vec<Class<I>>,
    /// How many claims each guaranteed group has.
    groups: BTreeMap<usize, u64>,
}

/// The claims of one priority.
#[derive(Clone, Debug)]
struct Class<I: Name> {
    priority: u64,
    by_share: Ranked<ByShare<I>>,
    by_need: Ranked<ByNeed<I>>,
    /// What they lack of their needs.
    lacking: u128,
}

/// What sessions of higher priorities claim together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Before {
    /// What they need.
    pub needs: u128,
    /// What they lack of that.
    pub lacking: u128,
    /// What they spend in a term on average, in parts of a permit.
    pub mean: u128,
}

impl<I: Name> Default for Claims<I> {
    fn default() -> Self {
        Claims { classes: vec![], groups: BTreeMap::new() }
    }
}

impl<I: Name> Claims<I> {
    /// Adds the `claim` of the session `id`, which has none.
    pub fn insert(&mut self, id: I, claim: Claim) {
        let priority = claim.share.priority;
        let place = self.classes.partition_point(|class| class.priority > priority);
        if self.classes.get(place).is_none_or(|class| class.priority != priority) {
            let class =
                Class { priority, by_share: Ranked::default(), by_need: Ranked::default(), lacking: 0 };
            self.classes.insert(place, class);
        }
        let class = &mut self.classes[place];
        class.by_share.insert(ByShare::new(id, claim));
        class.by_need.insert(ByNeed { id, need: claim.need });
        class.lacking += u128::from(claim.lacking());
        if let Some(group) = claim.share.group {
            *self.groups.entry(group).or_default() += 1;
        }
    }

    /// Removes the `claim` of the session `id`, which was inserted as it is.
    pub fn remove(&mut self, id: I, claim: Claim) {
        let priority = claim.share.priority;
        let Some(place) = self.classes.iter().position(|class| class.priority == priority) else { return };
        let class = &mut self.classes[place];
        class.by_share.remove(&ByShare::new(id, claim));
        class.by_need.remove(&ByNeed { id, need: claim.need });
        class.lacking -= u128::from(claim.lacking());
        if class.by_share.is_empty() {
            self.classes.remove(place);
        }
        if let Some(members) = claim.share.group.and_then(|group| self.groups.get_mut(&group)) {
            *members -= 1;
        }
    }

    /// What all of them need.
    pub fn needs(&self) -> u128 {
        self.classes.iter().map(|class| class.by_need.sum().need).sum()
    }

    /// How many claims `group` has.
    pub fn members(&self, group: usize) -> u64 {
        self.groups.get(&group).copied().unwrap_or(0)
    }

    /// What sessions claim that come before those of `priority`.
    pub fn before(&self, priority: u64) -> Before {
        let classes = self.classes.iter().take_while(|class| class.priority > priority);
        classes.fold(Before::default(), |sum, class| Before {
            needs: sum.needs + class.by_need.sum().need,
            lacking: sum.lacking + class.lacking,
            mean: sum.mean.saturating_add(class.by_share.sum().mean),
        })
    }

    /// The claims of `priority`.
    pub fn peers(&self, priority: u64) -> Peers<'_, I> {
        Peers { class: self.classes.iter().find(|class| class.priority == priority) }
    }

    /// Every claim is that of one of `all`, or there is a bug here.
    pub fn audit(&self, all: impl Iterator<Item = (I, Claim)>) {
        let mut other = Claims::default();
        all.for_each(|(id, claim)| other.insert(id, claim));
        let sums = |claims: &Claims<I>| -> Vec<_> {
            let sums =
                claims.classes.iter().map(|class| (class.by_share.sum(), class.by_need.sum(), class.lacking));
            sums.collect()
        };
        debug_assert_eq!(sums(self), sums(&other));
    }
}

/// The claims that one session shares with.
#[derive(Clone, Copy, Debug)]
pub struct Peers<'a, I: Name> {
    class: Option<&'a Class<I>>,
}

impl<I: Name> Peers<'_, I> {
    /// How many there are.
    pub fn count(self) -> u64 {
        self.class.map_or(0, |class| class.by_need.sum().count)
    }

    /// What they need.
    pub(super) fn needs(self) -> u128 {
        self.class.map_or(0, |class| class.by_need.sum().need)
    }

    /// What they need if none of them needs more than `most`.
    pub(super) fn needs_at_most(self, most: u64) -> u128 {
        let Some(class) = self.class else { return 0 };
        let small = class.by_need.beginning(|entry, _| entry.need <= most);
        small.need + u128::from(class.by_need.sum().count - small.count) * u128::from(most)
    }

    /// How high `supply` permits stand over them and the claim `own`.
    pub(super) fn level(self, own: Claim, supply: u64) -> Level {
        let own = ByShare::new((), own);
        let sum = self.class.map_or(ShareSum::default(), |class| class.by_share.sum());
        let level = Level::of(supply, sum.weight + own.weight);
        let full = self.class.map_or(ShareSum::default(), |class| {
            class.by_share.beginning(|entry, before| {
                let before =
                    if own.ratio_to(entry).is_lt() { ShareSum::join(before, own.sum()) } else { before };
                level.less(before).is_some_and(|level| level.covers(entry.mean, entry.weight))
            })
        });
        let level = level.less(full).unwrap_or(level);
        match level.covers(own.mean, own.weight) {
            true => level.less(own.sum()).unwrap_or(level),
            false => level,
        }
    }

    /// What those lack that are `modest`, when permits are scarce, and what those weigh that lack anything. None is modest that
    /// claims more for its weight than one that is not.
    pub(super) fn gaps(self, modest: impl Fn(u128, u128) -> bool) -> (u64, u128) {
        let Some(class) = self.class else { return (0, 0) };
        let sum = class.by_share.beginning(|entry, _| modest(entry.mean, entry.weight));
        (u64::try_from(sum.gap).unwrap_or(u64::MAX), sum.lacking)
    }
}

impl Level {
    /// What is left above claims that are full.
    fn less(self, full: ShareSum) -> Option<Level> {
        let parts = self.parts.checked_sub(full.mean)?;
        Some(Level { parts, weights: self.weights.checked_sub(full.weight)? })
    }
}

/// A claim in the order in which claims are full as the water rises: by its mean for its weight.
#[derive(Clone, Copy, Debug)]
struct ByShare<I> {
    id: I,
    mean: u128,
    weight: u128,
    gap: u64,
    /// What comes to one weight, in whole parts, and what is left.
    ratio: (u128, u128),
}

/// What such claims add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ShareSum {
    mean: u128,
    weight: u128,
    gap: u128,
    /// The weight of those that have a gap.
    lacking: u128,
}

impl<I> ByShare<I> {
    fn new(id: I, claim: Claim) -> Self {
        let (mean, weight) = (claim.mean, u128::from(claim.share.weight.max(1)));
        ByShare { id, mean, weight, gap: claim.gap(), ratio: (mean / weight, mean % weight) }
    }

    /// Which of two is full first.
    fn ratio_to<J>(&self, other: &ByShare<J>) -> Ordering {
        // A rest is less than its weight: the products fit.
        let rests = || (self.ratio.1 * other.weight).cmp(&(other.ratio.1 * self.weight));
        self.ratio.0.cmp(&other.ratio.0).then_with(rests)
    }

    fn sum(&self) -> ShareSum {
        let lacking = if self.gap > 0 { self.weight } else { 0 };
        ShareSum { mean: self.mean, weight: self.weight, gap: self.gap.into(), lacking }
    }
}

impl ShareSum {
    fn join(one: Self, other: Self) -> Self {
        ShareSum {
            mean: one.mean.saturating_add(other.mean),
            weight: one.weight + other.weight,
            gap: one.gap + other.gap,
            lacking: one.lacking + other.lacking,
        }
    }
}

impl<I: Name> Entry for ByShare<I> {
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
}

/// A claim in the order of needs.
#[derive(Clone, Copy, Debug)]
struct ByNeed<I> {
    id: I,
    need: u64,
}

/// What such claims add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct NeedSum {
    count: u64,
    need: u128,
}

impl<I: Name> Entry for ByNeed<I> {
    type Sum = NeedSum;

    fn rank(&self, other: &Self) -> Ordering {
        (self.need, self.id).cmp(&(other.need, other.id))
    }

    fn sum(&self) -> NeedSum {
        NeedSum { count: 1, need: self.need.into() }
    }

    fn join(one: NeedSum, other: NeedSum) -> NeedSum {
        NeedSum { count: one.count + other.count, need: one.need + other.need }
    }
}
