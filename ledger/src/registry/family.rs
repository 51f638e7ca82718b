//! One exchange with a pool and the pools above it: locks their limits, from the lowest up, and opens the pools. The
//! pools decide what is charged where.

use super::Caller;
use super::limits::Limits;
use crate::pool::{Above, Holder, Pool};
use crate::registry::limit::{Limit, PoolId};
use crate::rejection::AskRejection;
use crate::share::Owner;
use lessor_protocol::{Moment, Refusal};
use std::sync::MutexGuard;

/// The pools of an exchange, the lowest first.
#[derive(Debug)]
pub(super) struct Family<'a> {
    now: Moment,
    members: Vec<(MutexGuard<'a, Limit>, PoolId)>,
}

impl<'a> Family<'a> {
    /// Locks the limits from the one called `name` up, and opens their pools from `id` on. Pools that do not exist are
    /// made for `owner`.
    ///
    /// # Errors
    /// If there is no room for one of them, or a key has no parent.
    pub(super) fn open(
        limits: &'a Limits,
        now: Moment,
        name: &str,
        id: PoolId,
        owner: Owner,
    ) -> Result<Self, AskRejection> {
        Family::of(chain_of(limits, name, id)?, now, owner)
    }

    /// Opens the pools of an exchange with a limit that was `removed`. The limits above it are among `limits`.
    ///
    /// # Errors
    /// As [`Family::open`].
    pub(super) fn of_removed(
        limits: &'a Limits,
        removed: MutexGuard<'a, Limit>,
        now: Moment,
        id: PoolId,
        owner: Owner,
    ) -> Result<Self, AskRejection> {
        let above = limits.above(&removed.shared_config(), &id)?;
        let mut members = vec![(removed, id)];
        if let Some((name, id)) = above {
            members.extend(chain_of(limits, &name, id)?);
        }
        Family::of(members, now, owner)
    }

    fn of(
        mut members: Vec<(MutexGuard<'a, Limit>, PoolId)>,
        now: Moment,
        owner: Owner,
    ) -> Result<Self, AskRejection> {
        let now = members.iter_mut().fold(now, |now, (limit, _)| limit.not_before(now));
        let mut opened = members.iter_mut().map(|(limit, id)| {
            limit.not_before(now);
            limit.open(now, id, owner)
        });
        let is_open = opened.try_for_each(|opened| opened);
        let mut family = Family { now, members };
        if is_open.is_err() {
            family.close();
        }
        is_open.map(|()| family)
    }

    /// Makes room for the session of `holder` in the lowest pool.
    ///
    /// # Errors
    /// If there is no room. The pools are closed then.
    pub(super) fn admit(&mut self, holder: Holder) -> Result<(), AskRejection> {
        let (limit, id, now) = self.lowest();
        let is_admitted = limit.make_room_for_session(now, id, holder);
        if is_admitted.is_err() {
            self.close();
        }
        is_admitted
    }

    /// Returns the refusal that `caller` gets instead of a grant, if one of the limits is suspended.
    pub(super) fn refusal(&mut self, caller: &Caller) -> Option<Refusal> {
        let now = self.now;
        self.members.iter_mut().find_map(|(limit, _)| limit.suspension().refusal(now, &caller.node))
    }

    /// Runs `act` on the lowest pool and the pools above it, with the share of `caller` by each limit. Then closes the
    /// pools, which updates the sums of the limits.
    pub(super) fn with<T>(
        &mut self,
        caller: &Caller,
        act: impl FnOnce(&mut Pool, &mut [Above<'_>], Moment) -> T,
    ) -> T {
        let mut pools = self.members.iter_mut().map(|(limit, id)| {
            let share = limit.config().share(&caller.node, caller.owner);
            Above { pool: limit.opened(id), share }
        });
        let lowest = pools.next().expect("there is one at least");
        let result = act(lowest.pool, &mut pools.collect::<Vec<_>>(), self.now);
        self.close();
        result
    }

    fn close(&mut self) {
        let now = self.now;
        let opened = self.members.iter_mut().filter(|(limit, id)| limit.has(id));
        opened.for_each(|(limit, id)| limit.close(now, id));
    }

    /// Returns the lowest limit, its pool in this exchange, and the moment of the exchange.
    pub(super) fn lowest(&mut self) -> (&mut Limit, &PoolId, Moment) {
        let (limit, id) = self.members.first_mut().expect("there is one at least");
        (limit, id, self.now)
    }

    /// Returns the limits, the lowest first.
    pub(super) fn limits(&mut self) -> impl Iterator<Item = &mut Limit> {
        self.members.iter_mut().map(|(limit, _)| &mut **limit)
    }
}

/// Locks the limit called `name`, with its pool `id`, and the limits above it.
fn chain_of<'a>(
    limits: &'a Limits,
    name: &str,
    id: PoolId,
) -> Result<Vec<(MutexGuard<'a, Limit>, PoolId)>, AskRejection> {
    // Limits come and go only where the registry is alone.
    let member = |(name, id): (String, PoolId)| (limits.lock(&name).expect("it was just there"), id);
    Ok(limits.chain(name, id)?.into_iter().map(member).collect())
}
