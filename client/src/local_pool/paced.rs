//! The pace of a steady flow, beside the slot of one pool: what callers take from both, and give back to both. It never
//! waits.

use super::LocalPool;
use crate::pace::{Pace, Refill, Taken};
use crate::slot::Short;
use lessor_protocol::Moment;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl LocalPool {
    /// Spends `permits` of a steady flow. It sets them aside first, which can be undone without a trace, and then takes
    /// from the pace, which decides.
    #[inline(never)]
    pub(super) fn take_paced(&self, permits: u64, first: bool, now: Moment) -> Result<(), Short> {
        self.hold_at_pace(permits, first, now)?;
        self.spend_held(permits);
        Ok(())
    }

    /// Sets `permits` aside if the pace lets them through; [`LocalPool::spend_held`] or [`LocalPool::enter_held`] must
    /// follow. `first` says that it is the caller's turn.
    pub(super) fn hold_at_pace(&self, permits: u64, first: bool, now: Moment) -> Result<(), Short> {
        self.set_aside(permits, first, now)?;
        self.hold_pace(permits, now).map(|_| ()).inspect_err(|_| match first {
            true => self.put_back_quietly(permits),
            false => self.put_back(permits),
        })
    }

    /// Takes what [`LocalPool::hold`] has set aside from the pace; does nothing where the limit has no steady flow.
    #[inline]
    pub(crate) fn hold_pace(&self, permits: u64, now: Moment) -> Result<Option<Taken>, Short> {
        if permits == 0 || !self.is_paced() {
            return Ok(None);
        }
        self.take_from_pace(permits, now).map(Some)
    }

    #[inline(never)]
    fn take_from_pace(&self, permits: u64, now: Moment) -> Result<Taken, Short> {
        let taken = self.pace().and_then(|pace| pace.take(permits, now).ok());
        taken.ok_or_else(|| {
            self.cold.largest.fetch_max(permits, Ordering::Relaxed);
            Short::Early
        })
    }

    /// Frees what [`LocalPool::hold`] set aside, and wakes no caller: the first in line would wake itself for ever.
    pub(crate) fn put_back_quietly(&self, permits: u64) {
        self.slot().put_back(permits);
    }

    /// Undoes [`LocalPool::hold_pace`].
    pub(crate) fn put_back_pace(&self, taken: Option<Taken>) {
        if let (Some(pace), Some(taken)) = (self.pace(), taken) {
            pace.put_back(taken);
        }
    }

    /// How long a call of `permits` has to wait for the pace alone, or for the safe share. `None` if it does not have
    /// to wait for these, or the wait is unknown.
    pub(crate) fn early_by(&self, permits: u64, now: Moment) -> Option<Duration> {
        if let Some(wait) = self.share_in(permits, now) {
            return Some(wait);
        }
        let slot = self.slot();
        if !self.is_paced() || slot.balance().free < permits || now >= slot.deadline() {
            return None;
        }
        self.pace()?.check(permits, now).err()?.wait
    }

    /// Returns the pace; `None` before the first rate was lent.
    pub(super) fn pace(&self) -> Option<&Pace> {
        self.cold.pace.get().map(|pace| &**pace)
    }

    /// Makes callers go by the pace of `refill`, once a rate was lent.
    pub(crate) fn learn_pace(&self, refill: &Refill) {
        if let Some(pace) = refill.pace() {
            self.cold.pace.get_or_init(|| pace.clone());
        }
    }

    pub(crate) fn is_paced(&self) -> bool {
        self.slow_path().is_paced()
    }

    /// Sets whether the limit has a steady flow, before its first permits are installed.
    pub(crate) fn set_paced(&self, is_paced: bool) {
        if is_paced != self.is_paced() {
            self.slow_path().set_paced(is_paced);
            // The largest call of one kind of limit says nothing about the other.
            self.cold.largest.store(0, Ordering::Relaxed);
        }
    }
}
