//! The source of the slot's atomics: std, or a model checker that tries every order in which threads can meet (`--cfg
//! slot_loom`, see `client/tests/slot_loom`).

#[cfg(slot_loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
#[cfg(slot_loom)]
pub(crate) use once::OnceLock;
#[cfg(not(slot_loom))]
pub(crate) use std::sync::OnceLock;
#[cfg(not(slot_loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// std's `OnceLock`, whose synchronisation is told to the model checker, which has no such type.
#[cfg(slot_loom)]
mod once {
    use loom::sync::atomic::{AtomicBool, Ordering};

    #[derive(Debug)]
    pub(crate) struct OnceLock<T> {
        is_set: AtomicBool,
        value: std::sync::OnceLock<T>,
    }

    impl<T> OnceLock<T> {
        pub(crate) fn new() -> Self {
            OnceLock { is_set: AtomicBool::new(false), value: std::sync::OnceLock::new() }
        }

        pub(crate) fn get(&self) -> Option<&T> {
            if self.is_set.load(Ordering::Acquire) { self.value.get() } else { None }
        }

        /// For one caller at a time.
        pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
            let value = self.value.get_or_init(make);
            self.is_set.store(true, Ordering::Release);
            value
        }
    }
}

/// Tells the processor, or the model checker, that another thread must move first.
pub(crate) fn spin() {
    #[cfg(slot_loom)]
    loom::thread::yield_now();
    #[cfg(not(slot_loom))]
    std::hint::spin_loop();
}
