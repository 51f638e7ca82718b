//! Draws fleets of allocators that share a store, whose files get other rules while they run: some allocators go by a
//! newer file sooner than others. Also draws fleets of regions below an allocator whose limit is changed.

use super::{dice, in_full_use, of_store, regions_by, rule, store_by};
use crate::faults::Fault;
use crate::generator::{resized, with_or_without_cap};
use crate::live::{Act, Live};
use crate::setup::{Calls, Setup};
use crate::topology::Fate;
use crate::{MILLI, SECOND};
use lessor_ledger::rule::Concurrency;
use lessor_ledger::{CarryOver, Rule};
use std::time::Duration;

/// Draws regions with faults. The limit that they lease is changed, topped up, paused, or removed and put again, a few
/// times. Some changes add, alter or drop a cap on calls in flight.
pub fn regions_changed(seed: u64) -> Setup {
    let mut rng = dice(seed, 39);
    let mut setup = regions_by(rule(20..600, 200..4_000, &mut rng), seed, &mut rng);
    setup.lasts = 20 * SECOND;
    let every = setup.lasts / rng.u64(2..=8);
    let (mut at, mut rules) = (0, setup.plan.rules.clone());
    loop {
        at += rng.u64(every / 8..every).max(10 * MILLI);
        if at >= setup.lasts {
            return setup.named();
        }
        let until = at + rng.u64(10 * MILLI..2 * SECOND);
        let kind = rng.u32(..8);
        let carry = if rng.bool() { CarryOver::AsIs } else { CarryOver::ALL[rng.usize(..4)] };
        rules = match kind {
            0 => vec![rule(20..600, 200..2_000, &mut rng)],
            1 | 2 => with_or_without_cap(&mut rng, &rules),
            _ => resized(&mut rng, &rules, true),
        };
        match kind {
            5 => setup.live.push(Live { at, act: Act::TopUp(rng.u64(1..=100)) }),
            6 => {
                setup.live.push(Live { at, act: Act::Pause(rng.u64(10..2_000) * MILLI) });
                setup.live.push(Live { at: until, act: Act::Resume });
            }
            7 => {
                setup.live.push(Live { at, act: Act::Remove });
                setup.live.push(Live { at: until, act: Act::Change(carry, rules.clone()) });
            }
            _ => setup.live.push(Live { at, act: Act::Change(carry, rules.clone()) }),
        }
    }
}

/// Draws a [`store`](super::store) with faults and a few changes. Some of the fleets have no clock in their store.
pub fn store_changed(seed: u64) -> Setup {
    let mut rng = dice(seed, 29);
    let mut setup = store_by(vec![rule(20..600, 200..4_000, &mut rng)], 0, seed, &mut rng);
    of_store(&mut setup).is_clockless =
        matches!(setup.plan.rules[..], [Rule::SlidingWindow(_)]) && seed % 4 == 1;
    let every = setup.lasts / rng.u64(2..=5);
    draw_changes(&mut rng, every, &mut setup);
    setup.named()
}

/// Draws a store in which some changes add, alter or drop a cap on calls in flight. Every other fleet is in full use,
/// and has calls under an earlier cap that go on for seconds.
pub fn store_changed_caps(seed: u64) -> Setup {
    let mut rng = dice(seed, 31);
    let window = rule(20..600, 200..4_000, &mut rng);
    let mut setup = store_by(vec![window], 0, seed, &mut rng);
    if seed.is_multiple_of(2) {
        setup = in_full_use(setup, &[], 0);
        (setup.lasts, setup.calls) =
            (58 * SECOND, if seed.is_multiple_of(4) { Calls::Silent } else { Calls::Mixed });
        let mut cap = |longest| {
            let cap = Concurrency::try_new(rng.u64(5..=50), Duration::from_millis(longest));
            vec![window, Rule::Concurrency(cap.expect("numbers in range"))]
        };
        let steps = [(2, cap(8_000)), (23, cap(500)), (38, vec![window]), (44, cap(1_000))];
        let change = |(at, rules)| Live { at: at * SECOND, act: Act::Change(CarryOver::AsIs, rules) };
        setup.live = steps.map(change).into();
        return setup.named();
    }
    let (mut rules, every) = (setup.plan.rules.clone(), setup.lasts / rng.u64(2..=5));
    draw_changes(&mut rng, every, &mut setup);
    for live in &mut setup.live {
        rules =
            if rng.bool() { with_or_without_cap(&mut rng, &rules) } else { resized(&mut rng, &rules, true) };
        live.act = Act::Change(CarryOver::AsIs, rules.clone());
    }
    setup.named()
}

/// Draws a store with faults and a few changes. Files get other rules, or an operator puts the limit over the API of
/// some allocator, which holds until a newer file differs. Half of the fleets are in full use. In one of three the
/// store loses what it had.
pub fn store_put(seed: u64) -> Setup {
    let mut rng = dice(seed, 37);
    let mut setup = store_by(vec![rule(20..600, 200..4_000, &mut rng)], 0, seed, &mut rng);
    setup.faults.every.remove(&Fault::StoreTrouble);
    let loses = seed % 3 == 2;
    let shared = of_store(&mut setup);
    shared.fates =
        if loses { vec![Fate::Copied, Fate::Behind, Fate::Emptied, Fate::Started] } else { vec![] };
    shared.count = rng.usize(2..=3);
    setup.nodes = setup.nodes.max(of_store(&mut setup).count);
    of_store(&mut setup).is_clockless =
        matches!(setup.plan.rules[..], [Rule::SlidingWindow(_)]) && seed % 4 == 1;
    if seed.is_multiple_of(2) {
        let fates = of_store(&mut setup).fates.clone();
        setup = in_full_use(setup, &fates, 8 * SECOND);
    } else if loses {
        setup.faults.every.insert(Fault::StoreTrouble, (6 * SECOND, MILLI));
    }
    setup.lasts = 40 * SECOND;
    let every = if seed.is_multiple_of(2) { 5 * SECOND } else { rng.u64(4..=16) * SECOND };
    draw_changes(&mut rng, every, &mut setup);
    let last = setup.lasts - 10 * SECOND;
    setup.live.retain(|live| live.at < last);
    for live in &mut setup.live {
        if let (Act::Change(_, rules), true) = (&live.act, rng.u32(..3) > 0) {
            live.act = Act::Put(rules.clone());
        }
    }
    setup.named()
}

/// Draws a [`store_put`] where operators also remove the limit now and then, and put it again after a while. Permits
/// out go on meanwhile, and count.
pub fn store_removed(seed: u64) -> Setup {
    let mut setup = store_put(seed);
    let mut rng = dice(seed, 38);
    let longest = setup.lasts - 10 * SECOND;
    let mut live = vec![];
    for Live { at, act } in std::mem::take(&mut setup.live) {
        if matches!(act, Act::Put(_)) {
            let goes = rng.u64(0..6 * SECOND);
            live.push(Live { at: at.saturating_sub(goes), act: Act::Remove });
        }
        live.push(Live { at, act });
    }
    live.retain(|live| live.at < longest);
    live.sort_by_key(|live| live.at);
    setup.live = live;
    setup.named()
}

/// Draws a store in full use of a short window or bucket, with a change every few seconds. In one of three fleets fates
/// strike.
pub fn store_changed_close(seed: u64) -> Setup {
    let mut rng = dice(seed, 30);
    let fates: &[Fate] = if seed.is_multiple_of(3) {
        &[Fate::Copied, Fate::Behind, Fate::Emptied, Fate::Started]
    } else {
        &[]
    };
    let rule = rule(20..200, 300..1_500, &mut rng);
    let mut setup = in_full_use(store_by(vec![rule], 0, seed, &mut rng), fates, 8 * SECOND);
    setup.lasts = 40 * SECOND;
    draw_changes(&mut rng, 6 * SECOND, &mut setup);
    setup.named()
}

/// Draws a change of the file for each span of up to `every`: other numbers, or a rule of another kind.
fn draw_changes(rng: &mut fastrand::Rng, every: u64, setup: &mut Setup) {
    let (mut at, mut rules) = (0, setup.plan.rules.clone());
    // Where the store has no clock, no observer can tell when calendar windows begin.
    let is_clockless = of_store(setup).is_clockless;
    loop {
        at += rng.u64(every / 8..every).max(10 * MILLI);
        if at >= setup.lasts {
            return;
        }
        rules = match rng.u32(..5) {
            0 if !is_clockless => vec![rule(20..600, 200..2_000, rng)],
            _ => resized(rng, &rules, true),
        };
        setup.live.push(Live { at, act: Act::Change(CarryOver::AsIs, rules.clone()) });
    }
}
