//! Windows that a grant of a root opens. Such a window counts from the time at which the root is written: the time of the
//! allocator that asked the root. The clock of the store shows a little more when the swap arrives, and the next window
//! may open as much earlier.

use super::World;
use super::shared::{Letter, Store};
use crate::oracle::Instant;
use lessor_ledger::Rule;
use lessor_ledger::roots::{self, Call};
use lessor_protocol::Moment;
use std::time::Duration;

/// The time of the roots as it was last read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// The life of that time, if allocators keep it.
    life: Option<u64>,
    at: Moment,
    real: u64,
}

/// The permits that each root has granted, and the time at which it was written: the origin if that was in another era.
pub(super) type Granted = Vec<(u64, Moment)>;

impl Store {
    /// Records that the roots were `at` a time, in a `life` of it.
    pub(super) fn sees(&mut self, life: Option<u64>, at: Moment, real: u64) {
        self.has_leapt |= self.seen.is_some_and(|seen| seen.life != life);
        self.seen = Some(Seen { life, at, real });
    }

    fn granted(&self) -> Granted {
        let head = self.head();
        let granted = |(spec, value): (_, Option<Vec<u8>>)| {
            let read = roots::read(spec, head.as_ref()?, Some(&value?), Moment::ORIGIN);
            let mut read = read.ok()?;
            Some((read.pool.let_pass(read.now).granted, read.now))
        };
        self.values().map(|root| granted(root).unwrap_or_default()).collect()
    }
}

impl World {
    /// Returns the time by which roots are judged: the clock of the store, or the time that allocators keep.
    pub(super) fn judged_clock(&self) -> Moment {
        let seen = self.shared.as_ref().filter(|store| store.is_clockless).map(|store| store.seen);
        match seen {
            Some(Some(seen)) => seen.at + Duration::from_nanos(self.real - seen.real),
            Some(None) => Moment::ORIGIN,
            None => self.root_clock(),
        }
    }

    /// Returns what the roots have granted if `letter` is a swap, and a grant may open a window.
    pub(super) fn granted_before(&self, letter: u64) -> Option<Granted> {
        let is_opened = |rule: &Rule| matches!(rule, Rule::FixedWindow(rule) if rule.windows().anchor() == Some("first_use"));
        let store = self.shared.as_ref().filter(|_| self.setup.plan.rules.iter().any(is_opened))?;
        let is_swap = matches!(store.letters.get(&letter), Some(Letter::Call(Call::Swap(..))));
        is_swap.then(|| store.granted())
    }

    /// Tells the oracle what the roots have granted since they had granted `before`.
    pub(super) fn opens_windows(&mut self, before: Option<Granted>) {
        let Some((store, before)) = self.shared.as_mut().zip(before) else { return };
        let (after, has_leapt) = (store.granted(), std::mem::take(&mut store.has_leapt));
        if has_leapt {
            self.oracles.root().windows_unknown();
        }
        let own = self.setup.plan.rules.len() - self.setup.above;
        for (place, ((before, _), (after, at))) in before.into_iter().zip(after).enumerate() {
            // A root that begins anew has granted nothing before.
            let permits = after.checked_sub(before).unwrap_or(after);
            let rules = if place == 0 { 0..own } else { own + place - 1..own + place };
            match at {
                _ if permits == 0 => {}
                // By an allocator that went by an earlier era.
                Moment::ORIGIN => self.oracles.root().windows_unknown(),
                allocator => {
                    self.oracles.root().root_lends(rules, Instant { real: self.real, allocator }, permits);
                }
            }
        }
    }
}
