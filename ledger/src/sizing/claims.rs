//! The claims of sessions on a pool, as sums and orders that change when one session changes. So a grant is sized in time
//! logarithmic in the number of sessions. The reference that walks all sessions is in the tests.

pub(super) mod peers;

pub use peers::{Before, Peers};

use super::by_share::{ByShare, ShareSum};
use super::ranked::{Entry, Ranked};
use crate::share::{Owner, Share};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map;
use std::fmt::Debug;

/// The claim of one session that shares in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Permits spent in a term on average plus the queue, in parts of a permit
    /// ([`PERMIT`](lessor_protocol::sizing::PERMIT) to one). Shares are measured by this.
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

    /// Returns how many claims `group` has.
    pub fn members(&self, group: usize) -> u64 {
        let aside = self.aside.filter(|(_, claim)| claim.share.group == Some(group));
        self.groups.get(&group).copied().unwrap_or(0) - u64::from(aside.is_some())
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

/// The shares that the claims of one priority have.
///
/// Identities share by weighted max-min, and the sessions of each share its part in the same way. So an identity with a
/// thousand sessions gets no more than one with a single session. While all claims are of one identity, they are kept
/// in one order.
#[derive(Clone, Debug)]
struct Shares<I: Name> {
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
}

impl<I: Name> Shares<I> {
    /// Whether there is no claim.
    fn is_empty(&self) -> bool {
        match &self.several {
            Some(several) => several.sessions.is_empty(),
            None => self.sole.claims.is_empty(),
        }
    }

    /// Whether any claim is of another identity than `owner`.
    fn has_other_owners(&self, owner: Owner) -> bool {
        match &self.several {
            Some(several) => several.sessions.keys().any(|other| *other != owner),
            None => self.sole.count > 0 && self.owner != owner,
        }
    }

    /// Adds the `claim` of a session of `owner`.
    fn insert(&mut self, owner: Owner, claim: ByShare<I>) {
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
    fn remove(&mut self, owner: Owner, claim: &ByShare<I>) {
        match &mut self.several {
            Some(several) => several.change(owner, |sessions| sessions.remove(claim)),
            None => self.sole.remove(claim),
        }
    }

    /// Replaces `before` by `claim`. Both are of the same session of `owner` and have the same rank.
    fn replace(&mut self, owner: Owner, before: &ByShare<I>, claim: ByShare<I>) {
        match &mut self.several {
            Some(several) => several.change(owner, |sessions| sessions.claims.replace(before, claim)),
            None => self.sole.claims.replace(before, claim),
        }
    }

    /// Returns what the sessions spend in a term on average, in parts of a permit.
    fn mean(&self) -> u128 {
        match &self.several {
            Some(several) => several.identities.sum().mean,
            None => self.sole.claims.sum().mean,
        }
    }

    /// Returns, for each identity, the sum and number of its claims.
    fn sums(&self) -> Vec<(Owner, ShareSum, u64)> {
        let sum = |owner: Owner, sessions: &Sessions<I>| (owner, sessions.claims.sum(), sessions.count);
        match &self.several {
            Some(several) => several.sessions.iter().map(|(owner, it)| sum(*owner, it)).collect(),
            None => vec![sum(self.owner, &self.sole)],
        }
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
