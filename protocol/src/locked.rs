//! Locking a mutex whose value no panic leaves half changed.
//!
//! A thread that panics while it holds a guard poisons the mutex. The values behind [`Locked::locked`] are numbers,
//! lists and handles. Each change replaces a whole value or is done in one step, so the value is sound after the panic,
//! and the next thread goes on with it. A mutex whose value a panic can leave half changed is locked with
//! [`Mutex::lock`], and its caller decides what a poisoned value means.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A mutex that is locked although it may be poisoned.
pub trait Locked {
    /// The value behind the mutex.
    type Value: ?Sized;

    /// Locks the mutex, poisoned or not. Blocks until no other thread holds the guard.
    fn locked(&self) -> MutexGuard<'_, Self::Value>;
}

impl<T: ?Sized> Locked for Mutex<T> {
    type Value = T;

    #[inline]
    fn locked(&self) -> MutexGuard<'_, T> {
        self.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_another_thread_does_not_end_the_use_of_a_value() {
        let count = Mutex::new(1);
        let panics = || {
            let mut count = count.locked();
            *count = 2;
            panic!("on purpose");
        };
        let ended = std::thread::scope(|scope| scope.spawn(panics).join());
        assert!(ended.is_err() && count.is_poisoned());
        assert_eq!(*count.locked(), 2);
    }
}
