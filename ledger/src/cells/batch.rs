//! Sizes of the calls of a store: each store takes and refuses the same.

use super::Swap;

/// Most bytes of a name: a limit and a key as long as they may be, and room for what tells them apart.
pub const NAME_MAX: usize = 512;

/// Most bytes of a value.
pub const VALUE_MAX: usize = 1 << 20;

/// Most cells in one call. More would keep a server busy for milliseconds, in which Redis does nothing else.
pub const BATCH_MAX: usize = 1_000;

/// Most bytes of all values in one call: what a server and a network can take within a timeout.
pub const BATCH_BYTES_MAX: usize = 16 << 20;

/// Splits `swaps` into parts, each of which is as large as a call may be.
pub fn batches(swaps: &[Swap]) -> Vec<&[Swap]> {
    let mut batches = vec![];
    let (mut from, mut bytes) = (0, 0);
    for (at, swap) in swaps.iter().enumerate() {
        let more = swap.bytes();
        if at - from == BATCH_MAX || (at > from && bytes + more > BATCH_BYTES_MAX) {
            batches.push(&swaps[from..at]);
            (from, bytes) = (at, 0);
        }
        bytes += more;
    }
    if from < swaps.len() {
        batches.push(&swaps[from..]);
    }
    batches
}

impl Swap {
    /// Returns the bytes of its value.
    pub fn bytes(&self) -> usize {
        self.next.as_ref().map_or(0, |cell| cell.value.len())
    }
}
