//! A limit that is leased from an upstream: which of its pools ask there, and what becomes of the answers. Unused pools
//! are not looked at.

use super::plans::ByKey;
use super::{Limit, PoolEntry, PoolId};
use crate::Rule;
use crate::overrides::Version;
use crate::pool::{GrantOutcome, GroupAsk, Plan, Pool, SafeAsk};
use crate::registry::{LimitConfig, Upstream};
use crate::roots::{CompiledPlan, ParentRef, RootSpec, TimeSource, stricter};
use crate::share::Sharing;
use lessor_protocol::{Answer, Ask, ClockBounds, Grant, Moment, Refusal, RefusalReason, SafeShare};
use std::collections::BinaryHeap;
use std::time::Duration;

/// Sessions of allocators that one root remembers. Each life of an allocator that spent permits is one. It is remembered for
/// as long as they count: if it were forgotten, its next ask would be disputed, and a dispute begins its session with all
/// roots anew. Beyond the bound, idle sessions make room.
const ALLOCATORS_MAX: usize = 1_000;

/// Returns the shortest term of a lease from a root. The allocator takes the lease to end earlier than the root does,
/// by the uncertainty of `source`, and lends on for half of the term.
const fn term_min(source: TimeSource) -> Duration {
    let times = match source {
        TimeSource::Store => 10,
        TimeSource::Allocators => 4,
    };
    source.uncertainty().saturating_mul(times)
}

/// The words of a pool to its upstream: its ask, and what goes with it.
#[derive(Clone, Debug)]
pub(crate) struct AskAbove {
    pub ask: Ask,
    /// Its ask about safe shares, if its limit has any.
    pub safe: Option<SafeAsk>,
    /// Its ask for each guaranteed group of its limit.
    pub groups: Vec<GroupAsk>,
}

impl AskAbove {
    /// Completes `ask` with what `pool` says beside it. An exchange takes `rtt`.
    fn of(pool: &mut Pool, ask: Ask, now: Moment, rtt: Duration) -> Self {
        AskAbove { ask, safe: pool.ask_safe_above(now), groups: pool.ask_groups_above(&ask, rtt) }
    }
}

/// The answer of an upstream to one pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerAbove<'a> {
    pub answer: Answer,
    /// Safe shares that may be handed out.
    pub safe: Option<SafeShare>,
    /// Permits of the grant for each guaranteed group.
    pub groups: &'a [u64],
}

/// The pools of a limit that are due to ask upstream.
#[derive(Debug, Default)]
pub(crate) struct Due {
    /// Pools with something to say, and the moment by which each is to be answered, in that order.
    pub pools: Vec<(Moment, PoolId)>,
    /// When the next pool will have something to say.
    pub next: Option<Moment>,
}

/// Returns the most that one call can ever take from a limit by `config`. Without an upstream it is `own`, the most
/// that a pool lends one call. For a limit in a store it follows from the rules. For a limit of another allocator it is
/// unknown until the first lease from there, and 0.
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

/// Compiles the plans for the roots of a limit in a store. Any other limit has none.
pub(super) fn compiled_plans(config: &LimitConfig, clocks: ClockBounds) -> Option<ByKey<CompiledPlan>> {
    let Some(Upstream::Store(source)) = config.upstream else { return None };
    let own = &config.sharing;
    // The other options apply where each allocator lends to its nodes. A root lends to a few allocators.
    let sharing = Sharing {
        reserve: own.reserve,
        safe: own.safe,
        guaranteed: own.guaranteed.clone(),
        term_min: own.term_min.max(term_min(source)).min(own.term_max),
        term_max: own.term_max,
        ..Sharing::default()
    };
    Some(ByKey::made(config, |rules| {
        let plan = Plan {
            // Each rule was checked when the limit was configured.
            rules: rules.iter().filter_map(|rule| stricter(rule, source).ok()).collect(),
            is_borrowed: false,
            is_root: true,
            clocks,
            ease_off: config.ease_off,
            lessees_max: ALLOCATORS_MAX,
            sharing: sharing.clone(),
        };
        CompiledPlan::new(plan, source)
    }))
}

impl Limit {
    /// Returns the upstream that the limit is leased from, if it is.
    pub fn upstream(&self) -> Option<&Upstream> {
        self.config.upstream.as_ref()
    }

    /// Returns the plan for the root of the pool `id`, by the configuration `version`, which is `None` if the limit was
    /// removed. The newest known configuration is `known`. Returns `None` if the limit is not in a store.
    pub fn spec(&self, id: &PoolId, version: Option<Version>, known: Version) -> Option<RootSpec> {
        let compiled = self.compiled_plans.as_ref()?.get(id.key.as_ref()).clone();
        Some(RootSpec { compiled, version, parent_ref: self.parent_ref(known) })
    }

    /// Returns what is known of the limit above, where the newest configuration is `known`.
    fn parent_ref(&self, known: Version) -> ParentRef {
        ParentRef { limit: self.config.name.to_string(), parent: self.config.parent.clone(), known }
    }

    /// Whether pools were dropped, since the last call, whose loans were not settled upstream.
    pub(crate) fn takes_lost_loans(&mut self) -> bool {
        std::mem::take(&mut self.has_lost_loans)
    }

    /// Whether the limit leaves loans that were not settled upstream, if it is forgotten now.
    pub(crate) fn loses_loans(&mut self) -> bool {
        let mut pools = self.pools.all(&mut self.tally);
        self.has_lost_loans || pools.any(|entry| entry.wake().pool.gave_up_above())
    }

    /// Notes that a pool was used, and so may have something to say upstream.
    pub(super) fn note_leasing(&mut self, id: &PoolId) {
        if self.config.upstream.is_some() && !self.leasing.contains(id) {
            self.leasing.insert(id.clone());
        }
    }

    /// Returns pools that have something to say by `soon`: of these the `most` that are to be answered first. An
    /// exchange takes `rtt`.
    pub(crate) fn due_above(&mut self, now: Moment, soon: Moment, rtt: Duration, most: usize) -> Due {
        let (pools, tally) = (&mut self.pools, &mut self.tally);
        // The heap has the pool on top that is to be answered last. It makes way for others.
        let (mut first, mut next) = (BinaryHeap::new(), None::<Moment>);
        self.leasing.retain(|id| {
            let Some(kept) = pools.get_mut(id, tally).map(PoolEntry::wake) else { return false };
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

    /// Writes what a pool has to say. Also returns the distance to report; the exchange itself takes `rtt`.
    pub(crate) fn ask_above(
        &mut self,
        now: Moment,
        id: &PoolId,
        rtt: Duration,
    ) -> Option<(AskAbove, Duration)> {
        let pool = &mut self.pools.get_mut(id, &mut self.tally)?.wake().pool;
        let distance = pool.distance_above(rtt);
        let ask = pool.ask_above(now, rtt)?;
        Some((AskAbove::of(pool, ask, now, rtt), distance))
    }

    /// Writes the last asks of up to `most` pools, in which they give back what they hold. Also returns when the other
    /// pools that were looked at are next due. Pools beyond `most` are not looked at.
    pub(crate) fn leaves_above(
        &mut self,
        now: Moment,
        most: usize,
    ) -> (Vec<(PoolId, AskAbove)>, Option<Moment>) {
        let (pools, tally) = (&mut self.pools, &mut self.tally);
        let (mut asks, mut next) = (vec![], None::<Moment>);
        self.leasing.retain(|id| {
            if asks.len() >= most {
                return true;
            }
            let Some(kept) = pools.get_mut(id, tally).map(PoolEntry::wake) else { return false };
            match kept.pool.leaves_above(now) {
                Some(at) if at <= now => {
                    let ask = kept.pool.leave_above();
                    asks.extend(
                        ask.map(|ask| (id.clone(), AskAbove::of(&mut kept.pool, ask, now, Duration::ZERO))),
                    );
                    true
                }
                Some(at) => {
                    next = Some(next.map_or(at, |next| next.min(at)));
                    true
                }
                // The pool may be due again when leases of its nodes have ended.
                None => !kept.pool.rests_above(),
            }
        });
        (asks, next)
    }

    /// Takes in the answer to the ask that a pool first sent at `first_sent`. Returns whether the pool could use it.
    pub(crate) fn on_grant_above(
        &mut self,
        now: Moment,
        id: &PoolId,
        first_sent: Moment,
        AnswerAbove { answer, safe, groups }: AnswerAbove<'_>,
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
        self.upstream_quarantine_until = match &answer {
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

    /// Stops lending on what its pools were lent, because the clock may have stood still.
    pub(crate) fn hold_back_above(&mut self, now: Moment) {
        for id in self.leasing.clone() {
            self.with_pool(now, &id, |pool| pool.hold_back_above(now));
        }
    }

    /// Notes that no answer came to the ask of a pool.
    pub(crate) fn on_failure_above(&mut self, id: &PoolId) {
        if let Some(entry) = self.pools.get_mut(id, &mut self.tally) {
            entry.wake().pool.on_failure_above();
        }
    }

    /// Notes that the upstream answered a pool with an error. `is_heard` says whether it misses nothing that it is not
    /// told.
    pub(crate) fn on_rejection_above(&mut self, now: Moment, id: &PoolId, is_heard: bool) {
        self.with_pool(now, id, |pool| pool.on_rejection_above(now, is_heard));
    }

    /// Notes that the upstream does not know what a pool holds.
    pub(crate) fn on_unrecognised_above(&mut self, now: Moment, id: &PoolId) {
        self.with_pool(now, id, |pool| pool.on_unrecognised_above(now));
    }

    /// Notes that the upstream does not know what any of its pools holds, since a new session begins.
    pub(crate) fn all_unrecognised_above(&mut self, now: Moment) {
        for entry in self.pools.all(&mut self.tally) {
            entry.wake().pool.on_unrecognised_above(now);
        }
    }
}
