//! Times a call now and then. The background task marks a pool, and its next call times itself. Other calls pay
//! nothing, because each checks for pending work anyway. The result is left here, so that no call waits for the
//! exporter of metrics.

use super::{CLOCK, LocalPool};
use crate::refusal::Refusal;
use crate::slot::Watch;
use lessor_protocol::moment::nanos;
use std::sync::atomic::Ordering;
use std::time::Duration;

// The word:   63 ............ 2   1         0
//             nanoseconds         admitted  there is one
const THERE: u64 = 1;
const ADMITTED: u64 = 1 << 1;
const NANOS: u32 = 2;

impl LocalPool {
    /// Times the chosen call: it runs like any other, and the time for reading the clock is subtracted.
    #[cold]
    pub(super) fn try_timed(&self, watch: Option<&Watch>, permits: u64) -> Result<(), Refusal> {
        let first = CLOCK.now();
        let began = CLOCK.now();
        let answer = self.hot_state().try_acquire(watch, &self.hot.ticks, permits, || self);
        let took = CLOCK.now().since(began).saturating_sub(began.since(first));
        let admitted = if answer.is_ok() { ADMITTED } else { 0 };
        self.cold.timed.store(THERE | admitted | nanos(took) << NANOS, Ordering::Relaxed);
        answer
    }

    /// Marks the pool: its next call is timed.
    pub(crate) fn time_next(&self) {
        self.slow_path().time_next();
    }

    /// Returns how long the timed call took, and whether it was admitted, if there was one since the last call of this.
    pub(crate) fn takes_timed(&self) -> Option<(Duration, bool)> {
        if self.cold.timed.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let timed = self.cold.timed.swap(0, Ordering::Relaxed);
        Some((Duration::from_nanos(timed >> NANOS), timed & ADMITTED != 0))
    }
}
