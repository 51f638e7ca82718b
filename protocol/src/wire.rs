//! The exchange as JSON over HTTP. Durations only, never a date. Fields may be added within a version; an unknown field
//! is ignored, so that old and new can meet.

mod ask;
mod grant;
mod observed;
mod text;

pub use ask::AskBody;
pub use grant::{GrantBody, SafeShareBody};
pub use observed::{AnnouncedBody, ObservedBody};
pub use text::Text;

use crate::exchange::{Rate, RateClaim, RateLease};
use crate::moment::nanos;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Version of everything in this module; the first part of every path.
pub const VERSION: u32 = 1;

/// Path to which nodes post [`LeasesRequest`].
pub const LEASES_PATH: &str = "/v1/leases";

/// Most asks in one exchange. It keeps a body far below the limit on its size.
pub const ASKS_MAX: usize = 1_000;

/// One exchange: the asks of a node for its pools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeasesRequest<A = AskBody, N = String> {
    /// Name of the node, for people.
    pub node: N,
    /// A number below 2^53, new at every start of the node. It is a secret, because a process that knows it can speak
    /// for the session. So it is drawn from [`crate::entropy`], and shown nowhere.
    pub session: u64,
    /// [`LeasesResponse::epoch`] of the session's answers so far; 0 or absent before the first one. An allocator with
    /// another epoch does nothing: it answers with its own one and no grants.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub epoch: u64,
    /// Sequence number, which rises with every exchange of the session. A repeated one gets the same grants again.
    pub seq: u64,
    /// Round trip of an exchange in milliseconds, as the node measured it, rounded up. Leases outlast a few of them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rtt_ms: u64,
    /// At most [`ASKS_MAX`], each for another pool.
    pub asks: Vec<A>,
}

/// A rate lease on the wire: lent, held, or (with a `cap` of 0) none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateBody {
    /// Number of the rate lease; a renewal keeps it, and the bucket goes on unchanged.
    pub number: u64,
    /// The most that its bucket may hold, in permits. 0: nothing is lent, or the lease was let go.
    pub cap: u64,
    /// Real time in which one permit is minted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub interval_ns: u64,
    /// Content of the bucket when it is lent or was let go, as the time in which it is minted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub credit_ns: u64,
    /// Other sessions wait: the rate is to be let go within `horizon_ms`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub turn: bool,
}

/// The answer to [`LeasesRequest`]: one entry for each ask, in the same order. A node does not use the answer if its
/// epoch is not the one of the session's answers so far, and begins another session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeasesResponse<N = String> {
    /// Number of the allocator's life that answered. It changes with a restart, and when the books are lost.
    pub epoch: u64,
    /// Session of the exchange that is answered. The node discards an answer to another session or exchange.
    pub session: u64,
    /// Sequence number of that exchange.
    pub seq: u64,
    /// One for each ask; none if the request was for another epoch.
    pub grants: Vec<GrantBody<N>>,
}

/// An error about one ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// One stable word per cause, see [`code`].
    pub code: String,
    /// The field that was wrong, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// A sentence for people.
    pub detail: String,
}

/// The stable words of [`ErrorBody::code`] and of problem documents.
pub mod code {
    /// A field is missing, of the wrong type, or out of range.
    pub const INVALID: &str = "invalid";
    /// No such limit. An ask never creates one.
    pub const LIMIT_UNKNOWN: &str = "limit_unknown";
    /// The limit is keyed and the ask has no key, or the other way round.
    pub const KEY_MISMATCH: &str = "key_mismatch";
    /// The limit has as many keys as it may; old keys go on.
    pub const KEYS_FULL: &str = "keys_full";
    /// The pattern that the limit's name fits has as many names as it may; old names go on.
    pub const NAMES_FULL: &str = "names_full";
    /// The pool has as many sessions as it may; old ones go on.
    pub const LESSEES_FULL: &str = "lessees_full";
    /// A newer exchange of this session has been answered, or the session said goodbye: begin another session.
    pub const STALE_SEQUENCE: &str = "stale_sequence";
    /// One exchange asks for the same pool twice.
    pub const DUPLICATE: &str = "duplicate";
    /// Spent and held are more than this session was ever granted, or the total spent has fallen.
    pub const TOTALS_WRONG: &str = "totals_wrong";
    /// The allocator does not know this session's lease: start again from a total of 0.
    pub const LEASE_UNKNOWN: &str = "lease_unknown";
    /// Another identity began this session: begin another session.
    pub const SESSION_OF_ANOTHER: &str = "session_of_another";
    /// The identity of the node has no right to the limit, whether or not the limit exists.
    pub const FORBIDDEN: &str = "forbidden";
}

/// A goodbye of a node: `POST /v1/nodes/{node}/leave`. The permits that it reports as still held are returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaveRequest {
    /// The session that ends.
    pub session: u64,
    /// Its next sequence number.
    pub seq: u64,
    /// Final totals. The leases of a pool that is not named here burn at their end.
    #[serde(default)]
    pub spent: Vec<SpentBody>,
}

/// The final total of one pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpentBody {
    /// The limit.
    pub limit: String,
    /// The key, if the limit is keyed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Permits spent since the session began.
    pub spent_total: u64,
    /// Permits whose calls are still in flight, where the limit caps that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<u64>,
    /// Most permits to return: those that the session holds, and those that an unanswered ask may have brought. Permits
    /// lent beyond that stay charged until their lease ends. Absent: as many as the last ask reported as held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<u64>,
    /// Permits let pass in shadow mode since the session began.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub shadow_refused: u64,
}

/// The answer to [`LeaveRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaveResponse {
    /// Permits that went back to their pools.
    pub returned: u64,
    /// Errors, in the order of [`LeaveRequest::spent`]; entries without an error are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ErrorBody>,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

fn is_false(value: &bool) -> bool {
    !value
}

impl RateBody {
    /// Reads it as the claim of a session.
    fn claim(self) -> RateClaim {
        match self.cap {
            0 => RateClaim::LetGo { number: self.number, credit: Duration::from_nanos(self.credit_ns) },
            _ => RateClaim::Holds(self.lease()),
        }
    }

    fn lease(self) -> RateLease {
        RateLease { number: self.number, cap: self.cap, interval: Duration::from_nanos(self.interval_ns) }
    }

    fn of_claim(claim: RateClaim) -> Option<Self> {
        match claim {
            RateClaim::None => None,
            RateClaim::Holds(lease) => Some(RateBody::of_lease(lease)),
            RateClaim::LetGo { number, credit } => {
                Some(RateBody { number, credit_ns: nanos(credit), ..RateBody::default() })
            }
        }
    }

    fn of_lease(lease: RateLease) -> Self {
        let RateLease { number, cap, interval } = lease;
        RateBody { number, cap, interval_ns: nanos(interval), ..RateBody::default() }
    }

    fn of_rate(rate: Rate) -> Option<Self> {
        match rate {
            Rate::Free => None,
            Rate::Nothing => Some(RateBody::default()),
            Rate::Lent { lease, credit, turn } => {
                Some(RateBody { credit_ns: nanos(credit), turn, ..RateBody::of_lease(lease) })
            }
        }
    }

    fn rate(self) -> Rate {
        match self.cap {
            0 => Rate::Nothing,
            _ => Rate::Lent {
                lease: self.lease(),
                credit: Duration::from_nanos(self.credit_ns),
                turn: self.turn,
            },
        }
    }
}

#[cfg(test)]
mod tests;
