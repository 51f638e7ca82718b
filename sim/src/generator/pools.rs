//! Draws nodes that ask several limits in one exchange.

use crate::setup::Setup;

/// The most nodes of which each asks several limits: a judge looks at all of their desks after each step.
const NODES_MAX: usize = 10;

/// Several limits for each node of some fleets. Some of these limits are below no other one.
pub(super) fn draw_pools(rng: &mut fastrand::Rng, setup: &mut Setup) {
    if setup.siblings == 0 && setup.above == 0 && setup.live.is_empty() && rng.u32(..6) == 0 {
        setup.siblings = rng.usize(1..=3);
    }
    if setup.siblings > 0 && setup.nodes <= NODES_MAX && rng.u32(..4) > 0 {
        setup.pools = rng.usize(2..=setup.limits());
    }
}

/// How many identities nodes belong to, of one fleet in four.
pub(super) fn draw_identities(seed: u64) -> u64 {
    // From dice of its own, so that the rest is as it would be without them.
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x1de7_0000_0000_0000);
    if rng.u32(..4) == 0 { rng.u64(1..=3) } else { 0 }
}

/// How many sessions the limit remembers: one more than there are nodes if they `are_scarce`. All of one identity leave others a tenth.
pub(super) fn lessees_max(are_scarce: bool, nodes: usize, seed: u64) -> usize {
    let spare = if draw_identities(seed) == 1 { 1 + nodes / 6 } else { 1 };
    if are_scarce { nodes + spare } else { 10_000 }
}
