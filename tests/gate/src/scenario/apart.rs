//! Fleets whose nodes are by themselves for longer than a lease lasts: with calls that stand still, or without a link.

use super::{alone, sliding};
use lessor_ledger::share::Safe;
use lessor_sim::faults::Fault;
use lessor_sim::network::Latency;
use lessor_sim::setup::Setup;
use lessor_sim::{MILLI, SECOND};
use std::time::Duration;

/// One or two nodes: the permits that one sets aside are a large part of all, and few are left for its next lease.
pub(super) fn in_vain(setup: Setup, dice: &mut fastrand::Rng) -> Setup {
    let per = Duration::from_millis(dice.u64(500..=3_000));
    let mut setup = alone(setup, sliding(dice.u64(10..=60), per), 20.0);
    (setup.cost_max, setup.in_vain, setup.patience) = (6, 90, 0);
    setup.nodes = dice.usize(1..=2);
    setup.faults.chance = [(Fault::Loss, 0.4)].into();
    setup.lasts = 200 * SECOND;
    setup
}

/// Up to half of a window in safe shares for one or two nodes, of more.
pub(super) fn cut_off(setup: Setup, dice: &mut fastrand::Rng) -> Setup {
    let (limit, per) = (dice.u64(4..=30), Duration::from_millis(dice.u64(300..=4_000)));
    let mut setup = alone(setup, sliding(limit, per), 6.0);
    setup.nodes = dice.usize(4..=8);
    setup.plan.sharing.reserve = dice.u64(2..=limit / 2);
    // Some shares are shorter than a window: the spends of one still count when the next one is told.
    let lasts = Duration::from_millis(dice.u64(500..=4_000));
    setup.plan.sharing.term_max = Duration::from_millis(200);
    setup.plan.sharing.safe = Some(Safe { nodes: dice.u64(1..=2), lasts });
    (setup.cost_max, setup.patience) = (4, 0);
    setup.faults.every =
        [(Fault::Cut, (SECOND, 10 * SECOND)), (Fault::NodeCrash, (10 * SECOND, MILLI))].into();
    setup.faults.chance.clear();
    setup.lasts = 100 * SECOND;
    setup
}

/// One node at a time has a safe share, for less than a window: its spends still count when the next share is told.
pub(super) fn handed_on(setup: Setup, dice: &mut fastrand::Rng) -> Setup {
    let (limit, per) = (dice.u64(4..=8), Duration::from_secs(dice.u64(10..=20)));
    let mut setup = alone(setup, sliding(limit, per), 20.0);
    setup.nodes = dice.usize(3..=5);
    setup.plan.sharing.reserve = limit / 2;
    setup.plan.sharing.term_max = Duration::from_millis(50);
    let lasts = Duration::from_secs(dice.u64(3..=6));
    setup.plan.sharing.safe = Some(Safe { nodes: 1, lasts });
    (setup.cost_max, setup.patience) = (limit / 2, 0);
    setup.latency = Latency { one_way: MILLI, jitter: MILLI };
    setup.faults.every = [(Fault::Cut, (2 * SECOND, 12 * SECOND))].into();
    setup.faults.chance.clear();
    setup.lasts = 600 * SECOND;
    setup
}

/// Leases end unheard, on clocks that no longer agree about how long that takes.
pub(super) fn slewed(setup: Setup, dice: &mut fastrand::Rng) -> Setup {
    let (limit, per) = (dice.u64(20..=200), Duration::from_millis(dice.u64(300..=2_000)));
    let mut setup = alone(setup, sliding(limit, per), 4.0);
    setup.nodes = dice.usize(2..=5);
    setup.patience = 0;
    setup.latency = Latency { one_way: MILLI, jitter: MILLI };
    setup.faults.every =
        [(Fault::Cut, (SECOND, 2 * SECOND)), (Fault::ClockSlew, (SECOND / 2, 2 * SECOND))].into();
    setup.faults.chance = [(Fault::Loss, 0.2)].into();
    setup
}
