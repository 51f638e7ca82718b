//! Callers: they arrive by themselves, spend what their node holds, wait in line or are refused.

use super::World;
use super::event::{Event, Phase};
use super::flights::Manner;
use super::tasks::TIMER_LATE;
use crate::SECOND;
use crate::node::Waiter;
use crate::oracle::Verdict;
use crate::traffic::{Beat, Workload};
use lessor_ledger::Rule;
use lessor_ledger::exact::Verdict as Exact;
use lessor_ledger::rule::term;
use lessor_protocol::Moment;
use lessor_protocol::moment::nanos;
use std::cmp::Reverse;
use std::time::Duration;

/// The longest that a herd stays away: a run is to see several.
const HERD_WAITS: u64 = 10 * SECOND;

impl World {
    /// Rates change, and with them every arrival that was drawn already.
    pub(super) fn change_traffic(&mut self, generation: u64) {
        if generation != self.traffic_generation {
            return;
        }
        self.traffic_generation += 1;
        let until = self.traffic.change(self.real, self.beat());
        if until < u64::MAX {
            self.push(until, Event::Traffic { generation: self.traffic_generation });
        }
        for node in 0..self.nodes.len() {
            self.nodes[node].arrivals += 1;
            self.draw_arrival(node);
        }
        if self.setup.workload == Workload::HotSpot && self.phase == Phase::Trouble {
            let hot = self.traffic.hot();
            let term = nanos(term(&self.setup.plan.rules));
            self.meter.hot_spot(self.real, hot, self.traffic.rates(), term);
        }
    }

    /// When a herd comes: at the limit's own boundaries if it has some that are not too far apart, and otherwise each
    /// second of the allocator's clock.
    fn beat(&self) -> Beat {
        let fixed = self.setup.plan.rules.iter().filter_map(|rule| match rule {
            Rule::FixedWindow(rule) => Some(nanos(rule.per())),
            Rule::SlidingWindow(_)
            | Rule::SlidingLog(_)
            | Rule::TokenBucket(_)
            | Rule::LeakyBucket(_)
            | Rule::Concurrency(_) => None,
        });
        let every = fixed.min().filter(|&per| per <= HERD_WAITS).unwrap_or(SECOND);
        let clock = &self.centre.clock;
        let next = (clock.show(self.real).as_nanos() / every + 1) * every;
        Beat { next: clock.when(Moment::from_nanos(next)), every }
    }

    fn draw_arrival(&mut self, node: usize) {
        let at = self.real.saturating_add(self.traffic.gap(node));
        if at < u64::MAX {
            self.order += 1;
            self.arrivals.push(Reverse((at, self.order, node, self.nodes[node].arrivals)));
        }
    }

    /// A caller comes to `node`.
    pub(super) fn arrive(&mut self, node: usize) -> Verdict {
        let paused_until = self.nodes[node].paused_until;
        if paused_until > self.real {
            // Its threads stand still; this call is the first thing it does when it wakes.
            self.order += 1;
            self.arrivals.push(Reverse((paused_until, self.order, node, self.nodes[node].arrivals)));
            return Ok(());
        }
        self.draw_arrival(node);
        if !self.nodes[node].up {
            return Ok(());
        }
        let permits = if self.setup.cost_max > 1 { self.rng.u64(1..=self.setup.cost_max) } else { 1 };
        if self.is_in_vain() {
            self.set_aside(node, permits);
            return Ok(());
        }
        let permits = self.or_more(permits);
        self.call(node, permits)?;
        self.may_go_on_a_spree(node);
        Ok(())
    }

    /// Some callers spend all that their node has left, when its lease is about to end.
    fn may_go_on_a_spree(&mut self, node: usize) {
        let are_some = self.setup.sprees > 0 && self.phase == Phase::Trouble && self.rival.is_none();
        if are_some && self.rng.u64(..1_000) < self.setup.sprees {
            let at = &self.nodes[node];
            let last = at.clock.when(at.slot.deadline()).saturating_sub(1).max(self.real);
            self.push(last, Event::Spree { node, life: at.life });
        }
    }

    /// Callers spend all that `node` has.
    pub(super) fn spree(&mut self, node: usize, life: u64) -> Verdict {
        if self.nodes[node].life != life || !self.nodes[node].line.is_empty() {
            return Ok(());
        }
        let free = self.nodes[node].slot.balance().free;
        for _ in 0..free {
            if !self.take(node, 1)? {
                break;
            }
        }
        Ok(())
    }

    fn call(&mut self, node: usize, permits: u64) -> Verdict {
        self.meter.tried(self.real, node, permits);
        let now = self.now().allocator;
        if let Some((exact, admitted)) = &mut self.exact {
            let verdict = exact.try_acquire(now, permits).verdict;
            *admitted += if verdict == Exact::Served(Duration::ZERO) { permits } else { 0 };
        }
        if self.nodes[node].refill.is_paced() {
            self.nodes[node].largest = self.nodes[node].largest.max(permits);
        }
        if let Some(rival) = &mut self.rival {
            rival.tried(node, permits);
        }
        let is_served = self.nodes[node].line.is_empty() && self.take(node, permits)?;
        let now = self.now().allocator;
        if let Some(boundary) = &mut self.meter.boundary {
            boundary.called(now, !is_served);
        }
        if self.phase == Phase::Calm && self.setup.is_owed(node) {
            self.meter.calm(!is_served);
        }
        if is_served {
            return Ok(());
        }
        if self.nodes[node].is_shut_out {
            // Such a refusal is none of demand's.
            self.log.note(self.real, "node # is shut out and refuses #", &[node as u64, permits]);
            self.meter.short(self.real, node, permits, true, false);
            return Ok(());
        }
        let patience = if self.phase == Phase::Trouble { self.setup.patience } else { u64::MAX };
        self.refused_by_rival();
        let elsewhere = !self.meter.has_been_empty() && self.is_elsewhere(node, permits);
        self.meter.short(self.real, node, permits, patience == 0, elsewhere);
        if patience == 0 {
            self.log.note(self.real, "node # refuses #", &[node as u64, permits]);
            self.nodes[node].refused += permits;
        } else {
            self.tickets += 1;
            let ticket = self.tickets;
            self.nodes[node].line.push_back(Waiter { ticket, since: self.real, permits });
            self.log.note(self.real, "node #: a caller waits for #", &[node as u64, permits]);
            if patience < u64::MAX {
                let life = self.nodes[node].life;
                self.push(self.real + patience, Event::GiveUp { node, life, ticket });
            }
        }
        self.nudge(node);
        Ok(())
    }

    /// Whether the pool or another node has what `node` lacks.
    fn is_elsewhere(&mut self, node: usize, permits: u64) -> bool {
        let in_pool = self.in_pool();
        in_pool >= permits || self.in_hand().iter().sum::<u64>() - self.held(node) + in_pool >= permits
    }

    /// Spends `permits` at `node` if they are there.
    fn take(&mut self, node: usize, permits: u64) -> Result<bool, crate::oracle::Violation> {
        let manner = self.manner(node, permits);
        let Some(left) = self.begin_call(node, permits, manner) else {
            return self.pass(node, permits);
        };
        let permits = if let Manner::Reserving { needs } = manner { needs } else { permits };
        let session = self.nodes[node].session();
        self.admissions += 1;
        self.log.note(self.real, "node # admits #", &[node as u64, permits]);
        self.meter.admitted(self.real, node, permits);
        self.remember(permits, |world| &mut world.spends);
        if self.rival.is_some() {
            let now = self.now();
            self.over_admissions += self.oracles.of(0).tally(now, permits);
        } else {
            let way = self.margin();
            let way = if way == 0 { 0 } else { self.rng.u64(0..=way) };
            let lender = self.setup.lender(node);
            self.oracles.admitted(lender, self.nows(lender), node, session, permits, way)?;
        }
        self.takes_time(node, permits, manner, self.nodes[node].longest);
        self.vendor_answers(node);
        if left < self.nodes[node].low_water {
            self.nudge(node);
        }
        Ok(true)
    }

    /// Lets `permits` pass at `node` on its part of what is kept back, if it goes by that and they are due.
    fn pass(&mut self, node: usize, permits: u64) -> Result<bool, crate::oracle::Violation> {
        let at = &mut self.nodes[node];
        let now = at.now(self.real);
        if !at.is_fallen || !at.allowance.take(permits, now) {
            return Ok(false);
        }
        self.admissions += 1;
        self.log.note(self.real, "node # goes on with # by itself", &[node as u64, permits]);
        self.meter.admitted(self.real, node, permits);
        self.remember(permits, |world| &mut world.spends);
        let way = self.margin();
        let way = if way == 0 { 0 } else { self.rng.u64(0..=way) };
        self.oracles.passed(self.setup.lender(node), self.now(), permits, way)?;
        self.vendor_answers(node);
        Ok(true)
    }

    /// The longest way to the vendor that every rule reckons with.
    fn margin(&self) -> u64 {
        let margins = self.centre.rules.iter().filter_map(|rule| match rule {
            Rule::SlidingWindow(rule) => Some(nanos(rule.margin())),
            Rule::SlidingLog(rule) => Some(nanos(rule.margin())),
            Rule::FixedWindow(_) | Rule::TokenBucket(_) | Rule::LeakyBucket(_) | Rule::Concurrency(_) => None,
        });
        margins.min().unwrap_or(0)
    }

    /// Serves the callers that wait at `node`, first come, first served.
    pub(super) fn serve_line(&mut self, node: usize) -> Verdict {
        while let Some(waiter) = self.nodes[node].line.front().copied() {
            if !self.take(node, waiter.permits)? {
                break;
            }
            self.nodes[node].line.pop_front();
            self.waited(node, waiter.since)?;
        }
        Ok(())
    }

    /// After something happened at `node`: its line goes on, or will.
    pub(super) fn attend(&mut self, node: usize) -> Verdict {
        self.await_due(node);
        self.no_caller_is_passed_over(node)
    }

    /// Has the first in line at `node` called when the next permit of a steady flow is due.
    fn await_due(&mut self, node: usize) {
        if let Some(due) = self.nodes[node].next_due(self.real) {
            let at = &mut self.nodes[node];
            if due < at.due {
                at.due = due;
                let (life, late) = (at.life, self.rng.u64(0..=TIMER_LATE));
                self.push(due + late, Event::Due { node, life });
            }
        }
    }

    pub(super) fn due(&mut self, node: usize, life: u64) -> Verdict {
        if self.nodes[node].life != life {
            return Ok(());
        }
        self.nodes[node].due = u64::MAX;
        self.serve_line(node)
    }

    pub(super) fn give_up(&mut self, node: usize, life: u64, ticket: u64) -> Verdict {
        let at = &mut self.nodes[node];
        let place = at.line.iter().position(|waiter| waiter.ticket == ticket);
        if let Some(place) = place
            && at.life == life
        {
            let waiter = at.line.remove(place).expect("it is there");
            at.refused += waiter.permits;
            self.log.note(self.real, "node #: a caller gives up on #", &[node as u64, waiter.permits]);
            self.meter.short(self.real, node, waiter.permits, true, false);
            // The caller that is first now may want less.
            self.serve_line(node)?;
        }
        Ok(())
    }
}
