//! A limit in one exchange: the moment by which the exchange goes; and with limits above or below it, its pool is opened, the
//! exchange uses it, and it is closed.

use super::{Limit, PoolId, Shelf};
use crate::pool::Pool;
use crate::rejection::AskRejection;
use lessor_protocol::{Answer, Ask, Moment};

impl Limit {
    /// The moment of an exchange that began `now`, and waited until it had the limit: never before the one that had it first.
    pub(crate) fn not_before(&mut self, now: Moment) -> Moment {
        self.latest = self.latest.max(now);
        self.latest
    }

    /// Makes a pool if it is not there, for an exchange with it and those above or below it.
    pub(crate) fn open(&mut self, now: Moment, id: &PoolId) -> Result<(), AskRejection> {
        if !self.pools.contains_key(id) {
            self.make_room(now, id)?;
            self.make(now, id.clone());
        }
        self.count(now, id);
        Ok(())
    }

    /// A pool that was opened.
    pub(crate) fn opened(&mut self, id: &PoolId) -> &mut Pool {
        &mut self.pools.get_mut(id).expect("it was opened").wake().pool
    }

    /// The exchange with an open pool is over.
    pub(crate) fn close(&mut self, now: Moment, id: &PoolId) {
        self.count(now, id);
        self.note(id);
    }

    /// Brings the part of a pool in the sums up to date.
    fn count(&mut self, now: Moment, id: &PoolId) {
        if let Some(kept) = self.pools.get_mut(id).map(Shelf::wake) {
            self.tally.count(&mut kept.counted, kept.pool.view(now));
        }
    }

    /// A pool of a family gave `answer` to `ask`.
    pub(crate) fn count_answer(&mut self, ask: &Ask, answer: &Answer) {
        self.tally.sums.answered.count(ask, answer);
    }
}
