//! The one place that the slot's atomics come from: std's, or those of a model checker that tries every order in
//! which threads can meet (`--cfg slot_loom`, see `client/tests/slot_loom.rs`).

#[cfg(slot_loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(slot_loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

/// Tells the processor, or the model checker, that another thread has to move on first.
pub(crate) fn spin() {
    #[cfg(slot_loom)]
    loom::thread::yield_now();
    #[cfg(not(slot_loom))]
    std::hint::spin_loop();
}
