//! Locking a mutex that a panic may have poisoned.
//!
//! A thread that panics while it holds a guard poisons the mutex. The values behind [`LockAnyway::lock_anyway`] are
//! numbers, lists and handles. A change of one that broke off costs a wrong figure at most, so the next thread goes on. A
//! value of which that is not true, such as the books of a limit, is locked with [`Mutex::lock`]: a grant by half written
//! books could break a cap.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A mutex that is locked although it may be poisoned.
pub trait LockAnyway {
    /// The value behind the mutex.
    type Value: ?Sized;

    /// Locks the mutex, poisoned or not. Blocks until no other thread holds the guard.
    fn lock_anyway(&self) -> MutexGuard<'_, Self::Value>;
}

impl<T: ?Sized> LockAnyway for Mutex<T> {
    type Value = T;

    #[inline]
    fn lock_anyway(&self) -> MutexGuard<'_, T> {
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
            let mut count = count.lock_anyway();
            *count = 2;
            panic!("on purpose");
        };
        let ended = std::thread::scope(|scope| scope.spawn(panics).join());
        assert!(ended.is_err() && count.is_poisoned());
        assert_eq!(*count.lock_anyway(), 2);
    }
}
