//! How large a call of a store may be: each store takes and refuses the same.

use super::Swap;

/// Bytes of a name: a limit and a key as long as they may be, and room for what tells them apart.
pub const NAME_MAX: usize = 512;

/// Bytes of a value.
pub const VALUE_MAX: usize = 1 << 20;

/// Cells in one call. More would keep a server, which does nothing else meanwhile if it is Redis, for milliseconds.
pub const BATCH_MAX: usize = 1_000;

/// Bytes of all values in one call: what a server and a network can take within a timeout.
pub const BATCH_BYTES_MAX: usize = 16 << 20;

/// `swaps` in parts that are as large as a call may be: each a call of its own.
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
    /// Bytes of its value.
    pub fn bytes(&self) -> usize {
        self.next.as_ref().map_or(0, |cell| cell.value.len())
    }
}
