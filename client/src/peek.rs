//! What a limit could give at this moment, for callers who only want to know. It takes nothing and decides nothing.

use crate::refusal::Refusal;
use std::time::Duration;

/// What [`crate::Limit::peek`] saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peek {
    /// Permits that could be taken now without waiting.
    pub available: u64,
    /// What a call would be told that wants as many as were looked for; `None` if it would get them.
    pub refusal: Option<Refusal>,
}

impl Peek {
    /// When as many would be there as were looked for, as far as this process knows. Zero if they are there now; `None` if
    /// the time is unknown, or they never will be.
    pub fn ready_in(&self) -> Option<Duration> {
        self.refusal.map_or(Some(Duration::ZERO), |refusal| refusal.retry_after())
    }
}
