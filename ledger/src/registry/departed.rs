//! What an earlier run left of limits that are not configured. Each is kept for as long as its permits may count: it may
//! come back, or have another name now.

use crate::Rule;
use crate::limit_text::RawOverride;
use crate::named::LIMITS_MAX;
use crate::pool::{EarlierShares, Past};
use crate::registry::rows::LimitRow;
use crate::registry::{LimitConfig, Registry};
use crate::rule::{Gap, PER_MAX, RefillStyle, SlidingWindow};
use crate::rule_text::{RawRule, rule};
use lessor_protocol::moment::span_of;
use lessor_protocol::{ClockBounds, Moment};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// The name of the row that says until when no limit begins afresh. No limit can have it, so the row outlasts the rows
/// of limits that are gone: another limit may be put by the name of one of them, and be removed.
pub(super) const GONE: &str = "(gone)";

/// What an earlier run left of a limit that is not configured, in case it is configured again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Departed {
    /// What the limit has to wait for then.
    pub(super) past: Past,
    /// Safe shares that nodes may still spend.
    pub(super) shares: Option<EarlierShares>,
    /// When nothing that it lent counts any more.
    ends: Moment,
}

impl Departed {
    /// Returns what is left `now` of the limit `config`, which was removed.
    pub(super) fn of(
        config: &LimitConfig,
        past: Past,
        shares: Option<EarlierShares>,
        clocks: ClockBounds,
        now: Moment,
    ) -> Self {
        let rules = config.rules.iter().chain(config.overrides.values().flatten());
        // The upstream of a limit knows what is out of it.
        let longest = if config.upstream.is_some() { Duration::ZERO } else { longest(rules.copied()) };
        Departed { past, shares, ends: end(longest, clocks, now) }
    }

    /// Returns what is left `now` of a limit with this `row`.
    pub(super) fn read(row: &LimitRow, gap: Gap, clocks: ClockBounds, now: Moment) -> Self {
        let ends = match row.is_of_departed() {
            true => {
                let until = row.past.read(gap, clocks, now).until();
                row.longest.map_or_else(|| end(PER_MAX, clocks, until), |longest| until + longest)
            }
            false => end(longest_of(&row.basis), clocks, now),
        };
        let shares = row.shares.map(|shares| shares.read(now, clocks));
        Departed { past: row.lost(gap, clocks, now), shares, ends }
    }

    /// Lets the limit, or its heir, wait for `other`, too.
    pub(super) fn join(&mut self, other: Departed) {
        self.past = self.past.and(other.past);
        self.shares = self.shares.into_iter().chain(other.shares).reduce(EarlierShares::and);
        self.ends = self.ends.max(other.ends);
    }

    /// Whether anything counts that the limit lent.
    pub(super) fn counts(&self, now: Moment) -> bool {
        self.counts_until() > now
    }

    /// Returns when nothing counts any more that the limit lent.
    pub(super) fn counts_until(&self) -> Moment {
        self.ends.max(self.holds_up_until())
    }

    /// Returns until when a limit that takes its place has to wait for more than any new limit.
    fn holds_up_until(&self) -> Moment {
        self.past.calls_end().max(self.shares.map_or(Moment::ORIGIN, EarlierShares::over))
    }

    /// Returns its row, of this `version`.
    pub(super) fn row(&self, version: u64) -> LimitRow {
        let (past, shares) = (self.past.save(), self.shares.map(EarlierShares::save));
        let longest = Some(self.ends.since(self.past.until()));
        LimitRow { version, basis: String::new(), past, shares, longest }
    }
}

impl Registry {
    /// Takes it that an earlier run may have lent by any limit, until `now`, and that nothing tells of it: no limit begins
    /// afresh in a later run before all of that is over.
    pub fn doubt_earlier_runs(&mut self, now: Moment) {
        sum_up(&mut self.departed, end(PER_MAX, self.clocks, now), now);
    }
}

/// Has `departed` say until when any of them counts, and until `others`, whatever becomes of the single ones.
pub(super) fn sum_up(departed: &mut BTreeMap<String, Departed>, others: Moment, now: Moment) {
    let ends = departed.values().map(Departed::counts_until).fold(others, Moment::max);
    let past = Past::Other { until: now, calls_end: Moment::ORIGIN };
    departed.remove(GONE);
    if ends > now {
        departed.insert(GONE.to_owned(), Departed { past, shares: None, ends });
    }
}

/// Forgets some of `departed` if they are too many: those whose permits are the first to count no more. As long as any
/// of the others counts, no limit begins afresh.
pub(super) fn bound(departed: &mut BTreeMap<String, Departed>, now: Moment) {
    let excess = departed.len().saturating_sub(LIMITS_MAX);
    if excess > 0 {
        let mut ends: Vec<(Moment, String)> = departed
            .iter()
            .filter(|(name, departed)| *name != GONE && departed.holds_up_until() <= now)
            .map(|(name, departed)| (departed.ends, name.clone()))
            .collect();
        ends.sort_unstable();
        for (_, name) in ends.iter().take(excess) {
            departed.remove(name);
        }
    }
}

/// Returns when nothing counts any more that was lent until `now` by rules that count for `longest`.
fn end(longest: Duration, clocks: ClockBounds, now: Moment) -> Moment {
    now + clocks.quarantine() + clocks.stretched(longest)
}

/// Returns the longest that one of `rules` counts what it lent. Without rules: the longest that any can.
fn longest(rules: impl Iterator<Item = Rule>) -> Duration {
    rules.map(counts_for).max().unwrap_or(PER_MAX)
}

fn counts_for(rule: Rule) -> Duration {
    match rule {
        Rule::FixedWindow(rule) => rule.windows().longest(),
        Rule::TokenBucket(bucket) => {
            let full = u128::from(bucket.capacity()) + u128::from(bucket.debt());
            let (refill, per) = (u128::from(bucket.refill()), bucket.per().as_nanos());
            let nanos = match bucket.refill_style() {
                RefillStyle::Greedy => {
                    let cold_factor = bucket.warm_up().map_or(1, |warm_up| warm_up.cold_factor());
                    (full * per * u128::from(cold_factor)).checked_div(refill)
                }
                RefillStyle::Interval => (refill > 0).then(|| full.div_ceil(refill) * per),
            };
            // A bucket that is never refilled counts for ever.
            span_of(nanos.unwrap_or(u128::MAX))
        }
        Rule::SlidingWindow(rule) | Rule::SlidingLog(rule) => rule.per() + rule.margin(),
        Rule::LeakyBucket(_) | Rule::Concurrency(_) => {
            rule.window().or(rule.longest()).unwrap_or(Duration::MAX)
        }
    }
}

/// Rules as a basis has them.
#[derive(Deserialize)]
struct Promises {
    /// `None` if an upstream tells the limit its rules, and knows what is out of it.
    rules: Option<Vec<RawRule>>,
    #[serde(rename = "override")]
    overrides: Vec<RawOverride>,
}

/// Returns the longest that a limit with this `basis` counts what it lent.
fn longest_of(basis: &str) -> Duration {
    let longest_of_promises = || {
        let basis: Value = serde_json::from_str(basis).ok()?;
        let Promises { rules, overrides } = Promises::deserialize(&basis["limit"]["rules"]).ok()?;
        let Some(rules) = rules else { return Some(Duration::ZERO) };
        let overrides = overrides.iter().flat_map(|one| &one.rules);
        let rules = rules.iter().chain(overrides).map(|raw| rule(raw, SlidingWindow::MARGIN).ok());
        Some(longest(rules.collect::<Option<Vec<_>>>()?.into_iter()))
    };
    longest_of_promises().unwrap_or(PER_MAX)
}
