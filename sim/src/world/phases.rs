//! The phases of a run: trouble, then calm in which progress is owed, then silence in which everything comes back.

use super::World;
use super::event::{Event, Phase};
use super::flights::longest;
use super::rates::{cold_factor, memory, sustained};
use crate::SECOND;
use crate::network::Latency;
use crate::node::Node;
use crate::oracle::{Verdict, must};
use crate::setup::Setup;
use crate::topology::Shared;
use crate::traffic::Workload;
use lessor_holder::timing::{EXCHANGE_TIMEOUT, LOOK_AGAIN};
use lessor_ledger::Rule;
use lessor_ledger::pool::{Plan, PoolView};
use lessor_ledger::rule::{RefillStyle, TokenBucket};
use lessor_protocol::moment::nanos;
use std::time::Duration;

impl World {
    pub(super) fn next(&mut self, phase: Phase) -> Verdict {
        self.phase = phase;
        self.log.note(self.real, "-- the next part begins: #", &[phase as u64]);
        match phase {
            Phase::Trouble => {}
            Phase::Settling => {
                self.mend_all()?;
                if self.shared.is_some() && !self.setup.live.is_empty() {
                    self.push(self.real, Event::Lift);
                }
                // However fast a limit refills, all that it holds goes out and comes back in a few terms at best.
                let turn = 4.0 * self.setup.term().as_secs_f64();
                let lent = self.setup.plan.sharing.lease_max.saturating_mul(self.desks.len() as u64);
                let out = self.limits.ceiling(&self.centre.rules).min(lent);
                let plan = Plan { rules: self.centre.rules.clone(), ..self.setup.plan.clone() };
                let sustained = sustained(&self.centre.rules) * left_over(&plan);
                let sustained = sustained.min(out as f64 / turn);
                let sustained = sustained.min(self.leases_allow());
                self.setup.cost_max = 1;
                // A window that is not much longer than the round trip to the allocator is used up by it.
                let is_long = self.setup.rule_sets().all(|rules| memory(rules) >= SECOND);
                let part = if self.setup.lends_on() && is_long { 2.5 } else { 5.0 };
                self.traffic.turn_into(Workload::Steady, (sustained / part).min(2_000.0));
                self.change_traffic(self.traffic_generation);
            }
            Phase::Calm => {
                self.calm_since = self.real;
                self.all_follow()?;
            }
            Phase::Silence => {
                self.no_caller_waits_too_long()?;
                for desk in &mut self.desks {
                    desk.line.clear();
                }
                self.traffic.turn_into(Workload::Steady, 0.0);
                self.change_traffic(self.traffic_generation);
            }
        }
        Ok(())
    }

    /// Returns the calls a second that fit into leases of the largest size, where each call keeps its permit while it
    /// lasts.
    fn leases_allow(&self) -> f64 {
        let most = self.setup.plan.sharing.lease_max.saturating_mul(self.setup.desks() as u64) as f64;
        longest(&self.centre.rules).map_or(f64::INFINITY, |longest| most / longest.as_secs_f64())
    }

    /// V2: no caller has waited too long.
    fn no_caller_waits_too_long(&self) -> Verdict {
        for (index, desk) in self.desks.iter().enumerate() {
            for waiter in &desk.line {
                self.waited(index, waiter.since)?;
            }
        }
        Ok(())
    }

    pub(super) fn waited(&self, desk: usize, since: u64) -> Verdict {
        let waited = self.real.saturating_sub(since.max(self.calm_since));
        must("V2", self.phase < Phase::Calm || waited <= self.bound || !self.setup.is_owed(desk), || {
            format!("a caller on node {desk} has waited {:?}", Duration::from_nanos(waited))
        })
    }

    /// V4: once trouble is over, a pool that has waited out its quarantine lends to a waiting caller, within the time
    /// in which every node asks again. A pool below another one does so once that one has had something to lend for as
    /// long.
    pub(super) fn quarantine_is_over_in_time(&mut self) -> Verdict {
        // In regions, V2 judges how long callers wait.
        if self.phase == Phase::Trouble || self.setup.lends_on() {
            return Ok(());
        }
        let now = self.now().allocator;
        // A limit above with a single permit lends it to one limit first, which may be forgotten before the permit can
        // be granted again. V2 judges how long each of them waits.
        let is_lent =
            |above: PoolView| above.available == 0 && above.quarantine.is_zero() && above.books.granted > 0;
        if self.view_above(now).is_some_and(is_lent) {
            self.used_up = self.real;
        }
        if self.real.saturating_sub(self.used_up) <= refresh(&self.setup) {
            return Ok(());
        }
        (0..self.setup.limits()).try_for_each(|limit| self.quarantine_of_is_over_in_time(limit))
    }

    fn quarantine_of_is_over_in_time(&mut self, limit: usize) -> Verdict {
        let Some(lost) = self.oracles.of(limit).opens_unlent() else { return Ok(()) };
        let (now, refresh) = (self.now(), refresh(&self.setup));
        let asked = |since: u64| self.real.saturating_sub(since) > refresh;
        let is_owed = |desk: usize| self.setup.limit(desk) == limit && self.setup.is_owed(desk);
        let owed = self.desks.iter().enumerate().filter(|(desk, _)| is_owed(*desk));
        let waiter = owed.flat_map(|(_, desk)| &desk.line).find(|waiter| asked(waiter.since));
        let is_late = nanos(now.allocator.since(lost)) > refresh && waiter.is_some();
        must("V4", !is_late, || format!("{waiter:?} waits, and nothing was lent since {lost:?}"))
    }

    /// V1, V6: after silence, every permit can be granted again, and every session is forgotten.
    pub(super) fn end(&mut self) -> Verdict {
        self.one_clock_shuts_no_limit()?;
        if !self.setup.then_calm {
            return Ok(());
        }
        (0..self.setup.limits()).try_for_each(|limit| self.all_is_back(limit))
    }

    /// V7: where one clock was wrong, the store's time goes on for all, and the allocator with that clock is back.
    fn one_clock_shuts_no_limit(&self) -> Verdict {
        let Some(Shared { lag: Some(lag), .. }) = self.setup.topology.shared() else { return Ok(()) };
        let has_eras = self.shared.as_ref().is_some_and(|store| store.has_eras);
        must("V7", !has_eras, || {
            format!("one clock was wrong ({lag:?}), and the time of the store began anew")
        })?;
        let signed = self.regions[0].link.member.signed();
        let silent = self.regions[0].clock.show(self.real).since(signed);
        must("V7", silent < Duration::from_secs(1), || {
            format!("an allocator whose clock was wrong ({lag:?}) has not signed for {silent:?}")
        })
    }

    /// Returns the pool of `limit` from which all is leased; `None` if it is in a store, and unknown.
    fn root_view(&mut self, limit: usize) -> Option<PoolView> {
        match self.shared.is_some() {
            true => Some(self.stock_of_roots(0)?.view),
            false => Some(self.view(limit, self.centre.clock.show(self.real))),
        }
    }

    fn all_is_back(&mut self, limit: usize) -> Verdict {
        let Some(view) = self.root_view(limit) else { return Ok(()) };
        // A bucket may begin with less than it holds later. That applies to a pool that was not asked since its books
        // began.
        let is_new = self.shared.is_none() && !self.made()[limit] && !self.forgotten[limit];
        let owed = match is_new {
            true => self.limits.beginning(&self.centre.rules),
            false => self.limits.ceiling(&self.centre.rules),
        };
        // A bucket still holds its top-ups.
        let is_back = view.available >= owed || self.centre.rules.iter().any(never_refills);
        must("V1", is_back && view.books.outstanding == 0, || {
            format!("{} of {owed} can be granted after a long silence: {view:?}", view.available)
        })?;
        let is_busy = |node: &Node| node.exchange.is_some();
        let busy = self.nodes.iter().position(is_busy);
        let busy = busy.or_else(|| self.desks.iter().position(|desk| !desk.refill.is_idle()));
        must("V6", view.sessions == 0 && busy.is_none(), || {
            format!("after a long silence sessions are remembered: {view:?}; busy: {busy:?}")
        })
    }
}

/// Returns the part of the sustained rate that a limit with `plan` lends to any node: without margins, the reserve, and
/// what is guaranteed to other nodes.
fn left_over(plan: &Plan) -> f64 {
    let of_window = plan.rules.iter().filter_map(Rule::sliding);
    let of_window =
        of_window.map(|rule| rule.per().as_secs_f64() / (rule.per() + rule.margin()).as_secs_f64());
    let ceiling = plan.rules.iter().map(Rule::ceiling).min().unwrap_or(0).max(1);
    let kept = plan.sharing.reserve + plan.sharing.guaranteed.iter().sum::<u64>();
    of_window.fold(1.0, f64::min) * ceiling.saturating_sub(kept).max(1) as f64 / ceiling as f64
}

fn never_refills(rule: &Rule) -> bool {
    matches!(rule, Rule::TokenBucket(rule) if rule.refill() == 0)
}

/// Returns the longest that a node in need takes to ask again in calm, in nanoseconds: it was told to wait, the wait
/// was stretched, and the ask before was lost. A bucket may take as long again to gain one permit beyond the reserve.
fn refresh(setup: &Setup) -> u64 {
    let kept_back = setup.reserve_most();
    // The debt under one rule is paid at the pace of the rule that follows it.
    let owed = setup.rule_sets().flatten().filter_map(Rule::bucket).map(TokenBucket::debt);
    let owed = owed.max().unwrap_or(0);
    let permit = setup.rule_sets().flatten().map(|rule| match rule {
        Rule::SlidingWindow(_) | Rule::SlidingLog(_) | Rule::FixedWindow(_) | Rule::Concurrency(_) => 0,
        Rule::TokenBucket(rule) if rule.refill_style() == RefillStyle::Interval => {
            nanos(rule.per()) * (kept_back + owed + 1).div_ceil(rule.refill().max(1)) / 10 * 11
        }
        Rule::TokenBucket(rule) => {
            // One permit beyond the debt, while cold.
            let permits = (kept_back + owed + 1) as f64 * cold_factor(rule);
            (nanos(rule.per()) as f64 / rule.refill().max(1) as f64 * permits * 1.1) as u64
        }
        Rule::LeakyBucket(rule) => nanos(rule.per()) * (kept_back + 1) / rule.refill().max(1) / 10 * 11,
    });
    let Latency { one_way, jitter } = setup.longest_latency();
    let latency = one_way + jitter;
    let asks = nanos(LOOK_AGAIN) / 100 * 120 + nanos(EXCHANGE_TIMEOUT) + 2 * SECOND;
    asks + 4 * latency + permit.max().unwrap_or(0)
}

/// Returns how long a caller may wait in calm, in nanoseconds: a few windows, and more where one window does not serve
/// all nodes.
pub(super) fn longest_wait(setup: &Setup) -> u64 {
    let ceiling = setup.rule_sets().flatten().map(Rule::ceiling).min().unwrap_or(0).max(1);
    let rounds = 4 + 2 * (setup.desks() as u64).div_ceil(ceiling);
    let is_paced = setup.rule_sets().flatten().any(|rule| rule.flow().is_some());
    // Nodes take turns at a steady flow, the longest of which is most of a term.
    let turns = if is_paced { 2 * setup.desks() as u64 } else { 0 };
    let memory = setup.rule_sets().map(memory).max().unwrap_or(0);
    // In regions, each round is also an exchange with the allocator above.
    let Latency { one_way, jitter } = setup.topology.far();
    rounds * memory + (10 + turns) * nanos(setup.term()) + SECOND + 40 * (one_way + jitter)
}
