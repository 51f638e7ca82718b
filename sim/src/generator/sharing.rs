//! Draws what operators say of how a limit is shared.

use super::log_uniform;
use crate::faults::Fault;
use crate::live::Act;
use crate::setup::Setup;
use lessor_ledger::Rule;
use lessor_ledger::share::Safe;
use std::time::Duration;

/// Some of what an operator may say of how a limit with `ceiling` is shared.
pub(super) fn draw_sharing(rng: &mut fastrand::Rng, ceiling: u64, setup: &mut Setup) {
    let sharing = &mut setup.plan.sharing;
    if rng.bool() {
        sharing.reserve = rng.u64(0..=ceiling / 2).min(ceiling.saturating_sub(1));
    }
    if rng.bool() {
        sharing.lease_max = log_uniform(rng, 1, ceiling.max(1)).max(setup.cost_max);
    }
    if rng.bool() {
        setup.priorities = rng.u64(2..=3);
    }
    let mut free = (ceiling - sharing.reserve) / 2;
    while free > 0 && sharing.guaranteed.len() < 3 && rng.bool() {
        let permits = rng.u64(1..=free);
        free -= permits;
        sharing.guaranteed.push(permits);
    }
}

/// Some nodes go on with a part of the reserve while no allocator answers, where the limit counts in windows.
pub(super) fn draw_safe(rng: &mut fastrand::Rng, ceiling: u64, setup: &mut Setup) {
    let counts = |rule: &Rule| match rule {
        Rule::SlidingWindow(_) | Rule::SlidingLog(_) => true,
        Rule::FixedWindow(rule) => rule.windows().anchor() == Some("epoch"),
        Rule::TokenBucket(_) | Rule::LeakyBucket(_) | Rule::Concurrency(_) => false,
    };
    let guaranteed = !setup.plan.sharing.guaranteed.is_empty();
    if setup.above > 0 || ceiling < 2 || guaranteed || !setup.rule_sets().flatten().all(counts) {
        return;
    }
    let sharing = &mut setup.plan.sharing;
    sharing.reserve = sharing.reserve.max(rng.u64(1..=ceiling / 2));
    let nodes = rng.u64(1..=sharing.reserve.min(2 * setup.nodes as u64));
    let lasts = Duration::from_millis(rng.u64(1_000..=20_000));
    sharing.safe = Some(Safe { nodes, lasts });
    // What is lowered must leave more than is kept back.
    setup.live.retain(|live| !matches!(live.act, Act::Change(..)));
    // One that spends by its clock spends too much if that jumps ahead.
    setup.faults.every.remove(&Fault::ClockJump);
}
