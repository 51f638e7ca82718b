//! One limit: its configuration, and a pool for each key, or name of a pattern, that is in use. A limit never holds
//! more pools than configured, and never forgets a pool that it could not make again.

mod ask;
mod earlier;
mod figures;
mod forecasts;
mod handover;
mod in_family;
mod leased;
mod live;
mod plans;
mod pool_entry;
mod pool_id;
mod pools;
mod room;
mod sweeping;
#[cfg(test)]
mod tests;
mod unused;
mod views;
mod written;

pub use ask::Exchanged;
pub use figures::{Answered, Disagreed, Figures};
pub use forecasts::ForecastSum;
pub(crate) use leased::{AnswerAbove, AskAbove, Due};
pub use live::{Effect, Preview, TopUp};
pub(crate) use pool_entry::CountedPool;
pub use pool_id::PoolId;
pub use room::{Memory, MemoryWatch};

use crate::named::Names;
use crate::overrides::Suspension;
use crate::pool::{AskError, Goodbye, Past, Pool, SessionId};
use crate::registry::sweep::Sweep;
use crate::registry::{Keyed, LimitConfig};
use crate::roots::CompiledPlan;
use crate::share::Owner;
use earlier::Earlier;
use figures::Tally;
use lessor_protocol::{Ask, ClockBounds, LimitName, Moment};
use live::TopUps;
use plans::{ByKey, Plans};
use pool_entry::PoolEntry;
use pools::Pools;
use room::{KeyedNames, OwnerPlaces};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use unused::Unused;
use written::Unwritten;

/// Permits that a pool has left, if it knows, and the window of its rule with the smallest limit, if that rule has one.
pub(crate) type Left = (Option<u64>, Option<Duration>);

/// One limit and its pools.
#[derive(Debug)]
pub struct Limit {
    /// Shared with readers that show it. It may be large, and is replaced, never changed.
    config: Arc<LimitConfig>,
    plans: Plans,
    /// Plans of its roots, if those are in a store.
    compiled_plans: Option<ByKey<CompiledPlan>>,
    past: Past,
    /// Safe shares that nodes were told of before, and that pools made from now on do not know.
    earlier: Earlier,
    /// Moment from which pools that are made now lend.
    opens: Moment,
    ceiling: u64,
    memory: Duration,
    pools: Pools,
    /// Names of a pattern with keys that have a pool.
    names: KeyedNames,
    /// Number of pools of each identity.
    owners: OwnerPlaces,
    /// Bound on its pools while memory is short; `None` while there is enough.
    pools_cap: Option<usize>,
    /// Bound on the sessions of all its pools while memory is short, for a limit whose pools come and go.
    sessions_cap: Option<u64>,
    sweep: Sweep<PoolId>,
    tally: Tally,
    /// Nodes that are lent nothing.
    suspension: Suspension,
    top_ups: TopUps,
    /// What keys that were never used begin with after a change.
    unused: Unused,
    /// Pools that may have something to report or ask upstream.
    leasing: BTreeSet<PoolId>,
    /// Whether pools were dropped whose loans were not settled upstream.
    has_lost_loans: bool,
    /// Moment until which the upstream lends nothing, by its last answer.
    upstream_quarantine_until: Moment,
    /// Rows that are still to be written down.
    unwritten: Unwritten,
    /// Moment at which the limit went on from what an earlier run had written.
    restored: Option<Moment>,
    /// Moment of the last exchange.
    latest: Moment,
}

impl Limit {
    /// Makes the limit, with its pool if it needs just one.
    pub fn new(config: LimitConfig, clocks: ClockBounds, past: Past, now: Moment) -> Self {
        let plans = Plans::of(&config, clocks);
        let mut probe = past.pool(&plans.of_limit, now);
        let memories = plans.of_keys.values().map(|plan| past.pool(plan, now).memory());
        let mut limit = Limit {
            opens: now + probe.view(now).quarantine,
            ceiling: leased::ceiling(&config, probe.call_max()),
            memory: memories.max().unwrap_or_default().max(probe.memory()),
            compiled_plans: leased::compiled_plans(&config, clocks),
            past,
            earlier: Earlier::default(),
            plans,
            pools: Pools::default(),
            names: KeyedNames::default(),
            owners: OwnerPlaces::default(),
            pools_cap: None,
            sessions_cap: None,
            sweep: Sweep::default(),
            tally: Tally::default(),
            suspension: Suspension::default(),
            top_ups: TopUps::default(),
            unused: Unused::new(now),
            leasing: BTreeSet::new(),
            has_lost_loans: false,
            upstream_quarantine_until: Moment::ORIGIN,
            unwritten: Unwritten::default(),
            restored: None,
            latest: now,
            config: Arc::new(config),
        };
        if !limit.makes_pools() {
            limit.make(now, PoolId::default(), Owner::NONE);
        }
        limit
    }

    /// Whether pools are made on their first ask, and forgotten again.
    fn makes_pools(&self) -> bool {
        self.is_keyed() || self.config.name.names() != Names::One
    }

    /// Returns the configuration.
    pub fn config(&self) -> &LimitConfig {
        &self.config
    }

    /// Returns the configuration to be read without the limit. A copy of a large one would take long.
    pub fn shared_config(&self) -> Arc<LimitConfig> {
        self.config.clone()
    }

    /// Returns the time until the first pool lends; not zero after a loss of books.
    pub fn quarantine(&self, now: Moment) -> Duration {
        self.opens.since(now)
    }

    /// Returns the time for which the upstream lends nothing, by its last answer.
    pub fn quarantine_above(&self, now: Moment) -> Duration {
        self.upstream_quarantine_until.since(now)
    }

    /// Returns what pools that are made now have to wait for.
    pub fn past(&self) -> Past {
        self.past
    }

    /// Whether the limit goes on from what an earlier run had written.
    pub fn is_resumed(&self) -> bool {
        self.restored.is_some()
    }

    /// Returns the time after its last ask for which a session may still matter to a pool.
    pub fn memory(&self) -> Duration {
        self.memory
    }

    /// Whether the limit has a pool for each key.
    pub fn is_keyed(&self) -> bool {
        self.config.keyed != Keyed::No
    }

    /// Whether the pool `id` exists.
    pub fn has(&self, id: &PoolId) -> bool {
        self.pools.contains(id)
    }

    /// Counts an ask that no pool answered, because the allocator is stopping.
    pub fn count_stopping(&mut self) {
        self.tally.sums.answered.count(&Ask::default(), &ask::STOPPING);
    }

    /// Ends the session `id` with this `goodbye`. Returns the permits that came back unspent.
    ///
    /// # Errors
    /// If the total cannot be true or is out of order.
    pub fn leave(
        &mut self,
        now: Moment,
        pool: &PoolId,
        id: SessionId,
        seq: u64,
        goodbye: Goodbye,
    ) -> Result<u64, AskError> {
        self.with_pool(now, pool, |pool| pool.leave(now, id, seq, goodbye)).unwrap_or(Ok(0))
    }

    /// Returns the sums over all pools, dropped ones included. They are exact for a limit without keys; pools of keys
    /// count as of their last ask or sweep.
    pub fn figures(&mut self, now: Moment) -> Figures {
        let one = self.with_pool(now, &PoolId::default(), |pool| pool.view(now));
        let (shut, vendor_pause) = one.map(|view| (view.shut, view.vendor_pause)).unwrap_or_default();
        let mut forecast = self.tally.forecast(now);
        if self.suspension.paused_until(now).is_some() {
            // A paused limit lends nothing, so it will not become empty.
            forecast.time_to_empty = None;
        }
        Figures {
            ceiling: self.ceiling,
            pools: self.pools.len() as u64,
            names: self.names_in_use() as u64,
            quarantine: self.quarantine(now).max(self.quarantine_above(now)).max(shut),
            paused: self.suspension.paused_until(now).is_some(),
            pause_lasts: self
                .suspension
                .paused_until(now)
                .filter(|until| *until != Moment::NEVER)
                .map(|until| until.since(now)),
            vendor_pause,
            blocked: self.suspension.blocked().len() as u64,
            topped_up: self.top_ups.permits,
            forecast,
            sums: self.tally.sums,
        }
    }

    /// Runs `act` on the pool, if it exists, and keeps the sums up to date. Leases that ended by `now` burn before
    /// `act` runs, and reports settle in it. The two are counted apart, so that the count of burned permits never
    /// falls.
    fn with_pool<T>(&mut self, now: Moment, id: &PoolId, act: impl FnOnce(&mut Pool) -> T) -> Option<T> {
        let tally = &mut self.tally;
        let result = self.pools.get_mut(id, tally)?.with(|kept| {
            if kept.pool.burn_ended(now).burned != kept.counted.books.burned {
                tally.count(&mut kept.counted, kept.pool.view(now));
            }
            let result = act(&mut kept.pool);
            tally.count(&mut kept.counted, kept.pool.view(now));
            result
        });
        self.note(id);
        Some(result)
    }

    /// Whether the limit is a pattern that has a pool of `name`.
    pub(crate) fn stands_for(&self, name: &str) -> bool {
        LimitName::try_new(name).is_ok_and(|name| self.has_name(&name))
    }

    /// Whether the limit is a pattern that has a pool of a name that begins with `prefix`.
    pub(crate) fn stands_below(&self, prefix: &str) -> bool {
        let Ok(first) = LimitName::try_new(prefix) else { return false };
        let first = PoolId { name: Some(first), key: None };
        let next = self.pools.first_from(first).and_then(|id| id.name.as_ref());
        next.is_some_and(|name| name.as_str().starts_with(prefix))
    }

    /// Returns the number of names of a pattern that have a pool.
    fn names_in_use(&self) -> usize {
        match (self.config.name.names(), self.config.keyed) {
            (Names::One, _) => 0,
            (Names::Many { .. }, Keyed::No) => self.pools.len(),
            (Names::Many { .. }, Keyed::Yes { .. }) => self.names.len(),
        }
    }

    /// Whether `name` has a pool.
    fn has_name(&self, name: &LimitName) -> bool {
        let first = PoolId { name: Some(name.clone()), key: None };
        self.pools.first_from(first).is_some_and(|id| id.name.as_ref() == Some(name))
    }
}
