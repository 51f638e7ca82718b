//! Reasons of a refusal, on the wire. Grants carry them; an unknown word stands for a reason of a later version.

use crate::exchange::RefusalReason;
use serde::{Deserialize, Serialize};

/// [`RefusalReason`] on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refused {
    /// See [`RefusalReason::Quarantine`].
    Quarantine,
    /// See [`RefusalReason::Stopping`].
    Stopping,
    /// See [`RefusalReason::Paused`].
    Paused,
    /// See [`RefusalReason::Blocked`].
    Blocked,
    /// A word that this version does not know: it may come from a later allocator.
    #[serde(other)]
    Other,
}

impl From<RefusalReason> for Refused {
    fn from(reason: RefusalReason) -> Self {
        match reason {
            RefusalReason::Quarantine => Refused::Quarantine,
            RefusalReason::Stopping => Refused::Stopping,
            RefusalReason::Paused => Refused::Paused,
            RefusalReason::Blocked => Refused::Blocked,
            RefusalReason::Other => Refused::Other,
        }
    }
}

impl From<Refused> for RefusalReason {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Quarantine => RefusalReason::Quarantine,
            Refused::Stopping => RefusalReason::Stopping,
            Refused::Paused => RefusalReason::Paused,
            Refused::Blocked => RefusalReason::Blocked,
            Refused::Other => RefusalReason::Other,
        }
    }
}
