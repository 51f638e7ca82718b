//! The parts of a run: trouble, then calm in which progress is owed, then silence in which everything comes back.

use super::event::Phase;
use super::{World, memory, sustained};
use crate::sim::SECOND;
use crate::sim::oracle::{Verdict, Wrong};
use crate::sim::setup::Setup;
use crate::sim::traffic::Workload;
use lessor_allocator::rules::term;
use lessor_protocol::Rule;
use lessor_protocol::moment::nanos;

impl World {
    pub(super) fn next(&mut self, phase: Phase) -> Verdict {
        self.phase = phase;
        self.log.note(self.real, "-- the next part begins: #", &[phase as u64]);
        match phase {
            Phase::Trouble => {}
            Phase::Settling => {
                self.mend_all();
                // All that a limit holds goes out and comes back in a few terms at best, however fast it refills.
                let turn = 4.0 * term(&self.setup.plan.rules).as_secs_f64();
                let sustained =
                    sustained(&self.setup.plan.rules).min(self.centre.pool.ceiling() as f64 / turn);
                self.setup.cost_max = 1;
                self.traffic.turn_into(Workload::Steady, (sustained / 5.0).min(2_000.0));
                self.change_traffic(self.traffic_generation);
            }
            Phase::Calm => self.calm_since = self.real,
            Phase::Silence => {
                self.nobody_waits_too_long()?;
                for node in &mut self.nodes {
                    node.line.clear();
                }
                self.traffic.turn_into(Workload::Steady, 0.0);
                self.change_traffic(self.traffic_generation);
            }
        }
        Ok(())
    }

    /// V2: whoever waits has not waited long.
    fn nobody_waits_too_long(&self) -> Verdict {
        for (index, node) in self.nodes.iter().enumerate() {
            for waiter in &node.line {
                self.waited(index, waiter.since)?;
            }
        }
        Ok(())
    }

    pub(super) fn waited(&self, node: usize, since: u64) -> Verdict {
        let waited = self.real.saturating_sub(since.max(self.calm_since));
        if self.phase >= Phase::Calm && waited > self.bound {
            let what =
                format!("a caller on node {node} has waited {:?}", std::time::Duration::from_nanos(waited));
            return Err(Wrong { is_over: false, what });
        }
        Ok(())
    }

    /// V1: after silence, every permit can be granted again.
    pub(super) fn end(&mut self) -> Verdict {
        let never = |rule: &Rule| matches!(rule, Rule::TokenBucket(rule) if rule.refill() == 0);
        if !self.setup.then_calm || self.setup.plan.rules.iter().any(never) {
            return Ok(());
        }
        let view = self.centre.pool.view(self.centre.clock.show(self.real));
        let ceiling = self.centre.pool.ceiling();
        if view.available != ceiling || view.books.outstanding != 0 {
            let what =
                format!("{} of {ceiling} can be granted after a long silence: {view:?}", view.available);
            return Err(Wrong { is_over: false, what });
        }
        Ok(())
    }
}

/// How long a caller may wait once it is calm: a few windows, and more where one window does not serve all nodes.
pub(super) fn longest_wait(setup: &Setup) -> u64 {
    let ceiling = setup.plan.rules.iter().map(Rule::ceiling).min().unwrap_or(0).max(1);
    let rounds = 4 + 2 * (setup.nodes as u64).div_ceil(ceiling);
    rounds * memory(&setup.plan.rules) + 10 * nanos(term(&setup.plan.rules)) + SECOND
}
