//! A store of cells as a map: what Redis and PostgreSQL do, without IO. Simulators and tests use it.

use super::{Cell, CellsError, Swap, Swapped, Timeline};
use std::collections::BTreeMap;

/// A store without a network, a clock or random numbers. A clone is a copy, such as a replica that is behind later.
#[derive(Clone, Debug)]
pub struct Table {
    timeline: Timeline,
    cells: BTreeMap<String, Cell>,
}

impl Table {
    /// Creates an empty store on `timeline`.
    pub fn new(timeline: Timeline) -> Self {
        Table { timeline, cells: BTreeMap::new() }
    }

    /// Returns the timeline that the store is on.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Goes on, on another timeline: as a store that was started again, or took over from another one.
    pub fn move_to(&mut self, timeline: Timeline) {
        self.timeline = timeline;
    }

    /// Returns the cells of `names`, in their order.
    pub fn load(&self, names: &[String]) -> Vec<Option<Cell>> {
        names.iter().map(|name| self.cells.get(name).cloned()).collect()
    }

    /// Does each of `swaps`, or says what is there instead.
    pub fn swap(&mut self, timeline: &Timeline, swaps: &[Swap]) -> Result<Vec<Swapped>, CellsError> {
        if *timeline != self.timeline {
            return Err(CellsError::Moved { found: self.timeline.clone() });
        }
        Ok(swaps.iter().map(|swap| self.swap_one(swap)).collect())
    }

    fn swap_one(&mut self, swap: &Swap) -> Swapped {
        let found = self.cells.get(&swap.name);
        if found.map(|cell| cell.version) != swap.expected {
            return Swapped::Other(found.cloned());
        }
        match &swap.next {
            Some(next) => self.cells.insert(swap.name.clone(), next.clone()),
            None => self.cells.remove(&swap.name),
        };
        Swapped::Done
    }
}
