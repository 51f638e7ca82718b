//! The stripe of a slot that a thread tries first. A thread stays on a stripe where it met no other thread, and moves
//! on where it did. Pools use it where a slot is striped. It is a hint: any number is correct.

use std::cell::Cell;

thread_local! {
    static STRIPE_HINT: Cell<usize> = const { Cell::new(0) };
}

/// Returns the stripe that this thread tries first.
#[inline]
pub(crate) fn stripe_hint() -> usize {
    STRIPE_HINT.get()
}

/// Makes this thread try `stripe_hint` first from now on.
#[inline]
pub(crate) fn stay(stripe_hint: usize) {
    STRIPE_HINT.set(stripe_hint);
}
