//! One exchange between a node and a pool: spent so far, still held, wanted → grant. Said in totals, so that a
//! lost ask loses nothing and a repeated one changes nothing. Nodes write asks, pools answer them.

use std::time::Duration;

/// What a session says about one pool. Everything in it is true at the moment the ask is *written*; it stays a
/// safe thing to believe however late it arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// Permits of this pool that this session has spent since it began. Never falls.
    pub spent_total: u64,
    /// Permits it holds and may still spend, or spend again. Whatever else it was granted, it will never spend.
    pub held: u64,
    /// Permits it would like on top of what it holds.
    pub want: u64,
    /// Of those, permits that callers are queueing for right now.
    pub waiting: u64,
    /// How fast it tries to spend, refused attempts included, in permits per 1,000 s.
    pub demand_milli: u64,
    /// Of the permits in [`Ask::spent_total`], those whose calls are in flight and will say when they end. A session
    /// that does not say may have in flight all that it spent for as long as a call may take.
    pub running: Option<u64>,
    /// Of the permits in [`Ask::spent_total`], those of calls whose end the session will never report. Never falls.
    pub unguarded: u64,
    /// Of the permits in [`Ask::held`], those that calls have in use just now. For people: nothing is decided by it.
    pub busy: u64,
    /// Permits that it let pass on a limit in shadow mode, since it began, where it would have refused. Never falls.
    pub shadow_refused: u64,
    /// The largest call that a steady flow has kept waiting so far, in permits. Of another limit, the call that waits first.
    pub largest: u64,
    /// What it mints by, where the limit has a steady flow.
    pub rate: RateClaim,
}

impl Ask {
    /// Whether it comes to nothing at a pool that does not know its session: it wants nothing, and says nothing that counts.
    pub fn is_empty(&self) -> bool {
        let Ask {
            spent_total, held, want, waiting, demand_milli, running, unguarded, shadow_refused, ..
        } = *self;
        let said =
            [spent_total, held, want, waiting, demand_milli, running.unwrap_or(0), unguarded, shadow_refused];
        said == [0; 8] && self.rate == RateClaim::None
    }
}

/// A rate that is lent to one session until its lease ends: it mints for itself, no faster and no more at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLease {
    /// Names it among those of its session. A renewal keeps the number, and the bucket goes on as it is.
    pub number: u64,
    /// The most that its bucket may hold. At least 1.
    pub cap: u64,
    /// Real time for one permit, in whole nanoseconds. Never zero.
    pub interval: Duration,
}

/// What a session says of the rate it was lent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RateClaim {
    /// It goes by none, and will by none that it was lent so far.
    #[default]
    None,
    /// It goes by this one, and by no other until it is answered.
    Holds(RateLease),
    /// It goes by none any more.
    LetGo {
        /// Which one that was.
        number: u64,
        /// What its bucket held then, as the time in which that is minted.
        credit: Duration,
    },
}

/// What a session may mint from now on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rate {
    /// The limit has no steady flow: a session that has permits may spend them.
    #[default]
    Free,
    /// It has one, and none of it is for this session now.
    Nothing,
    /// This much of it.
    Lent {
        /// The rate.
        lease: RateLease,
        /// What the bucket of a new lease holds at first, or what is put into that of a renewal, as the time in which that is
        /// minted.
        credit: Duration,
        /// Others wait for it: it is to be let go, with all permits, after [`Grant::horizon`] at the latest.
        turn: bool,
    },
}

/// What a pool answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// What the session holds from now on.
    Grant(Grant),
    /// Nothing is lent: what is held is neither extended nor taken. What was reported and given back counts.
    Refusal(Refusal),
}

/// What the session holds from now on, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// How much of [`Ask::held`] was extended. The rest ended with its lease and must not be spent.
    pub kept: u64,
    /// New permits. May be 0.
    pub permits: u64,
    /// How long all of it lasts, from the moment the ask was first sent. Whole milliseconds.
    pub term: Duration,
    /// Hold what is likely to be spent in this time, and give back the rest: shorter than the term where permits are
    /// scarce, and where little demand is worth a long lease.
    pub horizon: Duration,
    /// The most one call can ever take from this pool.
    pub ceiling: u64,
    /// Do not ask for more sooner than this after the answer, unless there is something to give back.
    /// Zero while the pool is rich.
    pub ask_after: Duration,
    /// Set if less than wanted was granted: when the pool will have a permit again, as far as it knows.
    /// Never too early; earlier if others give something back.
    pub retry_after: Option<Duration>,
    /// What it may mint by.
    pub rate: Rate,
    /// Set if the limit caps what is in flight: say [`Ask::running`] from now on.
    pub in_flight: Option<InFlight>,
}

/// What a session must know of a cap on what is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// The longest that a call may take.
    pub longest: Duration,
    /// Set if nothing but that is promised: a call that ends gives its permit back to be spent again, within the lease,
    /// as long as the session has at most so many permits in hand and in use.
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

/// The reason of a [`Refusal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// The allocator may have forgotten what it lent, and waits until no session can be spending it.
    Quarantine,
    /// The allocator is stopping. Its successor will answer.
    Stopping,
    /// The limit is paused.
    Paused,
    /// An operator has blocked this node.
    Blocked,
    /// One that this side does not know: wait, as for any.
    Other,
}

impl RefusalReason {
    /// Whether no caller may spend even what is leased, as soon as the refusal is heard.
    pub fn stops(self) -> bool {
        match self {
            RefusalReason::Paused | RefusalReason::Blocked => true,
            RefusalReason::Quarantine | RefusalReason::Stopping | RefusalReason::Other => false,
        }
    }
}

impl Answer {
    /// The grant, if it is one.
    pub fn grant(self) -> Option<Grant> {
        match self {
            Answer::Grant(grant) => Some(grant),
            Answer::Refusal(_) => None,
        }
    }

    /// New permits in it.
    pub fn permits(self) -> u64 {
        self.grant().map_or(0, |grant| grant.permits)
    }
}
