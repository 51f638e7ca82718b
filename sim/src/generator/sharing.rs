//! Draws how operators let a limit be shared.

use super::log_uniform;
use crate::faults::Fault;
use crate::live::Act;
use crate::setup::Setup;
use lessor_ledger::Rule;
use lessor_ledger::rule::FixedWindow;
use lessor_ledger::share::Safe;
use std::time::Duration;

/// Draws some options of sharing for a limit with `ceiling`.
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

/// Lets some nodes go on with a part of the reserve while no allocator answers, if the limit counts in windows.
pub(super) fn draw_safe(rng: &mut fastrand::Rng, ceiling: u64, setup: &mut Setup) {
    let is_aligned = |rule: &FixedWindow| rule.windows().anchor() == Some("epoch");
    let counts = |rule: &Rule| rule.sliding().is_some() || rule.fixed().is_some_and(is_aligned);
    let guaranteed = !setup.plan.sharing.guaranteed.is_empty();
    if setup.above > 0 || ceiling < 2 || guaranteed || !setup.rule_sets().flatten().all(counts) {
        return;
    }
    let sharing = &mut setup.plan.sharing;
    sharing.reserve = sharing.reserve.max(rng.u64(1..=ceiling / 2));
    let nodes = rng.u64(1..=sharing.reserve.min(2 * setup.nodes as u64));
    let lasts = Duration::from_millis(rng.u64(1_000..=20_000));
    sharing.safe = Some(Safe { nodes, lasts });
    // A lowered limit must have more than the reserve, so there are no changes.
    setup.live.retain(|live| !matches!(live.act, Act::Change(..)));
    // A node that spends by its clock spends too much if the clock jumps ahead.
    setup.faults.every.remove(&Fault::ClockJump);
}
