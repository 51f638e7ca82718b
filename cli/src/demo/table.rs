//! Formats numbers in the reports of the demos.

use serde::{Serialize, Serializer};

/// Formats a share for people.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// Serializes a number for machines, with four digits after the point. More would be noise of the machine it ran on.
pub(crate) fn rounded<S: Serializer>(
    value: &(impl Copy + Into<Option<f64>>),
    to: S,
) -> Result<S::Ok, S::Error> {
    let value: Option<f64> = (*value).into();
    value.map(|value| (value * 1e4).round() / 1e4).serialize(to)
}
