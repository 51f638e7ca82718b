//! Goes round the pools of a limit, a few at a time, and forgets pools that cannot be told from new ones. Where there
//! is no room for another pool, it also forgets some that have saved up more than a new one.

use super::Limit;
use crate::share::Owner;
use lessor_protocol::Moment;
use std::collections::BTreeSet;

/// Pools to which a sweep applies a pending change for each pool that it looks at. A million take some fifty seconds.
const REACHES_AT_ONCE: usize = 4;

/// Pools that a sweep may forget though they have saved up more than a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replaced {
    None,
    /// One that was made for this identity, or for callers without one.
    OneOf(Owner),
    One,
    AllOfThem,
}

impl Limit {
    /// Looks at the next `steps` pools. Brings their figures up to date, forgets idle sessions, drops pools of keys
    /// that cannot be told from new ones, and lets pools rest that no session uses. A pool at rest is passed over until
    /// something of it may have changed. While memory is short none is passed over, and all forget the sessions that
    /// they can spare.
    pub fn sweep(&mut self, now: Moment, steps: usize) {
        self.unused.sweep(now);
        self.sweep_pools(now, steps, Replaced::None);
    }

    /// Sweeps a limit that was removed. Pools go whatever they have saved up, since no node can use that.
    pub(crate) fn sweep_removed(&mut self, now: Moment, steps: usize) {
        self.unused.sweep(now);
        self.sweep_pools(now, steps, Replaced::AllOfThem);
    }

    /// Sweeps the next `steps` pools. Those of `replaced` also go if nothing matters any more that they lent; what they
    /// have saved up is lost. Asks call this too, so it does not look at `unused` for each key with rules of its own.
    pub(super) fn sweep_pools(&mut self, now: Moment, steps: usize, replaced: Replaced) {
        let (makes_pools, is_written) = (self.makes_pools(), self.unwritten.is_on());
        let is_short = self.sessions_cap.is_some();
        self.pools.apply_some(steps.saturating_mul(REACHES_AT_ONCE), &mut self.tally);
        let (unused, owners, mut changed) = (&mut self.unused, &self.owners, vec![]);
        let mut most = if replaced == Replaced::AllOfThem { usize::MAX } else { 1 };
        let gone = self.pools.sweep(&mut self.sweep, steps, &mut self.tally, |id, entry, tally| {
            let may_be_replaced = match replaced {
                Replaced::None => false,
                Replaced::OneOf(owner) => owners.at(entry.made_for()) == owner,
                Replaced::One | Replaced::AllOfThem => true,
            };
            let is_replaced = may_be_replaced && most > 0;
            if !is_replaced && !is_short && entry.rests(now, is_written) {
                debug_assert!(entry.is_asleep(now), "{entry:?}");
                return false;
            }
            let is_queued = entry.is_queued();
            let kept = entry.wake();
            if is_short {
                kept.pool.forget_spare(now);
            }
            let forgettable = match is_replaced {
                true => kept.pool.is_replaceable(now),
                false => kept.pool.is_forgettable(now),
            };
            tally.count(&mut kept.counted, kept.pool.view(now));
            if kept.pool.wants_checkpoint() && !is_queued {
                changed.push(id.clone());
            }
            let is_gone = makes_pools && forgettable && unused.is_new(id.key.as_ref());
            most -= usize::from(is_gone && is_replaced);
            if makes_pools && !is_gone {
                entry.rest();
            }
            is_gone
        });
        changed.iter().for_each(|id| self.note(id));
        let mut names = BTreeSet::new();
        for (id, entry) in gone {
            self.owners.remove(entry.made_for());
            let kept = entry.into_kept();
            self.tally.drop(kept.counted);
            self.has_lost_loans |= kept.pool.gave_up_above();
            if kept.pool.has_checkpoint() {
                self.drop_written(id.clone());
            }
            names.extend(id.name);
        }
        names.retain(|name| !self.has_name(name));
        names.iter().for_each(|name| self.names.end(name));
    }
}
