//! Outcomes of calls: a batch may be done in part, and the timeline may change meanwhile.

use super::{CellsError, Swapped};

/// Returns the outcome of each swap, or an error if one of them is unknown.
pub(super) fn of_batch(
    outcomes: impl Iterator<Item = Result<Swapped, CellsError>>,
) -> Result<Vec<Swapped>, CellsError> {
    let (mut swapped, mut broken) = (vec![], None);
    for outcome in outcomes {
        match outcome {
            Ok(outcome) => swapped.push(outcome),
            Err(error) => broken = broken.or(Some(error)),
        }
    }
    match broken {
        None => Ok(swapped),
        Some(error) => Err(error.of_batch(swapped.contains(&Swapped::Done))),
    }
}

/// The store changed its timeline during a call.
pub(super) fn became_another() -> CellsError {
    CellsError::Unreachable("the store went to another timeline meanwhile".to_owned())
}
