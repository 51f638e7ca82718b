//! Refusals by their reason. Most are for emptiness, which the slots count anyway; of the others a thread counts in cells of its
//! own, so that threads which are all refused do not wait for each other.

use super::Totals;
use crate::slot::{SLOT_MAX, STRIPES_MAX};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Why a call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// What was leased is spent, and the pool had no more.
    Empty,
    /// An operator has paused the limit, or the vendor asked to be left alone.
    Paused,
    /// No lease, and no allocator answers.
    Unreachable,
    /// The allocator lends nothing of such a limit.
    Unknown,
    /// More than one call can ever take.
    TooLarge,
    /// The allocator waits until what it may have forgotten has ended.
    Quarantine,
}

/// Permits by reason, of the threads that count here: in lines that no other ones write.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Cell([AtomicU64; Reason::ALL.len()]);

/// Permits by reason.
#[derive(Debug)]
pub(super) struct Cells([Cell; STRIPES_MAX]);

impl Reason {
    pub(crate) const ALL: [Reason; 6] = [
        Reason::Empty,
        Reason::Paused,
        Reason::Unreachable,
        Reason::Unknown,
        Reason::TooLarge,
        Reason::Quarantine,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Reason::Empty => "empty",
            Reason::Paused => "paused",
            Reason::Unreachable => "unreachable",
            Reason::Unknown => "unknown",
            Reason::TooLarge => "too_large",
            Reason::Quarantine => "quarantine",
        }
    }
}

impl Cells {
    pub(super) fn new() -> Self {
        Cells(Default::default())
    }

    /// A call that wanted so many: as many as a slot can hold at most, for it is no use to know that it was more.
    pub(super) fn add(&self, reason: Reason, permits: u64) {
        self.0[place()].0[reason as usize].fetch_add(permits.min(SLOT_MAX), Ordering::Relaxed);
    }

    /// All refusals by reason, where the slots have counted `totals`.
    pub(super) fn by_reason(&self, totals: Totals) -> [u64; Reason::ALL.len()] {
        let mut refused = Reason::ALL.map(|reason| {
            let cells = self.0.iter().map(|cell| cell.0[reason as usize].load(Ordering::Relaxed));
            cells.sum::<u64>()
        });
        // The slots have counted those too.
        let counted = [Reason::Paused, Reason::Unreachable, Reason::Quarantine];
        let others: u64 = counted.into_iter().map(|reason| refused[reason as usize]).sum();
        let passed = totals.shadow + totals.fallback;
        refused[Reason::Empty as usize] += totals.refused.saturating_sub(others + passed);
        refused
    }
}

/// Where this thread counts.
fn place() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static PLACE: usize = THREADS.fetch_add(1, Ordering::Relaxed) % STRIPES_MAX;
    }
    // A thread that is ending may have none any more.
    PLACE.try_with(|place| *place).unwrap_or(0)
}
