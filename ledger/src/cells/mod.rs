//! Small values, *cells*, in a store that several allocators share: the calls of such a store and their answers. The
//! store offers one thing: compare-and-swap of a cell by its version, on the timeline that was expected. The IO is the
//! allocator's.

mod batch;
mod error;
mod table;

pub use batch::{BATCH_BYTES_MAX, BATCH_MAX, NAME_MAX, VALUE_MAX, batches};
pub use error::CellsError;
pub use table::Table;

use std::fmt;

/// Highest number of what is counted in a cell. No count gets there, and one more than it is a number, too.
pub(crate) const COUNT_MAX: u64 = u64::MAX / 2;

/// Checks a number `count` that is counted in a cell, and called `name` there.
///
/// # Errors
/// If it is above [`COUNT_MAX`].
pub(crate) fn check_count(name: &str, count: u64) -> Result<(), String> {
    match count <= COUNT_MAX {
        true => Ok(()),
        false => Err(format!("{name} is {count}, more than can have been counted")),
    }
}

/// A value in a store, and its version.
#[derive(Clone, PartialEq, Eq)]
pub struct Cell {
    /// A random number that its writer drew, never used again: a cell that was deleted and made anew is another one.
    pub version: u64,
    /// Any bytes, at most [`VALUE_MAX`] of them.
    pub value: Vec<u8>,
}

impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cell({:016x}, {} bytes)", self.version, self.value.len())
    }
}

/// A compare-and-swap: the cell becomes `next` if its version is `expected`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swap {
    /// Name of the cell: 1 to [`NAME_MAX`] bytes without NUL. No other swap of the same batch names it.
    pub name: String,
    /// The version that must be there; `None` if there must be no such cell.
    pub expected: Option<u64>,
    /// The cell that is there afterwards; `None` to remove it.
    pub next: Option<Cell>,
}

/// The outcome of a swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swapped {
    /// It is done.
    Done,
    /// Nothing was done, because this was there instead at some instant of the call: go on from it without another
    /// round trip.
    Other(Option<Cell>),
}

/// The identity of a store: the replication id of Redis, the system and the timeline of PostgreSQL, the cluster and a
/// mark in etcd. On the same timeline nothing that was done is undone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timeline(String);

impl Timeline {
    /// Creates the timeline called `name`.
    pub fn new(name: impl Into<String>) -> Self {
        Timeline(name.into())
    }

    /// Returns the name, which can be kept and compared later.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
