//! Cells in the memory of this process, with the same behaviour as other stores. For tests and simulators, which can
//! make calls fail.

use super::{CellsError, Loaded, Swap, Swapped, Table, Timeline};
use lessor_protocol::entropy;
use lessor_protocol::lock_anyway::LockAnyway;
use std::fmt;
use std::sync::{Arc, Mutex};

/// Outcome of a call of a [`Memory`] that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call succeeds.
    None,
    /// The call is not done, and the caller gets an error of unknown outcome.
    Lost,
    /// The call is done, and the caller gets an error of unknown outcome.
    AnswerLost,
}

type Faults = Arc<Mutex<dyn FnMut() -> Fault + Send>>;

/// A [`Table`] that all clones of a handle share.
#[derive(Clone)]
pub struct Memory {
    table: Arc<Mutex<Table>>,
    faults: Option<Faults>,
}

impl Memory {
    /// Makes an empty table, on a timeline of its own.
    pub fn new() -> Self {
        Memory::of(Table::new(Timeline::new(format!("{:016x}", entropy::number()))))
    }

    /// Makes a handle on the cells of `table`.
    pub fn of(table: Table) -> Self {
        Memory { table: Arc::new(Mutex::new(table)), faults: None }
    }

    /// Returns another handle on the same cells. `next` decides the outcome of each of its calls.
    pub fn failing(&self, next: impl FnMut() -> Fault + Send + 'static) -> Self {
        Memory { table: Arc::clone(&self.table), faults: Some(Arc::new(Mutex::new(next))) }
    }

    /// Calls `look` with the table, which may do what no caller of a store can.
    pub fn with<T>(&self, look: impl FnOnce(&mut Table) -> T) -> T {
        look(&mut self.table.lock_anyway())
    }

    pub(super) fn load(&self, names: &[String]) -> Result<Loaded, CellsError> {
        self.call(|table| Ok((table.timeline().clone(), table.load(names))))
    }

    pub(super) fn swap(&self, timeline: &Timeline, swaps: &[Swap]) -> Result<Vec<Swapped>, CellsError> {
        self.call(|table| table.swap(timeline, swaps))
    }

    fn call<T>(&self, what: impl FnOnce(&mut Table) -> Result<T, CellsError>) -> Result<T, CellsError> {
        let fault = match &self.faults {
            Some(next) => next.lock_anyway()(),
            None => Fault::None,
        };
        let unreachable = || CellsError::Unreachable("a fault".to_owned());
        match fault {
            Fault::None => self.with(what),
            Fault::Lost => Err(unreachable()),
            Fault::AnswerLost => {
                let _ = self.with(what);
                Err(unreachable())
            }
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Memory::new()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({:?})", self.table)
    }
}
