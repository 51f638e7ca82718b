//! Claims of sessions on a pool, as sums and orders that change when one session changes. So a grant is sized in time
//! logarithmic in the number of sessions. The reference that walks all sessions is in the tests.

use super::MILLION;
use super::by_share::ByShare;
use super::identities::{Gaps, Shares};
use super::level::{Levels, Modest};
use super::ranked::{Entry, Ranked};
use crate::share::{Owner, Share};
use lessor_protocol::sizing::PERMIT;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map;
use std::fmt::Debug;

/// The claim of one session that shares in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Permits spent in a term on average plus the queue, in parts of a permit
    /// ([`PERMIT`] to one). Shares are measured by this.
    pub mean: u128,
    /// Permits that the session would hold: `mean` and its safety stock.
    pub need: u64,
    /// Permits that last the session for a few polls when permits are scarce.
    pub bare: u64,
    /// Share of the session, from the limit's configuration.
    pub share: Share,
    /// Permits that the session still holds, as far as can be told.
    pub holds: u64,
}

impl Claim {
    /// Returns the permits that the session lacks when permits are scarce.
    pub(super) fn gap(self) -> u64 {
        self.bare.saturating_sub(self.holds)
    }

    /// Returns the permits that the session lacks of its need.
    fn lacking(self) -> u64 {
        self.need.saturating_sub(self.holds)
    }
}

/// The id of a session.
pub trait Name: Copy + Ord + Debug {}

impl<I: Copy + Ord + Debug> Name for I {}

/// The claims of all sessions that share in a pool. `I` names a session.
///
/// The claim of a session that asks is set aside: it keeps its place in the orders, and does not count among the
/// others. So a session that claims the same with each ask moves nothing.
#[derive(Clone, Debug)]
pub struct Claims<I: Name> {
    /// Priorities with any claim, the highest first.
    classes: Vec<Class<I>>,
    /// How many claims each guaranteed group has.
    groups: BTreeMap<usize, u64>,
    aside: Option<(I, Claim)>,
}

/// The claims of one priority.
#[derive(Clone, Debug)]
struct Class<I: Name> {
    priority: u64,
    by_share: Shares<I>,
    by_need: Ranked<ByNeed<I>>,
    /// Permits that these sessions lack of their needs.
    lacking: u128,
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

impl<I: Name> Default for Claims<I> {
    fn default() -> Self {
        Claims::new()
    }
}

impl<I: Name> Claims<I> {
    /// Creates an empty set of claims.
    pub const fn new() -> Self {
        Claims { classes: vec![], groups: BTreeMap::new(), aside: None }
    }

    /// Adds the `claim` of the session `id`, which has none, or one that was set aside.
    pub fn insert(&mut self, id: I, claim: Claim) {
        match self.aside.take_if(|(aside, _)| *aside == id) {
            Some((_, before)) => self.replace(id, before, claim),
            None => self.add(id, claim),
        }
    }

    /// Removes the `claim` of the session `id`, exactly as it was inserted.
    pub fn remove(&mut self, id: I, claim: Claim) {
        let priority = claim.share.priority;
        let Some(place) = self.classes.iter().position(|class| class.priority == priority) else { return };
        let class = &mut self.classes[place];
        class.by_share.remove(claim.share.owner, &ByShare::new(id, claim));
        class.by_need.remove(&ByNeed { id, need: claim.need });
        class.lacking -= u128::from(claim.lacking());
        if class.by_share.is_empty() {
            self.classes.remove(place);
        }
        let group = claim.share.group.map(|group| self.groups.entry(group));
        if let Some(btree_map::Entry::Occupied(mut members)) = group {
            *members.get_mut() -= 1;
            if *members.get() == 0 {
                members.remove();
            }
        }
    }

    /// Sets aside the `claim` of the session `id`, exactly as it was inserted, until the session is inserted again or dropped.
    pub fn set_aside(&mut self, id: I, claim: Claim) {
        if let Some((other, before)) = self.aside.replace((id, claim)) {
            self.remove(other, before);
        }
    }

    /// Removes the claim of the session `id` if it was set aside.
    pub fn drop_aside(&mut self, id: I) {
        if let Some((id, claim)) = self.aside.take_if(|(aside, _)| *aside == id) {
            self.remove(id, claim);
        }
    }

    fn add(&mut self, id: I, claim: Claim) {
        let priority = claim.share.priority;
        let place = self.classes.partition_point(|class| class.priority > priority);
        if self.classes.get(place).is_none_or(|class| class.priority != priority) {
            let class =
                Class { priority, by_share: Shares::default(), by_need: Ranked::default(), lacking: 0 };
            self.classes.reserve_exact(1);
            self.classes.insert(place, class);
        }
        let class = &mut self.classes[place];
        class.by_share.insert(claim.share.owner, ByShare::new(id, claim));
        class.by_need.insert(ByNeed { id, need: claim.need });
        class.lacking += u128::from(claim.lacking());
        if let Some(group) = claim.share.group {
            *self.groups.entry(group).or_default() += 1;
        }
    }

    /// Replaces `before`, the claim of the session `id`, which is not set aside, by `after`.
    pub fn replace(&mut self, id: I, before: Claim, after: Claim) {
        if before == after {
            return;
        }
        let is_in_place = (before.share, before.mean, before.need) == (after.share, after.mean, after.need);
        let class = self.classes.iter_mut().find(|class| class.priority == after.share.priority);
        let Some(class) = class.filter(|_| is_in_place) else {
            self.remove(id, before);
            self.add(id, after);
            return;
        };
        if before.gap() != after.gap() {
            let owner = after.share.owner;
            let (before, after) = (ByShare::new(id, before), ByShare::new(id, after));
            class.by_share.replace(owner, &before, after);
        }
        class.lacking = class.lacking - u128::from(before.lacking()) + u128::from(after.lacking());
    }

    /// Returns what all sessions need.
    pub fn needs(&self) -> u128 {
        self.classes.iter().map(|class| self.within(class).need_sum().need).sum()
    }

    /// Returns how many claims `group` has.
    pub fn members(&self, group: usize) -> u64 {
        let aside = self.aside.filter(|(_, claim)| claim.share.group == Some(group));
        self.groups.get(&group).copied().unwrap_or(0) - u64::from(aside.is_some())
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

    /// Asserts, in debug builds, that the claims are those of `all`.
    pub fn audit(&self, all: impl Iterator<Item = (I, Claim)>) {
        let mut other = Claims::default();
        all.for_each(|(id, claim)| other.insert(id, claim));
        let sums = |claims: &Claims<I>| -> Vec<_> {
            let sums = claims.classes.iter();
            sums.map(|class| (class.by_share.sums(), class.by_need.sum(), class.lacking)).collect()
        };
        debug_assert_eq!((sums(self), self.aside), (sums(&other), None));
    }
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
    pub(super) fn needs(self) -> u128 {
        self.need_sum().need
    }

    /// Whether any claim is of another identity than `owner`.
    pub fn has_other_owners(self, owner: Owner) -> bool {
        self.class.is_some_and(|class| class.by_share.has_other_owners(owner))
    }

    /// Returns what the sessions need together if none of them needs more than `most`.
    pub(super) fn needs_at_most(self, most: u64) -> u128 {
        let Some(class) = self.class else { return 0 };
        let aside = self.aside.as_ref().map(|aside| &aside.by_need);
        let small = class.by_need.beginning(aside, |entry, _| entry.need <= most);
        small.need + u128::from(self.count() - small.count) * u128::from(most)
    }

    /// Returns the water level of `supply` permits over these claims and the claim `own`.
    pub(super) fn level(self, own: Claim, supply: u64) -> Levels {
        match self.class {
            Some(class) => class.by_share.level(self.aside_by_share(), own, supply),
            None => Levels::of_one(own, supply),
        }
    }

    /// Returns what modest sessions lack when permits are scarce, as far as it is kept from the claim `own`.
    pub(super) fn gaps(self, own: Claim, modest: &Modest) -> Gaps {
        self.class.map_or(Gaps::default(), |class| class.by_share.gaps(self.aside_by_share(), own, modest))
    }

    /// Returns the part of `supply` permits, in millionths, that the identity of `own` may have by weighted max-min if
    /// it wants them all. `None` where no other identity claims any, or there are none.
    pub fn part_of_identity(self, own: Share, supply: u64) -> Option<u32> {
        let part = self.class?.by_share.part_of_identity(self.aside_by_share(), own, supply)?;
        let millionths = part.saturating_mul(MILLION.into()).checked_div(u128::from(supply) * PERMIT);
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

/// A claim in the order of needs.
#[derive(Clone, Copy, Debug)]
struct ByNeed<I> {
    id: I,
    need: u64,
}

/// Sum of such claims.
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

    fn less(all: NeedSum, part: NeedSum) -> NeedSum {
        NeedSum { count: all.count - part.count, need: all.need - part.need }
    }
}
