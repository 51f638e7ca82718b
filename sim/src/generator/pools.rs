//! Draws nodes that ask several limits in one exchange.

use crate::setup::Setup;

/// Most nodes that ask several limits each: the checks look at all of their desks after each step.
const NODES_MAX: usize = 10;

/// Lets each node of some fleets ask several limits. Some of these limits have no parent.
pub(super) fn draw_pools(rng: &mut fastrand::Rng, setup: &mut Setup) {
    if setup.siblings == 0 && setup.above == 0 && setup.live.is_empty() && rng.u32(..6) == 0 {
        setup.siblings = rng.usize(1..=3);
    }
    if setup.siblings > 0 && setup.nodes <= NODES_MAX && rng.u32(..4) > 0 {
        setup.pools = rng.usize(2..=setup.limits());
    }
}

/// Draws the number of identities of nodes, in one fleet of four.
pub(super) fn draw_identities(seed: u64) -> u64 {
    // A generator of its own, so the rest is drawn as it would be without identities.
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x1de7_0000_0000_0000);
    if rng.u32(..4) == 0 { rng.u64(1..=3) } else { 0 }
}

/// Returns how many sessions the limit remembers: if they `are_scarce`, one more than there are nodes. Sessions of a
/// single identity must leave a tenth to others, so there is room for more.
pub(super) fn lessees_max(are_scarce: bool, nodes: usize, seed: u64) -> usize {
    let spare = if draw_identities(seed) == 1 { 1 + nodes / 6 } else { 1 };
    if are_scarce { nodes + spare } else { 10_000 }
}
