//! How callers of a pool tell the background task that it is wanted, at most once until it has looked. It wakes nothing
//! itself.

use crate::sync::{AtomicBool, Ordering, fence};

/// Whether the background task knows that it is wanted.
#[derive(Debug)]
pub struct Doorbell(AtomicBool);

impl Default for Doorbell {
    fn default() -> Self {
        Doorbell(AtomicBool::new(false))
    }
}

impl Doorbell {
    /// Whether the task knows already. A caller that waits has to be in line before: see [`crate::slow_path_flags::SlowPathFlags::join`].
    #[inline]
    pub fn is_rung(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Rings. True if the task has to be woken for it.
    pub fn ring(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// From now on a ring is heard, or (`false`) none is needed until the task looks by itself.
    ///
    /// # Memory ordering
    /// What the task reads after this is no older than it: a caller in line is seen there, or hears that it has to ring.
    pub fn listen(&self, listen: bool) {
        self.0.store(!listen, Ordering::Release);
        fence(Ordering::SeqCst);
    }
}
