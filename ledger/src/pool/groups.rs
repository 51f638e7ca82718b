//! Permits guaranteed to groups of nodes. If the limit is in a shared store, its root has the buckets ([`Guarantees`]).
//! An allocator says with its ask what nodes of each group want. The root lends that from the bucket, and the allocator
//! keeps it for the group.
//!
//! Guarantees only make a grant smaller or move it to another session, so no promise depends on them. What is taken
//! from a bucket is reported in totals, so a lost ask or answer takes nothing from a group.

use super::borrow::Wishes;
use super::family::Place;
use super::ledgers::Ledgers;
use super::rare::{Rare, Usual};
use super::session::Session;
use super::{AskError, Holder, Plan, Pool, SessionId};
use crate::share::{Guarantees, Share};
use lessor_protocol::{Answer, Ask, Moment};
use std::collections::BTreeMap;
use std::time::Duration;

/// Report of an allocator to a root on one group of its nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupAsk {
    /// Permits of the group's bucket that were lent to this allocator since its session began, less those that it gave back.
    pub taken: u64,
    /// Permits that the allocator wants for the group.
    pub want: u64,
}

/// Guarantees of a pool's groups. A root also keeps the reports of allocators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Groups {
    pub(super) guarantees: Guarantees,
    /// Last report of each allocator, updated by what it was lent.
    said: BTreeMap<SessionId, Vec<GroupAsk>>,
    /// Permits of each group's bucket for the allocator that asks now.
    asking: Vec<Part>,
}

/// Permits of one group's bucket that an allocator may take, and takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Part {
    owed: u64,
    lent: u64,
}

impl Usual for Groups {
    const USUAL: &'static Self =
        &Groups { guarantees: Guarantees::NONE, said: BTreeMap::new(), asking: vec![] };
}

impl Groups {
    /// Creates the groups of a pool with this `plan` and `ledgers`. Buckets are full, or empty if the pool leases from a root.
    pub(super) fn of(plan: &Plan, ledgers: &Ledgers, now: Moment) -> Rare<Self> {
        let guaranteed = &plan.sharing.guaranteed;
        if guaranteed.is_empty() {
            return Rare::default();
        }
        let guarantees = match plan.is_borrowed {
            true => Guarantees::borrowed(guaranteed, now),
            false => Guarantees::new(guaranteed, ledgers.span(plan.ceiling()), now),
        };
        Groups { guarantees, said: BTreeMap::new(), asking: vec![] }.into()
    }

    /// Returns the last report of each allocator.
    pub(super) fn said(&self) -> impl Iterator<Item = (SessionId, &[GroupAsk])> {
        self.said.iter().map(|(id, said)| (*id, said.as_slice()))
    }

    /// Restores the last report of each allocator.
    pub(super) fn goes_on(&mut self, said: BTreeMap<SessionId, Vec<GroupAsk>>) {
        self.said = said;
    }
}

/// Permits that the sessions of one group want from an allocator's loan.
#[derive(Clone, Copy, Debug)]
struct GroupWish {
    /// Permits in hand below which more are asked for.
    low: u64,
    /// Permits wanted in hand.
    target: u64,
}

impl Pool {
    /// [`Pool::renew`] of a root, for an allocator that reports `groups` of its nodes. Also returns the part of the
    /// grant for each group.
    ///
    /// # Errors
    /// As [`Pool::renew`]. Nothing changes then.
    pub fn renew_for_groups(
        &mut self,
        now: Moment,
        holder: Holder,
        seq: u64,
        ask: Ask,
        groups: &[GroupAsk],
    ) -> Result<(Answer, Vec<u64>), AskError> {
        if groups.is_empty() || self.groups.is_usual() {
            return self.renew(now, holder, seq, ask).map(|answer| (answer, vec![]));
        }
        self.advance(now);
        let before = self.groups.clone();
        self.hear_of_groups(holder.id, groups);
        let answer = self.renew(now, holder, seq, ask);
        let parts = std::mem::take(&mut self.groups.asking);
        // An ask that is not granted changes nothing about groups.
        if !matches!(answer, Ok(Answer::Grant(_))) {
            self.groups = before;
            return answer.map(|answer| (answer, vec![]));
        }
        let lent: Vec<u64> = parts.iter().map(|part| part.lent).collect();
        let said = groups.iter().zip(&lent);
        let said = said.map(|(ask, lent)| GroupAsk {
            taken: ask.taken.saturating_add(*lent),
            want: ask.want.saturating_sub(*lent),
        });
        self.groups.said.insert(holder.id, said.collect());
        answer.map(|answer| (answer, lent))
    }

    /// Puts back into the buckets what `id` did not take after all, and finds what it may take beside other allocators
    /// that want some.
    fn hear_of_groups(&mut self, id: SessionId, groups: &[GroupAsk]) {
        let is_known = self.sessions.contains(Place::own(id));
        let known = self.groups.said.get(&id).filter(|_| is_known).cloned().unwrap_or_default();
        for (group, (known, ask)) in known.iter().zip(groups).enumerate() {
            let given_back = known.taken.saturating_sub(ask.taken);
            self.groups.guarantees.returned(Some(group), given_back);
        }
        let others = |group: usize| {
            let wants = |said: &[GroupAsk]| said.get(group).is_some_and(|said| said.want > 0);
            let shares = |id| self.sessions.get(Place::own(id)).is_some_and(Session::shares);
            self.groups.said().filter(|(other, said)| *other != id && wants(said) && shares(*other)).count()
                as u64
        };
        let owed = |(group, ask): (usize, &GroupAsk)| {
            ask.want.min(self.groups.guarantees.owed(Some(group)).div_ceil(others(group) + 1))
        };
        let groups = groups.iter().take(self.groups.guarantees.levels().len()).enumerate();
        self.groups.asking = groups.map(|group| Part { owed: owed(group), lent: 0 }).collect();
    }

    /// Returns the permits that a session with `share` must leave to others, and those of `left` that it may take
    /// whatever others want.
    pub(super) fn guaranteed_to(&self, share: Share, left: u64) -> (u64, u64) {
        let Groups { guarantees, asking, .. } = &*self.groups;
        if !asking.is_empty() {
            let parts = asking.iter().enumerate();
            let parts = parts.map(|(group, part)| part.owed.min(guarantees.part_of(group, left)));
            let owed = parts.fold(0, u64::saturating_add).min(left);
            return (guarantees.kept_from(None).saturating_sub(owed), owed);
        }
        let Some(group) = share.group else { return (guarantees.kept_from(None), 0) };
        let members = self.sessions.claims().members(group) + 1;
        let owed = guarantees.owed(Some(group)).div_ceil(members);
        (guarantees.kept_from(Some(group)), owed.min(guarantees.part_of(group, left)))
    }

    /// Returns the most that a session of `group` must ever leave to others.
    pub(super) fn kept_at_most(&self, group: Option<usize>) -> u64 {
        let asking = self.groups.asking.iter().zip(self.groups.guarantees.levels());
        let own = asking.filter(|(part, _)| part.owed > 0).map(|(_, level)| level.most).sum();
        self.groups.guarantees.kept_at_most(group).saturating_sub(own)
    }

    /// Takes `permits` that were lent to the session at `place` out of the buckets.
    pub(super) fn group_was_lent(&mut self, place: Place, permits: u64) {
        let Some(Groups { guarantees, asking, .. }) = self.groups.unusual() else { return };
        guarantees.lent(self.sessions[place].share.group, permits);
        // Where the grant is not enough for all groups, each has its part first.
        let mut left = permits;
        for is_first in [true, false] {
            for (group, part) in asking.iter_mut().enumerate() {
                let most = if is_first { guarantees.part_of(group, left) } else { left };
                let more = (part.owed - part.lent).min(most);
                (part.lent, left) = (part.lent + more, left - more);
                guarantees.lent(Some(group), more);
            }
        }
    }

    /// Puts `permits` that came back unspent from a session of `group` back into its bucket.
    pub(super) fn group_returned(&mut self, group: Option<usize>, permits: u64) {
        if let Some(groups) = self.groups.unusual() {
            groups.guarantees.returned(group, permits);
        }
    }
}

// The side of an allocator that leases from a root.
impl Pool {
    /// Returns what sessions of `group`, or of no group, want from the loan, where an exchange with the root takes `rtt`.
    fn group_wish(&self, group: Option<usize>, rtt: Duration) -> GroupWish {
        let sums = self.sessions.sums_of(group);
        let Wishes { low, target, .. } = Wishes::of(sums, sums.out, rtt);
        GroupWish { low, target: target.saturating_sub(sums.out) }
    }

    /// Whether the `free` permits that other groups leave are too few for some sessions, where an exchange with the
    /// root takes `rtt`.
    pub(super) fn are_groups_low(&self, free: u64, rtt: Duration) -> bool {
        let groups = self.groups.guarantees.levels().len();
        let is_low = |group: Option<usize>| {
            let GroupWish { low, target } = self.group_wish(group, rtt);
            let usable = free.saturating_sub(self.groups.guarantees.kept_from(group));
            usable < low && usable < target
        };
        groups > 0 && (0..groups).map(Some).chain([None]).any(is_low)
    }

    /// Writes the report of the pool's groups to its root, with `ask`. Permits that are kept for a group and that it
    /// does not want go back.
    pub fn ask_groups_above(&mut self, ask: &Ask, rtt: Duration) -> Vec<GroupAsk> {
        let groups = self.groups.guarantees.levels().len();
        let (Some(loan), false) = (self.ledgers.loan(), groups == 0) else { return vec![] };
        let (mut room, mut left) = (loan.free(), ask.want);
        let mut say = |group: usize| {
            let kept = self.groups.guarantees.owed(Some(group));
            let GroupWish { target, .. } = self.group_wish(Some(group), rtt);
            let keeps = kept.min(target).min(room);
            let want = (target - keeps).min(left);
            (room, left) = (room - keeps, left - want);
            (kept - keeps, want)
        };
        let said: Vec<(u64, u64)> = (0..groups).map(&mut say).collect();
        let Some(borrower) = &mut self.borrower else { return vec![] };
        borrower.taken.resize(groups, 0);
        let asks = said.into_iter().enumerate().map(|(group, (given_back, want))| {
            self.groups.guarantees.lent(Some(group), given_back);
            let taken = &mut borrower.taken[group];
            *taken = taken.saturating_sub(given_back);
            GroupAsk { taken: *taken, want }
        });
        asks.collect()
    }

    /// Keeps for each group its part of what the root has just `lent`, no more than `permits` in all.
    pub fn on_groups_above(&mut self, lent: &[u64], permits: u64) {
        let Some(borrower) = &mut self.borrower else { return };
        let mut left = permits;
        for ((group, taken), lent) in borrower.taken.iter_mut().enumerate().zip(lent) {
            let came = (*lent).min(left);
            left -= came;
            *taken = taken.saturating_add(came);
            self.groups.guarantees.came(group, came);
        }
    }
}
