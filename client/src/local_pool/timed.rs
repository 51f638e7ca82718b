//! How long a call takes, of one now and then: the background task says that the next call of a pool is to be timed, and that
//! one times itself. It costs the others nothing, for each looks anyway whether there is something to mind. What it took is
//! left here, so that no call ever waits for whatever exports metrics.

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
    /// The call that was chosen: from its beginning, as one that is not, and less what it takes to read the clock.
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

    /// The next call is to be timed.
    pub(crate) fn time_next(&self) {
        self.slow_path().time_next();
    }

    /// How long the call took that was timed, if there was one since this was last asked, and whether it was admitted.
    pub(crate) fn takes_timed(&self) -> Option<(Duration, bool)> {
        if self.cold.timed.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let timed = self.cold.timed.swap(0, Ordering::Relaxed);
        Some((Duration::from_nanos(timed >> NANOS), timed & ADMITTED != 0))
    }
}
