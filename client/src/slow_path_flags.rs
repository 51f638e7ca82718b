//! What a call of one pool may have to mind besides the slot: a line of callers, a steady flow, or that it is to be timed. All
//! of it is in one word, so that one look tells a call that there is nothing. It decides nothing about permits.

use crate::slot::SLOT_MAX;
use crate::sync::{AtomicU64, Ordering, fence};

// The word:   63     62     61 .................. 0
//             paced  timed  permits that callers in line want
//
// Of each caller as many are counted as a slot can hold, for more it never gets: there is room for 2^30 of them.
const PACED: u64 = 1 << 63;
const TIMED: u64 = 1 << 62;

/// Whether the way to the slot is free.
///
/// # Memory ordering
/// A caller that waits writes here and then looks elsewhere: for permits, or whether the background task knows already. Those
/// that change what it looks at do so first and then look here. Without a fence between the two steps of each, both could
/// see what was before, and the caller would never be woken.
#[derive(Debug)]
pub struct SlowPathFlags(AtomicU64);

impl Default for SlowPathFlags {
    fn default() -> Self {
        SlowPathFlags(AtomicU64::new(0))
    }
}

impl SlowPathFlags {
    /// No caller is in line, the limit has no steady flow, and this call is not to be timed.
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

    /// The same for a caller that has just changed what those in line look at.
    pub fn has_line_after_change(&self) -> bool {
        fence(Ordering::SeqCst);
        self.has_line()
    }

    /// A caller that wants `permits` has joined the line. Only then does it look for permits.
    pub fn join(&self, permits: u64) {
        self.0.fetch_add(permits.min(SLOT_MAX), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// It has left.
    pub(crate) fn leave(&self, permits: u64) {
        self.0.fetch_sub(permits.min(SLOT_MAX), Ordering::Relaxed);
    }

    /// Whether the limit has a steady flow: then a call takes from the pace too.
    #[inline]
    pub(crate) fn is_paced(&self) -> bool {
        self.0.load(Ordering::Relaxed) & PACED != 0
    }

    /// Only the background task says so.
    pub(crate) fn set_paced(&self, is_paced: bool) {
        if is_paced {
            self.0.fetch_or(PACED, Ordering::Release);
        } else {
            self.0.fetch_and(!PACED, Ordering::Release);
        }
    }

    /// The next call is to be timed.
    pub(crate) fn time_next(&self) {
        self.0.fetch_or(TIMED, Ordering::Relaxed);
    }

    /// Whether this call is the one: the first that asks.
    #[inline]
    pub(crate) fn is_timed(&self) -> bool {
        self.0.load(Ordering::Relaxed) & TIMED != 0
            && self.0.fetch_and(!TIMED, Ordering::Relaxed) & TIMED != 0
    }

    /// Makes it as a new one; only for a caller that has it alone.
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
        // Of callers that want more than there can be.
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
