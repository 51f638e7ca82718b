//! Checks of calls, the same for all kinds of stores.

use super::{BATCH_BYTES_MAX, BATCH_MAX, CellsError, NAME_MAX, Swap, VALUE_MAX};
use std::collections::HashSet;

/// Longest prefix, in characters.
const PREFIX_MAX: usize = 32;

/// Checks the prefix of all names of a store.
pub(crate) fn prefix(prefix: &str) -> Result<(), String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if prefix.is_empty() || prefix.len() > PREFIX_MAX || !prefix.chars().all(allowed) {
        let rule = format!("1 to {PREFIX_MAX} letters, digits, _, - and .");
        return Err(format!("the prefix {prefix:?} is invalid, use {rule}"));
    }
    Ok(())
}

pub(super) fn names(names: &[String]) -> Result<(), CellsError> {
    batch(names.len())?;
    names.iter().try_for_each(|name| self::name(name))
}

pub(super) fn swaps(swaps: &[Swap]) -> Result<(), CellsError> {
    batch(swaps.len())?;
    let mut seen = HashSet::with_capacity(swaps.len());
    let mut bytes = 0;
    for swap in swaps {
        name(&swap.name)?;
        if !seen.insert(&swap.name) {
            return Err(CellsError::Invalid(format!("the cell {:?} is twice in one batch", swap.name)));
        }
        let length = swap.bytes();
        value(&swap.name, length)?;
        bytes += length;
    }
    if bytes > BATCH_BYTES_MAX {
        return Err(CellsError::Invalid(format!("a batch of {bytes} bytes, of at most {BATCH_BYTES_MAX}")));
    }
    Ok(())
}

/// Checks the length of a value, written or read.
pub(super) fn value(name: &str, length: usize) -> Result<(), CellsError> {
    if length > VALUE_MAX {
        return Err(CellsError::Invalid(format!(
            "the cell {name:?} has {length} bytes, of at most {VALUE_MAX}"
        )));
    }
    Ok(())
}

fn name(name: &str) -> Result<(), CellsError> {
    if name.is_empty() || name.len() > NAME_MAX || name.contains('\0') {
        let length = name.len();
        return Err(CellsError::Invalid(format!(
            "a name has {length} bytes or a NUL, use 1 to {NAME_MAX} bytes without NUL"
        )));
    }
    Ok(())
}

fn batch(cells: usize) -> Result<(), CellsError> {
    if cells > BATCH_MAX {
        return Err(CellsError::Invalid(format!("a batch of {cells} cells, of at most {BATCH_MAX}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::{Cell, batches};

    #[test]
    fn swaps_are_parted_into_calls_that_are_no_larger_than_they_may_be() {
        let swap = |at: usize, bytes: usize| Swap {
            name: format!("{at}"),
            expected: None,
            next: Some(Cell { version: 1, value: vec![0; bytes] }),
        };
        let parts = |sizes: &[usize]| {
            let swaps: Vec<Swap> = sizes.iter().enumerate().map(|(at, bytes)| swap(at, *bytes)).collect();
            let batches = batches(&swaps);
            assert_eq!(batches.concat(), swaps, "each of them once, in their order");
            batches.iter().for_each(|batch| assert_eq!(super::swaps(batch), Ok(())));
            batches.iter().map(|batch| batch.len()).collect::<Vec<_>>()
        };
        assert_eq!(parts(&[]), [0_usize; 0]);
        assert_eq!(parts(&[1; BATCH_MAX]), [BATCH_MAX]);
        assert_eq!(parts(&[1; 2 * BATCH_MAX + 1]), [BATCH_MAX, BATCH_MAX, 1]);
        assert_eq!(parts(&[VALUE_MAX; 33]), [16, 16, 1]);
    }
}
