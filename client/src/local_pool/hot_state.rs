//! The part of a pool that a call reads first, in two adjacent cache lines. The hot states of a limit's keys lie in
//! rows, so that a call on one of a million keys waits for one place. The rest of a pool is elsewhere.

use super::LocalPool;
use crate::keys::KeyText;
use crate::refusal::Refusal;
use crate::slot::{Quick, Slot, Watch};
use crate::slow_path_flags::SlowPathFlags;
use crate::stripe_hint::stripe_hint;
use crate::ticks::Ticks;
use lessor_protocol::Tick;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The words of a pool, the flags that let a call spend without a closer look, and the key.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct HotState {
    pub(super) slot: Slot,
    pub(super) fast_path: FastPathFlags,
}

/// One place in a row. No other is in the same pair of cache lines, which common processors fetch together.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Place(HotState);

/// What calls only read, beside the slot, which they write. It changes when callers wait or the background task has
/// news.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct FastPathFlags {
    pub(super) slow_path: SlowPathFlags,
    /// Free permits below which a spender wakes the background task. Written by that task.
    pub(super) low_water: AtomicU32,
    text: KeyText,
}

const _: () = assert!(cfg!(slot_loom) || (size_of::<FastPathFlags>() == 64 && size_of::<Slot>() == 64));

/// The place of a pool's hot state.
#[derive(Clone, Debug)]
pub(crate) struct HotRef {
    row: Arc<[Place]>,
    at: usize,
}

impl HotState {
    /// Makes the hot state of a pool that holds nothing and has no key.
    pub(crate) fn new() -> Self {
        let fast_path = FastPathFlags {
            slow_path: SlowPathFlags::default(),
            low_water: AtomicU32::new(0),
            text: KeyText::default(),
        };
        HotState { slot: Slot::new(), fast_path }
    }

    /// Resets it to [`HotState::new`], except for what [`Slot::renew`] keeps. No other thread may have the hot state.
    fn renew(&self) {
        let HotState { slot, fast_path: FastPathFlags { slow_path, low_water, text } } = self;
        slot.renew();
        slow_path.renew();
        low_water.store(0, Ordering::Relaxed);
        text.set(None);
    }

    /// Sets the key, before any caller looks for it.
    pub(super) fn set_key(&self, key: Option<&str>) {
        self.fast_path.text.set(key);
    }

    #[cfg(test)]
    pub(crate) fn slot(&self) -> &Slot {
        &self.slot
    }

    /// Whether it belongs to `key`; `None` if the key is not kept here.
    #[inline]
    pub(crate) fn is_of(&self, key: &str) -> Option<bool> {
        self.fast_path.text.is(key)
    }

    /// Spends `permits` now, or returns the reason why not, by `ticks` and, if the callers of several pools share one,
    /// by their `watch`. It reads the rest of the `pool` only if needed.
    #[inline(always)]
    pub(crate) fn try_acquire<'a>(
        &self,
        watch: Option<&Watch>,
        ticks: &Ticks,
        permits: u64,
        pool: impl FnOnce() -> &'a LocalPool,
    ) -> Result<(), Refusal> {
        let look = ticks.look();
        // Read before the word is changed: a later read would wait for the change.
        let low_water = u64::from(self.fast_path.low_water.load(Ordering::Relaxed));
        match self.spend_quickly(watch, permits, look) {
            Quick::Spent(left) => {
                if left < low_water {
                    pool().run_low(left, permits);
                }
                Ok(())
            }
            Quick::Empty(now) => pool().refuse_quickly(self, permits, now),
            Quick::Unsure => pool().try_slowly(watch, permits, look.map(|(tick, _)| tick)),
        }
    }

    #[inline(always)]
    fn spend_quickly(&self, watch: Option<&Watch>, permits: u64, look: Option<(Tick, u64)>) -> Quick {
        let Some((tick, late_ns)) = look else { return Quick::Unsure };
        // Read once, before the word is changed, as low water is: see `Refiller::expects`.
        if !self.fast_path.slow_path.is_free() || permits == 0 {
            return Quick::Unsure;
        }
        self.slot.spend_quickly(stripe_hint, watch, permits, tick, late_ns)
    }
}

impl Place {
    /// Makes a place for the first pool that is put there.
    pub(crate) fn new() -> Self {
        Place(HotState::new())
    }

    #[inline(always)]
    pub(crate) fn hot_state(&self) -> &HotState {
        &self.0
    }
}

impl HotRef {
    /// Makes a hot state in a row of its own.
    pub(crate) fn alone() -> Self {
        HotRef { row: Arc::new([Place::new()]), at: 0 }
    }

    /// Takes the place `at` of a row and resets its hot state. No two pools share a place: an earlier pool of this one,
    /// if any, has no owner left.
    pub(crate) fn new(row: Arc<[Place]>, at: usize) -> Self {
        row[at].hot_state().renew();
        HotRef { row, at }
    }

    #[inline(always)]
    pub(crate) fn hot_state(&self) -> &HotState {
        self.row[self.at].hot_state()
    }
}
