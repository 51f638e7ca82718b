//! An allocator that writes down what it lends, and dies while it does.

use super::{alone, restarts, sliding};
use crate::sim::network::Latency;
use crate::sim::setup::Setup;
use crate::sim::{MILLI, SECOND};
use std::time::Duration;

/// A window of a second or so, half in use: there is always something to lend, so that blocks are large.
pub(super) fn written(setup: Setup, dice: &mut fastrand::Rng) -> Setup {
    let rule = sliding(dice.u64(50..=400), Duration::from_millis(dice.u64(500..=3_000)));
    let load = if dice.bool() { 0.7 } else { 1.5 };
    let mut setup = restarts(alone(setup, rule, load), dice);
    setup.latency = Latency { one_way: MILLI, jitter: MILLI };
    setup.store = if dice.bool() { dice.u64(MILLI / 2..=10 * MILLI) } else { dice.u64(30..=100) * MILLI };
    setup.nodes = dice.usize(1..=4);
    setup.plan.ease_off = false;
    setup.lasts = 60 * SECOND;
    setup
}
