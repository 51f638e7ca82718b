//! A limit that is leased from an upstream: which of its pools ask there, and what becomes of the answers. Only pools in use are
//! looked at.

use super::{Limit, PoolId, Shelf};
use crate::Rule;
use crate::overrides::Version;
use crate::pool::{GrantOutcome, GroupAsk, Plan, Pool, SafeAsk};
use crate::registry::{LimitConfig, Upstream};
use crate::roots::{CompiledPlan, ParentRef, RootSpec, TimeSource, stricter};
use crate::share::Sharing;
use lessor_protocol::{Answer, Ask, ClockBounds, Grant, Key, Moment, Refusal, RefusalReason, SafeShare};
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

/// Lives of allocators that one root remembers. Each that dies is remembered for as long as what it burned counts.
const ALLOCATORS_MAX: usize = 1_000;

/// The shortest term of a lease from a root: it ends so much sooner than the root takes it to, and a half of it is lent on.
const fn term_min(source: TimeSource) -> Duration {
    let times = match source {
        TimeSource::Store => 10,
        TimeSource::Allocators => 4,
    };
    source.uncertainty().saturating_mul(times)
}

/// What a pool says to its upstream.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub ask: Ask,
    /// Of safe shares, where its limit has any.
    pub safe: Option<SafeAsk>,
    /// Of each group for which its limit guarantees something.
    pub groups: Vec<GroupAsk>,
}

impl Said {
    /// `ask`, and what `pool` says beside it, where an exchange takes `rtt`.
    fn of(pool: &mut Pool, ask: Ask, now: Moment, rtt: Duration) -> Self {
        Said { ask, safe: pool.ask_safe_above(now), groups: pool.ask_groups_above(&ask, rtt) }
    }
}

/// What an upstream answers to one pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told<'a> {
    pub answer: Answer,
    /// What may be handed out of safe shares.
    pub safe: Option<SafeShare>,
    /// What of the grant is for each group.
    pub groups: &'a [u64],
}

/// What is due of a limit to its upstream.
#[derive(Debug, Default)]
pub(crate) struct Due {
    /// Pools with something to say, and by when they are to be answered, the first of those first.
    pub pools: Vec<(Moment, PoolId)>,
    /// When the next one has.
    pub next: Option<Moment>,
}

/// The most that one call can ever take of a limit by `config`, of which an `own` pool lends so much. For a limit in a store
/// its rules say so. For a limit of another allocator it is unknown before the first lease from there.
pub(super) fn ceiling(config: &LimitConfig, own: u64) -> u64 {
    match config.upstream {
        None => own,
        Some(Upstream::Store(_)) => {
            let least = config.rules.iter().map(Rule::ceiling).min().unwrap_or(0);
            least.saturating_sub(config.sharing.reserve)
        }
        Some(Upstream::Address(_)) => 0,
    }
}

/// What the roots of a limit in a store are made of, and those of keys that have rules of their own. Of any other limit there are
/// none.
#[derive(Debug)]
pub(super) struct CompiledPlans {
    of_limit: Option<CompiledPlan>,
    of_keys: BTreeMap<Key, CompiledPlan>,
}

impl CompiledPlans {
    /// Those by `config`.
    pub(super) fn of(config: &LimitConfig, clocks: ClockBounds) -> Self {
        let Some(Upstream::Store(source)) = config.upstream else {
            return CompiledPlans { of_limit: None, of_keys: BTreeMap::new() };
        };
        let own = &config.sharing;
        // Each allocator shares what it has as it was told; here it is one of a few.
        let sharing = Sharing {
            reserve: own.reserve,
            safe: own.safe,
            guaranteed: own.guaranteed.clone(),
            term_min: own.term_min.max(term_min(source)).min(own.term_max),
            term_max: own.term_max,
            ..Sharing::default()
        };
        let compiled = |rules: &Vec<Rule>| {
            let plan = Plan {
                // All were looked at when the limit was configured.
                rules: rules.iter().filter_map(|rule| stricter(rule, source).ok()).collect(),
                is_borrowed: false,
                is_root: true,
                clocks,
                ease_off: config.ease_off,
                lessees_max: ALLOCATORS_MAX,
                sharing: sharing.clone(),
            };
            CompiledPlan::new(plan, source)
        };
        let of_keys = config.overrides.iter().map(|(key, rules)| (key.clone(), compiled(rules)));
        CompiledPlans { of_limit: Some(compiled(&config.rules)), of_keys: of_keys.collect() }
    }

    fn get(&self, id: &PoolId) -> Option<&CompiledPlan> {
        id.key.as_ref().and_then(|key| self.of_keys.get(key)).or(self.of_limit.as_ref())
    }
}

impl Limit {
    /// Where it is leased from, if it is.
    pub fn upstream(&self) -> Option<&Upstream> {
        self.config.upstream.as_ref()
    }

    /// What the root of a pool in the store is made of, by the configuration `version`, if the limit was not removed; the newest that
    /// is known is `known`. `None` if it is not in a store.
    pub fn spec(&self, id: &PoolId, version: Option<Version>, known: Version) -> Option<RootSpec> {
        let compiled = self.compiled_plans.get(id)?.clone();
        Some(RootSpec { compiled, version, parent_ref: self.parent_ref(known) })
    }

    /// What is known of what is above it, where the newest configuration is `known`.
    fn parent_ref(&self, known: Version) -> ParentRef {
        ParentRef { limit: self.config.name.to_string(), parent: self.config.parent.clone(), known }
    }

    /// Whether pools went since the last question that had been lent something, and the allocator above was not told.
    pub(crate) fn takes_lost_loans(&mut self) -> bool {
        std::mem::take(&mut self.has_lost_loans)
    }

    /// It is forgotten: whether pools went, or go with it, that had been lent something that the allocator above was not told of.
    pub(crate) fn loses_loans(&mut self) -> bool {
        let mut pools = self.pools.all(&mut self.tally);
        self.has_lost_loans || pools.any(|shelf| shelf.wake().pool.gave_up_above())
    }

    /// A pool was used: it may have something to say.
    pub(super) fn note_leasing(&mut self, id: &PoolId) {
        if self.config.upstream.is_some() && !self.leasing.contains(id) {
            self.leasing.insert(id.clone());
        }
    }

    /// Which of its pools have something to say by `soon`, where an exchange takes `rtt`: the `most` of them that are to be answered
    /// first.
    pub(crate) fn due_above(&mut self, now: Moment, soon: Moment, rtt: Duration, most: usize) -> Due {
        let (pools, tally) = (&mut self.pools, &mut self.tally);
        // The last to be answered is on top, and makes way.
        let (mut first, mut next) = (BinaryHeap::new(), None::<Moment>);
        self.leasing.retain(|id| {
            let Some(kept) = pools.get_mut(id, tally).map(Shelf::wake) else { return false };
            let at = kept.pool.asks_above(now, rtt);
            tally.count(&mut kept.counted, kept.pool.view(now));
            if at <= soon {
                let late = kept.pool.late_above(at, rtt);
                if first.len() < most {
                    first.push((late, id.clone()));
                } else if let Some(mut last) = first.peek_mut().filter(|last| (late, id) < (last.0, &last.1))
                {
                    *last = (late, id.clone());
                }
                return true;
            }
            if at < Moment::NEVER {
                next = Some(next.map_or(at, |next| next.min(at)));
                return true;
            }
            !kept.pool.rests_above()
        });
        Due { pools: first.into_sorted_vec(), next }
    }

    /// What a pool has to say where an exchange takes `rtt`, and how far away to say that it is.
    pub(crate) fn ask_above(&mut self, now: Moment, id: &PoolId, rtt: Duration) -> Option<(Said, Duration)> {
        let pool = &mut self.pools.get_mut(id, &mut self.tally)?.wake().pool;
        let distance = pool.distance_above(rtt);
        let ask = pool.ask_above(now, rtt)?;
        Some((Said::of(pool, ask, now, rtt), distance))
    }

    /// The last that its pools have to say, of at most `most` of them. If there are no more, also when others are to say it again. Those
    /// beyond `most` are not looked at.
    pub(crate) fn leaves_above(&mut self, now: Moment, most: usize) -> (Vec<(PoolId, Said)>, Option<Moment>) {
        let (pools, tally) = (&mut self.pools, &mut self.tally);
        let (mut asks, mut next) = (vec![], None::<Moment>);
        self.leasing.retain(|id| {
            if asks.len() >= most {
                return true;
            }
            let Some(kept) = pools.get_mut(id, tally).map(Shelf::wake) else { return false };
            match kept.pool.leaves_above(now) {
                Some(at) if at <= now => {
                    let ask = kept.pool.leave_above();
                    asks.extend(
                        ask.map(|ask| (id.clone(), Said::of(&mut kept.pool, ask, now, Duration::ZERO))),
                    );
                    true
                }
                Some(at) => {
                    next = Some(next.map_or(at, |next| next.min(at)));
                    true
                }
                // What nodes hold will end.
                None => !kept.pool.rests_above(),
            }
        });
        (asks, next)
    }

    /// A pool is answered what it asked at `first_sent`. Whether it can make use of that.
    pub(crate) fn on_grant_above(
        &mut self,
        now: Moment,
        id: &PoolId,
        first_sent: Moment,
        Told { answer, safe, groups }: Told<'_>,
    ) -> GrantOutcome {
        let on_grant = |pool: &mut Pool, grant: &Grant| {
            let outcome = pool.on_grant_above(now, first_sent, grant);
            if outcome == GrantOutcome::Believed {
                safe.into_iter().for_each(|safe| pool.on_safe_share_above(first_sent, safe));
                pool.on_groups_above(groups, grant.permits);
            }
            outcome
        };
        if let (Some(Upstream::Address(_)), Answer::Grant(grant)) = (&self.config.upstream, &answer) {
            self.ceiling = grant.ceiling;
        }
        self.shut_above = match &answer {
            Answer::Refusal(Refusal { reason: RefusalReason::Quarantine, retry_after }) => now + *retry_after,
            Answer::Grant(_) | Answer::Refusal(_) => Moment::ORIGIN,
        };
        let outcome = self.with_pool(now, id, |pool| match answer {
            Answer::Grant(grant) => on_grant(pool, &grant),
            Answer::Refusal(refusal) => {
                pool.on_refusal_above(now, refusal);
                GrantOutcome::Believed
            }
        });
        outcome.unwrap_or(GrantOutcome::Believed)
    }

    /// The clock may have stood still: of what its pools were lent no more is lent on.
    pub(crate) fn hold_back_above(&mut self, now: Moment) {
        for id in self.leasing.clone() {
            self.with_pool(now, &id, |pool| pool.hold_back_above(now));
        }
    }

    /// No answer came to a pool.
    pub(crate) fn on_failure_above(&mut self, id: &PoolId) {
        if let Some(shelf) = self.pools.get_mut(id, &mut self.tally) {
            shelf.wake().pool.on_failure_above();
        }
    }

    /// A pool was answered an error.
    pub(crate) fn on_rejection_above(&mut self, now: Moment, id: &PoolId) {
        self.with_pool(now, id, |pool| pool.on_rejection_above(now));
    }

    /// The one above does not know what a pool holds.
    pub(crate) fn on_unrecognised_above(&mut self, now: Moment, id: &PoolId) {
        self.with_pool(now, id, |pool| pool.on_unrecognised_above(now));
    }

    /// The same of all of them: a new session begins.
    pub(crate) fn all_unrecognised_above(&mut self, now: Moment) {
        for shelf in self.pools.all(&mut self.tally) {
            shelf.wake().pool.on_unrecognised_above(now);
        }
    }
}
