//! Draws fleets of allocators that share a store, whose nodes go on with a part of the reserve while no allocator answers.

use super::{dice, in_full_use, of_store, store_by};
use crate::faults::Fault;
use crate::generator::draw_safe;
use crate::network::Latency;
use crate::setup::Setup;
use crate::topology::Fate;
use crate::{MILLI, SECOND};
use lessor_ledger::Rule;
use lessor_ledger::rule::{FixedWindow, SlidingWindow};
use lessor_ledger::share::Safe;
use std::time::Duration;

/// Allocators that share a store, in trouble. Nodes and allocators are cut off for seconds, and spend on.
pub fn store_safe(seed: u64) -> Setup {
    let mut rng = dice(seed, 21);
    let (limit, per) = (rng.u64(20..600), Duration::from_millis(rng.u64(300..4_000)));
    let rule = windows(limit, per, &mut rng);
    let mut setup = store_by(vec![rule], 0, seed, &mut rng);
    draw_safe(&mut rng, rule.ceiling(), &mut setup);
    let shared = of_store(&mut setup);
    shared.is_clockless = matches!(rule, Rule::SlidingWindow(_)) && seed % 4 == 1;
    setup.faults.every.insert(Fault::Cut, (SECOND, 6 * SECOND));
    setup.lasts = 30 * SECOND;
    setup.named()
}

/// The same in full use, with half of the limit in one share that lasts for about a second. Nodes are cut off all the time. In every
/// other fleet, allocators are cut off from the store for longer than a share lasts; in the others nodes die, letters get lost, and in
/// one of three something becomes of the store.
pub fn store_safe_close(seed: u64) -> Setup {
    let mut rng = dice(seed, 22);
    let (limit, per) = (rng.u64(8..100), Duration::from_millis(rng.u64(300..1_000)));
    let rule = windows(limit, per, &mut rng);
    let fates: &[Fate] = if seed % 6 == 1 { &[Fate::Copied, Fate::Set, Fate::Started] } else { &[] };
    let mut setup = in_full_use(store_by(vec![rule], 0, seed, &mut rng), fates, 20 * SECOND);
    (of_store(&mut setup).count, setup.nodes) = (3, 6);
    setup.demand *= 2.0;
    setup.latency = Latency { one_way: MILLI / 2, jitter: MILLI / 4 };
    let lasts = Duration::from_millis(rng.u64(500..1_500));
    let sharing = &mut setup.plan.sharing;
    (sharing.reserve, sharing.safe) = (limit / 2, Some(Safe { nodes: 1, lasts }));
    setup.faults.every.insert(Fault::Cut, (SECOND, 5 * SECOND));
    if seed.is_multiple_of(2) {
        setup.faults.every.insert(Fault::RegionCut, (6 * SECOND, 12 * SECOND));
    } else {
        setup.faults.chance.insert(Fault::Loss, rng.f64() * 0.1);
        setup.faults.every.insert(Fault::NodeCrash, (4 * SECOND, MILLI));
        setup.faults.every.insert(Fault::RegionCrash, (40 * SECOND, MILLI));
    }
    setup.lasts = 120 * SECOND;
    setup.named()
}

fn windows(limit: u64, per: Duration, rng: &mut fastrand::Rng) -> Rule {
    let rule = match rng.bool() {
        true => SlidingWindow::try_new(limit, per, Duration::ZERO).map(Rule::SlidingWindow),
        false => FixedWindow::try_new(limit, per).map(Rule::FixedWindow),
    };
    rule.expect("numbers in range")
}
