//! Which stripe of a slot a thread looks at first. A thread stays on a stripe where it met no other thread: threads
//! that meet part. Pools read it where a slot is striped; it is a hint, and any number is as right as another.

use std::cell::Cell;

thread_local! {
    static STRIPE_HINT: Cell<usize> = const { Cell::new(0) };
}

/// Where this thread looks first.
#[inline]
pub(crate) fn stripe_hint() -> usize {
    STRIPE_HINT.get()
}

/// It looks there from now on.
#[inline]
pub(crate) fn stay(stripe_hint: usize) {
    STRIPE_HINT.set(stripe_hint);
}
