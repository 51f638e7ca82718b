//! The exchange as JSON over HTTP: the only place of this crate that knows serde. Durations only, never a date.
//! Fields may be added within a version; an unknown field is ignored, so that old and new can meet.

mod observed;
mod refused;
mod safe_share;

pub use observed::{AnnouncedBody, ObservedBody};
pub use refused::Refused;
pub use safe_share::SafeShareBody;

use crate::exchange::{Answer, Ask, Grant, InFlight, Rate, RateClaim, RateLease, Refusal};
use crate::fallback::Fallback;
use crate::lease::{millis_up, whole_millis};
use crate::moment::nanos;
use crate::sizing::MILLI;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Version of everything in this module; the first part of every path.
pub const VERSION: u32 = 1;

/// Where nodes post [`LeasesRequest`].
pub const LEASES_PATH: &str = "/v1/leases";

/// Most asks in one exchange. With it a body stays far below the limit on its size.
pub const ASKS_MAX: usize = 1_000;

/// One exchange: all that a node has to say about its pools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeasesRequest<A = AskBody> {
    /// Name of the node, for people.
    pub node: String,
    /// A number below 2^53, new at every start of the node. A secret: a process that knows it speaks for the session. So
    /// it is drawn from [`crate::entropy`], and shown nowhere.
    pub session: u64,
    /// Rises with every exchange of the session. A repeated one gets the same grants again.
    pub seq: u64,
    /// How long an exchange takes, as the node has measured it, rounded up. Leases outlast a few of them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rtt_ms: u64,
    /// At most [`ASKS_MAX`], each for another pool.
    pub asks: Vec<A>,
}

/// [`Ask`] on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskBody {
    /// The limit.
    pub limit: String,
    /// The key, if the limit is keyed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Permits spent since the session began.
    pub spent_total: u64,
    /// Permits still held.
    pub held: u64,
    /// Permits wanted on top.
    pub want: u64,
    /// Permits a second, rounded up.
    #[serde(default)]
    pub demand: u64,
    /// Permits that callers queue for.
    #[serde(default)]
    pub waiting: u64,
    /// Permits that were spent and whose calls are in flight. Said where a grant told `longest_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<u64>,
    /// Permits spent on calls whose end the session will never report, since the session began.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unguarded: u64,
    /// Permits that are held and in use.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub busy: u64,
    /// Permits let pass in shadow mode since the session began.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub shadow_refused: u64,
    /// The largest call so far.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub largest: u64,
    /// The rate lease that it goes by, or has let go of; absent if there is none to speak of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateBody>,
    /// What the vendor said of its own count; absent if it said nothing lately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<ObservedBody>,
}

/// A rate lease on the wire: what is lent, what is held, or (with a `cap` of 0) that none is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateBody {
    /// Names it; a renewal keeps the number, and the bucket goes on as it is.
    pub number: u64,
    /// The most that its bucket may hold. 0: nothing is lent, or it was let go.
    pub cap: u64,
    /// Real time for one permit.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub interval_ns: u64,
    /// What is in the bucket when it is lent, or when it was let go, as the time in which that is minted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub credit_ns: u64,
    /// Others wait: it is to be let go within `horizon_ms`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub turn: bool,
}

/// The answer to [`LeasesRequest`]: one entry for each ask, in the same order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeasesResponse {
    /// Which life of the allocator answered.
    pub epoch: u64,
    /// The session that it answers, and the exchange: an answer to another one is none, however it came about.
    pub session: u64,
    /// See `session`.
    pub seq: u64,
    /// One for each ask.
    pub grants: Vec<GrantBody>,
}

/// [`Answer`] on the wire, or what was wrong with one ask.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantBody {
    /// The limit that was asked for.
    pub limit: String,
    /// The key that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// New permits.
    pub permits: u64,
    /// How much of what was held goes on.
    #[serde(default)]
    pub held: u64,
    /// How long all of it lasts, counted from the first sending of the ask.
    pub term_ms: u64,
    /// For how long to hold permits in advance; the term if it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub horizon_ms: Option<u64>,
    /// The most one call can ever take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<u64>,
    /// Do not ask for more sooner than this.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ask_after_ms: u64,
    /// When there will be a permit again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Set if the limit has a steady flow: what of it is lent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateBody>,
    /// The longest that a call may take, where the limit caps what is in flight: say `running` from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_ms: Option<u64>,
    /// With it, where a permit may be spent again when its call ends: the most to have in hand and in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<u64>,
    /// Whether the limit is in shadow mode: what would be refused is let pass, and counted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub shadow: bool,
    /// What to do about the limit while no allocator answers.
    #[serde(default, skip_serializing_if = "Fallback::is_closed")]
    pub fallback: Fallback,
    /// With [`Fallback::SafeShare`]: what this session may go on with, if there was a share left for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safe: Option<SafeShareBody>,
    /// Permits that the pool has left once this is granted. A number to show, that grants nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<u64>,
    /// The window of the rule with the least limit, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_ms: Option<u64>,
    /// Set on a refusal: nothing that is held was touched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refused>,
    /// Set if this ask was not understood or not believed. Nothing changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
}

/// What was wrong with one ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// One stable word per cause, see [`code`].
    pub code: String,
    /// The field that was wrong, if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// A sentence for people.
    pub detail: String,
}

/// The stable words of [`ErrorBody::code`] and of problem documents.
pub mod code {
    /// A field is missing, of the wrong type, or out of range.
    pub const INVALID: &str = "invalid";
    /// No such limit. It is never made by asking.
    pub const LIMIT_UNKNOWN: &str = "limit_unknown";
    /// The limit is keyed and the ask has no key, or the other way round.
    pub const KEY_MISMATCH: &str = "key_mismatch";
    /// The limit has as many keys as it may; old keys go on.
    pub const KEYS_FULL: &str = "keys_full";
    /// The pattern that the limit's name fits has as many names as it may; old names go on.
    pub const NAMES_FULL: &str = "names_full";
    /// The pool has as many sessions as it may; old ones go on.
    pub const LESSEES_FULL: &str = "lessees_full";
    /// A newer exchange of this session has been answered, or it has said goodbye: begin another session.
    pub const STALE_SEQUENCE: &str = "stale_sequence";
    /// The same pool twice in one exchange.
    pub const DUPLICATE: &str = "duplicate";
    /// Spent and held are more than this session was ever granted, or spent has fallen.
    pub const TOTALS_WRONG: &str = "totals_wrong";
    /// The allocator does not know this session's lease: start again from a total of 0.
    pub const LEASE_UNKNOWN: &str = "lease_unknown";
}

/// A node says goodbye: `POST /v1/nodes/{node}/leave`. What it says that it still held is returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaveRequest {
    /// The session that ends.
    pub session: u64,
    /// Its next sequence number.
    pub seq: u64,
    /// Final totals. A pool that is not named here burns what it had lent, at the end of the lease.
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
    /// The most permits that it gives back: those that it holds, and those that an ask without an answer may have brought.
    /// What it was lent beyond that stays charged until its lease ends. Absent: what its last ask said that it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<u64>,
}

/// The answer to [`LeaveRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaveResponse {
    /// Permits that went back to their pools.
    pub returned: u64,
    /// What was wrong, in the order of [`LeaveRequest::spent`]; absent entries went well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ErrorBody>,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

fn is_false(value: &bool) -> bool {
    !*value
}

impl AskBody {
    /// The ask in it, with numbers as the core counts them.
    pub fn ask(&self) -> Ask {
        Ask {
            spent_total: self.spent_total,
            held: self.held,
            want: self.want,
            waiting: self.waiting,
            demand_milli: self.demand.saturating_mul(MILLI),
            largest: self.largest,
            rate: self.rate.map_or(RateClaim::None, RateBody::claim),
            running: self.running,
            unguarded: self.unguarded,
            busy: self.busy,
            shadow_refused: self.shadow_refused,
        }
    }

    /// The first number that is larger than anything can be: its field and its value.
    pub fn out_of_range(&self) -> Option<(&'static str, u64)> {
        let rate = self.rate.unwrap_or_default();
        [
            ("spent_total", self.spent_total),
            ("held", self.held),
            ("want", self.want),
            ("demand", self.demand),
            ("waiting", self.waiting),
            ("largest", self.largest),
            ("rate.number", rate.number),
            ("rate.cap", rate.cap),
            ("rate.interval_ns", rate.interval_ns),
            ("rate.credit_ns", rate.credit_ns),
            ("running", self.running.unwrap_or(0)),
            ("unguarded", self.unguarded),
            ("busy", self.busy),
            ("shadow_refused", self.shadow_refused),
        ]
        .into_iter()
        .find(|&(_, value)| value > crate::PERMITS_MAX)
        .or_else(|| self.observed.as_ref()?.out_of_range())
    }

    /// `ask` for `limit` and `key`, for the wire.
    pub fn of(limit: &str, key: Option<&str>, ask: Ask) -> Self {
        AskBody {
            limit: limit.to_owned(),
            key: key.map(str::to_owned),
            spent_total: ask.spent_total,
            held: ask.held,
            want: ask.want,
            demand: ask.demand_milli.div_ceil(MILLI),
            waiting: ask.waiting,
            running: ask.running,
            unguarded: ask.unguarded,
            busy: ask.busy,
            shadow_refused: ask.shadow_refused,
            largest: ask.largest,
            rate: RateBody::of_claim(ask.rate),
            observed: None,
        }
    }
}

impl RateBody {
    /// The claim in it.
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

impl GrantBody {
    /// `answer` for `limit` and `key`, for the wire. Waits are rounded up, the term down.
    pub fn of(limit: &str, key: Option<&str>, answer: Answer) -> Self {
        let body = GrantBody { limit: limit.to_owned(), key: key.map(str::to_owned), ..GrantBody::default() };
        match answer {
            Answer::Grant(grant) => GrantBody {
                permits: grant.permits,
                held: grant.kept,
                term_ms: u64::try_from(whole_millis(grant.term).as_millis()).unwrap_or(u64::MAX),
                horizon_ms: Some(millis_up(grant.horizon)),
                ceiling: Some(grant.ceiling),
                ask_after_ms: millis_up(grant.ask_after),
                retry_after_ms: grant.retry_after.map(millis_up),
                rate: RateBody::of_rate(grant.rate),
                longest_ms: grant.in_flight.map(|cap| millis_up(cap.longest)),
                hold: grant.in_flight.and_then(|cap| cap.hold),
                ..body
            },
            Answer::Refusal(refusal) => GrantBody {
                retry_after_ms: Some(millis_up(refusal.retry_after)),
                refused: Some(refusal.reason.into()),
                ..body
            },
        }
    }

    /// What was wrong with an ask for `limit` and `key`.
    pub fn wrong(limit: &str, key: Option<&str>, error: ErrorBody) -> Self {
        GrantBody {
            limit: limit.to_owned(),
            key: key.map(str::to_owned),
            error: Some(error),
            ..GrantBody::default()
        }
    }

    /// The answer in it.
    ///
    /// # Errors
    /// What the allocator found wrong with the ask.
    pub fn answer(&self) -> Result<Answer, &ErrorBody> {
        if let Some(error) = &self.error {
            return Err(error);
        }
        let retry_after = self.retry_after_ms.map(Duration::from_millis);
        Ok(match self.refused {
            None => Answer::Grant(Grant {
                kept: self.held,
                permits: self.permits,
                term: Duration::from_millis(self.term_ms),
                horizon: Duration::from_millis(self.horizon_ms.unwrap_or(self.term_ms)),
                ceiling: self.ceiling.unwrap_or(crate::PERMITS_MAX),
                ask_after: Duration::from_millis(self.ask_after_ms),
                retry_after,
                rate: self.rate.map_or(Rate::Free, RateBody::rate),
                in_flight: self
                    .longest_ms
                    .map(|longest| InFlight { longest: Duration::from_millis(longest), hold: self.hold }),
            }),
            Some(refused) => Answer::Refusal(Refusal {
                reason: refused.into(),
                retry_after: retry_after.unwrap_or_default(),
            }),
        })
    }
}

#[cfg(test)]
mod tests;
