//! Where the books outlive the process: batches of rows, each durable as a whole or not at all. The allocator makes the
//! batches, and the journal hands them over. Nothing here knows what a permit is.

mod aside;
mod boot;
mod content;
mod dump;
mod embedded;
mod file;
mod guarded;
mod row;
mod seal;
#[cfg(test)]
mod tests;

pub use dump::Dump;
pub use embedded::{Embedded, Found, Lost};
pub use lessor_ledger::registry::{Batch, DecisionRow, LimitRow, PoolPlace, PoolRow, PutRow, Written};

use std::path::PathBuf;

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has it open.
    #[error("store {}: another process has it open: one allocator at a time", .0.display())]
    Taken(PathBuf),
    /// The file was never a store. It is left untouched.
    #[error("store {}: this file is no store of Lessor, and is left as it is", .0.display())]
    Foreign(PathBuf),
    /// What is at the path can be neither read nor replaced: it is left as it is.
    #[error("store {}: {problem}", .path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// It could not be written: the batch may or may not be there.
    #[error("store {}: cannot write: {problem}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        problem: String,
    },
}
