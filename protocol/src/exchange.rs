//! One exchange between a node and a pool: spent so far, still held, wanted → grant. Asks say totals, so that a lost
//! ask loses nothing and a repeated one changes nothing. Nodes write asks, pools answer them.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What a session reports and asks of one pool. Every field is true when the ask is *written*, and safe to believe
/// however late the ask arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// Permits of this pool that the session has spent since it began. Never falls.
    pub spent_total: u64,
    /// Permits that the session holds and may still spend, or spend again. Other permits it was granted it will never
    /// spend.
    pub held: u64,
    /// Permits wanted on top of those held.
    pub want: u64,
    /// Of [`Ask::want`], permits that callers are queueing for right now.
    pub waiting: u64,
    /// How fast the session tries to spend, refused attempts included, in permits per 1,000 s.
    pub demand_milli: u64,
    /// Of the permits in [`Ask::spent_total`], those whose calls are in flight and will report their end. If it is
    /// `None`, all permits that the session spent within the longest time of a call may be in flight.
    pub running: Option<u64>,
    /// Of the permits in [`Ask::spent_total`], those of calls whose end the session will never report. Never falls.
    pub unguarded: u64,
    /// Of the permits in [`Ask::held`], those that calls have in use right now. For people: no decision depends on it.
    pub busy: u64,
    /// Permits let pass since the session began that a limit in shadow mode would have refused. Never falls.
    pub shadow_refused: u64,
    /// Of a limit with a steady flow: the largest call that has waited so far, in permits. Of another limit: the call
    /// that waits first.
    pub largest: u64,
    /// Whether the session lends on what it leases, so that a part of what its first call lacks serves other calls.
    pub lends_on: bool,
    /// The rate lease that the session uses, where the limit has a steady flow.
    pub rate: RateClaim,
}

impl Ask {
    /// Whether a pool that does not know the session may ignore the ask: it wants nothing, and reports nothing that
    /// counts.
    pub fn is_empty(&self) -> bool {
        let Ask {
            spent_total, held, want, waiting, demand_milli, running, unguarded, shadow_refused, ..
        } = *self;
        let said = spent_total | held | want | waiting | demand_milli | unguarded | shadow_refused;
        said | running.unwrap_or(0) == 0 && self.rate == RateClaim::None
    }
}

/// A rate that is lent to one session until its lease ends. The session mints for itself, within the rate and the cap
/// of its bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLease {
    /// Number of the rate lease within its session. A renewal keeps the number, and the bucket goes on unchanged.
    pub number: u64,
    /// The most permits that the bucket of the session may hold. At least 1.
    pub cap: u64,
    /// Real time in which one permit is minted, in whole nanoseconds. Never zero.
    pub interval: Duration,
}

/// What a session says of the rate that it was lent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RateClaim {
    /// The session uses no rate lease, and will use none that it was lent so far.
    #[default]
    None,
    /// The session uses this rate lease, and no other until it is answered.
    Holds(RateLease),
    /// The session has stopped using its rate lease.
    LetGo {
        /// The number of that rate lease.
        number: u64,
        /// Content of its bucket at that time, as the time in which it is minted.
        credit: Duration,
    },
}

/// The rate at which a session may mint from now on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rate {
    /// The limit has no steady flow: a session spends its permits as it likes.
    #[default]
    Free,
    /// The limit has a steady flow, and this session has no part of it now.
    Nothing,
    /// This session has a part of the steady flow.
    Lent {
        /// The rate.
        lease: RateLease,
        /// First content of the bucket of a new lease, or addition to the bucket of a renewed one, as the time in which
        /// it is minted.
        credit: Duration,
        /// Other sessions wait for the rate: it is to be let go, with all permits, after [`Grant::horizon`] at the
        /// latest.
        turn: bool,
    },
}

/// The answer of a pool to an ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The permits that the session holds from now on.
    Grant(Grant),
    /// Nothing is lent: leases are neither extended nor taken. Permits reported as spent or given back are settled.
    Refusal(Refusal),
}

/// The permits that the session holds from now on, and their term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Permits of [`Ask::held`] that were extended. The others ended with their lease and must not be spent.
    pub kept: u64,
    /// New permits. May be 0.
    pub permits: u64,
    /// How long the whole lease lasts, from the moment the ask was first sent. Whole milliseconds.
    pub term: Duration,
    /// Time for which the node keeps a supply; it gives back permits beyond that. Shorter than the term where permits
    /// are scarce, where the session wants more than its share, and where the term is long because demand is low.
    pub horizon: Duration,
    /// The most permits that one call can ever take from this pool.
    pub ceiling: u64,
    /// Least time from the answer to the next ask for more, unless the node gives something back. Zero while the pool
    /// is rich.
    pub ask_after: Duration,
    /// Set if less than wanted was granted: time until the pool has a permit again, as far as it knows. Never too
    /// early; a return of others can make a permit free sooner.
    pub retry_after: Option<Duration>,
    /// The rate at which the session may mint.
    pub rate: Rate,
    /// Set if the limit caps calls in flight: asks must say [`Ask::running`] from now on.
    pub in_flight: Option<InFlight>,
}

/// What a session must know of a cap on calls in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// The longest that a call may take.
    pub longest: Duration,
    /// Set if the limit has no other rule. A call that ends frees its permit to be spent again within the lease, while
    /// the session has at most this many permits in hand and in use.
    pub hold: Option<u64>,
}

/// Why nothing was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub reason: RefusalReason,
    /// When to try again.
    pub retry_after: Duration,
}

/// The reason of a [`Refusal`], also on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalReason {
    /// The allocator may have forgotten what it lent, and waits until no session can be spending it.
    Quarantine,
    /// The allocator is stopping. Its successor will answer.
    Stopping,
    /// The limit is paused.
    Paused,
    /// An operator has blocked this node.
    Blocked,
    /// A word that this version does not know: it may come from a later allocator. Wait, as for any other reason.
    #[serde(other)]
    Other,
}

impl RefusalReason {
    /// Whether callers must stop spending even leased permits as soon as the refusal is heard.
    pub fn stops(self) -> bool {
        match self {
            RefusalReason::Paused | RefusalReason::Blocked => true,
            RefusalReason::Quarantine | RefusalReason::Stopping | RefusalReason::Other => false,
        }
    }
}

impl Answer {
    /// Returns the grant, unless the answer is a refusal.
    pub fn grant(self) -> Option<Grant> {
        match self {
            Answer::Grant(grant) => Some(grant),
            Answer::Refusal(_) => None,
        }
    }

    /// Returns the number of new permits.
    pub fn permits(self) -> u64 {
        self.grant().map_or(0, |grant| grant.permits)
    }
}
