//! What a limit could give at this moment, for callers that only look. Looking takes no permits.

use crate::refusal::Refusal;
use std::time::Duration;

/// What [`crate::Limit::peek`] saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peek {
    /// Permits that could be taken now without waiting.
    pub available: u64,
    /// The refusal that a call of the given permits would get; `None` if it would be admitted.
    pub refusal: Option<Refusal>,
}

impl Peek {
    /// Returns the time until the permits are expected, as far as this process knows. Zero if they are there now;
    /// `None` if the time is unknown or they never will be.
    pub fn ready_in(&self) -> Option<Duration> {
        self.refusal.map_or(Some(Duration::ZERO), |refusal| refusal.retry_after())
    }
}
