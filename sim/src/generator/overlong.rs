//! Draws fleets whose calls last longer than the longest time, on nodes that keep reporting them.

use crate::faults::{Fault, Faults};
use crate::network::Latency;
use crate::setup::{Calls, Setup};
use crate::text::bare;
use crate::{MILLI, SECOND};
use lessor_ledger::Rule;
use lessor_ledger::rule::Concurrency;
use std::time::Duration;

/// The longest that a call should take, in nanoseconds.
const LONGEST: u64 = 500 * MILLI;

/// The longest that a node is silent, in nanoseconds: its lease ends meanwhile, and no call counts as over yet.
const SILENT: u64 = 400 * MILLI;

/// Draws two or three nodes on a cap of a few calls. Leases end during calls, because asks are late and nodes stand
/// still.
pub fn overlong(seed: u64) -> Setup {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x04e2_0000_0000_0000);
    let cap = Concurrency::try_new(rng.u64(2..=6), Duration::from_nanos(LONGEST)).expect("numbers in range");
    let mut faults = Faults::default();
    faults.every.insert(Fault::NodePause, (SECOND / 10, SILENT));
    let mut setup = Setup { seed, calls: Calls::Overlong, faults, ..bare() };
    setup.plan.rules = vec![Rule::Concurrency(cap)];
    setup.plan.ease_off = rng.bool();
    (setup.nodes, setup.demand) = (rng.usize(2..=3), 200.0);
    setup.latency = Latency { one_way: MILLI / 2, jitter: 2 * MILLI };
    (setup.drifting, setup.lasts) = (true, 20 * SECOND);
    setup.named()
}
