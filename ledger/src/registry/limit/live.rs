//! What operators do to a limit in use: change it, top it up, suspend it. No lease is taken back.

use super::leased;
use super::plans::{ByKey, Plans};
use super::pools::Change;
use super::room::{KeyedNames, OwnerPlaces};
use super::unused::{self, Unused};
use super::{Keyed, Limit, PoolId};
use crate::CarryOver;
use crate::overrides::Suspension;
use crate::pool::{EarlierShares, FixedParts, Holder, Past, Plan, PoolView};
use crate::registry::LimitConfig;
use crate::rejection::{AskRejection, Reason};
use crate::share::Owner;
use lessor_protocol::lease::millis_up;
use lessor_protocol::{Answer, Ask, ClockBounds, Moment, PERMITS_MAX, Refusal};
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// Names of top-ups that are remembered, so that a repeated top-up is not made twice. Callers repeat one within
/// seconds; no operator makes this many by hand meanwhile.
const NAMES_MAX: usize = 64;

/// The top-ups of a limit.
#[derive(Debug, Default)]
pub(super) struct TopUps {
    /// Permits of all top-ups.
    pub(super) permits: u64,
    /// The last top-ups that had a name, the oldest first.
    named: VecDeque<TopUp>,
}

/// A top-up under a name. Stores of earlier versions know only the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopUp {
    /// The name.
    pub name: String,
    /// The permits added, if they are known.
    pub permits: Option<u64>,
    /// The pool that they were added to, if it is known.
    pub pool: Option<PoolId>,
}

/// The effect of a change on one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// The pool.
    pub pool: PoolId,
    /// The pool before the change.
    pub before: PoolView,
    /// The pool right after the change.
    pub after: PoolView,
}

/// The effect of a change on a page of pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// One for each pool, in order.
    pub effects: Vec<Effect>,
    /// Time for which the limit lends nothing, if the change resets it.
    pub reset_quarantine: Option<Duration>,
}

impl Preview {
    /// Returns the longest time for which the limit, or one of the pools, lends nothing.
    pub fn lends_nothing(&self) -> Duration {
        let waits = self.effects.iter().map(|effect| effect.after.lends_nothing());
        waits.chain(self.reset_quarantine).max().unwrap_or_default()
    }
}

impl Limit {
    /// Changes the limit to `config`, which has the same name. Each pool carries over its balance as `carry_over` says,
    /// see [`crate::pool::Pool::change`].
    ///
    /// The limit begins anew if it becomes keyed or unkeyed, or if its parent, its upstream, its steady flow or its
    /// caps on calls in flight are others. It then lends nothing until all leases have ended and left every window. If
    /// it still counts calls, it also waits until the calls that it let begin have ended.
    pub fn change(&mut self, config: LimitConfig, carry_over: CarryOver, now: Moment) {
        if self.must_reset(&config) {
            self.reset_to(config, now);
            return self.invalidate_checkpoints();
        }
        self.note_shares(now);
        let plans = Plans::of(&config, self.clocks());
        let past = self.past;
        let earlier = self.earlier;
        let change = Change { plans: plans.clone(), past, earlier, carry_over, at: now, done: None };
        self.pools.change(change, &mut self.tally);
        if self.makes_pools() {
            self.unused.change(&self.plans, &plans, past, carry_over, now);
        } else {
            self.pools.reach_all(&mut self.tally);
        }
        self.adjust(config, plans, now);
        self.invalidate_checkpoints();
    }

    /// Returns what [`Limit::change`] would do to up to `count` pools from `from` on. Nothing changes.
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
        let plans = Plans::of(config, self.clocks());
        let effects = self.pools.copies(from, count).map(|(id, mut pool)| {
            let (plan, before) = (plans.get(id.key.as_ref()), pool.view(now));
            match must_reset {
                true => pool = anew(plan),
                false => unused::go_on(&mut pool, plan, (past, self.earlier), carry_over, now),
            }
            Effect { pool: id.clone(), before, after: pool.view(now) }
        });
        let effects = effects.collect();
        let reset_quarantine = must_reset.then(|| anew(&plans.of_limit).view(now).lends_nothing());
        Preview { effects, reset_quarantine }
    }

    /// Lets `permits` more be lent from the pool `id`, once, see [`crate::pool::Pool::top_up`]. Returns false if that
    /// was done already under the same `name`.
    ///
    /// # Errors
    /// If there is no room for another key, the pool would have more than [`PERMITS_MAX`], or it takes no top-up while
    /// it is in quarantine. Nothing is added then, and the `name` is not used.
    pub fn top_up(
        &mut self,
        now: Moment,
        id: PoolId,
        permits: u64,
        name: Option<&str>,
    ) -> Result<bool, AskRejection> {
        if name.is_some_and(|name| self.topped_up_as(name).is_some()) {
            return Ok(false);
        }
        self.make_on_first_use(now, &id, Owner::NONE)?;
        let most = self.with_pool(now, &id, |pool| pool.top_up_max(now)).unwrap_or(0);
        if permits > most {
            let detail = format!(
                "permits is {permits}: the pool has room for {most} more, up to {PERMITS_MAX} in all"
            );
            return Err(AskRejection::new(Reason::Invalid, "permits", detail));
        }
        let was_added = self.with_pool(now, &id, |pool| pool.top_up(permits, now));
        if !was_added.expect("it was there or has been made") {
            let left = self.view(now, &id).map_or(Duration::ZERO, |view| view.quarantine);
            let left = Duration::from_millis(millis_up(left));
            let detail = format!(
                "the limit is in quarantine for {left:?} more, and its windows begin with their first use: top it up then"
            );
            return Err(AskRejection::new(Reason::Invalid, "limit", detail));
        }
        self.write_soon(&id);
        self.top_ups.permits = self.top_ups.permits.saturating_add(permits).min(PERMITS_MAX);
        if let Some(name) = name {
            self.write_with_name(&id);
            let top_up = TopUp { name: name.to_owned(), permits: Some(permits), pool: Some(id) };
            self.top_ups.named.push_back(top_up);
            if self.top_ups.named.len() > NAMES_MAX {
                self.top_ups.named.pop_front();
            }
        }
        Ok(true)
    }

    /// Returns the top-up called `name`; `None` if there was none, or it is not known any more.
    pub fn topped_up_as(&self, name: &str) -> Option<&TopUp> {
        self.top_ups.named.iter().find(|top_up| top_up.name == name)
    }

    /// Returns the last top-ups that had a name, the oldest first.
    pub(crate) fn topped_up(&self) -> impl Iterator<Item = &TopUp> {
        self.top_ups.named.iter()
    }

    /// Restores the top-ups of an earlier run.
    pub(crate) fn was_topped_up(&mut self, before: impl Iterator<Item = TopUp>) {
        self.top_ups.named = before.take(NAMES_MAX).collect();
    }

    /// Returns which nodes the limit lends nothing to.
    pub fn suspension(&mut self) -> &mut Suspension {
        &mut self.suspension
    }

    /// Answers an ask with `refusal`. What the ask reports and gives back counts all the same.
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

    /// Whether nothing that the limit lent matters any more: its pools are forgotten, or its only pool could be.
    pub(crate) fn is_forgettable(&mut self, now: Moment) -> bool {
        // A later limit of this name that counts calls would have to wait for these calls.
        let calls_have_ended = self.past.calls_end() <= now;
        calls_have_ended
            && self.earlier.is_over(now)
            && self.quarantine(now).is_zero()
            && match self.makes_pools() {
                false => {
                    let mut pools = self.pools.all(&mut self.tally);
                    pools.all(|entry| entry.wake().pool.is_replaceable(now))
                }
                true => self.pools.is_empty(),
            }
    }

    fn must_reset(&self, config: &LimitConfig) -> bool {
        // A new parent knows nothing of what is out, and a new cap nothing of what is in flight. Rates that are lent
        // are parts of the old flow. Limits below one that begins anew wait with it.
        fixed_parts(&self.config) != fixed_parts(config)
            || (self.config.keyed == Keyed::No) != (config.keyed == Keyed::No)
            || self.config.parent != config.parent
            || self.config.upstream != config.upstream
    }

    /// Returns what pools made at `now` by other rules have to wait for.
    pub(crate) fn past_of_others(&self, now: Moment) -> Past {
        self.past.after(self.longest(), self.clocks(), now)
    }

    /// Returns the longest that a call of any key may take, if calls are counted.
    pub(super) fn longest(&self) -> Option<Duration> {
        self.plans.all().filter_map(|plan| plan.longest()).max()
    }

    fn clocks(&self) -> ClockBounds {
        self.plans.of_limit.clocks
    }

    fn reset_to(&mut self, config: LimitConfig, now: Moment) {
        self.lose_shares(now);
        self.has_lost_loans |= self.config.upstream.is_some();
        for entry in self.pools.take(&mut self.tally) {
            let mut kept = entry.into_kept();
            self.tally.count(&mut kept.counted, kept.pool.view(now));
            // The new pools take no reports of what is out.
            self.tally.sums.burned += kept.counted.books.outstanding;
            self.tally.drop(kept.counted);
        }
        (self.past, self.unused) = (self.past_of_others(now), Unused::new(now));
        (self.names, self.owners) = (KeyedNames::default(), OwnerPlaces::default());
        let plans = Plans::of(&config, self.clocks());
        self.adjust(config, plans, now);
        if !self.makes_pools() {
            self.make(now, PoolId::default(), Owner::NONE);
        }
    }

    /// Lets pools that are made from now on wait for `past` and keep back `shares`, because other limits lent by names
    /// that now fall to this one. Existing pools go on: no other limit lent by their names.
    pub(crate) fn waits_for(&mut self, past: Past, shares: Option<EarlierShares>, now: Moment) {
        self.past = self.past.and(past);
        self.expect_shares(shares);
        self.opens = self.opens.max(now + self.past.pool(&self.plans.of_limit, now).view(now).quarantine);
    }

    fn adjust(&mut self, config: LimitConfig, plans: Plans, now: Moment) {
        let mut probe = self.past.pool(&plans.of_limit, now);
        self.opens = now + probe.view(now).quarantine;
        self.ceiling = leased::ceiling(&config, probe.call_max());
        // Reports on leases by the old rules may come as late as those rules remember.
        let memories = plans.of_keys.values().map(|plan| self.past.pool(plan, now).memory());
        self.memory = memories.fold(self.memory.max(probe.memory()), Duration::max);
        self.compiled_plans = leased::compiled_plans(&config, self.clocks());
        (self.config, self.plans) = (Arc::new(config), plans);
    }
}

/// Returns the parts of the rules of `config` that cannot change while permits are out. A key whose parts are like the
/// limit's is left out.
fn fixed_parts(config: &LimitConfig) -> ByKey<FixedParts> {
    let mut parts = ByKey::made(config, FixedParts::of);
    parts.of_keys.retain(|_, of_key| *of_key != parts.of_limit);
    parts
}
