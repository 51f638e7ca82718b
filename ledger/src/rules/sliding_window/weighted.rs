//! The popular guess at a sliding window, as a mutant: two aligned counters, the older of which counts by as much of
//! it as still overlaps. It lets up to 2N through. Only builds with `--cfg lessor_mutants` know it.

use super::{SlidingLedger, Slot};
use lessor_protocol::mutant::{self, Mutant};

/// The aligned window in which `slot` was settled.
fn window_of(ledger: &SlidingLedger, slot: Slot) -> u64 {
    (ledger.end_of(slot.index).as_nanos() - ledger.window) / ledger.window
}

/// Whether `slot` must be remembered beyond its end: the guess looks back as far as the window before.
pub(super) fn remembers(ledger: &SlidingLedger, slot: Slot) -> bool {
    let current = ledger.now.as_nanos() / ledger.window;
    mutant::is(Mutant::WeightedWindow) && window_of(ledger, slot) + 1 >= current
}

/// What the guess says is used.
pub(super) fn estimate(ledger: &SlidingLedger) -> u64 {
    let (now, window) = (ledger.now.as_nanos(), ledger.window);
    let of = |index| -> u64 {
        let slots = ledger.settled.iter().filter(|slot| window_of(ledger, **slot) == index);
        slots.map(|slot| slot.permits).sum()
    };
    let (current, gone) = (now / window, now % window);
    let before = current.checked_sub(1).map_or(0, of);
    let overlap = u128::from(before) * u128::from(window - gone) / u128::from(window);
    of(current) + u64::try_from(overlap).expect("a part of it")
}
