//! Refusals by their reason. Most calls are refused because there are no permits, and the slots count those anyway.
//! Other refusals are counted in cells by thread, so that refused threads do not wait for each other.

use super::Totals;
use crate::slot::{SLOT_MAX, STRIPES_MAX};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

lessor_protocol::words! {
    /// Why a call was refused.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Reason {
        /// The lease is spent, and the pool had no more permits.
        Empty = "empty",
        /// An operator has paused the limit, or the vendor has asked for a pause.
        Paused = "paused",
        /// No lease, and no allocator answers.
        Unreachable = "unreachable",
        /// The allocator lends nothing: the limit, the key or the room for it is missing.
        Unknown = "unknown",
        /// The call wants more permits than one call can ever take.
        TooLarge = "too_large",
        /// The allocator lends nothing yet, because leases that it may have forgotten have not ended.
        Quarantine = "quarantine",
    }
}

/// Refused permits by reason, in cache lines that only the threads of this cell write.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Cell([AtomicU64; Reason::ALL.len()]);

/// Refused permits by reason, in cells by thread.
#[derive(Debug)]
pub(super) struct Cells([Cell; STRIPES_MAX]);

impl Cells {
    pub(super) fn new() -> Self {
        Cells(Default::default())
    }

    /// Counts a call that wanted `permits`, capped at what a slot can hold: the excess is of no interest.
    pub(super) fn add(&self, reason: Reason, permits: u64) {
        self.0[place()].0[reason as usize].fetch_add(permits.min(SLOT_MAX), Ordering::Relaxed);
    }

    /// Returns all refused permits by reason, where the slots have counted `totals`.
    pub(super) fn by_reason(&self, totals: Totals) -> [u64; Reason::ALL.len()] {
        let mut refused = Reason::ALL.map(|reason| {
            let cells = self.0.iter().map(|cell| cell.0[reason as usize].load(Ordering::Relaxed));
            cells.sum::<u64>()
        });
        // The slots have counted refusals of these reasons too.
        let counted = [Reason::Paused, Reason::Unreachable, Reason::Quarantine];
        let others: u64 = counted.into_iter().map(|reason| refused[reason as usize]).sum();
        let passed = totals.shadow + totals.fallback;
        refused[Reason::Empty as usize] += totals.refused.saturating_sub(others + passed);
        refused
    }
}

/// Index of this thread's cell.
fn place() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static PLACE: usize = THREADS.fetch_add(1, Ordering::Relaxed) % STRIPES_MAX;
    }
    // A thread that is ending may have lost its index.
    PLACE.try_with(|place| *place).unwrap_or(0)
}
