//! Draws fleets whose nodes lease from regions, or from allocators that share a store.

mod broad;
mod changed;
mod clockless;
mod guaranteed;
mod safe;

pub use broad::{
    regions_outside, regions_paused, regions_rules, store_outside, store_paused, store_rules, store_unwatched,
};
pub use changed::{
    regions_changed, store_changed, store_changed_caps, store_changed_close, store_put, store_removed,
};
pub use clockless::{store_clockless, store_clockless_close, store_first_use, store_of_seconds_clockless};
pub use guaranteed::{store_guaranteed, store_guaranteed_in_use};
pub use safe::{
    safe_anew, safe_changed, safe_changed_rules, store_safe, store_safe_changed, store_safe_changed_rules,
    store_safe_close,
};

use super::pools;
use crate::faults::{Fault, Faults};
use crate::live::{Act, Live};
use crate::network::Latency;
use crate::setup::{Calls, Setup, plan};
use crate::text::bare;
use crate::topology::{Fate, Lag, Regions, Shared, Topology};
use crate::world::sustained;
use crate::{MILLI, SECOND};
use lessor_ledger::Rule;
use lessor_ledger::rule::{
    Concurrency, FixedWindow, LeakyBucket, RefillStyle, SlidingWindow, TokenBucket, Windows,
};
use std::ops::Range;
use std::time::Duration;

/// Draws one of the fleets below.
pub fn any(seed: u64) -> Setup {
    let lost = [Fate::Copied, Fate::Emptied, Fate::Behind, Fate::Started];
    match seed % 14 {
        0 if seed / 14 % 4 == 3 => regions_changed(seed),
        0 => regions(seed),
        1 => store_decided(seed),
        2 if seed / 14 % 8 == 6 => regions_paused(seed),
        2 if seed / 14 % 8 == 7 => regions_rules(seed),
        2 => regions_capped(seed),
        3 if seed / 14 % 2 == 1 => store_clockless(seed),
        3 => store(seed),
        4 if seed / 14 % 4 == 3 => store_safe(seed),
        4 => store_capped(seed),
        5 if seed / 14 % 4 == 3 => store_safe_close(seed),
        5 if seed / 14 % 8 == 5 => store_safe_changed(seed),
        5 if seed / 14 % 8 == 2 => safe_changed(seed),
        5 if seed / 14 % 8 == 4 => store_safe_changed_rules(seed),
        5 if seed / 14 % 8 == 6 => safe_changed_rules(seed),
        5 if (seed / 14).is_multiple_of(8) => safe_anew(seed),
        5 => store_family(seed),
        6 if seed / 14 % 4 == 3 => store_guaranteed(seed),
        6 => store_capped_family(seed),
        7 => store_intervals(seed, 200..3_000),
        8 => store_flow(seed, 1..40),
        9 if seed / 14 % 8 == 6 => store_unwatched(seed),
        9 => store_fated(seed, &[Fate::Set, Fate::SetTwice]),
        10 => store_fated(seed, &lost),
        11 if seed / 14 % 8 == 6 => store_paused(seed),
        11 => store_emptied(seed),
        12 if seed / 14 % 4 == 3 => store_changed(seed),
        12 if seed / 14 % 8 == 5 => store_changed_caps(seed),
        12 => store_small(seed),
        _ if seed / 14 % 4 == 3 => store_changed_close(seed),
        _ if seed / 14 % 8 == 6 => store_rules(seed),
        _ => store_close(seed),
    }
}

/// Draws a fleet of regions with a rule of 5 to 600 permits in up to 6 s.
pub fn regions(seed: u64) -> Setup {
    let mut rng = dice(seed, 13);
    let rule = rule(5..600, 100..6_000, &mut rng);
    regions_by(rule, seed, &mut rng)
}

/// Draws a fleet of regions with a cap on calls in flight that take up to some seconds.
pub fn regions_capped(seed: u64) -> Setup {
    let mut rng = dice(seed, 14);
    let limit = rng.u64(5..100);
    let rule = cap(limit, &mut rng);
    regions_by(rule, seed, &mut rng)
}

/// Draws a fleet of allocators that share a store.
pub fn store(seed: u64) -> Setup {
    let mut rng = dice(seed, 1);
    let rule = rule(5..600, 100..6_000, &mut rng);
    store_by(vec![rule], 0, seed, &mut rng).named()
}

/// Draws a [`store`] in which operators pause and block at any allocator. Most do so a few times. In every other fleet
/// they do so all the time, while the store loses what it had.
pub fn store_decided(seed: u64) -> Setup {
    let mut rng = dice(seed, 17);
    let rule = rule(20..600, 500..4_000, &mut rng);
    let mut setup = store_by(vec![rule], 0, seed, &mut rng);
    of_store(&mut setup).is_clockless = matches!(rule, Rule::SlidingWindow(_)) && seed % 4 == 1;
    let is_hard = seed.is_multiple_of(2);
    if is_hard {
        // The store may lose a decision before all allocators have heard of it.
        setup.faults.every.insert(Fault::StoreTrouble, (SECOND / 2, MILLI));
        setup.faults.every.insert(Fault::RegionCut, (SECOND / 2, 2 * SECOND));
        let shared = of_store(&mut setup);
        shared.count = shared.count.max(2);
        shared.fates = vec![Fate::Copied, Fate::Behind, Fate::Behind, Fate::Emptied];
    }
    for _ in 0..if is_hard { 80 } else { rng.u32(2..=8) } {
        let (at, node) = (rng.u64(0..setup.lasts), rng.usize(..setup.nodes.min(2)));
        let act = match rng.u32(..8) {
            0 => Act::Pause(rng.u64(1..=1_000) * MILLI),
            1 => Act::Resume,
            2..5 => Act::Unblock(node),
            _ => Act::Block(node),
        };
        setup.live.push(Live { at, act });
    }
    setup.named()
}

/// Draws a [`store`] with a cap on calls in flight that take up to some seconds.
pub fn store_capped(seed: u64) -> Setup {
    let mut rng = dice(seed, 2);
    let limit = rng.u64(5..100);
    let rule = cap(limit, &mut rng);
    store_by(vec![rule], 0, seed, &mut rng).named()
}

/// Draws a [`store`] whose limit has a parent. In two fleets of three an allocator has an older configuration, and in
/// one of these a fate strikes the store every two seconds.
pub fn store_family(seed: u64) -> Setup {
    let mut rng = dice(seed, 3);
    let own = rule(5..600, 100..6_000, &mut rng);
    let above = about_as_much(&own, &mut rng);
    let mut setup = store_by(vec![own, above], 1, seed, &mut rng);
    of_store(&mut setup).of_two_minds = !seed.is_multiple_of(3);
    if seed % 3 == 2 {
        // These fates leave it known which limit is above which.
        setup = in_full_use(setup, &[Fate::Copied, Fate::Set, Fate::Started], 2 * SECOND);
    }
    setup.named()
}

/// Draws a [`store`] with two limits, one of which caps calls in flight and the other the rate.
pub fn store_capped_family(seed: u64) -> Setup {
    let mut rng = dice(seed, 4);
    let rate = rule(50..300, 1_000..4_000, &mut rng);
    let most = (0.5 * sustained(&[rate])) as u64;
    let limit = rng.u64(1..=most.max(2));
    let cap = cap(limit, &mut rng);
    let rules = if seed.is_multiple_of(2) { vec![rate, cap] } else { vec![cap, rate] };
    store_by(rules, 1, seed, &mut rng).named()
}

/// Draws a [`store`] with a bucket that refills at intervals of `millis` milliseconds.
pub fn store_intervals(seed: u64, millis: Range<u64>) -> Setup {
    let mut rng = dice(seed, 5);
    let rule = at_intervals(millis, &mut rng);
    store_by(vec![rule], 0, seed, &mut rng).named()
}

/// Draws a store in full use of a bucket at short intervals, where a few milliseconds matter. No fate strikes the
/// store.
pub fn store_intervals_close(seed: u64) -> Setup {
    let mut rng = dice(seed, 6);
    let rule = at_intervals(150..500, &mut rng);
    let setup = store_by(vec![rule], 0, seed, &mut rng);
    on_crooked_ways(in_full_use(setup, &[], 0), &mut rng).named()
}

/// Draws a [`store`] with a steady flow whose burst is in `bursts`.
pub fn store_flow(seed: u64, bursts: Range<u64>) -> Setup {
    let mut rng = dice(seed, 7);
    let (refill, per) = (rng.u64(10..200), Duration::from_millis(rng.u64(1_000..2_000)));
    let rule = LeakyBucket::try_new(rng.u64(bursts), refill, per).expect("numbers in range");
    store_by(vec![Rule::LeakyBucket(rule)], 0, seed, &mut rng).named()
}

/// Draws a [`store`] in full use of a rule of some seconds, while one of `fates` strikes every two seconds.
pub fn store_fated(seed: u64, fates: &[Fate]) -> Setup {
    let mut rng = dice(seed, 8);
    let rule = rule(50..300, 1_000..4_000, &mut rng);
    in_full_use(store_by(vec![rule], 0, seed, &mut rng), fates, 2 * SECOND).named()
}

/// Draws a [`store`] in full use, while processes die, and the store is emptied as one of them asks for the first time.
pub fn store_emptied(seed: u64) -> Setup {
    let mut rng = dice(seed, 9);
    let rule = rule(50..300, 1_000..4_000, &mut rng);
    let setup = store_by(vec![rule], 0, seed, &mut rng);
    let (nodes, allocators) = (setup.nodes as u64, setup.lenders() as u64);
    let mut setup = in_full_use(setup, &[Fate::EmptiedUnderway], 2 * SECOND);
    strike_processes(&mut setup.faults, 2 * SECOND, nodes, allocators);
    setup.lasts = 24 * SECOND;
    setup.named()
}

/// Draws a [`store`] with a long rule. The only fault is a `lag` of the clock of one allocator, which has no nodes.
pub fn store_lagging(seed: u64, lag: Lag) -> Setup {
    let mut rng = dice(seed, 10);
    let (hour, day) = (Duration::from_secs(3_600), Duration::from_secs(86_400));
    let rule = match seed % 3 {
        0 => FixedWindow::of(1_000_000, Windows::FirstUse { per: hour }).map(Rule::FixedWindow),
        1 => TokenBucket::try_new(10_000_000, 10_000_000, day, 10_000_000)
            .and_then(|bucket| bucket.with_refill_style(RefillStyle::Interval))
            .map(Rule::TokenBucket),
        _ => SlidingWindow::try_new(600, 2 * hour / 3_600, Duration::ZERO).map(Rule::SlidingWindow),
    };
    let mut setup = store_by(vec![rule.expect("numbers in range")], 0, seed, &mut rng);
    setup.faults = Faults::default();
    setup.nodes = 2;
    setup.demand = (0.4 * sustained(&setup.plan.rules)).min(500.0);
    setup.lasts = 28 * SECOND;
    setup.then_calm = false;
    let shared = of_store(&mut setup);
    (shared.count, shared.lag) = (3, Some(lag));
    setup.named()
}

/// Draws a [`store`] with a small bucket, which has to be on time. In half of the fleets all nodes want a permit all
/// the time, and no fate strikes. In the others hardly any node does, and the store is emptied.
pub fn store_small(seed: u64) -> Setup {
    let mut rng = dice(seed, 11);
    let (permits, per) = (rng.u64(1..4), Duration::from_millis(rng.u64(150..500)));
    let rule = TokenBucket::try_new(permits, 1, per, permits).expect("numbers in range");
    let setup = store_by(vec![Rule::TokenBucket(rule)], 0, seed, &mut rng);
    let (mut setup, times) = match seed % 2 {
        0 => (in_full_use(setup, &[], 0), 10.0),
        _ => (in_full_use(setup, &[Fate::Emptied], 3 * SECOND), 0.1),
    };
    // Some allocators know the time, and others take it to be earlier. Nodes of both ask equally fast.
    setup.latency = Latency { one_way: MILLI / 20, jitter: MILLI / 40 };
    setup.demand *= times;
    setup.lasts = 28 * SECOND;
    let back = |rng: &mut fastrand::Rng| if rng.bool() { rng.u64(4..=7) * MILLI } else { MILLI / 20 };
    let ways = (0..setup.lenders()).map(|_| (MILLI / 20, back(&mut rng))).collect();
    of_store(&mut setup).ways = ways;
    setup.named()
}

/// Draws a [`store`] with a short rule, where a few milliseconds matter. No fate strikes the store.
pub fn store_close(seed: u64) -> Setup {
    let mut rng = dice(seed, 12);
    let rule = rule(50..300, 200..600, &mut rng);
    let setup = in_full_use(store_by(vec![rule], 0, seed, &mut rng), &[], 0);
    on_crooked_ways(setup, &mut rng).named()
}

/// Changes `setup` to `demand` times what its rules allow, without faults, for 28 s.
pub fn in_use(mut setup: Setup, demand: f64) -> Setup {
    setup.faults = Faults::default();
    setup.latency = Latency { one_way: MILLI / 2, jitter: MILLI / 4 };
    // Calls take half of the longest time, on average.
    let of_calls = if setup.plan.rules.iter().any(|rule| rule.longest().is_some()) { 2.0 } else { 1.0 };
    setup.calls = Calls::Even;
    setup.demand = demand * of_calls * sustained(&setup.plan.rules);
    (setup.sprees, setup.lasts, setup.then_calm) = (0, 28 * SECOND, false);
    if let Topology::Regions(regions) = &mut setup.topology {
        regions.far = Latency { one_way: 10 * MILLI, jitter: 5 * MILLI };
    }
    setup.named()
}

/// Draws regions below an allocator, with a rule of some seconds.
pub fn regions_of_seconds(seed: u64) -> Setup {
    let mut rng = dice(seed, 15);
    let rule = rule(100..600, 2_000..6_000, &mut rng);
    regions_by(rule, seed, &mut rng)
}

/// Draws allocators that share a store, with a rule of some seconds. Its limit may be below another one (`is_below`).
pub fn store_of_seconds(seed: u64, is_below: bool) -> Setup {
    let mut rng = dice(seed, 16);
    let mut rules = vec![rule(100..600, 2_000..6_000, &mut rng)];
    if is_below {
        rules.push(about_as_much(&rules[0], &mut rng));
    }
    store_by(rules, usize::from(is_below), seed, &mut rng).named()
}

/// Draws a rule for a limit above one with `own`, so that either of the two may be the scarce one.
fn about_as_much(own: &Rule, rng: &mut fastrand::Rng) -> Rule {
    let (permits, span) = permits_per(own);
    let limit = (permits as f64 * (0.3 + 1.2 * rng.f64())) as u64 + 1;
    rule_of(limit, span.mul_f64(0.5 + rng.f64()).max(Duration::from_millis(100)), rng)
}

fn dice(seed: u64, world: u64) -> fastrand::Rng {
    fastrand::Rng::with_seed(seed ^ (0x70b0_0000_0000_0000 + (world << 32)))
}

fn of_store(setup: &mut Setup) -> &mut Shared {
    match &mut setup.topology {
        Topology::Store(shared) => shared,
        Topology::Allocator | Topology::Regions(_) => unreachable!("it has a store"),
    }
}

fn cap(limit: u64, rng: &mut fastrand::Rng) -> Rule {
    let longest = Duration::from_millis(rng.u64(1_000..3_000));
    Rule::Concurrency(Concurrency::try_new(limit, longest).expect("numbers in range"))
}

fn at_intervals(millis: Range<u64>, rng: &mut fastrand::Rng) -> Rule {
    let (permits, per) = (rng.u64(5..600), Duration::from_millis(rng.u64(millis)));
    let capacity = permits * rng.u64(2..5) / 2;
    let rule = TokenBucket::try_new(capacity, permits, per, capacity);
    let rule = rule.and_then(|rule| rule.with_refill_style(RefillStyle::Interval));
    Rule::TokenBucket(rule.expect("numbers in range"))
}

/// Changes `setup` to full use, without faults but one of `fates`, one every `every` nanoseconds on average.
fn in_full_use(mut setup: Setup, fates: &[Fate], every: u64) -> Setup {
    setup.faults = Faults::default();
    if !fates.is_empty() {
        setup.faults.every.insert(Fault::StoreTrouble, (every, MILLI));
    }
    setup.demand = 3.0 * sustained(&setup.plan.rules);
    setup.then_calm = false;
    of_store(&mut setup).fates = fates.to_vec();
    setup
}

/// Changes `setup` to have unequal ways to the store and back, so no allocator can tell the time well. Many messages
/// get lost, so leases end with permits left.
fn on_crooked_ways(mut setup: Setup, rng: &mut fastrand::Rng) -> Setup {
    setup.latency = Latency { one_way: MILLI / 20, jitter: MILLI / 40 };
    setup.faults.chance.insert(Fault::Loss, rng.f64() * 0.3);
    setup.demand /= 3.0;
    setup.lasts = 28 * SECOND;
    let way = |rng: &mut fastrand::Rng| {
        let (long, short) = (rng.u64(6..=8) * MILLI, MILLI / 20);
        if rng.bool() { (long, short) } else { (short, long) }
    };
    let ways = (0..setup.lenders()).map(|_| way(rng)).collect();
    of_store(&mut setup).ways = ways;
    setup
}

fn regions_by(rule: Rule, seed: u64, rng: &mut fastrand::Rng) -> Setup {
    let mut setup = troubled(vec![rule], 0, seed, rng);
    if rng.u32(..4) == 0 {
        setup.faults.every.insert(Fault::AllocatorRestart, (rng.u64(2..20) * SECOND, MILLI));
    }
    let one_way = rng.u64(MILLI..40 * MILLI);
    let (count, far) = (setup.topology.regions(), Latency { one_way, jitter: one_way / 2 });
    setup.topology = Topology::Regions(Regions { count, far });
    setup.named()
}

/// Draws allocators that share a store, where `above` limits keep the last of `rules`.
fn store_by(rules: Vec<Rule>, above: usize, seed: u64, rng: &mut fastrand::Rng) -> Setup {
    let mut setup = troubled(rules, above, seed, rng);
    if rng.u32(..4) == 0 {
        setup.faults.every.insert(Fault::StoreTrouble, (rng.u64(2..20) * SECOND, MILLI));
    }
    // From farther away, no allocator could tell the store's time.
    let one_way = rng.u64(MILLI / 20..2 * MILLI);
    let (count, far) = (setup.topology.regions(), Latency { one_way, jitter: one_way });
    let fates = vec![Fate::Copied, Fate::Set, Fate::Emptied, Fate::Behind, Fate::Started];
    setup.topology = Topology::Store(Shared { fates, ..Shared::of(count, far) });
    setup
}

/// Strikes each node and each region about once in `every`: half of the time its link, and half of the time its
/// process.
fn strike_processes(faults: &mut Faults, every: u64, nodes: u64, regions: u64) {
    faults.every.insert(Fault::Cut, (2 * every / nodes, 4 * SECOND));
    faults.every.insert(Fault::NodeCrash, (2 * every / nodes, MILLI));
    faults.every.insert(Fault::RegionCut, (2 * every / regions, 4 * SECOND));
    faults.every.insert(Fault::RegionCrash, (4 * every / regions, MILLI));
    faults.every.insert(Fault::RegionLeave, (4 * every / regions, MILLI));
}

/// Draws a fleet of one to three regions with one to three nodes each, and faults.
fn troubled(rules: Vec<Rule>, above: usize, seed: u64, rng: &mut fastrand::Rng) -> Setup {
    let count = rng.usize(1..=3);
    let nodes = count * rng.usize(1..=3);
    let mut faults = Faults::default();
    faults.chance.insert(Fault::Loss, rng.f64() * 0.2);
    faults.chance.insert(Fault::Duplicate, rng.f64() * 0.2);
    faults.chance.insert(Fault::LongDelay, rng.f64() * 0.05);
    strike_processes(&mut faults, rng.u64(2..20) * SECOND, nodes as u64, count as u64);
    let one_way = rng.u64(MILLI / 10..3 * MILLI);
    Setup {
        seed,
        topology: Topology::Regions(Regions { count, far: Latency { one_way: 0, jitter: 0 } }),
        above,
        nodes,
        identities: pools::draw_identities(seed),
        demand: (rng.f64() * 3.0 * sustained(&rules)).max(0.5),
        sprees: 20,
        latency: Latency { one_way, jitter: one_way / 2 },
        faults,
        drifting: true,
        start: rng.u64(1_000..2_000) * SECOND,
        lasts: 12 * SECOND,
        then_calm: true,
        plan: plan(rules, false),
        ..bare()
    }
}

/// Draws a sliding window, a fixed window or a bucket.
fn rule(limit: Range<u64>, millis: Range<u64>, rng: &mut fastrand::Rng) -> Rule {
    let (limit, per) = (rng.u64(limit), Duration::from_millis(rng.u64(millis)));
    rule_of(limit, per, rng)
}

pub(super) fn rule_of(limit: u64, per: Duration, rng: &mut fastrand::Rng) -> Rule {
    let rule = match rng.u32(..3) {
        0 => SlidingWindow::try_new(limit, per, Duration::ZERO).map(Rule::SlidingWindow),
        1 => FixedWindow::try_new(limit, per).map(Rule::FixedWindow),
        _ => TokenBucket::try_new(limit, limit, per, limit).map(Rule::TokenBucket),
    };
    rule.expect("numbers in range")
}

/// Returns the permits that such a rule allows, and in what time.
fn permits_per(rule: &Rule) -> (u64, Duration) {
    match rule {
        Rule::SlidingWindow(rule) => (rule.limit(), rule.per()),
        Rule::FixedWindow(rule) => (rule.limit(), rule.per()),
        Rule::TokenBucket(rule) => (rule.refill(), rule.per()),
        Rule::LeakyBucket(_) | Rule::Concurrency(_) | Rule::SlidingLog(_) => unreachable!("none is drawn"),
    }
}
