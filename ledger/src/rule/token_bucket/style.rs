//! How a bucket refills: evenly, or at intervals.

use super::TokenBucket;
use crate::rule::RuleError;
use std::time::Duration;

/// When a bucket gains its permits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RefillStyle {
    /// Evenly: each permit as soon as its part of `per` is over. A full bucket gains nothing, not even a part of a
    /// permit.
    #[default]
    Greedy,
    /// All `refill` at once at the instants `start + k·per`, k = 1, 2, …, as far as there is room, and nothing in
    /// between. The start is when the bucket was made. A bucket that was forgotten, because it was full and not used,
    /// is made anew.
    Interval,
}

impl RefillStyle {
    /// Returns the style's name in configuration.
    pub const fn name(self) -> &'static str {
        match self {
            RefillStyle::Greedy => "greedy",
            RefillStyle::Interval => "interval",
        }
    }

    /// Returns the style called `name`.
    ///
    /// # Errors
    /// If there is none.
    pub fn named(name: &str) -> Result<Self, RuleError> {
        match name {
            "greedy" => Ok(RefillStyle::Greedy),
            "interval" => Ok(RefillStyle::Interval),
            _ => {
                let problem = format!("is {name:?}: use \"greedy\" or \"interval\"");
                Err(RuleError { field: "refill_style", problem })
            }
        }
    }
}

impl TokenBucket {
    /// Whether a bucket that is empty still has room for permits after any time as long as `span`, once it is warm.
    pub fn keeps(&self, span: Duration) -> bool {
        let (refill, span, per) = (u128::from(self.refill), span.as_nanos(), self.per.as_nanos());
        let most = match self.style {
            RefillStyle::Greedy => refill * span / per,
            RefillStyle::Interval => refill * span.div_ceil(per),
        };
        most < u128::from(self.capacity)
    }
}
