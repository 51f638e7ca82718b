//! How callers of a pool tell the background task that it is needed, at most once until the task has looked. The
//! doorbell itself wakes nothing.

use crate::sync::{AtomicBool, Ordering, fence};

/// Whether the background task knows that it is needed.
#[derive(Debug)]
pub struct Doorbell(AtomicBool);

impl Default for Doorbell {
    fn default() -> Self {
        Doorbell(AtomicBool::new(false))
    }
}

impl Doorbell {
    /// Whether the task knows already. A waiting caller must be in line before: see
    /// [`crate::slow_path_flags::SlowPathFlags::join`].
    #[inline]
    pub fn is_rung(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Rings. Returns whether the task has to be woken for it.
    pub fn ring(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Makes rings heard again (`true`), or unnecessary until the task looks by itself (`false`).
    ///
    /// # Memory ordering
    /// Reads of the task after this see everything older. A caller that joins the line is either seen there, or learns
    /// that it has to ring.
    pub fn listen(&self, listen: bool) {
        self.0.store(!listen, Ordering::Release);
        fence(Ordering::SeqCst);
    }
}
