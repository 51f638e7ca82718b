//! Reasons why a call is not admitted. A refusal is an answer, not an error: small, `Copy`, and named for what the
//! caller can do about it.

use std::fmt;
use std::time::Duration;

/// Why a call was not admitted. A refused call costs no permits, on any of several limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Not now: the lease is spent, and the pool had no more permits when it was last asked.
    Empty {
        /// How long to wait before trying again.
        retry_after: Duration,
    },
    /// Never: one call on this limit cannot take that many permits.
    TooLarge {
        /// Most permits that one call can take.
        limit: u64,
    },
    /// An operator has paused the limit or blocked this node, or the vendor has asked for a pause.
    Paused {
        /// How long to wait before trying again.
        retry_after: Duration,
    },
    /// The allocator lends nothing yet, because leases that it may have forgotten have not ended, or it is about to
    /// stop.
    Quarantine {
        /// How long to wait before trying again.
        retry_after: Duration,
    },
    /// There is no live lease, and no allocator answers.
    Unreachable {
        /// Time until an allocator is asked again.
        retry_after: Duration,
    },
    /// The allocator has no such limit, or this client has no right to it. Or the limit is counted by key and the
    /// handle has none, or the handle has a key and the limit is not counted by key.
    UnknownLimit,
    /// No key can have this text: it is empty, too long, or has characters that keys cannot have.
    BadKey,
    /// The limit has as many keys, names or sessions as it may, at the allocator or in this process. Known ones go on.
    /// If it was this process, the handle stays refused: look the limit or key up again.
    Full {
        /// How long to wait before trying again.
        retry_after: Duration,
    },
    /// The client was shut down.
    Closed,
}

impl Refusal {
    /// Returns the time after which to try again, if trying again can help.
    pub fn retry_after(&self) -> Option<Duration> {
        match *self {
            Refusal::Empty { retry_after }
            | Refusal::Paused { retry_after }
            | Refusal::Quarantine { retry_after }
            | Refusal::Unreachable { retry_after }
            | Refusal::Full { retry_after } => Some(retry_after),
            Refusal::TooLarge { .. } | Refusal::UnknownLimit | Refusal::BadKey | Refusal::Closed => None,
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
                write!(f, "too large: one call can take at most {limit} permits")
            }
            Refusal::Quarantine { retry_after } => {
                write!(f, "the allocator lends nothing yet, try again in {retry_after:?}")
            }
            Refusal::Unreachable { retry_after } => {
                write!(f, "no live lease, and no allocator answers, try again in {retry_after:?}")
            }
            Refusal::UnknownLimit => {
                f.write_str("no such limit for this client, or its key is missing or not expected")
            }
            Refusal::BadKey => {
                f.write_str("invalid key: it is empty, too long, or has characters that keys cannot have")
            }
            Refusal::Full { retry_after } => {
                write!(
                    f,
                    "the limit has its maximum of keys, names or sessions, try again in {retry_after:?}"
                )
            }
            Refusal::Closed => f.write_str("the client was shut down"),
        }
    }
}

impl std::error::Error for Refusal {}
