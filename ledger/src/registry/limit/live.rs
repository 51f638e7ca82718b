//! What an operator does to a limit in use: changes it, tops it up, suspends it. No lease is taken back.

use super::leased::{self, CompiledPlans};
use super::pools::Change;
use super::room::{KeyedNames, Owners};
use super::unused::{self, Unused};
use super::{Keyed, Limit, Plan, PoolId, plans};
use crate::CarryOver;
use crate::overrides::Suspension;
use crate::pool::{EarlierShares, Fixtures, Holder, Past, PoolView};
use crate::registry::LimitConfig;
use crate::rejection::{AskRejection, Reason};
use crate::share::Owner;
use lessor_protocol::{Answer, Ask, ClockBounds, Key, Moment, PERMITS_MAX, Refusal};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// Top-ups whose names are remembered, so that one which is sent again is not made again. A caller sends a top-up again within
/// seconds; no operator makes so many by hand meanwhile.
const NAMES_MAX: usize = 64;

/// What a limit was topped up with.
#[derive(Debug, Default)]
pub(super) struct TopUps {
    /// In total.
    pub(super) permits: u64,
    /// The names of the last ones, each with its permits, where they are known.
    names: VecDeque<(String, Option<u64>)>,
}

/// What a change does to one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// Whose pool.
    pub pool: PoolId,
    /// How it looks before.
    pub before: PoolView,
    /// How it looks right after.
    pub after: PoolView,
}

/// What a change does to a page of pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// By key.
    pub effects: Vec<Effect>,
    /// How long the limit lends nothing, if the change resets it.
    pub reset_quarantine: Option<Duration>,
}

impl Limit {
    /// Goes on by `config`, whose name is the same. Each pool takes over its balance as `carry_over` says, see
    /// [`crate::pool::Pool::change`]. A limit that is keyed from now on, or no longer, or below another one, or counts
    /// what is in flight otherwise, or keeps another steady flow, begins anew, and lends nothing until whatever is out
    /// has ended and left every window, and, if it still counts calls, until those have ended that it let begin.
    pub fn change(&mut self, config: LimitConfig, carry_over: CarryOver, now: Moment) {
        if self.must_reset(&config) {
            self.reset_to(config, now);
            return self.outdate_records();
        }
        self.note_shares(now);
        let plans = Plans::of(&config, self.plan.clocks);
        let past = self.past;
        let earlier = self.earlier;
        let change = Change { plans: plans.clone(), past, earlier, carry_over, at: now, done: None };
        self.pools.change(change, &mut self.tally);
        if self.makes_pools() {
            let (from, to) = ((&self.plan, &self.overrides), (&plans.plan, &plans.overrides));
            self.unused.change(from, to, past, carry_over, now);
        } else {
            self.pools.reach_all(&mut self.tally);
        }
        self.adjust(config, plans, now);
        self.outdate_records();
    }

    /// What [`Limit::change`] would do to up to `count` pools from `from` on. Nothing changes.
    pub fn preview(
        &self,
        config: &LimitConfig,
        carry_over: CarryOver,
        now: Moment,
        from: Bound<PoolId>,
        count: usize,
    ) -> Preview {
        let must_reset = self.must_reset(config);
        let past = if must_reset { self.past_of_others(now) } else { self.past };
        let shares = self.shares_out(now);
        let anew = |plan: &Arc<Plan>| {
            let mut pool = past.pool(plan, now);
            shares.into_iter().for_each(|shares| pool.keep_back(shares));
            pool
        };
        let plans = Plans::of(config, self.plan.clocks);
        let effects = self.pools.copies(from, count).map(|(id, mut pool)| {
            let (plan, before) = (plans.of_pool(id), pool.view(now));
            match must_reset {
                true => pool = anew(plan),
                false => unused::go_on(&mut pool, plan, (past, self.earlier), carry_over, now),
            }
            Effect { pool: id.clone(), before, after: pool.view(now) }
        });
        let effects = effects.collect();
        let reset_quarantine = must_reset.then(|| anew(&plans.plan).view(now).lends_nothing());
        Preview { effects, reset_quarantine }
    }

    /// Lets `permits` more be lent from the pool `id`, once, see [`crate::pool::Pool::top_up`]. False if that was
    /// done already under the same `name`.
    ///
    /// # Errors
    /// If there is no room for another key, or the pool would have more than can be said.
    pub fn top_up(
        &mut self,
        now: Moment,
        id: PoolId,
        permits: u64,
        name: Option<&str>,
    ) -> Result<bool, AskRejection> {
        if name.is_some_and(|name| self.top_ups.names.iter().any(|(known, _)| known == name)) {
            return Ok(false);
        }
        if !self.pools.contains(&id) {
            self.make_room(now, &id, Owner::NONE)?;
            self.make(now, id.clone(), Owner::NONE);
        }
        let most = self.with_pool(now, &id, |pool| pool.top_up_max(now)).unwrap_or(0);
        if permits > most {
            let detail = format!(
                "permits is {permits}: the pool has room for {most} more, up to {PERMITS_MAX} in all"
            );
            return Err(AskRejection::new(Reason::Invalid, "permits", detail));
        }
        self.with_pool(now, &id, |pool| pool.top_up(permits, now)).expect("it was there or has been made");
        self.write_soon(&id);
        self.top_ups.permits = self.top_ups.permits.saturating_add(permits).min(PERMITS_MAX);
        if let Some(name) = name {
            self.top_ups.names.push_back((name.to_owned(), Some(permits)));
            if self.top_ups.names.len() > NAMES_MAX {
                self.top_ups.names.pop_front();
            }
        }
        Ok(true)
    }

    /// By how many permits it was topped up under `name`; `None` if it was not, or that is not known any more.
    pub fn topped_up_as(&self, name: &str) -> Option<u64> {
        self.top_ups.names.iter().find(|(known, _)| known == name).and_then(|(_, permits)| *permits)
    }

    /// The last top-ups, each with its name and, where they are known, its permits, the oldest first.
    pub(crate) fn topped_up(&self) -> impl Iterator<Item = (&str, Option<u64>)> {
        self.top_ups.names.iter().map(|(name, permits)| (name.as_str(), *permits))
    }

    /// An earlier life was topped up so.
    pub(crate) fn was_topped_up(&mut self, before: impl Iterator<Item = (String, Option<u64>)>) {
        self.top_ups.names = before.take(NAMES_MAX).collect();
    }

    /// To which nodes it lends nothing.
    pub fn suspension(&mut self) -> &mut Suspension {
        &mut self.suspension
    }

    /// Answers an ask with `refusal`. What it reports and gives back counts all the same.
    ///
    /// # Errors
    /// If the ask cannot be true or is out of order. Nothing changes then.
    pub fn refuse(
        &mut self,
        now: Moment,
        id: &PoolId,
        holder: Holder,
        seq: u64,
        ask: Ask,
        refusal: Refusal,
    ) -> Result<Answer, AskRejection> {
        let settled = self.with_pool(now, id, |pool| pool.settle_only(now, holder, seq, ask, refusal));
        let answer = settled.unwrap_or(Ok(Answer::Refusal(refusal)))?;
        self.tally.sums.answered.count(&ask, &answer);
        Ok(answer)
    }

    /// Whether nothing that it lent matters any more: its pools are forgotten, or the only one could be.
    pub(crate) fn is_forgettable(&mut self, now: Moment) -> bool {
        // One of that name that counts calls again would have to wait for them.
        let calls_have_ended = self.past.calls_end() <= now;
        calls_have_ended
            && self.earlier.is_over(now)
            && self.quarantine(now).is_zero()
            && match self.makes_pools() {
                false => {
                    let mut pools = self.pools.all(&mut self.tally);
                    pools.all(|shelf| shelf.wake().pool.is_replaceable(now))
                }
                true => self.pools.is_empty(),
            }
    }

    fn must_reset(&self, config: &LimitConfig) -> bool {
        // A limit that was not above it knows nothing of what is out, and a cap that is new nothing of what is in flight.
        // Rates that are lent are parts of the flow as it was. (Those below one that begins anew wait with it.)
        !go_on_as(&fixtures(&self.config), &fixtures(config))
            || (self.config.keyed == Keyed::No) != (config.keyed == Keyed::No)
            || self.config.parent != config.parent
            || self.config.upstream != config.upstream
    }

    /// What pools have to wait for that are made at `now`, by other rules, of what these let begin.
    pub(crate) fn past_of_others(&self, now: Moment) -> Past {
        self.past.after(self.longest(), self.plan.clocks, now)
    }

    /// The longest that a call of any key may take, where calls are counted.
    pub(super) fn longest(&self) -> Option<Duration> {
        let plans = std::iter::once(&self.plan).chain(self.overrides.values());
        plans.filter_map(|plan| plan.longest()).max()
    }

    fn reset_to(&mut self, config: LimitConfig, now: Moment) {
        self.lose_shares(now);
        self.has_lost_loans |= self.config.upstream.is_some();
        for shelf in self.pools.take(&mut self.tally) {
            let mut kept = shelf.into_kept();
            self.tally.count(&mut kept.counted, kept.pool.view(now));
            // What is out is never heard of again.
            self.tally.sums.burned += kept.counted.books.outstanding;
            self.tally.drop(kept.counted);
        }
        (self.past, self.unused) = (self.past_of_others(now), Unused::new(now));
        (self.names, self.owners) = (KeyedNames::default(), Owners::default());
        let plans = Plans::of(&config, self.plan.clocks);
        self.adjust(config, plans, now);
        if !self.makes_pools() {
            self.make(now, PoolId::default(), Owner::NONE);
        }
    }

    /// Others lent by names that fall to it now. Pools that it makes from now on wait for that, as for `past`. Those that are there go on:
    /// nothing else lent by their names.
    pub(crate) fn waits_for(&mut self, past: Past, shares: Option<EarlierShares>, now: Moment) {
        self.past = self.past.and(past);
        self.expect_shares(shares);
        self.opens = self.opens.max(now + self.past.pool(&self.plan, now).view(now).quarantine);
    }

    fn adjust(&mut self, config: LimitConfig, plans: Plans, now: Moment) {
        let mut probe = self.past.pool(&plans.plan, now);
        self.opens = now + probe.view(now).quarantine;
        self.ceiling = leased::ceiling(&config, probe.call_max());
        // What was lent by the rules before may be reported as late as they say.
        let memories = plans.overrides.values().map(|plan| self.past.pool(plan, now).memory());
        self.memory = memories.fold(self.memory.max(probe.memory()), Duration::max);
        self.compiled_plans = CompiledPlans::of(&config, self.plan.clocks);
        (self.config, self.plan, self.overrides) = (Arc::new(config), plans.plan, plans.overrides);
    }
}

/// What cannot become something else while permits are out, of the limit and of keys that have rules of their own: a steady
/// flow, whose rates are lent, and how long calls may take by each cap on what is in flight.
type AllFixtures<'a> = (Fixtures, BTreeMap<&'a Key, Fixtures>);

fn fixtures(config: &LimitConfig) -> AllFixtures<'_> {
    let limit = Fixtures::of(&config.rules);
    let overrides = config.overrides.iter().map(|(key, rules)| (key, Fixtures::of(rules)));
    let overrides = overrides.filter(|(_, others)| *others != limit).collect();
    (limit, overrides)
}

fn go_on_as((limit, keys): &AllFixtures<'_>, (other, other_keys): &AllFixtures<'_>) -> bool {
    let mut pairs = keys.values().zip(other_keys.values());
    limit.go_on_as(other)
        && keys.keys().eq(other_keys.keys())
        && pairs.all(|(one, other)| one.go_on_as(other))
}

/// What the pools of a limit are made of.
#[derive(Clone, Debug)]
pub(super) struct Plans {
    plan: Arc<Plan>,
    overrides: BTreeMap<Key, Arc<Plan>>,
}

impl Plans {
    fn of(config: &LimitConfig, clocks: ClockBounds) -> Self {
        let (plan, overrides) = plans(config, clocks);
        Plans { plan, overrides }
    }

    pub(super) fn of_pool(&self, id: &PoolId) -> &Arc<Plan> {
        id.key.as_ref().and_then(|key| self.overrides.get(key)).unwrap_or(&self.plan)
    }
}
