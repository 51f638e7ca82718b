//! The pace of one pool's steady flow, beside its slot: what callers take from both, and give back to both. The pool's
//! other methods call it where the limit has such a flow; it never waits.

use super::LocalPool;
use crate::pace::{Pace, Refill, Taken};
use crate::slot::Short;
use lessor_protocol::Moment;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl LocalPool {
    /// Of a steady flow: sets the permits aside first, for that can be undone without a trace, and then takes from the
    /// pace, which decides.
    #[inline(never)]
    pub(super) fn take_paced(&self, permits: u64, first: bool, now: Moment) -> Result<(), Short> {
        self.hold_at_pace(permits, first, now)?;
        self.spend_held(permits);
        Ok(())
    }

    /// Sets `permits` aside for which it is time; [`LocalPool::spend_held`] or [`LocalPool::enter_held`] must follow.
    /// `first` says that it is the caller's turn.
    pub(super) fn hold_at_pace(&self, permits: u64, first: bool, now: Moment) -> Result<(), Short> {
        self.set_aside(permits, first, now)?;
        self.hold_pace(permits, now).map(|_| ()).inspect_err(|_| match first {
            true => self.put_back_quietly(permits),
            false => self.put_back(permits),
        })
    }

    /// Takes from the pace what [`LocalPool::hold`] has set aside; nothing where the limit has no steady flow.
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

    /// Frees what [`LocalPool::hold`] set aside and wakes no caller: for the first in line, which would wake itself for ever.
    pub(crate) fn put_back_quietly(&self, permits: u64) {
        self.slot().put_back(permits);
    }

    /// Undoes [`LocalPool::hold_pace`].
    pub(crate) fn put_back_pace(&self, taken: Option<Taken>) {
        if let (Some(pace), Some(taken)) = (self.pace(), taken) {
            pace.put_back(taken);
        }
    }

    /// How long a call of `permits` has to wait for the pace alone, or for its part of the reserve. `None` if it does not
    /// have to wait, or the wait is unknown.
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

    /// What callers take from beside the slot; `None` before the first rate was lent.
    pub(super) fn pace(&self) -> Option<&Pace> {
        self.cold.pace.get().map(|pace| &**pace)
    }

    /// Callers go by what `refill` was lent, once it was lent a rate.
    pub(crate) fn learn_pace(&self, refill: &Refill) {
        if let Some(pace) = refill.pace() {
            self.cold.pace.get_or_init(|| pace.clone());
        }
    }

    pub(crate) fn is_paced(&self) -> bool {
        self.slow_path().is_paced()
    }

    /// Whether the limit has a steady flow. Said before the first permits of such a limit are installed.
    pub(crate) fn set_paced(&self, is_paced: bool) {
        if is_paced != self.is_paced() {
            self.slow_path().set_paced(is_paced);
            // What it says of the one says nothing of the other.
            self.cold.largest.store(0, Ordering::Relaxed);
        }
    }
}
