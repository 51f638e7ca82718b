//! How much memory bodies take that are being read, over all connections. One that comes in pieces is kept until it is whole, and its
//! peer may take seconds for that: thousands of large ones at once would take all memory there is.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of all of them: as many as of 64 of the largest. Those that come in one piece, as nearly all do, take none of it.
const ALL_MAX: usize = 64 << 20;

/// A body up to so many bytes is a short one.
const SHORT_MAX: usize = 16 << 10;

/// Bytes that are for short ones alone, so that long ones that trickle keep out none of them: a thousand.
const SHORT_PART: usize = SHORT_MAX << 10;

/// What all of them take.
#[derive(Debug, Default)]
pub(crate) struct Bodies(Arc<AtomicUsize>);

/// What one of them takes, until it is dropped.
#[derive(Debug)]
pub(super) struct Held {
    all: Arc<AtomicUsize>,
    bytes: usize,
}

impl Bodies {
    /// Another one, which takes nothing yet.
    pub(super) fn begin(&self) -> Held {
        Held { all: self.0.clone(), bytes: 0 }
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.0.load(Relaxed)
    }
}

impl Held {
    /// Takes `bytes` from now on, which are not fewer than before; whether there is room for that.
    pub(super) fn grow_to(&mut self, bytes: usize) -> bool {
        let max = if bytes <= SHORT_MAX { ALL_MAX } else { ALL_MAX - SHORT_PART };
        let more = bytes.saturating_sub(self.bytes);
        let sum = |all: usize| all.checked_add(more).filter(|all| *all <= max);
        // Nothing else is read by what this says.
        let is_taken = self.all.fetch_update(Relaxed, Relaxed, sum).is_ok();
        if is_taken {
            self.bytes += more;
        }
        is_taken
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_bodies_leave_room_for_short_ones() {
        let bodies = Bodies::default();
        let mut long: Vec<Held> = (0..100).map(|_| bodies.begin()).collect();
        let are_held = long.iter_mut().filter_map(|body| body.grow_to(1 << 20).then_some(())).count();
        assert_eq!(are_held, (ALL_MAX - SHORT_PART) >> 20);
        let mut short: Vec<Held> = (0..1_100).map(|_| bodies.begin()).collect();
        assert!(!short[0].grow_to(SHORT_MAX + 1));
        let are_held = short.iter_mut().filter_map(|body| body.grow_to(SHORT_MAX).then_some(())).count();
        assert_eq!((are_held, bodies.held()), (1 << 10, ALL_MAX));
        drop((long, short));
        assert_eq!(bodies.held(), 0);
    }
}
