//! Draws fleets whose limit is removed and put again while answers wait for a slow store, and whose allocator dies in
//! between. The file has the limit at each start.

use super::topologies::rule_of;
use crate::faults::{Fault, Faults};
use crate::live::{Act, Live};
use crate::network::Latency;
use crate::setup::Setup;
use crate::text::bare;
use crate::world::sustained;
use crate::{MILLI, SECOND};
use lessor_ledger::CarryOver;
use std::time::Duration;

/// Draws a few nodes that want twice what the limit allows.
pub fn removed(seed: u64) -> Setup {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x2e40_7ed0_0000_0000);
    let (limit, per) = (rng.u64(100..1_000), Duration::from_millis(rng.u64(4_000..10_000)));
    let rule = rule_of(limit, per, &mut rng);
    let mut faults = Faults::default();
    faults.every.insert(Fault::AllocatorRestart, (SECOND, 20 * MILLI));
    let mut setup = Setup { seed, faults, ..bare() };
    setup.plan.rules = vec![rule];
    setup.plan.ease_off = rng.bool();
    setup.nodes = rng.usize(2..=6);
    setup.demand = 2.0 * sustained(&setup.plan.rules);
    setup.latency = Latency { one_way: MILLI / 2, jitter: MILLI };
    setup.store = rng.u64(10..50) * MILLI;
    (setup.drifting, setup.lasts) = (true, 40 * SECOND);
    let mut at = SECOND;
    while at < setup.lasts {
        at += rng.u64(SECOND / 20..SECOND);
        setup.live.push(Live { at, act: Act::Remove });
        at += rng.u64(SECOND / 2..2 * SECOND);
        let as_before = Act::Change(CarryOver::AsIs, setup.plan.rules.clone());
        setup.live.push(Live { at, act: as_before });
    }
    setup.named()
}
