//! Other ways to size leases, as their clients do it, over one exact central counter that serves the first ask first.
//! The world runs a rival in place of the shipping pool and refill, with the same traffic and network. A rival knows no
//! faults: a lost answer is lost for good. [`Policy::explained`] says what is left out of each.

mod ledgers;
mod share;

use crate::policy::Policy;
use crate::world::sustained;
use ledgers::Ledgers;
use lessor::slot::SLOT_MAX;
use lessor_ledger::Rule;
use lessor_ledger::pool::Plan;
use lessor_ledger::rule::{SlidingWindow, term};
use lessor_protocol::Moment;
use std::time::Duration;

/// Fixed leases per node that make up the whole limit. With fewer, a single node could take it all; with more, each
/// would be spent before the next arrives.
const LEASES_PER_NODE: u64 = 10;

/// The next fixed lease is asked for when one part in this many of the last is left. The usual workload refuses as
/// little with a tenth as with a half, and strands two thirds; less would run dry on the way.
const LEFT_PART: u64 = 10;

/// Time between two updates of an average, and the longest until a node that got too little looks again.
const TICK: Duration = Duration::from_secs(1);

/// Weight of the newest second in the average.
const NEW_PART: f64 = 0.5;

/// What [`Policy::TenAverages`] asks for on top of its averages and counts as low at least, and its first ask, in
/// permits.
const BUFFER: u64 = 5_000;
const FIRST: u64 = 1_000;

/// The part of the last grant, or of what the average spends, that counts as low.
const LOW_PART: f64 = 0.1;

/// Permits of use that are worth a report of their own; less use waits four times as long.
const REPORTED: u64 = 100;

/// Term of a lease that nothing ends: longer than any run.
const FOR_EVER: Duration = Duration::from_secs(366 * 24 * 3_600);

/// The central counter and all nodes of one rival.
#[derive(Debug)]
pub struct Rival {
    policy: Policy,
    rules: Vec<Rule>,
    centre: Ledgers,
    desks: Vec<Desk>,
    /// The share of each node, where the policy splits the limit.
    shares: Vec<Ledgers>,
    /// How long a node that got too little waits: a term of Lessor's, at most a tick.
    again: Duration,
}

/// What one node knows of its callers and its asks.
#[derive(Clone, Copy, Debug, Default)]
struct Desk {
    /// Permits that callers came for: so far, at the last tick, and at the last ask. Refused ones count, as they are
    /// use where callers wait in line.
    tried: u64,
    tried_at_tick: u64,
    tried_at_ask: u64,
    /// Mean number of those permits a second.
    average: f64,
    next_tick: Moment,
    /// The last ask: when, and for how many permits.
    asked: Option<(Moment, u64)>,
    /// Permits in hand below which the node asks.
    low_water: u64,
    not_before: Moment,
}

/// The answer of the centre.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lent {
    /// Permits lent.
    pub permits: u64,
    /// Term of the lease.
    pub term: Duration,
}

impl Rival {
    /// Makes the rival of `policy` for the limit of `plan`. `now` is the centre's, and `firsts` has the first tick of
    /// each node's clock.
    pub fn new(policy: Policy, plan: &Plan, now: Moment, firsts: &[Moment]) -> Self {
        let split = if policy == Policy::StaticSplit { firsts.len() } else { 0 };
        let share = |node| Ledgers::new(&share::share(&plan.rules, node, split), plan.clocks, now);
        let desk = |&next_tick: &Moment| Desk { next_tick, low_water: 1, ..Desk::default() };
        Rival {
            policy,
            rules: plan.rules.clone(),
            centre: Ledgers::new(&plan.rules, plan.clocks, now),
            desks: firsts.iter().map(desk).collect(),
            shares: (0..split).map(share).collect(),
            again: term(&plan.rules).min(TICK),
        }
    }

    /// Records that a caller came to `node`.
    pub fn tried(&mut self, node: usize, permits: u64) {
        self.desks[node].tried += permits;
    }

    /// Whether each node has a share of its own and never asks.
    pub(crate) fn is_split(&self) -> bool {
        self.policy == Policy::StaticSplit
    }

    /// Spends `permits` of the share of `node`, if they are there.
    pub fn take(&mut self, node: usize, permits: u64, now: Moment) -> bool {
        let share = &mut self.shares[node];
        let enough = share.available(now) >= permits;
        share.give(if enough { permits } else { 0 }, now);
        enough
    }

    /// Returns the permits in the share of `node`.
    pub(crate) fn in_share(&mut self, node: usize, now: Moment) -> u64 {
        self.shares.get_mut(node).map_or(0, |share| share.available(now))
    }

    /// Returns the permits that no node was given yet.
    pub fn available(&mut self, now: Moment) -> u64 {
        if self.is_split() { 0 } else { self.centre.available(now) }
    }

    /// Answers an ask for `want` permits.
    pub fn lend(&mut self, want: u64, now: Moment) -> Lent {
        let term = self.centre.lasts(now).unwrap_or(FOR_EVER).min(self.window());
        // A lease that would end before it arrives is of no use to a node.
        let want = if term.is_zero() { 0 } else { want };
        Lent { permits: self.centre.give(want, now), term }
    }

    /// Returns how long a lease lasts by the rival's own rule. Averages never end theirs.
    fn window(&self) -> Duration {
        let sliding = self.rules.iter().filter_map(Rule::sliding);
        let sliding = sliding.filter(|_| self.policy == Policy::FixedLeases);
        sliding.map(SlidingWindow::per).min().unwrap_or(FOR_EVER)
    }

    /// Returns the permits that `node` asks for now, which holds `free` and whose callers wait for `waiting`.
    pub fn ask(&mut self, node: usize, free: u64, waiting: u64, now: Moment) -> Option<u64> {
        if self.is_split() {
            return None;
        }
        self.desks[node].tick(now);
        let desk = self.desks[node];
        let low = free < desk.low_water.max(waiting) && now >= desk.not_before;
        let report = self.reports(&desk, now);
        let room = SLOT_MAX - free;
        let want = self.want(&desk, free, waiting).min(room);
        if !(report || low && want > 0) {
            return None;
        }
        let desk = &mut self.desks[node];
        (desk.asked, desk.tried_at_ask) = (Some((now, want)), desk.tried);
        Some(want)
    }

    fn want(&self, desk: &Desk, free: u64, waiting: u64) -> u64 {
        let (first, nodes) = (desk.asked.is_none(), self.desks.len() as f64);
        let target = match self.policy {
            Policy::Lessor | Policy::StaticSplit => 0,
            // No node fetches a lease before there is a caller.
            Policy::FixedLeases if desk.tried == 0 => 0,
            Policy::FixedLeases => {
                return if free < desk.low_water { self.lease().max(waiting) } else { waiting };
            }
            Policy::TenAverages if first => FIRST,
            Policy::TenAverages => (10.0 * desk.average).ceil() as u64 + BUFFER,
            // TiKV's clients start with a second of the whole limit, which no counter counts. If it were counted, it
            // could be all there is, so each client starts with its part of it here.
            Policy::FiveAverages if first => ((sustained(&self.rules) / nodes) as u64).max(1),
            Policy::FiveAverages => (1.1 * 5.0 * desk.average).ceil() as u64,
        };
        (target + waiting).saturating_sub(free)
    }

    /// Returns the size of a fixed lease.
    fn lease(&self) -> u64 {
        let ceiling = self.rules.iter().map(Rule::ceiling).min().unwrap_or(0);
        (ceiling / (LEASES_PER_NODE * self.desks.len() as u64)).max(1)
    }

    /// Whether the node reports its use and asks for permits although it has enough in hand.
    fn reports(&self, desk: &Desk, now: Moment) -> bool {
        let period = match self.policy {
            Policy::TenAverages => Duration::from_secs(10),
            Policy::FiveAverages => Duration::from_secs(5),
            Policy::Lessor | Policy::StaticSplit | Policy::FixedLeases => return false,
        };
        let since = desk.asked.map_or(Duration::ZERO, |(at, _)| now.since(at));
        let enough = desk.tried - desk.tried_at_ask >= REPORTED;
        since >= if enough { period } else { 4 * period }
    }

    /// Records that `node` got `permits` and holds `free` now.
    pub fn granted(&mut self, node: usize, permits: u64, free: u64, now: Moment) {
        let lease = self.lease();
        let desk = &mut self.desks[node];
        let wanted = desk.asked.map_or(0, |(_, want)| want);
        desk.not_before = if permits < wanted { now + self.again } else { now };
        let tenth = |permits: f64| (LOW_PART * permits) as u64;
        desk.low_water = match self.policy {
            Policy::Lessor | Policy::StaticSplit => 0,
            Policy::FixedLeases => (lease / LEFT_PART).max(1),
            Policy::TenAverages => tenth(permits as f64).max(BUFFER),
            Policy::FiveAverages => tenth((5.0 * desk.average).min(free as f64)).max(1),
        };
    }

    /// Returns the permits in hand below which `node` asks.
    pub fn low_water(&self, node: usize) -> u64 {
        self.desks[node].low_water
    }

    /// Returns when `node` looks again by itself.
    pub fn wakes(&self, node: usize, now: Moment) -> Moment {
        let desk = &self.desks[node];
        if desk.not_before > now { desk.next_tick.min(desk.not_before) } else { desk.next_tick }
    }
}

impl Desk {
    fn tick(&mut self, now: Moment) {
        while self.next_tick <= now {
            let used = (self.tried - self.tried_at_tick) as f64;
            self.average = NEW_PART * used + (1.0 - NEW_PART) * self.average;
            self.tried_at_tick = self.tried;
            self.next_tick = self.next_tick + TICK;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::{parse_rules, plan};
    use lessor_protocol::moment::millis as at;

    /// A rival with two nodes, where 100 callers came to the first one in the first second.
    fn rival(policy: Policy, limit: &str) -> Rival {
        let plan = plan(parse_rules(limit).expect("rules"), false);
        let mut rival = Rival::new(policy, &plan, Moment::ORIGIN, &[at(1_000); 2]);
        rival.tried(0, 100);
        rival
    }

    #[test]
    fn each_asks_for_what_its_formula_says() {
        let limit = "sliding_window 36_000_000/1h";
        for (policy, first, later) in [
            (Policy::StaticSplit, None, None),
            (Policy::FixedLeases, Some(1_800_000), Some(1_800_000)),
            (Policy::TenAverages, Some(1_000), Some(500 + 5_000 - 7)),
            (Policy::FiveAverages, Some(5_000), Some(275 - 7)),
        ] {
            let mut rival = rival(policy, limit);
            assert_eq!(rival.ask(0, 0, 0, at(0)), first, "{policy:?}");
            rival.granted(0, first.unwrap_or(0), 10_000, at(20));
            // Half of 100, after the first second.
            rival.desks[0].low_water = 8;
            assert_eq!(rival.ask(0, 7, 0, at(1_000)), later, "{policy:?}");
        }
    }

    #[test]
    fn each_asks_again_when_what_is_left_is_low() {
        let limit = "sliding_window 36_000_000/1h";
        for (policy, low) in
            [(Policy::FixedLeases, 180_000), (Policy::TenAverages, 5_000), (Policy::FiveAverages, 25)]
        {
            let mut rival = rival(policy, limit);
            rival.ask(0, 0, 0, at(1_000));
            rival.granted(0, 40_000_000, 40_000_000, at(1_020));
            let low = if policy == Policy::TenAverages { 4_000_000 } else { low };
            assert_eq!(rival.ask(0, low, 0, at(1_030)), None, "{policy:?}");
            rival.desks[0].average = 1e9;
            assert!(rival.ask(0, low - 1, 0, at(1_030)).is_some(), "{policy:?}");
        }
    }

    #[test]
    fn averages_report_use_although_they_hold_enough() {
        for (policy, soon, late) in [(Policy::TenAverages, 10, 40), (Policy::FiveAverages, 5, 20)] {
            for (tried, period) in [(REPORTED, soon), (REPORTED - 1, late)] {
                let mut rival = rival(policy, "sliding_window 36_000_000/1h");
                rival.ask(0, 0, 0, at(0));
                rival.granted(0, 1_000_000, 1_000_000, at(20));
                rival.tried(0, tried);
                assert_eq!(rival.ask(0, 1_000_000, 0, at(1_000 * period - 1)), None, "{policy:?}");
                assert_eq!(rival.ask(0, 1_000_000, 0, at(1_000 * period)), Some(0), "{policy:?}");
            }
        }
    }

    #[test]
    fn a_short_answer_is_looked_at_again_later() {
        let mut rival = rival(Policy::FixedLeases, "sliding_window 40/6s");
        assert_eq!(rival.ask(0, 0, 0, at(0)), Some(2));
        rival.granted(0, 0, 0, at(20));
        assert_eq!((rival.ask(0, 0, 0, at(219)), rival.wakes(0, at(20))), (None, at(220)));
        assert_eq!(rival.ask(0, 0, 0, at(220)), Some(2));
    }

    #[test]
    fn the_centre_gives_what_there_is_to_the_node_that_asks_first() {
        let mut rival = rival(Policy::TenAverages, "fixed_window 1500/1h");
        let term = rival.lend(0, at(0)).term;
        assert!(term > Duration::from_secs(3_590) && term < Duration::from_secs(3_600), "within the window");
        assert_eq!(rival.lend(1_000, at(0)), Lent { permits: 1_000, term });
        assert_eq!(rival.lend(1_000, at(0)), Lent { permits: 500, term });
        assert_eq!(rival.lend(1_000, at(3_600_000)), Lent { permits: 1_000, term }, "a new window");
    }

    #[test]
    fn a_share_is_spent_by_its_own_node() {
        let mut rival = rival(Policy::StaticSplit, "fixed_window 5/1h");
        assert!(rival.take(0, 3, at(0)) && !rival.take(0, 1, at(1)), "three of five");
        assert_eq!((rival.in_share(1, at(1)), rival.available(at(1))), (2, 0));
    }
}
