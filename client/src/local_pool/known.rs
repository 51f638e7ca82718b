//! How one pool and the background task find each other: who wakes it, and which pools it looks at. Whatever is lost here
//! is made good by the next call; it decides nothing about permits.

use super::LocalPool;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use tokio::runtime::Handle;

impl LocalPool {
    /// Tells the background task that it is wanted, unless it knows. At most once until it has looked: this is
    /// the only thing a spend can do that touches the runtime.
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

    /// There is something to tell the allocator at once, whether or not the task was nudged already.
    pub(crate) fn wake_to_tell(&self) {
        self.make_known();
        self.cold.wake_list.wake.notify_one();
    }

    /// The runtime of the background task, once there is a task.
    pub(crate) fn runtime(&self) -> Option<&Handle> {
        self.cold.wake_list.runtime.get()
    }

    /// The background task looks at it next time.
    pub(crate) fn make_known(&self) {
        if !self.cold.is_known.swap(true, Ordering::AcqRel)
            && let Some(me) = self.cold.me.upgrade()
        {
            self.cold.wake_list.push(me);
        }
    }

    /// The background task looks at the pool now. A call from here on puts it into the task's list again, unless the task
    /// keeps it.
    pub(crate) fn let_go(&self) {
        self.cold.is_known.store(false, Ordering::SeqCst);
    }

    /// Forgets the pool. A caller that has just looked it up may still call it: nothing will come of that.
    pub(crate) fn forget(&self) {
        if let Some(feedback) = self.feedback() {
            // Numbers: no panic can have left them half changed.
            self.cold.wake_list.forget(&feedback.lock().unwrap_or_else(PoisonError::into_inner));
        }
        self.cold.is_forgotten.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_forgotten(&self) -> bool {
        self.cold.is_forgotten.load(Ordering::Relaxed)
    }

    /// The task keeps the pool. False if a call has put it into the list again meanwhile.
    pub(crate) fn keep(&self) -> bool {
        !self.cold.is_known.swap(true, Ordering::AcqRel)
    }

    /// From now on a nudge is heard again, or (`false`) it is not needed until the task looks by itself.
    pub(crate) fn listen(&self, listen: bool) {
        self.hot.doorbell.listen(listen);
    }
}
