//! Metrics of one limit: sums over its pools, as they are at the scrape.

use lessor_ledger::registry::limit::{Answered, Disagreed, Figures};
use lessor_ledger::sizing::Scarcity;
use metrics::{Counter, Gauge, counter, gauge};

/// Ranks of single nodes; all other nodes are counted together.
pub(crate) const PLACES: usize = 5;

/// Permits held by the node of each rank, highest first, and by all others.
pub(crate) type Ranks = [u64; PLACES + 1];

/// The labels of [`Ranks`].
const RANKS: [&str; PLACES + 1] = ["1", "2", "3", "4", "5", "rest"];

/// Returns the value of a gauge.
type Value = fn(&Figures) -> f64;

/// The gauges of a limit: the name of each, and its value.
const GAUGES: [(&str, Value); 12] = [
    ("lessor_ceiling_permits", |figures| figures.ceiling as f64),
    ("lessor_available_permits", |figures| figures.sums.available as f64),
    ("lessor_outstanding_permits", |figures| figures.sums.outstanding as f64),
    ("lessor_in_flight_permits", |figures| figures.sums.in_flight as f64),
    ("lessor_pools", |figures| figures.pools as f64),
    ("lessor_lessees", |figures| figures.sums.sessions as f64),
    ("lessor_quarantine_seconds", |figures| figures.quarantine.as_secs_f64()),
    ("lessor_paused", |figures| f64::from(u8::from(figures.paused))),
    ("lessor_blocked_nodes", |figures| figures.blocked as f64),
    ("lessor_vendor_withheld_permits", |figures| figures.sums.withheld as f64),
    ("lessor_vendor_paused_pools", |figures| figures.sums.vendor_pauses as f64),
    // Infinite if no pool is expected to become empty.
    ("lessor_time_to_empty_seconds", |figures| {
        figures.forecast.time_to_empty.map_or(f64::INFINITY, |wait| wait.as_secs_f64())
    }),
];

/// The metrics of one limit.
pub(super) struct LimitMetrics {
    /// In the order of [`GAUGES`].
    gauges: Vec<Gauge>,
    /// In the order of [`Totals`].
    totals: Vec<Counter>,
    /// In the order of [`RANKS`].
    ranks: Vec<Gauge>,
    /// In the order of [`Figures::by_standing`].
    states: Vec<Gauge>,
}

/// Names of the first [`Totals`] of a limit.
const TOTALS: [&str; 7] = [
    "lessor_topped_up_permits_total",
    "lessor_granted_permits_total",
    "lessor_spent_permits_total",
    "lessor_returned_permits_total",
    "lessor_burned_permits_total",
    "lessor_reported_late_permits_total",
    "lessor_shadow_refused_permits_total",
];

/// Counts that only rise in the life of a limit, in the order of [`TOTALS`], [`Disagreed::by_kind`] and
/// [`Answered::by_outcome`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals(Vec<u64>);

impl Totals {
    pub(super) fn of(figures: &Figures) -> Self {
        let sums = &figures.sums;
        let first = [figures.topped_up, sums.granted, sums.spent, sums.returned];
        let first = first.into_iter().chain([sums.burned, sums.reported_late, sums.shadow_refused]);
        let disagreed = sums.disagreed.by_kind().into_iter().map(|(_, count)| count);
        Totals(first.chain(disagreed).chain(sums.answered.by_outcome().map(|(_, count)| count)).collect())
    }

    /// Returns how much each total rose since it was at `last`. Totals that fell have begun anew.
    pub(super) fn since(&self, last: &Totals) -> Totals {
        let last = |index: usize| last.0.get(index).copied().unwrap_or(0);
        let has_begun_anew = self.0.iter().enumerate().any(|(index, total)| *total < last(index));
        let rose = self.0.iter().enumerate().map(|(index, total)| match has_begun_anew {
            true => *total,
            false => total - last(index),
        });
        Totals(rose.collect())
    }

    /// Adds `other` to these.
    pub(super) fn add(&mut self, other: &Totals) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        self.0.iter_mut().zip(&other.0).for_each(|(sum, more)| *sum = sum.saturating_add(*more));
    }
}

impl LimitMetrics {
    /// Registers the metrics of the limit `name`, at zero.
    pub(super) fn new(name: String) -> Self {
        let outcomes = Answered::default().by_outcome().into_iter();
        let asks = outcomes
            .map(|(outcome, _)| counter!("lessor_asks_total", "limit" => name.clone(), "outcome" => outcome));
        let totals = TOTALS.into_iter().map(|total| counter!(total, "limit" => name.clone()));
        let kinds = Disagreed::default().by_kind().into_iter();
        let disagreed = kinds
            .map(|(how, _)| counter!("lessor_vendor_disagreed_total", "limit" => name.clone(), "how" => how));
        let states = Scarcity::ALL.map(Scarcity::name).into_iter();
        let states =
            states.map(|state| gauge!("lessor_state_pools", "limit" => name.clone(), "state" => state));
        let ranks = RANKS
            .into_iter()
            .map(|rank| gauge!("lessor_outstanding_rank_permits", "limit" => name.clone(), "rank" => rank));
        let gauges = GAUGES.into_iter().map(|(gauge, _)| gauge!(gauge, "limit" => name.clone()));
        LimitMetrics {
            gauges: gauges.collect(),
            totals: totals.chain(disagreed).chain(asks).collect(),
            ranks: ranks.collect(),
            states: states.collect(),
        }
    }

    /// Resets the gauges of a removed limit. Its counters keep their values.
    pub(super) fn clear(&self) {
        self.publish(&Figures::default(), &Totals::default());
    }

    /// Publishes the ranks; `NaN` if the limit was not looked at.
    pub(super) fn rank(&self, ranks: Option<&Ranks>) {
        for (index, gauge) in self.ranks.iter().enumerate() {
            gauge.set(ranks.map_or(f64::NAN, |ranks| ranks[index] as f64));
        }
    }

    /// Publishes `figures`, of which the totals `rose` since they were last published.
    pub(super) fn publish(&self, figures: &Figures, rose: &Totals) {
        for (gauge, (_, value)) in self.gauges.iter().zip(GAUGES) {
            gauge.set(value(figures));
        }
        for (gauge, (_, pools)) in self.states.iter().zip(figures.by_standing()) {
            gauge.set(pools as f64);
        }
        self.totals.iter().zip(&rose.0).for_each(|(counter, rose)| counter.increment(*rose));
    }
}
