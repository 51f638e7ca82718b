//! What came of a batch, of which a part may be done.

use super::{CellsError, Swapped};

/// What came of each swap, or why that is not known of all.
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
