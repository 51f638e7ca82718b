//! Draws fleets with rules that have options, with processes that stand still, and with a store whose clock is set while
//! no allocator watches.

use super::{
    dice, in_full_use, of_store, on_crooked_ways, regions, regions_by, regions_changed, rule, store, store_by,
};
use crate::faults::Fault;
use crate::generator::{draw_distances, outside};
use crate::live::{Act, Live};
use crate::setup::Setup;
use crate::topology::Fate;
use crate::{MILLI, SECOND};
use lessor_ledger::Rule;
use lessor_ledger::rule::{FixedWindow, SlidingWindow, TokenBucket, WarmUp, Windows};
use std::time::Duration;

/// Draws allocators that share a store, whose processes stand still for up to some seconds each. An answer of the store
/// that is there in time may be read seconds later. Every other fleet is in full use.
pub fn store_paused(seed: u64) -> Setup {
    let mut rng = dice(seed, 50);
    let mut setup = store_by(vec![rule(20..600, 300..4_000, &mut rng)], 0, seed, &mut rng);
    if seed.is_multiple_of(2) {
        setup = in_full_use(setup, &[], 0);
    }
    of_store(&mut setup).count = rng.usize(2..=3);
    pauses(&mut rng, &mut setup);
    setup.named()
}

/// Draws [`regions_changed`] whose processes stand still, and whose limit operators pause again and again.
pub fn regions_paused(seed: u64) -> Setup {
    let mut setup = regions_changed(seed);
    let mut rng = dice(seed, 51);
    if seed.is_multiple_of(2) {
        pauses(&mut rng, &mut setup);
    }
    let mut at = 0;
    loop {
        at += rng.u64(SECOND / 2..4 * SECOND);
        if at >= setup.lasts {
            return setup.named();
        }
        setup.live.push(Live { at, act: Act::Pause(rng.u64(100..3_000) * MILLI) });
    }
}

/// Draws allocators that share a store, with a rule that has options. Half of the fleets are in full use and cannot tell
/// the time well.
pub fn store_rules(seed: u64) -> Setup {
    let mut rng = dice(seed, 52);
    let setup = store_by(vec![broad(&mut rng)], 0, seed, &mut rng);
    match seed % 2 {
        0 => on_crooked_ways(in_full_use(setup, &[], 0), &mut rng).named(),
        _ => setup.named(),
    }
}

/// Draws regions below an allocator, with a rule that has options.
pub fn regions_rules(seed: u64) -> Setup {
    let mut rng = dice(seed, 53);
    let rule = broad(&mut rng);
    regions_by(rule, seed, &mut rng)
}

/// Draws a store in full use of a rule of some seconds. All its allocators die now and then, and the clock of the store is
/// set before any of them is back.
pub fn store_unwatched(seed: u64) -> Setup {
    let mut rng = dice(seed, 54);
    let rule = rule(50..300, 1_000..4_000, &mut rng);
    in_full_use(store_by(vec![rule], 0, seed, &mut rng), &[Fate::SetUnwatched], 5 * SECOND).named()
}

/// Draws [`regions`] whose vendor has less than it should, which nodes report to their regions. Nodes of every other fleet
/// are at two or three distances from their region.
pub fn regions_outside(seed: u64) -> Setup {
    less_at_vendor(regions(seed), dice(seed, 55))
}

/// Draws a [`store`] as [`regions_outside`].
pub fn store_outside(seed: u64) -> Setup {
    less_at_vendor(store(seed), dice(seed, 56))
}

fn less_at_vendor(setup: Setup, mut rng: fastrand::Rng) -> Setup {
    let mut setup = outside(setup, &mut rng);
    if setup.seed.is_multiple_of(2) {
        draw_distances(&mut rng, &mut setup);
    }
    setup.named()
}

/// Lets processes of regions stand still.
fn pauses(rng: &mut fastrand::Rng, setup: &mut Setup) {
    let (every, longest) = (rng.u64(SECOND / 2..4 * SECOND), rng.u64(SECOND / 2..4 * SECOND));
    setup.faults.every.insert(Fault::RegionPause, (every, longest));
}

/// Draws a sliding log or window with a margin, a bucket with debt or a warm-up, or a window that the first grant opens.
fn broad(rng: &mut fastrand::Rng) -> Rule {
    let (limit, per) = (rng.u64(20..600), Duration::from_millis(rng.u64(300..4_000)));
    let margin = if rng.bool() { Duration::ZERO } else { per / rng.u32(2..=10) };
    let bucket = || TokenBucket::try_new(limit, limit, per, limit);
    let rule = match rng.u32(..5) {
        0 => SlidingWindow::try_new(limit, per, margin).map(Rule::SlidingLog),
        1 => SlidingWindow::try_new(limit, per, per / rng.u32(2..=10)).map(Rule::SlidingWindow),
        2 => FixedWindow::of(limit, Windows::FirstUse { per }).map(Rule::FixedWindow),
        3 => bucket().and_then(|rule| rule.with_debt(rng.u64(1..=limit))).map(Rule::TokenBucket),
        _ => {
            let warm_up = WarmUp::try_new(per * rng.u32(1..=3), rng.u64(2..=4));
            let rule = bucket().and_then(|rule| rule.with_warm_up(warm_up?));
            rule.map(Rule::TokenBucket)
        }
    };
    rule.expect("numbers in range")
}
