//! Fleets whose allocator dies again and again, and has forgotten or written down what it lent.

use super::{alone, flow, sliding};
use lessor_ledger::Rule;
use lessor_ledger::rule::Concurrency;
use lessor_sim::faults::Fault;
use lessor_sim::network::Latency;
use lessor_sim::setup::Setup;
use lessor_sim::traffic::Workload;
use lessor_sim::{MILLI, SECOND};
use std::time::Duration;

/// A window of a second or so, in little or full use, under changing demand.
pub(super) fn written(setup: Setup, dice: &mut fastrand::Rng) -> Setup {
    let rule = sliding(dice.u64(50..=400), Duration::from_millis(dice.u64(500..=3_000)));
    // In little use, leases go on for long without anything new.
    let load = [0.2, 0.7, 1.5][dice.usize(..3)];
    let mut setup = writing(alone(setup, rule, load), dice);
    setup.lasts = 150 * SECOND;
    setup
}

/// A cap on calls in flight beside a window that hardly matters: its spent permits are not spent again.
pub(super) fn written_cap(setup: Setup, dice: &mut fastrand::Rng) -> Setup {
    let longest = Duration::from_millis(dice.u64(500..=5_000));
    let cap = Concurrency::try_new(dice.u64(2..=20), longest).expect("numbers in range");
    let mut setup = writing(alone(setup, Rule::Concurrency(cap), 10.0), dice);
    setup.plan.rules.insert(0, sliding(1_000, Duration::from_secs(2)));
    setup.lasts = 60 * SECOND;
    setup
}

/// A steady flow of which all nodes have a part, or take turns.
pub(super) fn written_flow(setup: Setup, dice: &mut fastrand::Rng) -> Setup {
    let mut setup = writing(flow(setup, dice), dice);
    setup.lasts = 60 * SECOND;
    setup
}

/// Changes `setup` to an allocator that dies every second and writes down what it lends, without other faults.
pub(super) fn writing(setup: Setup, dice: &mut fastrand::Rng) -> Setup {
    let mut setup = restarts(setup, dice);
    setup.faults.every.insert(Fault::AllocatorRestart, (SECOND, 50 * MILLI));
    setup.workload = Workload::ALL[dice.usize(..Workload::ALL.len())];
    setup.latency = Latency { one_way: MILLI, jitter: MILLI };
    setup.store = if dice.bool() { dice.u64(MILLI / 2..=10 * MILLI) } else { dice.u64(30..=100) * MILLI };
    setup.nodes = dice.usize(1..=4);
    setup.plan.ease_off = false;
    setup
}

/// Leaves no fault but an allocator that dies every few seconds.
pub(super) fn restarts(mut setup: Setup, dice: &mut fastrand::Rng) -> Setup {
    setup.faults.chance.clear();
    setup.faults.every.clear();
    setup.adversaries.clear();
    let (every, lasts) = (dice.u64(5..=10) * SECOND, dice.u64(10..=100) * MILLI);
    setup.faults.every.insert(Fault::AllocatorRestart, (every, lasts));
    setup.lasts = 20 * SECOND;
    setup
}
