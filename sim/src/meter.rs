//! How well a run went: permits used, stranded and refused, and exchanges. The world reports what happens; nothing here
//! judges it.

use crate::boundary::Boundary;
use crate::evenness::{Even, Evenness};
use lessor_ledger::Rule;
use lessor_protocol::moment::nanos;
use std::collections::VecDeque;

/// Counters of a run.
#[derive(Clone, Debug)]
pub struct Meter {
    nodes: Vec<PerNode>,
    exchanges: u64,
    /// The first time an ask got nothing because nothing was left.
    empty: Option<Empty>,
    /// Permits tried for before that moment, and those refused while there were some elsewhere.
    tried: u64,
    refused_while_available: u64,
    /// Calls that came in calm, and those among them that were not served at once.
    calm: (u64, u64),
    /// Permits times nanoseconds that calls took.
    in_flight: u128,
    fullness: Fullness,
    /// Evenness of the first sliding window that is long enough.
    evenness: Option<Evenness>,
    /// Counts just after the boundaries of a fixed window, if a rule has any.
    pub boundary: Option<Boundary>,
    hot: Option<HotSpot>,
    /// Terms that each hot spot took to get nine tenths of its share.
    catch_up: Vec<f64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct PerNode {
    tried: u64,
    admitted: u64,
    refused: u64,
    /// Real time since when the node has been trying in vain.
    in_vain_since: Option<u64>,
    worst_wait: u64,
}

#[derive(Clone, Copy, Debug)]
struct Empty {
    real: u64,
    spent_share: f64,
    stranded_share: f64,
}

#[derive(Clone, Debug)]
struct HotSpot {
    node: usize,
    since: u64,
    term: u64,
    /// Calls a second of each node.
    rates: Vec<f64>,
    /// Real time of each permit tried for at the node, of each admitted there, and of each admitted anywhere.
    tried: Vec<u64>,
    admissions: Vec<u64>,
    all: Vec<u64>,
}

/// The figures of a run. Shares are from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Permits admitted.
    pub admitted: u64,
    /// Share of what the limit allowed that was admitted.
    pub used_share: f64,
    /// The share of the pool that was spent when an ask first got nothing because nothing was left; 1 if none did.
    pub first_empty_refusal_at_share: f64,
    /// The time of that ask, in seconds.
    pub first_empty_refusal_at: Option<f64>,
    /// The share of the pool that nodes held at that moment.
    pub stranded_share: f64,
    /// The share refused, although there were permits elsewhere, of the permits tried for before that moment.
    pub refused_while_available_share: f64,
    /// Exchanges a second of all nodes together.
    pub exchanges_per_second: f64,
    /// Jain's index of how much of its max-min share each node got.
    pub jain: f64,
    /// Longest time in which a node tried and got nothing, in seconds.
    pub worst_wait: f64,
    /// The largest share of its permits that was refused to a node that wants less than its share.
    pub modest_refused_share: f64,
    /// The share of calls just after a boundary that found nothing, and the mean number of asks then.
    pub after_boundary: Option<(f64, f64)>,
    /// How evenly a sliding window was spent, where nodes ask one limit.
    pub even: Option<Even>,
    /// Calls that came in calm, and those among them that were not served at once.
    pub calm: (u64, u64),
    /// The share refused of the permits that were tried for.
    pub refused_share: f64,
    /// Mean number of permits in flight.
    pub in_flight: f64,
    /// Terms until a node that became hot got nine tenths of its share: the median and the worst.
    pub catch_up_terms: Option<(f64, f64)>,
}

impl Meter {
    /// Makes the counters of `nodes` nodes.
    pub fn new(nodes: usize, rules: &[Rule]) -> Self {
        Meter {
            nodes: vec![PerNode::default(); nodes],
            exchanges: 0,
            empty: None,
            tried: 0,
            refused_while_available: 0,
            calm: (0, 0),
            in_flight: 0,
            fullness: Fullness::new(rules),
            evenness: Evenness::new(rules),
            boundary: Boundary::new(rules),
            hot: None,
            catch_up: vec![],
        }
    }

    /// Whether an ask has found the pool empty.
    pub(crate) fn has_been_empty(&self) -> bool {
        self.empty.is_some()
    }

    /// Records a call of `permits` at `node`.
    pub fn tried(&mut self, real: u64, node: usize, permits: u64) {
        if let Some(hot) = self.hot.as_mut().filter(|hot| hot.node == node) {
            hot.tried.extend((0..permits).map(|_| real));
        }
        self.nodes[node].tried += permits;
        self.tried += if self.empty.is_none() { permits } else { 0 };
    }

    /// Records that a call of `permits` was admitted.
    pub fn admitted(&mut self, real: u64, node: usize, permits: u64) {
        let at = &mut self.nodes[node];
        at.admitted += permits;
        if let Some(since) = at.in_vain_since.take() {
            at.worst_wait = at.worst_wait.max(real - since);
        }
        self.fullness.add(real, permits);
        if let Some(evenness) = &mut self.evenness {
            evenness.admitted(real, permits);
        }
        if let Some(hot) = &mut self.hot {
            let times = (0..permits).map(|_| real);
            hot.all.extend(times.clone());
            hot.admissions.extend(times.filter(|_| hot.node == node));
        }
    }

    /// Returns the permits that each node admitted so far.
    pub fn by_node(&self) -> Vec<u64> {
        self.nodes.iter().map(|node| node.admitted).collect()
    }

    /// Records a call of `permits` that found too few. It `gave_up` or waits, and `elsewhere` says whether there were
    /// some elsewhere.
    pub fn short(&mut self, real: u64, node: usize, permits: u64, gave_up: bool, elsewhere: bool) {
        let at = &mut self.nodes[node];
        at.in_vain_since.get_or_insert(real);
        at.refused += if gave_up { permits } else { 0 };
        if self.empty.is_none() && elsewhere && gave_up {
            self.refused_while_available += permits;
        }
    }

    /// Records that a call of `permits` takes `nanos`.
    pub fn takes(&mut self, permits: u64, nanos: u64) {
        self.in_flight += u128::from(permits) * u128::from(nanos);
    }

    /// Records a call in calm, which was served at once unless `is_short`.
    pub fn calm(&mut self, is_short: bool) {
        self.calm = (self.calm.0 + 1, self.calm.1 + u64::from(is_short));
    }

    /// Counts an exchange.
    pub fn exchanged(&mut self) {
        self.exchanges += 1;
    }

    /// Records an ask that got nothing, the first time: of `limit` permits, `left` may still be spent and nodes hold
    /// `held`.
    pub fn empty(&mut self, real: u64, limit: u64, left: u64, held: u64) {
        if self.empty.is_none() && limit > 0 {
            let share = |permits: u64| permits as f64 / limit as f64;
            self.empty = Some(Empty { real, spent_share: 1.0 - share(left), stranded_share: share(held) });
        }
    }

    /// Makes `node` the hot spot from `real` on, where `rates` are the calls a second of each node.
    pub(crate) fn hot_spot(&mut self, real: u64, node: Option<usize>, rates: &[f64], term: u64) {
        if let Some(hot) = self.hot.take()
            && hot.since > 0
        {
            self.catch_up.push(hot.catch_up(real));
        }
        let rates = rates.to_vec();
        let spot =
            |node| HotSpot { node, since: real, term, rates, tried: vec![], admissions: vec![], all: vec![] };
        self.hot = node.map(spot);
    }

    /// Returns the figures at `real`, where each of `limits` limits sustains `sustained` permits a second.
    pub fn figures(&mut self, real: u64, sustained: f64, limits: usize) -> Figures {
        self.hot_spot(real, None, &[], 1);
        let seconds = real as f64 / 1e9;
        let tried: Vec<f64> = self.nodes.iter().map(|node| node.tried as f64).collect();
        let admitted: u64 = self.nodes.iter().map(|node| node.admitted).sum();
        let refused: u64 = self.nodes.iter().map(|node| node.refused).sum();
        let level = water_level(&tried, admitted as f64);
        let satisfaction = self.nodes.iter().filter(|node| node.tried > 0 && admitted > 0);
        let satisfaction = satisfaction.map(|node| node.admitted as f64 / (node.tried as f64).min(level));
        let fair = water_level(&tried, sustained * limits as f64 * seconds);
        let modest = self.nodes.iter().filter(|node| node.tried > 0 && (node.tried as f64) < 0.8 * fair);
        let waits = self
            .nodes
            .iter()
            .map(|node| node.worst_wait.max(node.in_vain_since.map_or(0, |since| real - since)));
        self.catch_up.sort_by(f64::total_cmp);
        Figures {
            admitted,
            used_share: self.fullness.share(real, admitted / limits as u64),
            first_empty_refusal_at_share: self.empty.map_or(1.0, |empty| empty.spent_share),
            first_empty_refusal_at: self.empty.map(|empty| empty.real as f64 / 1e9),
            stranded_share: self.empty.map_or(0.0, |empty| empty.stranded_share),
            refused_while_available_share: self.refused_while_available as f64 / self.tried.max(1) as f64,
            exchanges_per_second: self.exchanges as f64 / seconds,
            jain: jain(&satisfaction.collect::<Vec<f64>>()),
            worst_wait: waits.max().unwrap_or(0) as f64 / 1e9,
            modest_refused_share: modest
                .map(|node| node.refused as f64 / node.tried as f64)
                .fold(0.0, f64::max),
            after_boundary: self.boundary.map(|boundary| (boundary.short_share(), boundary.asks_each())),
            even: self.evenness.as_ref().filter(|_| limits == 1).and_then(|evenness| evenness.figures(real)),
            calm: self.calm,
            refused_share: refused as f64 / tried.iter().sum::<f64>().max(1.0),
            in_flight: self.in_flight as f64 / real.max(1) as f64,
            catch_up_terms: self
                .catch_up
                .last()
                .map(|&worst| (self.catch_up[self.catch_up.len() / 2], worst)),
        }
    }
}

impl HotSpot {
    /// Returns the terms until the node got, within a term, nine tenths of its max-min share of what all nodes got. All
    /// terms up to `until` if it never did.
    fn catch_up(&self, until: u64) -> f64 {
        let mut from = self.since;
        while from + self.term < until && !self.is_served(from) {
            from += self.term / 20;
        }
        (from - self.since) as f64 / self.term as f64
    }

    /// Whether the node got nine tenths of its share in the term that begins at `from`.
    fn is_served(&self, from: u64) -> bool {
        let within = |times: &[u64]| {
            times.partition_point(|&at| at < from + self.term) - times.partition_point(|&at| at < from)
        };
        let span = self.term as f64 / 1e9;
        let mut demands: Vec<f64> = self.rates.iter().map(|rate| rate * span).collect();
        // In a short term far fewer calls may come than on average, and a node admits no more calls than come.
        demands[self.node] = within(&self.tried) as f64;
        let level = water_level(&demands, within(&self.all) as f64);
        within(&self.admissions) as f64 >= (0.9 * demands[self.node].min(level)).floor()
    }
}

/// Returns the max-min level: no demand gets more than this when `supply` is divided among all.
pub fn water_level(demands: &[f64], supply: f64) -> f64 {
    let mut demands = demands.to_vec();
    demands.sort_by(f64::total_cmp);
    let mut left = supply;
    for (index, demand) in demands.iter().enumerate() {
        let level = left / (demands.len() - index) as f64;
        if *demand > level {
            return level;
        }
        left -= demand;
    }
    demands.last().copied().unwrap_or(0.0).max(left)
}

/// Returns Jain's index of fairness: 1 if all shares are equal, 1/n if one node has everything.
fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    if squares == 0.0 { 1.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

/// How full the tightest rule was: for a sliding window, its average fill from the first full window on.
#[derive(Clone, Debug)]
struct Fullness {
    rules: Vec<Rule>,
    recent: Vec<(VecDeque<(u64, u64)>, u64)>,
    /// By rule: permits times nanoseconds in the window, and the real time up to which they are counted.
    areas: Vec<(f64, u64)>,
}

impl Fullness {
    fn new(rules: &[Rule]) -> Self {
        let count = rules.len();
        Fullness {
            rules: rules.to_vec(),
            recent: vec![Default::default(); count],
            areas: vec![(0.0, 0); count],
        }
    }

    fn add(&mut self, real: u64, permits: u64) {
        self.advance(real);
        for (rule, (recent, used)) in self.rules.iter().zip(&mut self.recent) {
            if rule.sliding().is_some() {
                recent.push_back((real, permits));
                *used += permits;
            }
        }
    }

    fn advance(&mut self, real: u64) {
        for ((rule, (recent, used)), (area, counted)) in
            self.rules.iter().zip(&mut self.recent).zip(&mut self.areas)
        {
            let Some(per) = rule.sliding().map(|rule| nanos(rule.per())) else { continue };
            *counted = (*counted).max(per);
            while let Some(&(at, permits)) = recent.front()
                && at + per <= real
            {
                *area += *used as f64 * (at + per).saturating_sub(*counted) as f64;
                *counted = (*counted).max(at + per);
                recent.pop_front();
                *used -= permits;
            }
            *area += *used as f64 * real.saturating_sub(*counted) as f64;
            *counted = (*counted).max(real);
        }
    }

    fn share(&mut self, real: u64, admitted: u64) -> f64 {
        self.advance(real);
        let share = |(rule, &(area, _)): (&Rule, &(f64, u64))| match rule {
            Rule::SlidingWindow(window) | Rule::SlidingLog(window) => {
                let (limit, per) = (window.limit(), nanos(window.per()));
                if real > per {
                    area / (limit as f64 * (real - per) as f64)
                } else {
                    admitted as f64 / limit as f64
                }
            }
            Rule::FixedWindow(rule) => {
                admitted as f64 / (rule.limit() as f64 * real.div_ceil(nanos(rule.per())) as f64)
            }
            // Calls in flight are not measured here.
            Rule::Concurrency(_) => 0.0,
            Rule::TokenBucket(rule) => {
                let minted = rule.refill() as f64 * real as f64 / nanos(rule.per()) as f64;
                admitted as f64 / ((rule.initial() + rule.debt()) as f64 + minted)
            }
            Rule::LeakyBucket(rule) => {
                let minted = rule.refill() as f64 * real as f64 / nanos(rule.per()) as f64;
                admitted as f64 / (rule.burst() as f64 + minted)
            }
        };
        self.rules.iter().zip(&self.areas).map(share).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_that_is_always_full_is_used_up() {
        let rules = crate::setup::parse_rules("sliding_window 10/1s").expect("a rule");
        let mut full = Fullness::new(&rules);
        for tenth in 0..100 {
            full.add(tenth * 100_000_000, 1);
        }
        assert!((full.share(9_999_999_999, 100) - 1.0).abs() < 1e-3);
    }

    #[test]
    fn shares_are_max_min() {
        assert!((water_level(&[1.0, 10.0, 10.0], 11.0) - 5.0).abs() < 1e-9);
        assert!((jain(&[1.0, 1.0]) - 1.0).abs() < 1e-9);
        assert!((jain(&[1.0, 0.0]) - 0.5).abs() < 1e-9);
    }
}
