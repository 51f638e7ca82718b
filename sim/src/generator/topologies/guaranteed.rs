//! Draws fleets of allocators that share a store, where groups of nodes are guaranteed parts of the limit.

use super::{dice, in_full_use, in_use, of_store, rule, store_by};
use crate::setup::Setup;
use crate::topology::Fate;
use lessor_ledger::Rule;

/// Draws a store with faults. One to three groups of nodes are guaranteed up to two thirds of the limit together.
pub fn store_guaranteed(seed: u64) -> Setup {
    let mut rng = dice(seed, 23);
    let rule = rule(20..600, 300..6_000, &mut rng);
    let mut setup = store_by(vec![rule], 0, seed, &mut rng);
    let mut free = rule.ceiling() / 3 * 2;
    for _ in 0..rng.u32(1..=3) {
        let permits = rng.u64(1..=free.max(2) / 2);
        free = free.saturating_sub(permits);
        setup.plan.sharing.guaranteed.push(permits);
    }
    if seed % 3 == 1 {
        setup = in_full_use(setup, &[Fate::Copied, Fate::Set, Fate::Started], 4 * crate::SECOND);
    }
    of_store(&mut setup).is_clockless = matches!(rule, Rule::SlidingWindow(_)) && seed % 4 == 1;
    setup.named()
}

/// Draws two or three allocators that share a store, with a rule of some seconds and no faults. A third of the nodes
/// are guaranteed six tenths of the limit, a third a tenth, and a third nothing. Each group has nodes at one allocator
/// only, or at both. Together they want five times what there is.
pub fn store_guaranteed_in_use(seed: u64) -> Setup {
    let mut rng = dice(seed, 24);
    let rule = rule(200..600, 2_000..6_000, &mut rng);
    let setup = store_by(vec![rule], 0, seed, &mut rng);
    let mut setup = in_use(setup, 5.0);
    // Nodes go round the allocators and the groups: three allocators have one group each.
    let allocators = if seed.is_multiple_of(2) { 3 } else { 2 };
    (of_store(&mut setup).count, setup.nodes) = (allocators, 6);
    of_store(&mut setup).far.one_way = crate::MILLI;
    of_store(&mut setup).far.jitter = crate::MILLI / 2;
    setup.plan.sharing.guaranteed = vec![rule.ceiling() / 10 * 6, rule.ceiling() / 10];
    setup.lasts = 40 * crate::SECOND;
    setup.named()
}
