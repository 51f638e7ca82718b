//! Draws fleets whose nodes go on with a part of the reserve while no allocator answers. Most have allocators that
//! share a store.

use super::{dice, in_full_use, of_store, store_by};
use crate::faults::Fault;
use crate::generator::sharing::draw_safe;
use crate::live::{Act, Live};
use crate::network::Latency;
use crate::setup::Setup;
use crate::topology::{Fate, Topology};
use crate::{MILLI, SECOND};
use lessor_ledger::rule::{Concurrency, FixedWindow, SlidingWindow, TokenBucket};
use lessor_ledger::share::Safe;
use lessor_ledger::{CarryOver, Rule};
use lessor_protocol::moment::nanos;
use std::time::Duration;

/// Draws a store with faults. Nodes and allocators are cut off for seconds, and nodes spend on.
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

/// Draws a [`store_safe`] in full use, with half of the limit in one share that lasts about a second. Nodes are cut off
/// all the time. In every other fleet, allocators are cut off from the store for longer than a share lasts. In the rest
/// nodes die and messages get lost, and in a third of them fates strike the store.
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

/// Draws a [`store_safe_close`] whose configurations change how many nodes have a share, and for how long. Each change
/// reaches one allocator. Allocators die soon after, and nodes are cut off whether or not they have heard of it.
pub fn store_safe_changed(seed: u64) -> Setup {
    let mut setup = store_safe_close(seed | 1);
    (setup.seed, of_store(&mut setup).count) = (seed, 2);
    // Where each node has or wants a share, allocators ask their roots once a second; otherwise every five seconds.
    setup.nodes = if seed % 4 < 2 { 6 } else { 2 };
    setup.lasts = 200 * SECOND;
    let every = &mut setup.faults.every;
    every.remove(&Fault::NodeCrash);
    every.insert(Fault::Cut, (6 * SECOND, 40 * SECOND));
    every.insert(Fault::RegionCrash, (5 * SECOND, MILLI));
    draw_changes(&mut dice(seed, 27), 45 * SECOND, &mut setup);
    setup.named()
}

/// Draws one allocator in full use, whose nodes are cut off all the time. Its configuration changes how many nodes have
/// a share, and for how long.
pub fn safe_changed(seed: u64) -> Setup {
    let mut setup = store_safe_close(seed | 1);
    (setup.seed, setup.topology) = (seed, Topology::Allocator);
    setup.faults.every.remove(&Fault::RegionCrash);
    draw_changes(&mut dice(seed, 28), 8 * SECOND, &mut setup);
    setup.named()
}

/// Draws a [`safe_changed`] where the reserve and the rules change too: other windows, or a bucket or a cap for a
/// while. In every other fleet the allocator dies, and has a store.
pub fn safe_changed_rules(seed: u64) -> Setup {
    let mut rng = dice(seed, 32);
    let mut setup = safe_changed(seed);
    if seed.is_multiple_of(2) {
        setup.faults.every.insert(Fault::AllocatorRestart, (50 * SECOND, 50 * MILLI));
        setup.store = MILLI;
    }
    draw_changed_rules(&mut rng, &mut setup);
    setup.named()
}

/// Draws a [`store_safe_changed`] where the reserve and the rules change too. No fate strikes: a root that begins anew
/// keeps back the reserve of one file, and shares by another file may be out.
pub fn store_safe_changed_rules(seed: u64) -> Setup {
    let mut rng = dice(seed, 33);
    let mut setup = store_safe_changed(seed);
    of_store(&mut setup).fates = vec![];
    setup.faults.every.remove(&Fault::StoreTrouble);
    draw_changed_rules(&mut rng, &mut setup);
    setup.named()
}

/// Draws one allocator in full use, whose reserve becomes small while a node has all of it in a share. A little later
/// the allocator dies, with a store, or the limit begins anew by a cap.
pub fn safe_anew(seed: u64) -> Setup {
    let mut rng = dice(seed, 34);
    let mut setup = safe_changed(seed);
    setup.lasts = 30 * SECOND;
    setup.plan.sharing.safe = Some(Safe { nodes: 1, lasts: Duration::from_secs(20) });
    let (lowered, anew) = (rng.u64(3 * SECOND..8 * SECOND), rng.u64(8 * SECOND..14 * SECOND));
    setup.live = vec![Live { at: lowered, act: Act::Reserve(1) }];
    setup.faults.every.insert(Fault::Cut, (2 * SECOND, 30 * SECOND));
    if seed.is_multiple_of(2) {
        setup.store = MILLI;
        setup.faults.every.insert(Fault::AllocatorRestart, (12 * SECOND, 50 * MILLI));
    } else {
        let (limit, per) = (setup.plan.rules[0].ceiling(), setup.plan.rules[0].window().unwrap_or_default());
        let act = Act::Change(CarryOver::AsIs, vec![cap(limit, 2 * per)]);
        setup.live.push(Live { at: anew, act });
    }
    setup.named()
}

fn cap(limit: u64, longest: Duration) -> Rule {
    Rule::Concurrency(Concurrency::try_new(limit, longest).expect("numbers in range"))
}

/// Turns three of four changes into one of the reserve or the rules. Shares of any reserve in the run fit into the
/// rules that hold at any time.
fn draw_changed_rules(rng: &mut fastrand::Rng, setup: &mut Setup) {
    let (limit, slowest) = (setup.plan.rules[0].ceiling(), setup.plan.rules[0].window().unwrap_or_default());
    setup.plan.sharing.reserve = limit / 4;
    for live in &mut setup.live {
        let permits = rng.u64(limit / 4 * 3..=limit * 3 / 2);
        let per = slowest + slowest.mul_f64(rng.f64());
        live.act = match rng.u32(..8) {
            0 | 1 => Act::Reserve(rng.u64(1..=(limit / 4).max(1))),
            2 | 3 => Act::Change(CarryOver::AsIs, vec![windows(permits, per, rng)]),
            4 => {
                // It refills no slower than nodes may go on: no lender can stop the share of a node that is cut off.
                let longest = nanos(slowest) * (permits / 2) / (limit / 4);
                let per = per.min(Duration::from_nanos(longest));
                let bucket = TokenBucket::try_new(permits / 2, permits / 2, per, permits / 2);
                Act::Change(CarryOver::AsIs, vec![Rule::TokenBucket(bucket.expect("numbers in range"))])
            }
            5 => Act::Change(CarryOver::AsIs, vec![cap(permits, 2 * slowest)]),
            _ => live.act.clone(),
        };
    }
}

/// Changes the safe shares every few seconds: how many nodes have one, and whether it lasts one to two seconds or
/// `longest`.
fn draw_changes(rng: &mut fastrand::Rng, longest: u64, setup: &mut Setup) {
    let reserve = setup.plan.sharing.reserve;
    let mut at = 0;
    while at < setup.lasts {
        at += rng.u64(SECOND..5 * SECOND);
        let lasts = Duration::from_nanos(if rng.bool() { rng.u64(SECOND..2 * SECOND) } else { longest });
        let nodes = if rng.u32(..4) == 0 { rng.u64(1..=reserve.min(3)) } else { 1 };
        let safe = if rng.u32(..8) == 0 { None } else { Some(Safe { nodes, lasts }) };
        setup.live.push(Live { at, act: Act::Safe(safe) });
    }
}

fn windows(limit: u64, per: Duration, rng: &mut fastrand::Rng) -> Rule {
    let rule = match rng.bool() {
        true => SlidingWindow::try_new(limit, per, Duration::ZERO).map(Rule::SlidingWindow),
        false => FixedWindow::try_new(limit, per).map(Rule::FixedWindow),
    };
    rule.expect("numbers in range")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bug: nodes that were cut off emptied a slow bucket by their shares alone, whatever its pool did.
    #[test]
    fn buckets_refill_as_fast_as_shares_of_earlier_windows_are_spent() {
        let mut buckets = 0;
        for setup in (0..400).flat_map(|seed| [store_safe_changed_rules(seed), safe_changed_rules(seed)]) {
            let slowest = setup.plan.rules[0].window().expect("it begins with windows");
            let most = setup.reserve_most();
            for rule in setup.rule_sets().flatten() {
                let Rule::TokenBucket(bucket) = rule else { continue };
                let (gained, spent) = (bucket.refill() * nanos(slowest), most * nanos(bucket.per()));
                assert!(gained >= spent, "{bucket:?} refills slower than {most} in {slowest:?} are spent");
                buckets += 1;
            }
        }
        assert!(buckets > 1_000, "too few to say anything: {buckets}");
    }
}
