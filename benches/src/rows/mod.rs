//! The rows: the physical floor, our own calls on a real lease, and what a user would pick instead.

mod floor;
pub(crate) mod keyed;
pub(crate) mod lessor;
mod peers;

use crate::sample::Case;
use lessor::Fleet;
use std::error::Error;

/// Returns every row, in the order of the table.
pub(crate) fn all(fleet: &Fleet) -> Result<Vec<Case>, Box<dyn Error>> {
    let mut cases = floor::cases();
    cases.extend(fleet.cases());
    cases.extend(keyed::cases());
    cases.extend(peers::cases()?);
    Ok(cases)
}
