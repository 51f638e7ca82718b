//! A limit in one exchange: at which moment the exchange is decided. Where there are limits above or below, the pool is
//! opened, used and closed.

use super::{Left, Limit, PoolEntry, PoolId};
use crate::pool::{Holder, Pool};
use crate::rejection::AskRejection;
use crate::share::Owner;
use lessor_protocol::{Answer, Ask, Grant, Moment};
use std::time::Duration;

impl Limit {
    /// Returns the moment of an exchange that began at `now` and may have waited for this limit. It is never before the
    /// moment of an exchange that had the limit earlier.
    pub(crate) fn not_before(&mut self, now: Moment) -> Moment {
        self.latest = self.latest.max(now);
        self.latest
    }

    /// Answers an `ask` that reports and wants nothing for a pool that does not exist, as if the pool had been made for
    /// it, but without a lease. Also returns what that pool has left. Nothing is remembered, so such asks take no room
    /// from other keys. `None` if the pool exists, or would have to remember the session.
    pub(crate) fn answer_in_passing(
        &mut self,
        now: Moment,
        id: &PoolId,
        holder: Holder,
        seq: u64,
        ask: Ask,
    ) -> Option<(Answer, Left)> {
        let is_alone = self.config.parent.is_none() && self.config.upstream.is_none();
        // In shadow mode the next ask may report calls that passed.
        let counts = self.config.shadow || self.config.sharing.safe.is_some();
        if self.pools.contains(id) || !is_alone || counts {
            return None;
        }
        let mut pool = self.new_pool(now, id);
        let answer = pool.renew(now, holder, seq, ask).ok()?;
        let answer = match answer {
            // The end of this lease is recorded nowhere, and the node would go by it with its next permits.
            Answer::Grant(grant) => {
                Answer::Grant(Grant { term: Duration::ZERO, horizon: Duration::ZERO, ..grant })
            }
            Answer::Refusal(_) => answer,
        };
        self.tally.sums.answered.count(&ask, &answer);
        Some((answer, (Some(pool.view(now).available), pool.window())))
    }

    /// Opens a pool for an exchange of `owner` with it and the pools above or below. Makes it if it does not exist.
    pub(crate) fn open(&mut self, now: Moment, id: &PoolId, owner: Owner) -> Result<(), AskRejection> {
        self.make_on_first_use(now, id, owner)?;
        self.count(now, id);
        Ok(())
    }

    /// Returns a pool that was opened.
    pub(crate) fn opened(&mut self, id: &PoolId) -> &mut Pool {
        &mut self.pools.get_mut(id, &mut self.tally).expect("it was opened").wake().pool
    }

    /// Closes a pool after its exchange.
    pub(crate) fn close(&mut self, now: Moment, id: &PoolId) {
        self.count(now, id);
        self.note(id);
    }

    /// Brings a pool's part of the sums up to date.
    fn count(&mut self, now: Moment, id: &PoolId) {
        if let Some(kept) = self.pools.get_mut(id, &mut self.tally).map(PoolEntry::wake) {
            self.tally.count(&mut kept.counted, kept.pool.view(now));
        }
    }

    /// Counts the `answer` that a pool of a family gave to `ask`.
    pub(crate) fn count_answer(&mut self, ask: &Ask, answer: &Answer) {
        self.tally.sums.answered.count(ask, answer);
    }
}
