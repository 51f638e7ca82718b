//! What calls have cost beyond their reservations and is not paid yet. It stands in line as a caller does, and each
//! thread that brings permits pays for it. It takes no permits itself.

use crate::slow_path_flags::SlowPathFlags;
use crate::sync::{AtomicU64, Ordering, fence};

/// Permits of one pool that are owed. They count in the line too.
///
/// # Memory ordering
/// A thread that owes writes here and then looks for permits; another one brings permits and then looks here. A fence
/// between the two steps of each lets at least one of the two see what the other did.
#[derive(Debug)]
pub struct Overdraft(AtomicU64);

impl Default for Overdraft {
    fn default() -> Self {
        Overdraft(AtomicU64::new(0))
    }
}

impl Overdraft {
    /// Permits that are owed.
    pub fn owed(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Owes `permits` more, which stand in line from now on. [`Overdraft::pay`] must follow: permits may have come since
    /// the caller found too few.
    pub fn owe(&self, permits: u64, slow_path: &SlowPathFlags) {
        // The line first: a payment leaves it.
        slow_path.join(permits);
        self.0.fetch_add(permits, Ordering::Relaxed);
    }

    /// Pays what is owed for as long as there are permits, as `is_there` says. `pay` is told how many are owed, at least
    /// one, and returns how many of them it has paid.
    pub fn pay(&self, slow_path: &SlowPathFlags, pay: impl Fn(u64) -> u64, is_there: impl Fn() -> bool) {
        fence(Ordering::SeqCst);
        while self.owed() > 0 {
            // Taken whole, so that no two threads pay for the same debt.
            let owed = self.0.swap(0, Ordering::Relaxed);
            if owed == 0 {
                return;
            }
            let paid = pay(owed);
            slow_path.leave(paid);
            self.0.fetch_add(owed - paid, Ordering::Relaxed);
            // A thread that brought permits meanwhile found nothing owed.
            fence(Ordering::SeqCst);
            if !is_there() {
                return;
            }
        }
    }
}
