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
pub struct Way(AtomicU64);

impl Default for Way {
    fn default() -> Self {
        Way(AtomicU64::new(0))
    }
}

impl Way {
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
        let way = Way::default();
        assert!(way.is_free() && !way.has_line() && !way.is_paced());
        way.join(3);
        assert!(!way.is_free() && way.has_line() && !way.is_paced());
        way.set_paced(true);
        way.set_paced(true);
        way.join(4);
        assert_eq!((way.queued(), way.is_paced()), (7, true));
        way.leave(7);
        assert!(!way.is_free() && !way.has_line() && way.is_paced());
        way.join(1);
        way.set_paced(false);
        assert_eq!((way.queued(), way.is_paced()), (1, false));
        way.leave(1);
        assert!(way.is_free());
        // Of callers that want more than there can be.
        (0..3).for_each(|_| way.join(u64::MAX));
        assert_eq!((way.queued(), way.is_paced()), (3 * SLOT_MAX, false));
        (0..3).for_each(|_| way.leave(u64::MAX));
        assert!(way.is_free());
    }

    #[test]
    fn one_call_is_timed_whatever_else_there_is() {
        let way = Way::default();
        assert!(!way.is_timed());
        way.join(5);
        way.set_paced(true);
        way.time_next();
        way.time_next();
        assert_eq!((way.queued(), way.is_paced()), (5, true));
        assert!(way.is_timed() && !way.is_timed());
        assert_eq!((way.queued(), way.is_paced()), (5, true));
        way.leave(5);
        way.set_paced(false);
        way.time_next();
        assert!(!way.is_free(), "or no call would look");
        assert!(way.is_timed() && way.is_free());
    }
}
