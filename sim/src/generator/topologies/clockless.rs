//! Draws fleets of allocators that share a store without a clock, so one of them keeps the time.

use super::{dice, in_full_use, of_store, store_by, strike_processes};
use crate::faults::Fault;
use crate::setup::Setup;
use crate::topology::Fate;
use crate::{MILLI, SECOND};
use lessor_ledger::Rule;
use lessor_ledger::rule::{FixedWindow, SlidingWindow, TokenBucket, Windows};
use std::ops::Range;
use std::time::Duration;

/// Draws allocators that share a store without a clock. In every other fleet they come and go all the time, so that one
/// after the other keeps the time. In the rest, fates may strike the store.
pub fn store_clockless(seed: u64) -> Setup {
    let mut rng = dice(seed, 18);
    let rule = timeless(20..600, 300..6_000, &mut rng);
    let mut setup = store_by(vec![rule], 0, seed, &mut rng);
    let (nodes, allocators) = (setup.nodes as u64, setup.lenders() as u64);
    if seed.is_multiple_of(2) {
        strike_processes(&mut setup.faults, 2 * SECOND, nodes, allocators);
    }
    let shared = of_store(&mut setup);
    shared.is_clockless = true;
    shared.fates = vec![Fate::Copied, Fate::Emptied, Fate::EmptiedUnderway, Fate::Behind, Fate::Started];
    setup.named()
}

/// Draws a store without a clock in full use of a short rule, where a few milliseconds matter. Allocators come and go
/// all the time.
pub fn store_clockless_close(seed: u64) -> Setup {
    let mut rng = dice(seed, 19);
    let rule = timeless(50..300, 500..1_500, &mut rng);
    let mut setup = in_full_use(store_by(vec![rule], 0, seed, &mut rng), &[], 0);
    let shared = of_store(&mut setup);
    (shared.is_clockless, shared.count) = (true, 4);
    setup.faults.chance.insert(Fault::Loss, rng.f64() * 0.05);
    setup.faults.every.insert(Fault::RegionCut, (2 * SECOND, 4 * SECOND));
    setup.faults.every.insert(Fault::RegionCrash, (20 * SECOND, MILLI));
    setup.lasts = 60 * SECOND;
    setup.drifting = seed.is_multiple_of(4);
    setup.named()
}

/// Draws a store without a clock, with a rule of some seconds and without such frequent faults.
pub fn store_of_seconds_clockless(seed: u64) -> Setup {
    let mut rng = dice(seed, 20);
    let rule = timeless(100..600, 2_000..6_000, &mut rng);
    let mut setup = store_by(vec![rule], 0, seed, &mut rng);
    of_store(&mut setup).is_clockless = true;
    setup.named()
}

/// Draws a store with faults and a window that the first grant opens. In every other fleet the store has no clock.
pub fn store_first_use(seed: u64) -> Setup {
    let mut rng = dice(seed, 40);
    let (limit, per) = (rng.u64(20..600), Duration::from_millis(rng.u64(300..4_000)));
    let rule = FixedWindow::of(limit, Windows::FirstUse { per }).expect("numbers in range");
    let mut setup = store_by(vec![Rule::FixedWindow(rule)], 0, seed, &mut rng);
    of_store(&mut setup).is_clockless = seed.is_multiple_of(2);
    setup.named()
}

/// Draws a rule without windows that begin by the clock: the oracle's clock differs from the keeper's.
fn timeless(limit: Range<u64>, millis: Range<u64>, rng: &mut fastrand::Rng) -> Rule {
    let (limit, per) = (rng.u64(limit), Duration::from_millis(rng.u64(millis)));
    let rule = match rng.bool() {
        true => SlidingWindow::try_new(limit, per, Duration::ZERO).map(Rule::SlidingWindow),
        false => TokenBucket::try_new(limit, limit, per, limit).map(Rule::TokenBucket),
    };
    rule.expect("numbers in range")
}
