//! Holdings of each session in a pool, for people to look at. A look changes nothing but the time.

use super::SessionId;
use crate::pool::Pool;
use lessor_protocol::Moment;
use std::time::Duration;

/// One session's part of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The session.
    pub session: SessionId,
    /// Permits that are lent to it, and neither settled nor returned.
    pub outstanding: u64,
    /// How long its lease still lasts; zero if it has none.
    pub lasts: Duration,
    /// Its demand in thousandths of a permit a second; zero if it has fallen silent.
    pub demand_milli: u64,
    /// Permits that its callers wait for.
    pub waiting: u64,
    /// The highest total that it reported spent.
    pub spent: u64,
    /// Its weight among sessions of its priority.
    pub weight: u64,
    /// Its priority: a session with a higher one comes first.
    pub priority: u64,
    /// Its round-trip time, as it says.
    pub rtt: Duration,
}

impl Pool {
    /// Returns the holdings of all sessions that hold something or have asked lately, sessions of pools below included.
    pub fn holdings(&mut self, now: Moment) -> impl Iterator<Item = Holding> {
        self.advance(now);
        let (now, ages) = (self.now, self.sessions.ages());
        self.sessions.iter().filter_map(move |(place, session)| {
            let is_active = session.answered + ages.active(session.rtt) > now;
            (is_active || session.is_live()).then(|| Holding {
                session: place.session(),
                outstanding: session.outstanding,
                lasts: if session.is_live() { session.end.since(now) } else { Duration::ZERO },
                demand_milli: if is_active { session.demand_milli } else { 0 },
                waiting: if is_active { session.waiting } else { 0 },
                spent: session.spent,
                weight: session.share.weight,
                priority: session.share.priority,
                rtt: session.rtt,
            })
        })
    }
}
