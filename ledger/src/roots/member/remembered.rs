//! The cells that are remembered from one exchange to the next, so that they need not be read before they are written.

use crate::cells::Cell;
use std::collections::BTreeMap;

/// Most cells that are remembered.
const CELLS_MAX: usize = 4_096;

/// Most bytes of their values together. A value may have a mebibyte.
const BYTES_MAX: usize = 64 << 20;

/// Cells by their names, and the bytes of their values.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    cells: BTreeMap<String, Cell>,
    bytes: usize,
}

impl Remembered {
    /// Whether the cell `name` is remembered.
    pub(super) fn has(&self, name: &str) -> bool {
        self.cells.contains_key(name)
    }

    /// Adds a cell that was read for the exchange under way.
    pub(super) fn add(&mut self, name: String, cell: Cell) {
        self.bytes += cell.value.len();
        if let Some(before) = self.cells.insert(name, cell) {
            self.bytes -= before.value.len();
        }
    }

    /// Adds a cell for later exchanges, if there is room.
    pub(super) fn add_for_later(&mut self, name: String, cell: Cell) {
        if self.cells.len() < CELLS_MAX && self.bytes + cell.value.len() <= BYTES_MAX {
            self.add(name, cell);
        }
    }

    /// Takes the cell `name` out.
    pub(super) fn take(&mut self, name: &str) -> Option<Cell> {
        let cell = self.cells.remove(name)?;
        self.bytes -= cell.value.len();
        Some(cell)
    }

    /// Forgets all cells.
    pub(super) fn clear(&mut self) {
        (self.cells, self.bytes) = (BTreeMap::new(), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::VALUE_MAX;

    /// The bug: only the cells were counted, and 4,096 of a mebibyte are too much for most machines.
    #[test]
    fn large_cells_are_remembered_up_to_their_bound() {
        let mut known = Remembered::default();
        let cell = || Cell { version: 1, value: vec![0; VALUE_MAX] };
        let fit = BYTES_MAX / VALUE_MAX;
        (0..2 * fit).for_each(|number| known.add_for_later(number.to_string(), cell()));
        assert_eq!((known.cells.len(), known.bytes), (fit, BYTES_MAX));
        assert!(known.has("0") && known.take("0").is_some() && known.take("0").is_none());
        known.add_for_later("again".to_owned(), cell());
        known.add("again".to_owned(), cell());
        assert_eq!((known.cells.len(), known.bytes), (fit, BYTES_MAX));
        known.clear();
        assert_eq!((known.has("again"), known.bytes), (false, 0));
    }
}
