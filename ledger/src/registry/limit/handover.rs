//! Pools of a pattern whose names fall to another limit from now on. If the names come back, sessions have counted from
//! zero meanwhile.

use super::{Limit, PoolId};
use crate::registry::Upstream;
use lessor_protocol::{LimitName, Moment};

impl Limit {
    /// Gives up the pools of names that fall to another limit, which is leased from `upstream` if from any. These are the
    /// name `stem`, or, for a pattern (`is_pattern`), all names that begin with it.
    ///
    /// The pools go on with no session. If both limits are leased from the same upstream, that takes the pools of both for
    /// one: pools that may have something to say there are dropped, and another session begins.
    pub(crate) fn hand_over(
        &mut self,
        now: Moment,
        stem: &str,
        is_pattern: bool,
        upstream: Option<&Upstream>,
    ) {
        let Ok(first) = LimitName::try_new(stem) else { return };
        let fits = |id: &&PoolId| {
            id.name.as_ref().is_some_and(|name| match is_pattern {
                true => name.as_str().starts_with(stem),
                false => name.as_str() == stem,
            })
        };
        let asks_as_one = upstream.is_some() && self.config.upstream.as_ref() == upstream;
        let mut next = self.pools.first_from(PoolId { name: Some(first), key: None }).filter(fits).cloned();
        while let Some(id) = next {
            next = self.pools.next(Some(&id)).filter(fits).cloned();
            let says = self.with_pool(now, &id, |pool| {
                pool.disown_sessions(now);
                !pool.rests_above()
            });
            if asks_as_one {
                self.has_lost_loans |= says == Some(true);
                self.drop_pool(now, &id);
            }
        }
    }

    /// Drops the pool `id`. Nothing counts here what is out of it.
    fn drop_pool(&mut self, now: Moment, id: &PoolId) {
        let Some(entry) = self.pools.remove(id, &mut self.tally) else { return };
        self.owners.remove(entry.made_for());
        let mut kept = entry.into_kept();
        self.tally.count(&mut kept.counted, kept.pool.view(now));
        self.tally.sums.burned += kept.counted.books.outstanding;
        self.tally.drop(kept.counted);
        if kept.pool.has_checkpoint() {
            self.drop_written(id.clone());
        }
        self.leasing.remove(id);
        if let Some(name) = id.name.as_ref().filter(|name| !self.has_name(name)) {
            self.names.end(name);
        }
    }
}
