//! The answers that are not a yes. Refusing is an answer, not an error: small, `Copy`, and named for what the
//! caller can do about it. Handles return it; nothing here decides anything.

use std::fmt;
use std::time::Duration;

/// Why a call was not admitted. It costs nothing, on any of several limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Not now: the lease is spent, and the pool had no more when it was last asked.
    Empty {
        /// When to try again.
        retry_after: Duration,
    },
    /// Never: no pool of this limit can hold that many.
    TooLarge {
        /// The most one call can take.
        limit: u64,
    },
    /// Somebody has paused the limit, or blocked this node, or the vendor asked to be left alone.
    Paused {
        /// When to try again.
        retry_after: Duration,
    },
    /// There is no live lease, and the allocator cannot be reached or does not know this limit.
    Unavailable,
    /// The client was shut down.
    Closed,
}

impl Refusal {
    /// When to try again, where trying again can help.
    pub fn retry_after(&self) -> Option<Duration> {
        match *self {
            Refusal::Empty { retry_after } | Refusal::Paused { retry_after } => Some(retry_after),
            Refusal::TooLarge { .. } | Refusal::Unavailable | Refusal::Closed => None,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Empty { retry_after } => write!(f, "no permit left, try again in {retry_after:?}"),
            Refusal::Paused { retry_after } => {
                write!(f, "the limit is paused, try again in {retry_after:?}")
            }
            Refusal::TooLarge { limit } => {
                write!(f, "more than the {limit} permits that one call can ever take")
            }
            Refusal::Unavailable => f.write_str("no live lease, and the allocator gives none"),
            Refusal::Closed => f.write_str("the client was shut down"),
        }
    }
}

impl std::error::Error for Refusal {}
