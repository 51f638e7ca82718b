//! The conditions other than the slot that a call on one pool must mind: a line of callers, a steady flow, or that the
//! call is to be timed. All are in one word, so that one read tells a call that there are none. It decides nothing
//! about permits.

use crate::slot::SLOT_MAX;
use crate::sync::{AtomicU64, Ordering, fence};

// The word:   63     62     61 .................. 0
//             paced  timed  permits that callers in line want
//
// A caller counts for no more than a slot can hold, which is the most it ever gets: there is room for 2^30 callers.
const PACED: u64 = 1 << 63;
const TIMED: u64 = 1 << 62;

/// Whether a call may go straight to the slot.
///
/// # Memory ordering
/// A waiting caller writes here and then looks elsewhere: for permits, or whether the background task knows already. A
/// thread that changes these does so first and then looks here. Without a fence between the two steps of each, both
/// could see the old state, and the caller would never be woken.
#[derive(Debug)]
pub struct SlowPathFlags(AtomicU64);

impl Default for SlowPathFlags {
    fn default() -> Self {
        SlowPathFlags(AtomicU64::new(0))
    }
}

impl SlowPathFlags {
    /// Whether no caller is in line, the limit has no steady flow, and the next call is not to be timed.
    #[inline(always)]
    pub(crate) fn is_free(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Permits that callers in line want. While there is a line, no caller overtakes it.
    pub fn queued(&self) -> u64 {
        self.0.load(Ordering::Relaxed) & !(PACED | TIMED)
    }

    #[inline]
    pub(crate) fn has_line(&self) -> bool {
        self.queued() > 0
    }

    /// As `has_line`, for a thread that has just changed what callers in line look at.
    pub fn has_line_after_change(&self) -> bool {
        fence(Ordering::SeqCst);
        self.has_line()
    }

    /// Counts a caller that has joined the line and wants `permits`. The caller looks for permits only afterwards.
    pub fn join(&self, permits: u64) {
        self.0.fetch_add(permits.min(SLOT_MAX), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Counts a caller out that has left the line.
    pub(crate) fn leave(&self, permits: u64) {
        self.0.fetch_sub(permits.min(SLOT_MAX), Ordering::Relaxed);
    }

    /// Whether the limit has a steady flow: then a call takes from the pace too.
    #[inline]
    pub(crate) fn is_paced(&self) -> bool {
        self.0.load(Ordering::Relaxed) & PACED != 0
    }

    /// Sets whether the limit has a steady flow. Only the background task calls this.
    pub(crate) fn set_paced(&self, is_paced: bool) {
        if is_paced {
            self.0.fetch_or(PACED, Ordering::Release);
        } else {
            self.0.fetch_and(!PACED, Ordering::Release);
        }
    }

    /// Has the next call timed.
    pub(crate) fn time_next(&self) {
        self.0.fetch_or(TIMED, Ordering::Relaxed);
    }

    /// Whether this call is to be timed: true for the first call that asks.
    #[inline]
    pub(crate) fn is_timed(&self) -> bool {
        self.0.load(Ordering::Relaxed) & TIMED != 0
            && self.0.fetch_and(!TIMED, Ordering::Relaxed) & TIMED != 0
    }

    /// Resets the flags; no other thread may have them.
    pub(crate) fn renew(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_and_a_steady_flow_are_told_apart() {
        let slow_path = SlowPathFlags::default();
        assert!(slow_path.is_free() && !slow_path.has_line() && !slow_path.is_paced());
        slow_path.join(3);
        assert!(!slow_path.is_free() && slow_path.has_line() && !slow_path.is_paced());
        slow_path.set_paced(true);
        slow_path.set_paced(true);
        slow_path.join(4);
        assert_eq!((slow_path.queued(), slow_path.is_paced()), (7, true));
        slow_path.leave(7);
        assert!(!slow_path.is_free() && !slow_path.has_line() && slow_path.is_paced());
        slow_path.join(1);
        slow_path.set_paced(false);
        assert_eq!((slow_path.queued(), slow_path.is_paced()), (1, false));
        slow_path.leave(1);
        assert!(slow_path.is_free());
        // Callers that want more permits than there can be.
        (0..3).for_each(|_| slow_path.join(u64::MAX));
        assert_eq!((slow_path.queued(), slow_path.is_paced()), (3 * SLOT_MAX, false));
        (0..3).for_each(|_| slow_path.leave(u64::MAX));
        assert!(slow_path.is_free());
    }

    #[test]
    fn one_call_is_timed_whatever_else_there_is() {
        let slow_path = SlowPathFlags::default();
        assert!(!slow_path.is_timed());
        slow_path.join(5);
        slow_path.set_paced(true);
        slow_path.time_next();
        slow_path.time_next();
        assert_eq!((slow_path.queued(), slow_path.is_paced()), (5, true));
        assert!(slow_path.is_timed() && !slow_path.is_timed());
        assert_eq!((slow_path.queued(), slow_path.is_paced()), (5, true));
        slow_path.leave(5);
        slow_path.set_paced(false);
        slow_path.time_next();
        assert!(!slow_path.is_free(), "or no call would look");
        assert!(slow_path.is_timed() && slow_path.is_free());
    }
}
