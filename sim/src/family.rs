//! The pools of a region, or of an allocator that shares a store: the one that nodes ask, and one above it where the limit is below
//! another one. They lease what they lend. The world drives them.

use lessor_ledger::pool::{Above, AskError, Goodbye, Holder, Plan, Pool, PoolView, SessionId};
use lessor_ledger::share::Share;
use lessor_protocol::{Answer, Ask, Moment, Refusal};
use std::sync::Arc;
use std::time::Duration;

/// Those pools, the lowest first.
#[derive(Debug)]
pub struct Family {
    pools: Vec<Pool>,
}

impl Family {
    /// Pools that lease by `plan`: one, and one `above` it if there is one.
    pub fn borrowed(plan: &Plan, above: bool, now: Moment) -> Self {
        let plan = Arc::new(Plan { rules: vec![], is_borrowed: true, ..plan.clone() });
        let pool = |_| Pool::new(plan.clone(), now);
        Family { pools: (0..=usize::from(above)).map(pool).collect() }
    }

    /// See [`Pool::asks_above`]: the soonest of them.
    pub fn asks_above(&mut self, now: Moment, rtt: Duration) -> Moment {
        let each = self.pools().map(|pool| pool.asks_above(now, rtt));
        each.min().unwrap_or(Moment::NEVER)
    }

    /// All pools, the lowest first.
    pub fn pools(&mut self) -> impl Iterator<Item = &mut Pool> {
        self.pools.iter_mut()
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Pool, &mut [Above<'_>]) -> T) -> T {
        let (lowest, above) = self.pools.split_first_mut().expect("there is one at least");
        let above = above.iter_mut().map(|pool| Above { pool, share: Share::EVEN });
        act(lowest, &mut above.collect::<Vec<_>>())
    }

    /// See [`Pool::renew`].
    ///
    /// # Errors
    /// The same.
    pub fn renew(&mut self, now: Moment, holder: Holder, seq: u64, ask: Ask) -> Result<Answer, AskError> {
        self.with(|pool, above| pool.renew_below(above, now, holder, seq, ask))
    }

    /// See [`Pool::settle_only`].
    ///
    /// # Errors
    /// The same.
    pub fn settle_only(
        &mut self,
        now: Moment,
        holder: Holder,
        seq: u64,
        ask: Ask,
        refusal: Refusal,
    ) -> Result<Answer, AskError> {
        self.with(|pool, above| pool.settle_below(above, now, holder, seq, ask, refusal))
    }

    /// See [`Pool::leave`].
    ///
    /// # Errors
    /// The same.
    pub fn leave(&mut self, now: Moment, id: SessionId, seq: u64, goodbye: Goodbye) -> Result<u64, AskError> {
        self.with(|pool, above| pool.leave_below(above, now, id, seq, goodbye))
    }

    /// The books of the lowest, and what it can lend with the one above.
    pub fn view(&mut self, now: Moment) -> PoolView {
        let views = self.pools.iter_mut().map(|pool| pool.view(now));
        let least = views.reduce(|lowest, view| PoolView {
            available: lowest.available.min(view.available),
            sessions: lowest.sessions.max(view.sessions),
            over: lowest.over.max(view.over),
            quarantine: lowest.quarantine.max(view.quarantine),
            ..lowest
        });
        least.expect("there is one at least")
    }
}
