//! Errors of a store, told apart by what is known of the call.

use super::Timeline;

/// Why a call of a store failed. No text of it shows a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CellsError {
    /// Not connected, not let in, cut off or too late. It is not known whether a swap was done, or will be.
    #[error("the store cannot be reached: {0}")]
    Unreachable(String),
    /// The store is on another timeline than was expected, and may not have all that it had. Nothing was done there.
    /// Earlier parts of a batch may have been done on the expected timeline.
    #[error("the store is on another timeline now: {found}")]
    Moved {
        /// The timeline that it is on.
        found: Timeline,
    },
    /// Done, but not on as many replicas as was asked for, or not synced: it may be undone.
    #[error("the store did not make the write durable: {0}")]
    NotDurable(String),
    /// The store is set up so that it cannot promise what is asked of it. The text names the setting and its value.
    /// Nothing was done.
    #[error("the store is unfit: {0}")]
    Unfit(String),
    /// A name, a value, a batch or a prefix is invalid. Nothing was done.
    #[error("invalid cell, batch or prefix: {0}")]
    Invalid(String),
}

impl CellsError {
    /// Returns the error of a batch. If a part of the batch `is_done`, the error may not say that nothing was done.
    pub fn of_batch(self, is_done: bool) -> Self {
        match self {
            CellsError::Unfit(_) | CellsError::Invalid(_) if is_done => {
                CellsError::Unreachable(format!("part of the batch was done, the rest failed: {self}"))
            }
            CellsError::Unfit(_)
            | CellsError::Invalid(_)
            | CellsError::Unreachable(_)
            | CellsError::Moved { .. }
            | CellsError::NotDurable(_) => self,
        }
    }
}
