//! An estimate of the permits that are out and unspent, which the vendor has not counted either. A walk over all
//! sessions makes it. With many sessions walks are rare, and the totals of the pool say what changed since the last
//! one.

use super::{Books, Pool};
use lessor_protocol::Moment;
use lessor_protocol::sizing::{PERMIT, mean, need};
use std::time::Duration;

/// Up to this many sessions are walked each time.
const FEW: usize = 64;

/// Pause between two walks, per session. A walk takes about a hundredth of it.
const REST: Duration = Duration::from_micros(10);

/// The result of a walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Walked {
    at: Moment,
    unspent: u64,
    books: Books,
}

impl Walked {
    /// Returns the permits that are unspent at `now` by `books`, where all sessions together spend `demand_milli`
    /// permits in 1,000 s.
    fn now(self, now: Moment, books: Books, demand_milli: u64) -> u64 {
        let lent = books.granted - self.books.granted;
        let gone = |books: Books| books.returned + books.burned;
        let spent = mean(demand_milli, now.since(self.at)) / PERMIT;
        let spent = u64::try_from(spent).unwrap_or(u64::MAX);
        let less = gone(books).saturating_sub(gone(self.books)).saturating_add(spent);
        self.unspent.saturating_add(lent).saturating_sub(less).min(books.outstanding)
    }
}

impl Pool {
    /// Returns the permits that sessions are likely to hold unspent.
    pub(super) fn unspent(&mut self) -> u64 {
        let sessions = self.sessions.len();
        let rest = REST * u32::try_from(sessions).unwrap_or(u32::MAX);
        let recent = self.walked.as_deref().filter(|walked| sessions > FEW && self.now < walked.at + rest);
        if let Some(walked) = recent {
            return walked.now(self.now, self.books, self.sessions.sums().demand_milli);
        }
        let unspent = self.walk_unspent();
        let walked = Walked { at: self.now, unspent, books: self.books };
        self.walked = (sessions > FEW).then(|| Box::new(walked));
        unspent
    }

    fn walk_unspent(&self) -> u64 {
        let unspent = self.sessions.values().map(|session| {
            let spent = need(session.demand_milli, self.now.since(session.answered));
            session.outstanding.saturating_sub(spent)
        });
        unspent.sum()
    }
}

#[cfg(test)]
mod tests {
    use crate::fixtures::{SECOND, sliding};
    use crate::pool::{Holder, Plan, Pool, SessionId};
    use crate::share::Share;
    use lessor_protocol::{Ask, Moment};
    use std::sync::Arc;
    use std::time::Duration;

    const SESSIONS: u64 = 400;
    const LIMIT: u64 = 2_000_000;

    /// Each of many sessions asks every 40 ms and spends at an even rate. No walk is made for 4 ms, in which a tenth of all that is
    /// out changes hands.
    #[test]
    fn totals_say_between_two_walks_what_a_walk_would() {
        let plan = Plan::of(vec![sliding(LIMIT, 30 * SECOND)]);
        let mut now = Moment::ORIGIN + Duration::from_secs(1_000);
        let mut pool = Pool::new(Arc::new(plan), now);
        let mut held = vec![(0, 0); usize::try_from(SESSIONS).expect("a few")];
        let (mut worst, mut by_totals) = (0, 0);
        for step in 0..8 * SESSIONS {
            now = now + Duration::from_micros(100);
            let (session, seq) = (step % SESSIONS, step / SESSIONS + 1);
            let (spent_total, held) = &mut held[usize::try_from(session).expect("a few")];
            // One to seven in 40 ms.
            let spends = (session % 7 + 1).min(*held);
            (*spent_total, *held) = (*spent_total + spends, *held - spends);
            let want = 12_u64.saturating_sub(*held);
            let ask = Ask {
                spent_total: *spent_total,
                held: *held,
                want,
                demand_milli: 25_000 * (session % 7 + 1),
                ..Ask::default()
            };
            let holder = Holder { id: SessionId(session), share: Share::EVEN, rtt: Duration::ZERO };
            let grant = pool.renew(now, holder, seq, ask).expect("a good ask").grant().expect("plenty");
            *held = grant.kept + grant.permits;
            if seq > 4 {
                let before = pool.walked.as_deref().map(|walked| walked.at);
                let (unspent, walked) = (pool.unspent(), pool.walk_unspent());
                by_totals += u64::from(pool.walked.as_deref().map(|walked| walked.at) == before);
                worst = worst.max(unspent.abs_diff(walked));
            }
        }
        assert!(by_totals > 1_500, "{by_totals} of 1,600 without a walk");
        assert!(worst < SESSIONS / 8, "{worst} permits off, with {SESSIONS} sessions");
    }
}
