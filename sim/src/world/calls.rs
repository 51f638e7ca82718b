//! Callers: they arrive, spend what their node holds, wait in line or are refused.

use super::World;
use super::event::{Event, Phase};
use super::flights::Manner;
use super::tasks::TIMER_LATE;
use crate::SECOND;
use crate::desk::Waiter;
use crate::oracle::Verdict;
use crate::traffic::{Beat, Workload};
use lessor_ledger::Rule;
use lessor_ledger::exact::Verdict as Exact;
use lessor_ledger::rule::term;
use lessor_protocol::Moment;
use lessor_protocol::moment::nanos;
use std::cmp::Reverse;
use std::time::Duration;

/// The longest time between two herds, in nanoseconds, so that a run sees several.
const HERD_WAITS: u64 = 10 * SECOND;

impl World {
    /// Changes the rates and draws every next arrival anew.
    pub(super) fn change_traffic(&mut self, generation: u64) {
        if generation != self.traffic_generation {
            return;
        }
        self.traffic_generation += 1;
        let until = self.traffic.change(self.real, self.beat());
        if until < u64::MAX {
            self.push(until, Event::Traffic { generation: self.traffic_generation });
        }
        for desk in 0..self.desks.len() {
            self.desks[desk].arrivals += 1;
            self.draw_arrival(desk);
        }
        if self.setup.workload == Workload::HotSpot && self.phase == Phase::Trouble {
            let hot = self.traffic.hot();
            let term = nanos(term(&self.setup.plan.rules));
            self.meter.hot_spot(self.real, hot, self.traffic.rates(), term);
        }
    }

    /// Returns when a herd comes: at the limit's own boundaries if they are not too far apart, and otherwise at each
    /// second of the allocator's clock.
    fn beat(&self) -> Beat {
        let fixed = self.setup.plan.rules.iter().filter_map(Rule::fixed);
        let every =
            fixed.map(|rule| nanos(rule.per())).min().filter(|&per| per <= HERD_WAITS).unwrap_or(SECOND);
        let clock = &self.centre.clock;
        let next = (clock.show(self.real).as_nanos() / every + 1) * every;
        Beat { next: clock.when(Moment::from_nanos(next)), every }
    }

    fn draw_arrival(&mut self, desk: usize) {
        let at = self.real.saturating_add(self.traffic.gap(desk));
        if at < u64::MAX {
            self.order += 1;
            self.arrivals.push(Reverse((at, self.order, desk, self.desks[desk].arrivals)));
        }
    }

    /// Lets a caller come to `desk`.
    pub(super) fn arrive(&mut self, desk: usize) -> Verdict {
        let home = self.home(desk);
        let paused_until = self.nodes[home].paused_until;
        if paused_until > self.real {
            // The threads stand still; this call is the first thing the node does when it wakes.
            self.order += 1;
            self.arrivals.push(Reverse((paused_until, self.order, desk, self.desks[desk].arrivals)));
            return Ok(());
        }
        self.draw_arrival(desk);
        if !self.nodes[home].up {
            return Ok(());
        }
        let permits = if self.setup.cost_max > 1 { self.rng.u64(1..=self.setup.cost_max) } else { 1 };
        if self.is_in_vain() {
            self.set_aside(desk, permits);
            return Ok(());
        }
        let permits = self.or_more(permits);
        self.call(desk, permits)?;
        self.may_go_on_a_spree(desk);
        Ok(())
    }

    /// Lets some callers spend all that their node has left, when its lease is about to end.
    fn may_go_on_a_spree(&mut self, desk: usize) {
        let are_some = self.setup.sprees > 0 && self.phase == Phase::Trouble && self.rival.is_none();
        if are_some && self.rng.u64(..1_000) < self.setup.sprees {
            let (home, at) = (&self.nodes[self.home(desk)], &self.desks[desk]);
            let last = home.clock.when(at.slot.deadline()).saturating_sub(1).max(self.real);
            self.push(last, Event::Spree { desk, life: home.life });
        }
    }

    /// Lets callers spend all that `desk` has.
    pub(super) fn spree(&mut self, desk: usize, life: u64) -> Verdict {
        if self.life(desk) != life || !self.desks[desk].line.is_empty() {
            return Ok(());
        }
        let free = self.desks[desk].slot.balance().free;
        for _ in 0..free {
            if !self.take(desk, 1)? {
                break;
            }
        }
        Ok(())
    }

    fn call(&mut self, desk: usize, permits: u64) -> Verdict {
        self.meter.tried(self.real, desk, permits);
        let now = self.now().allocator;
        if let Some((exact, admitted)) = &mut self.exact {
            let verdict = exact.try_acquire(now, permits).verdict;
            *admitted += if verdict == Exact::Served(Duration::ZERO) { permits } else { 0 };
        }
        if self.desks[desk].refill.is_paced() {
            self.desks[desk].largest = self.desks[desk].largest.max(permits);
        }
        if let Some(rival) = &mut self.rival {
            rival.tried(desk, permits);
        }
        let is_served = self.desks[desk].line.is_empty() && self.take(desk, permits)?;
        let now = self.now().allocator;
        if let Some(boundary) = &mut self.meter.boundary {
            boundary.called(now, !is_served);
        }
        if self.phase == Phase::Calm && self.setup.is_owed(desk) {
            self.meter.calm(!is_served);
        }
        if is_served {
            return Ok(());
        }
        if self.desks[desk].is_shut_out {
            // Such a refusal does not count as demand.
            self.log.note(self.real, "node # is shut out and refuses #", &[desk as u64, permits]);
            self.meter.short(self.real, desk, permits, true, false);
            return Ok(());
        }
        let patience = if self.phase == Phase::Trouble { self.setup.patience } else { u64::MAX };
        self.refused_by_rival();
        let elsewhere = !self.meter.has_been_empty() && self.is_elsewhere(desk, permits);
        self.meter.short(self.real, desk, permits, patience == 0, elsewhere);
        if patience == 0 {
            self.log.note(self.real, "node # refuses #", &[desk as u64, permits]);
            self.desks[desk].refused += permits;
        } else {
            self.tickets += 1;
            let ticket = self.tickets;
            self.desks[desk].line.push_back(Waiter { ticket, since: self.real, permits });
            self.log.note(self.real, "node #: a caller waits for #", &[desk as u64, permits]);
            if patience < u64::MAX {
                let life = self.life(desk);
                self.push(self.real + patience, Event::GiveUp { desk, life, ticket });
            }
        }
        self.nudge(desk);
        Ok(())
    }

    /// Whether the pool or other desks have the permits that `desk` lacks.
    fn is_elsewhere(&mut self, desk: usize, permits: u64) -> bool {
        let (in_pool, lender) = (self.in_pool(desk), self.setup.lender(desk));
        in_pool >= permits || self.in_hand()[lender] - self.held(desk) + in_pool >= permits
    }

    /// Spends `permits` at `desk` if they are there.
    fn take(&mut self, desk: usize, permits: u64) -> Result<bool, crate::oracle::Violation> {
        let manner = self.manner(desk, permits);
        let Some(left) = self.begin_call(desk, permits, manner) else {
            return self.pass(desk, permits);
        };
        let permits = if let Manner::Reserving { needs } = manner { needs } else { permits };
        let home = self.home(desk);
        let session = self.nodes[home].session();
        self.admissions += 1;
        self.log.note(self.real, "node # admits #", &[desk as u64, permits]);
        self.meter.admitted(self.real, desk, permits);
        self.remember(permits, |world| &mut world.spends);
        if self.rival.is_some() {
            let now = self.now();
            self.over_admissions += self.oracles.of(0).tally(now, permits);
        } else {
            let way = self.margin();
            let way = if way == 0 { 0 } else { self.rng.u64(0..=way) };
            let lender = self.setup.lender(desk);
            self.oracles.admitted(lender, self.nows(lender), home, session, permits, way)?;
        }
        self.takes_time(desk, permits, manner, self.desks[desk].longest);
        self.vendor_answers(desk);
        if left < self.desks[desk].low_water {
            self.nudge(desk);
        }
        Ok(true)
    }

    /// Lets `permits` pass at `desk` on its safe share, if it goes by that and they are due.
    fn pass(&mut self, desk: usize, permits: u64) -> Result<bool, crate::oracle::Violation> {
        let now = self.nodes[self.home(desk)].now(self.real);
        let at = &mut self.desks[desk];
        if !at.uses_safe_share || !at.allowance.take(permits, now) {
            return Ok(false);
        }
        (self.admissions, self.passed) = (self.admissions + 1, self.passed + permits);
        self.log.note(self.real, "node # goes on with # by itself", &[desk as u64, permits]);
        self.meter.admitted(self.real, desk, permits);
        self.remember(permits, |world| &mut world.spends);
        let way = self.margin();
        let way = if way == 0 { 0 } else { self.rng.u64(0..=way) };
        let lender = self.setup.lender(desk);
        self.oracles.passed(lender, self.nows(lender), permits, way)?;
        self.takes_time(desk, permits, Manner::Plain, None);
        self.vendor_answers(desk);
        Ok(true)
    }

    /// Returns the longest time to the vendor that every rule allows for.
    fn margin(&self) -> u64 {
        let of_root = self.rules_of_root().unwrap_or_default();
        let windows = self.centre.rules.iter().chain(of_root).filter_map(Rule::sliding);
        windows.map(|rule| nanos(rule.margin())).min().unwrap_or(0)
    }

    /// Serves the callers that wait at `desk`, first come, first served.
    pub(super) fn serve_line(&mut self, desk: usize) -> Verdict {
        while let Some(waiter) = self.desks[desk].line.front().copied() {
            if !self.take(desk, waiter.permits)? {
                break;
            }
            self.desks[desk].line.pop_front();
            self.waited(desk, waiter.since)?;
        }
        Ok(())
    }

    /// Looks after the line of `desk` once something happened there.
    pub(super) fn attend(&mut self, desk: usize) -> Verdict {
        self.await_due(desk);
        self.no_caller_is_passed_over(desk)
    }

    /// Lets the first in line at `desk` be called when the next permit of a steady flow is due.
    fn await_due(&mut self, desk: usize) {
        let home = &self.nodes[self.home(desk)];
        if let Some(due) = self.desks[desk].next_due(home, self.real) {
            let at = &mut self.desks[desk];
            if due < at.due {
                at.due = due;
                let (life, late) = (home.life, self.rng.u64(0..=TIMER_LATE));
                self.push(due + late, Event::Due { desk, life });
            }
        }
    }

    pub(super) fn due(&mut self, desk: usize, life: u64) -> Verdict {
        if self.life(desk) != life {
            return Ok(());
        }
        self.desks[desk].due = u64::MAX;
        self.serve_line(desk)
    }

    pub(super) fn give_up(&mut self, desk: usize, life: u64, ticket: u64) -> Verdict {
        let is_alive = self.life(desk) == life;
        let at = &mut self.desks[desk];
        let place = at.line.iter().position(|waiter| waiter.ticket == ticket);
        if let Some(place) = place
            && is_alive
        {
            let waiter = at.line.remove(place).expect("it is there");
            at.refused += waiter.permits;
            self.log.note(self.real, "node #: a caller gives up on #", &[desk as u64, waiter.permits]);
            self.meter.short(self.real, desk, waiter.permits, true, false);
            // The caller that is first now may want fewer permits.
            self.serve_line(desk)?;
        }
        Ok(())
    }
}
