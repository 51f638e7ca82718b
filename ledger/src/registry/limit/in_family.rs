//! A limit in one exchange: the moment by which the exchange goes; and with limits above or below it, its pool is opened, the
//! exchange uses it, and it is closed.

use super::{Left, Limit, PoolId, Shelf};
use crate::pool::{Holder, Pool};
use crate::rejection::AskRejection;
use crate::share::Owner;
use lessor_protocol::{Answer, Ask, Moment};

impl Limit {
    /// The moment of an exchange that began `now`, and waited until it had the limit: never before the one that had it first.
    pub(crate) fn not_before(&mut self, now: Moment) -> Moment {
        self.latest = self.latest.max(now);
        self.latest
    }

    /// The answer to an `ask` that says and wants nothing, of a pool that is not there, and what is left of that: as if the pool was
    /// made for it. Nothing is remembered, so such asks take no room from other keys. `None` if there is a pool, or it has to know
    /// who asked.
    pub(crate) fn answer_in_passing(
        &mut self,
        now: Moment,
        id: &PoolId,
        holder: Holder,
        seq: u64,
        ask: Ask,
    ) -> Option<(Answer, Left)> {
        let is_alone = self.config.parent.is_none() && self.config.upstream.is_none();
        // In shadow mode the next ask may count what passed.
        let counts = self.config.shadow || self.config.sharing.safe.is_some();
        if self.pools.contains(id) || !is_alone || counts {
            return None;
        }
        let mut pool = self.new_pool(now, id);
        let answer = pool.renew(now, holder, seq, ask).ok()?;
        self.tally.sums.answered.count(&ask, &answer);
        Some((answer, (Some(pool.view(now).available), pool.window())))
    }

    /// Makes a pool if it is not there, for an exchange of `owner` with it and those above or below it.
    pub(crate) fn open(&mut self, now: Moment, id: &PoolId, owner: Owner) -> Result<(), AskRejection> {
        if !self.pools.contains(id) {
            self.make_room(now, id, owner)?;
            self.make(now, id.clone(), owner);
        }
        self.count(now, id);
        Ok(())
    }

    /// A pool that was opened.
    pub(crate) fn opened(&mut self, id: &PoolId) -> &mut Pool {
        &mut self.pools.get_mut(id, &mut self.tally).expect("it was opened").wake().pool
    }

    /// The exchange with an open pool is over.
    pub(crate) fn close(&mut self, now: Moment, id: &PoolId) {
        self.count(now, id);
        self.note(id);
    }

    /// Brings the part of a pool in the sums up to date.
    fn count(&mut self, now: Moment, id: &PoolId) {
        if let Some(kept) = self.pools.get_mut(id, &mut self.tally).map(Shelf::wake) {
            self.tally.count(&mut kept.counted, kept.pool.view(now));
        }
    }

    /// A pool of a family gave `answer` to `ask`.
    pub(crate) fn count_answer(&mut self, ask: &Ask, answer: &Answer) {
        self.tally.sums.answered.count(ask, answer);
    }
}
