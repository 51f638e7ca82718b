//! Metrics of one limit: sums over its pools, as they are at the scrape.

use lessor_ledger::registry::limit::{Answered, Disagreed, Figures};
use lessor_ledger::sizing::Scarcity;
use metrics::{Counter, Gauge, counter, describe_counter, describe_gauge, gauge};

/// Ranks of single nodes; all other nodes are counted together.
pub(crate) const PLACES: usize = 5;

/// Permits held by the node of each rank, highest first, and by all others.
pub(crate) type Ranks = [u64; PLACES + 1];

/// The labels of [`Ranks`].
const RANKS: [&str; PLACES + 1] = ["1", "2", "3", "4", "5", "rest"];

/// The metrics of one limit.
pub(super) struct LimitMetrics {
    ceiling: Gauge,
    available: Gauge,
    outstanding: Gauge,
    in_flight: Gauge,
    pools: Gauge,
    lessees: Gauge,
    quarantine: Gauge,
    paused: Gauge,
    blocked: Gauge,
    /// In the order of [`Totals`].
    totals: Vec<Counter>,
    withheld: Gauge,
    vendor_pauses: Gauge,
    time_to_empty: Gauge,
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
        let states = Scarcity::ALL.map(Scarcity::word).into_iter();
        let states =
            states.map(|state| gauge!("lessor_state_pools", "limit" => name.clone(), "state" => state));
        let ranks = RANKS
            .into_iter()
            .map(|rank| gauge!("lessor_outstanding_rank_permits", "limit" => name.clone(), "rank" => rank));
        LimitMetrics {
            ranks: ranks.collect(),
            states: states.collect(),
            time_to_empty: gauge!("lessor_time_to_empty_seconds", "limit" => name.clone()),
            totals: totals.chain(disagreed).chain(asks).collect(),
            withheld: gauge!("lessor_vendor_withheld_permits", "limit" => name.clone()),
            vendor_pauses: gauge!("lessor_vendor_paused_pools", "limit" => name.clone()),
            ceiling: gauge!("lessor_ceiling_permits", "limit" => name.clone()),
            available: gauge!("lessor_available_permits", "limit" => name.clone()),
            outstanding: gauge!("lessor_outstanding_permits", "limit" => name.clone()),
            in_flight: gauge!("lessor_in_flight_permits", "limit" => name.clone()),
            pools: gauge!("lessor_pools", "limit" => name.clone()),
            lessees: gauge!("lessor_lessees", "limit" => name.clone()),
            quarantine: gauge!("lessor_quarantine_seconds", "limit" => name.clone()),
            paused: gauge!("lessor_paused", "limit" => name.clone()),
            blocked: gauge!("lessor_blocked_nodes", "limit" => name),
        }
    }

    /// Resets the gauges of a removed limit. Its counters keep their values.
    pub(super) fn clear(&self) {
        let gauges =
            [&self.ceiling, &self.available, &self.outstanding, &self.in_flight, &self.pools, &self.lessees];
        let gauges = gauges.into_iter().chain([&self.quarantine, &self.paused, &self.blocked]);
        let gauges = gauges.chain([&self.withheld, &self.vendor_pauses]).chain(&self.states);
        gauges.for_each(|gauge| gauge.set(0.0));
        self.time_to_empty.set(f64::INFINITY);
    }

    /// Publishes the ranks; `NaN` if the limit was not looked at.
    pub(super) fn rank(&self, ranks: Option<&Ranks>) {
        for (index, gauge) in self.ranks.iter().enumerate() {
            gauge.set(ranks.map_or(f64::NAN, |ranks| ranks[index] as f64));
        }
    }

    /// Publishes `figures`, of which the totals `rose` since they were last published.
    pub(super) fn publish(&self, figures: &Figures, rose: &Totals) {
        let sums = &figures.sums;
        self.ceiling.set(figures.ceiling as f64);
        self.available.set(sums.available as f64);
        self.outstanding.set(sums.outstanding as f64);
        self.in_flight.set(sums.in_flight as f64);
        self.pools.set(figures.pools as f64);
        self.lessees.set(sums.sessions as f64);
        self.quarantine.set(figures.quarantine.as_secs_f64());
        self.paused.set(f64::from(u8::from(figures.paused)));
        self.blocked.set(figures.blocked as f64);
        self.withheld.set(sums.withheld as f64);
        self.vendor_pauses.set(sums.vendor_pauses as f64);
        // Infinite if no pool is expected to become empty.
        let empty = figures.forecast.time_to_empty.map_or(f64::INFINITY, |wait| wait.as_secs_f64());
        self.time_to_empty.set(empty);
        for (gauge, (_, pools)) in self.states.iter().zip(figures.by_standing()) {
            gauge.set(pools as f64);
        }
        self.totals.iter().zip(&rose.0).for_each(|(counter, rose)| counter.increment(*rose));
    }
}

pub(super) fn describe() {
    describe_gauge!("lessor_paused", "1 while an operator has paused the limit");
    describe_gauge!("lessor_blocked_nodes", "Nodes that are lent nothing because an operator blocked them");
    describe_counter!("lessor_topped_up_permits_total", "Permits that were added once, beyond the rules");
    describe_gauge!("lessor_ceiling_permits", "The most that one call can ever take");
    describe_gauge!("lessor_available_permits", "Permits that can be lent now, over all keys");
    describe_gauge!("lessor_outstanding_permits", "Permits lent, and neither settled nor returned");
    describe_gauge!(
        "lessor_outstanding_rank_permits",
        "Permits held by the nodes ranked 1 to 5, and by all others; NaN if there are too many pools to look at"
    );
    describe_gauge!(
        "lessor_in_flight_permits",
        "Permits of calls in flight, reported or presumed, if the limit caps them"
    );
    describe_gauge!(
        "lessor_time_to_empty_seconds",
        "Time until permits run short, of the key that is empty soonest; +Inf if that is not expected"
    );
    describe_gauge!(
        "lessor_state_pools",
        "Pools by state: rich (every need is met), drain (what is left is shared), trickle (only what comes back is lent)"
    );
    describe_gauge!("lessor_pools", "Keys in use; 1 for a limit without keys");
    describe_gauge!("lessor_lessees", "Sessions that pools remember; a session with two keys counts twice");
    describe_gauge!(
        "lessor_quarantine_seconds",
        "Time until the limit lends, after a start that may have lost its books, or some changes of it"
    );
    describe_counter!("lessor_granted_permits_total", "Permits lent");
    describe_counter!("lessor_spent_permits_total", "Permits reported spent");
    describe_counter!("lessor_returned_permits_total", "Permits that came back unspent");
    describe_counter!(
        "lessor_burned_permits_total",
        "Permits presumed spent: their lease ended without a report"
    );
    describe_counter!(
        "lessor_shadow_refused_permits_total",
        "Permits let pass in shadow mode that would have been refused"
    );
    describe_counter!(
        "lessor_vendor_disagreed_total",
        "Disagreements of the vendor that nodes reported: refused, had_less, lower_limit, higher_limit"
    );
    describe_gauge!(
        "lessor_vendor_withheld_permits",
        "Permits not lent because the vendor has less left, over all keys"
    );
    describe_gauge!(
        "lessor_vendor_paused_pools",
        "Pools that lend nothing because the vendor asked for a pause"
    );
    describe_counter!(
        "lessor_reported_late_permits_total",
        "Burned permits that a late report moved to spent or returned: granted = spent + returned + burned - reported_late + outstanding"
    );
    describe_counter!(
        "lessor_asks_total",
        "Asks that a limit answered: granted, empty, settled (nothing wanted), quarantine, stopping, paused, blocked"
    );
}
