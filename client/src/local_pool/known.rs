//! How one pool and the background task find each other: who wakes the task, and which pools it looks at. The next call
//! makes up for whatever is lost here. Nothing here decides about permits.

use super::LocalPool;
use lessor_protocol::lock_anyway::LockAnyway;
use std::sync::atomic::Ordering;
use tokio::runtime::Handle;

impl LocalPool {
    /// Tells the background task that it is needed, unless it knows already: at most once until it has looked. This is
    /// the only step of a spend that touches the runtime.
    #[inline]
    pub(crate) fn nudge(&self) {
        if !self.hot.doorbell.is_rung() {
            self.wake_task();
        }
    }

    #[cold]
    pub(super) fn wake_task(&self) {
        if self.hot.doorbell.ring() {
            self.make_known();
            self.cold.wake_list.wake.notify_one();
        }
    }

    /// Wakes the task to tell the allocator something at once, whether or not it was nudged already.
    pub(crate) fn wake_to_tell(&self) {
        self.make_known();
        self.cold.wake_list.wake.notify_one();
    }

    /// Returns the runtime of the background task, once there is a task.
    pub(crate) fn runtime(&self) -> Option<&Handle> {
        self.cold.wake_list.runtime.get()
    }

    /// Has the background task look at this pool next time.
    pub(crate) fn make_known(&self) {
        if !self.cold.is_known.swap(true, Ordering::AcqRel)
            && let Some(me) = self.cold.me.upgrade()
        {
            self.cold.wake_list.push(me);
        }
    }

    /// Notes that the background task looks at the pool now. A call after this puts the pool into the task's list
    /// again, unless the task keeps it.
    pub(crate) fn let_go(&self) {
        self.cold.is_known.store(false, Ordering::SeqCst);
    }

    /// Forgets the pool. A caller that has just looked it up may still call it, without effect.
    pub(crate) fn forget(&self) {
        if let Some(feedback) = self.feedback() {
            self.cold.wake_list.forget(&feedback.lock_anyway());
        }
        self.cold.is_forgotten.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_forgotten(&self) -> bool {
        self.cold.is_forgotten.load(Ordering::Relaxed)
    }

    /// Keeps the pool in the task's care. Returns false if a call has put it into the list again meanwhile.
    pub(crate) fn keep(&self) -> bool {
        !self.cold.is_known.swap(true, Ordering::AcqRel)
    }

    /// Makes nudges heard again (`true`), or unnecessary until the task looks by itself (`false`).
    pub(crate) fn listen(&self, listen: bool) {
        self.hot.doorbell.listen(listen);
    }
}
