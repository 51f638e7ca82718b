//! Draws a whole setup from one seed: the rules, the load, the faults and how hard they strike. Tests and soaks run
//! these setups; the same seed always draws the same one.

pub mod lengthy;
pub mod overlong;
mod pools;
pub mod removed;
mod sharing;
pub mod topologies;

use crate::adversary::Lie;
use crate::edges::{EDGES, Edge};
use crate::faults::{Fault, Faults};
use crate::live::{Act, Live};
use crate::network::Latency;
use crate::remade::{remade, with_options};
use crate::setup::{Setup, plan};
use crate::text::bare;
use crate::traffic::Workload;
use crate::world::{longest, sustained};
use crate::{MILLI, SECOND};
use lessor_ledger::pool::Plan;
use lessor_ledger::rule::{
    Concurrency, FixedWindow, LeakyBucket, RefillStyle, RuleError, SlidingWindow, TokenBucket, WarmUp,
    Windows, term,
};
use lessor_ledger::share::{Believe, Sharing, Trust};
use lessor_ledger::{CarryOver, Rule};
use lessor_protocol::ClockBounds;
use lessor_protocol::moment::nanos;
use std::collections::BTreeSet;
use std::time::Duration;

/// Most calls a second: more would show nothing new and take longer.
const DEMAND_MAX: f64 = 3_000.0;

/// Draws the setup of `seed` in a soak. In one of eight the limits count for minutes.
pub fn swarm(seed: u64) -> Setup {
    if seed % 8 == 5 { lengthy::lengthy(seed / 8) } else { any(seed) }
}

/// Draws any fleet but those of minutes. One of four has regions, or allocators that share a store.
pub fn any(seed: u64) -> Setup {
    if seed % 4 == 3 { topologies::any(seed / 4) } else { draw(seed) }
}

/// Draws a fleet that asks one allocator.
pub fn draw(seed: u64) -> Setup {
    // Another stream of random numbers than the run's.
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x5eed_0f5e_ed5e_ed00);
    let rng = &mut rng;
    let drift_ppm = if rng.bool() { ClockBounds::DRIFT_PPM } else { 50_000 };
    let rules = draw_rules(rng);
    let nodes = if rng.u32(..10) == 0 { rng.usize(20..=60) } else { rng.usize(1..=10) };
    let (ceiling, sustained) = (ceiling(&rules), sustained(&rules));
    let load = [0.3, 0.9, 1.5, 4.0, 20.0][rng.usize(..5)];
    // A lease that is over before its answer arrives is worthless: without faults, half a term is left.
    let round_trip = log_uniform(rng, 200_000, nanos(term(&rules)) / 2);
    let one_way = round_trip / 4;
    let mut faults = draw_faults(rng);
    if rules.iter().any(|rule| rule.flow().is_some()) {
        // A clock that jumps ahead ends leases early, which is harmless. A flow minted by that clock would mint too
        // much.
        faults.every.remove(&Fault::ClockJump);
    }
    let start = if rng.bool() { rng.u64(0..10 * SECOND) } else { rng.u64(0..1 << 50) };
    let edges = rules.iter().find_map(edges_of);
    let edge = edges.map(|edges| edges[rng.usize(..edges.len())]);
    let start = edge.map_or(start, |edge| edge.at * SECOND - rng.u64(0..15 * SECOND));
    let mut setup = Setup {
        seed,
        plan: Plan {
            clocks: ClockBounds::try_new(drift_ppm).expect("below the maximum"),
            ease_off: rng.bool(),
            lessees_max: pools::lessees_max(rng.u32(..10) == 0, nodes, seed),
            ..plan(rules, false)
        },
        nodes,
        identities: pools::draw_identities(seed),
        workload: Workload::ALL[rng.usize(..Workload::ALL.len())],
        demand: (sustained * load).clamp(2.0, DEMAND_MAX),
        cost_max: if rng.u32(..3) == 0 { rng.u64(1..=ceiling.clamp(1, 6)) } else { 1 },
        patience: if rng.bool() { 0 } else { log_uniform(rng, MILLI, 2 * SECOND) },
        latency: Latency { one_way, jitter: rng.u64(0..=one_way) },
        faults,
        drifting: true,
        start,
        lasts: rng.u64(3 * SECOND..20 * SECOND),
        // No run waits for the end of a day or a month.
        then_calm: edge.is_none(),
        adversaries: draw_adversaries(rng),
        replay: format!("lessor simulate --swarm {seed}"),
        ..bare()
    };
    if setup.plan.rules.len() > 1 && rng.bool() {
        setup.above = setup.plan.rules.len() - 1;
    }
    if rng.u32(..4) == 0 {
        sharing::draw_sharing(rng, ceiling, &mut setup);
    }
    // A generator of its own, so the rest is drawn as it would be without live changes.
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x11fe_0000_0000_0000);
    // The reserve may exceed a limit that is lowered, and such a configuration is refused.
    let can_change = setup.plan.sharing == Sharing::default();
    if rng.u32(..3) == 0 && can_change {
        setup.live = draw_live(&mut rng, &setup);
        // The latency fits the shortest term here too, also of leases under later rules.
        let shortest = setup.rule_sets().map(|rules| nanos(term(rules))).min().unwrap_or(u64::MAX);
        let Latency { one_way, jitter } = setup.latency;
        setup.latency = Latency { one_way: one_way.min(shortest / 8), jitter: jitter.min(shortest / 8) };
        // As above: no clock jumps where any of the rules has a flow.
        if setup.rule_sets().flatten().any(|rule| rule.flow().is_some()) {
            setup.faults.every.remove(&Fault::ClockJump);
        }
        // A restart forgets how long calls may take that began under earlier rules.
        let longest: BTreeSet<Duration> = setup.rule_sets().filter_map(longest).collect();
        if longest.len() > 1 {
            setup.faults.every.remove(&Fault::AllocatorRestart);
        }
        let by_calendar = setup.rule_sets().flatten().any(|rule| edges_of(rule).is_some());
        setup.then_calm &= !by_calendar;
    }
    let mut reserves = fastrand::Rng::with_seed(seed ^ 0x4e5e_4e5e_0000_0000);
    if reserves.u32(..3) == 0 {
        setup.reserves = reserves.u64(5..=100);
    }
    // Live changes apply to a limit without siblings.
    if setup.above > 0 && setup.live.is_empty() && rng.bool() {
        setup.siblings = rng.usize(1..=2);
    }
    // Generators of their own, from here on.
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x0b5e_47ed_0000_0000);
    if rng.u32(..4) == 0 && setup.siblings == 0 {
        draw_outside(&mut rng, ceiling, &mut setup);
    }
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x5afe_0000_0000_0000);
    if rng.u32(..4) == 0 {
        sharing::draw_safe(&mut rng, ceiling, &mut setup);
    }
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x1a7a_1a00_0000_0000);
    if rng.u32(..4) == 0 {
        setup.in_vain = rng.u64(1..=50);
    }
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x5704_e000_0000_0000);
    if rng.u32(..3) == 0 {
        draw_store(&mut rng, &mut setup);
    }
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x51e3_0000_0000_0000);
    if rng.u32(..4) == 0 {
        let every = log_uniform(&mut rng, 200 * MILLI, 10 * SECOND);
        setup.faults.every.insert(Fault::ClockSlew, (every, log_uniform(&mut rng, 10 * MILLI, 5 * SECOND)));
    }
    let mut rng = fastrand::Rng::with_seed(seed ^ 0xd157_a4ce_0000_0000);
    if rng.u32(..4) == 0 {
        draw_distances(&mut rng, &mut setup);
    }
    pools::draw_pools(&mut fastrand::Rng::with_seed(seed ^ 0xde5c_0000_0000_0000), &mut setup);
    setup
}

/// Lets the allocator write down what it lends, which delays each answer.
fn draw_store(rng: &mut fastrand::Rng, setup: &mut Setup) {
    let shortest = setup.rule_sets().map(|rules| nanos(term(rules))).min().unwrap_or(u64::MAX);
    setup.store = log_uniform(rng, MILLI / 20, shortest / 8);
    let Latency { one_way, jitter } = setup.latency;
    setup.latency = Latency { one_way: one_way.min(shortest / 16), jitter: jitter.min(shortest / 16) };
}

/// Puts nodes at two or three distances from the allocator.
fn draw_distances(rng: &mut fastrand::Rng, setup: &mut Setup) {
    let shortest = setup.rule_sets().map(|rules| nanos(term(rules))).min().unwrap_or(u64::MAX);
    let longest = log_uniform(rng, MILLI / 2, (shortest / 16).max(MILLI));
    setup.distances = (0..rng.usize(2..=3)).map(|_| rng.u64(0..=longest)).collect();
}

/// Adds to `setup` a vendor that is believed and has less than it should. Nothing else that operators do remains.
pub fn outside(mut setup: Setup, rng: &mut fastrand::Rng) -> Setup {
    (setup.live, setup.then_calm) = (vec![], true);
    let ceiling = ceiling(&setup.plan.rules);
    draw_outside(rng, ceiling, &mut setup);
    setup.plan.sharing.vendor.believe = Believe::Trim;
    setup
}

/// Draws how a caller outside the fleet uses part of the vendor's quota. The vendor reports what is left.
fn draw_outside(rng: &mut fastrand::Rng, ceiling: u64, setup: &mut Setup) {
    setup.plan.sharing.vendor = Trust {
        believe: Believe::ALL[rng.usize(..3)],
        longest: Duration::from_nanos(log_uniform(rng, 20 * MILLI, 3 * SECOND)),
        keep_percent: rng.u64(1..=100),
        ease: Duration::from_nanos(rng.u64(0..SECOND)),
    };
    for _ in 0..rng.u32(1..=4) {
        let act = Act::Outside(rng.u64(0..=ceiling.saturating_mul(2)));
        setup.live.push(Live { at: rng.u64(0..setup.lasts), act });
    }
}

/// Draws a few acts of operators, each at a moment while there is trouble.
pub(crate) fn draw_live(rng: &mut fastrand::Rng, setup: &Setup) -> Vec<Live> {
    let mut rules = setup.plan.rules.clone();
    let mut live: Vec<Live> = vec![];
    for _ in 0..rng.u32(1..=4) {
        let at = rng.u64(0..setup.lasts);
        let until = at + log_uniform(rng, 10 * MILLI, 2 * SECOND);
        match rng.u32(..9) {
            8 => {
                // The limit comes back as it was, or with other numbers.
                let rules = resized(rng, &rules, true);
                live.push(Live { at, act: Act::Remove });
                live.push(Live { at: until, act: Act::Change(CarryOver::ALL[rng.usize(..4)], rules) });
            }
            0 => live.push(Live { at, act: Act::TopUp(rng.u64(1..=ceiling(&rules).max(1))) }),
            1 => {
                live.push(Live { at, act: Act::Pause(log_uniform(rng, 10 * MILLI, 5 * SECOND)) });
                live.push(Live { at: until, act: Act::Resume });
            }
            2 => {
                let node = rng.usize(..setup.nodes);
                live.push(Live { at, act: Act::Block(node) });
                live.push(Live { at: until, act: Act::Unblock(node) });
            }
            _ => {
                // A family keeps its number of rules.
                rules = match rng.u32(..8) {
                    0 | 1 if setup.above == 0 => draw_rules(rng),
                    2 | 3 if setup.above == 0 => with_or_without_cap(rng, &rules),
                    _ => resized(rng, &rules, setup.above > 0),
                };
                let carry = if rng.bool() { CarryOver::AsIs } else { CarryOver::ALL[rng.usize(..4)] };
                live.push(Live { at, act: Act::Change(carry, rules.clone()) });
            }
        }
    }
    live
}

/// Returns `rules` with a cap on calls in flight if they have none; otherwise without it, or with another one.
pub(crate) fn with_or_without_cap(rng: &mut fastrand::Rng, rules: &[Rule]) -> Vec<Rule> {
    let is_cap = |rule: &Rule| matches!(rule, Rule::Concurrency(_));
    let mut others = rules.to_vec();
    others.retain(|rule| !is_cap(rule));
    if others.len() == rules.len() || others.is_empty() || rng.bool() {
        let longest = Duration::from_millis(log_uniform(rng, 50, 5_000));
        let cap = Concurrency::try_new(log_uniform(rng, 1, 1_000), longest).expect("numbers in range");
        others.insert(rng.usize(..=others.len()), Rule::Concurrency(cap));
    }
    others
}

/// Returns `rules` with other numbers and the same periods. A steady flow may stay as it is, or must (`keeps_flow`).
fn resized(rng: &mut fastrand::Rng, rules: &[Rule], keeps_flow: bool) -> Vec<Rule> {
    let keeps_flow = keeps_flow || rng.bool();
    let percent = log_uniform(rng, 5, 1_000);
    let part = |whole: u64| if whole == 0 { 0 } else { (whole * percent / 100).max(1) };
    let resized = rules.iter().map(|rule| match rule {
        Rule::SlidingWindow(rule) => {
            let margin = if rng.bool() { rule.margin() } else { rule.per() / rng.u32(2..=20) };
            SlidingWindow::try_new(part(rule.limit()), rule.per(), margin).map(Rule::SlidingWindow)
        }
        Rule::LeakyBucket(_) if keeps_flow => Ok(*rule),
        Rule::TokenBucket(rule) => {
            let capacity = part(rule.capacity());
            let full = TokenBucket::try_new(capacity, part(rule.refill()), rule.per(), capacity);
            full.and_then(|bucket| with_options(bucket, rule, part(rule.debt())))
        }
        Rule::SlidingLog(_) | Rule::FixedWindow(_) | Rule::Concurrency(_) | Rule::LeakyBucket(_) => {
            remade(rule, part, |per| per)
        }
    });
    resized.collect::<Result<_, _>>().expect("numbers in range")
}

fn ceiling(rules: &[Rule]) -> u64 {
    rules.iter().map(Rule::ceiling).min().unwrap_or(0)
}

fn draw_rules(rng: &mut fastrand::Rng) -> Vec<Rule> {
    let count = if rng.u32(..4) == 0 { 2 } else { 1 };
    let mut rules: Vec<Rule> = (0..count).map(|_| draw_rule(rng)).collect();
    // A quarter of all runs have a steady flow, alone or beside another rule; a limit has one at most. Fixed windows as
    // short as those drawn here may not stand beside it.
    if rng.u32(..4) == 0 {
        rules[0] = draw_flow(rng);
        rules.retain(|rule| !matches!(rule, Rule::FixedWindow(_)));
        if rng.bool() {
            rules.reverse();
        }
    }
    rules
}

fn draw_rule(rng: &mut fastrand::Rng) -> Rule {
    let limit = match rng.u32(..4) {
        0 => rng.u64(1..=5),
        1 => rng.u64(5..=100),
        _ => log_uniform(rng, 100, 20_000),
    };
    let per = Duration::from_millis(log_uniform(rng, 50, 5_000));
    let rule = match rng.u32(..5) {
        4 => Concurrency::try_new(limit, per).map(Rule::Concurrency),
        0 => FixedWindow::of(limit, draw_windows(rng, per)).map(Rule::FixedWindow),
        1 => draw_bucket(rng, limit, per).map(Rule::TokenBucket),
        _ => {
            let margin = if rng.bool() { Duration::ZERO } else { per / rng.u32(1..=10) };
            let slides = if rng.u32(..4) == 0 { Rule::SlidingLog } else { Rule::SlidingWindow };
            SlidingWindow::try_new(limit, per, margin).map(slides)
        }
    };
    rule.expect("numbers in range")
}

fn draw_flow(rng: &mut fastrand::Rng) -> Rule {
    let burst = if rng.bool() { 1 } else { log_uniform(rng, 2, 50) };
    let refill = rng.u64(1..=50);
    // Between a permit each millisecond and one in two seconds.
    let per = Duration::from_nanos(refill * log_uniform(rng, MILLI, 2 * SECOND));
    Rule::LeakyBucket(LeakyBucket::try_new(burst, refill, per).expect("numbers in range"))
}

/// Draws windows of length `per`, or of a calendar.
fn draw_windows(rng: &mut fastrand::Rng, per: Duration) -> Windows {
    match rng.u32(..4) {
        0 => Windows::FirstUse { per },
        1 => Windows::Calendar(EDGES[rng.usize(..EDGES.len())].calendar()),
        _ => Windows::Epoch { per },
    }
}

/// Draws a bucket with at most one of its options.
fn draw_bucket(rng: &mut fastrand::Rng, capacity: u64, per: Duration) -> Result<TokenBucket, RuleError> {
    // The refill fills the bucket within ten seconds, or there is none.
    let least = capacity * nanos(per) / (10 * SECOND) + 1;
    let refill = if rng.u32(..10) == 0 { 0 } else { log_uniform(rng, least, 10 * least) };
    let initial = if rng.bool() { capacity } else { rng.u64(0..=capacity) };
    let bucket = TokenBucket::try_new(capacity, refill, per, initial)?;
    match rng.u32(..6) {
        0 => bucket.with_refill_style(RefillStyle::Interval),
        1 => bucket.with_debt(rng.u64(1..=2 * capacity)),
        2 => {
            let over = Duration::from_millis(log_uniform(rng, 100, 20_000));
            bucket.with_warm_up(WarmUp::try_new(over, rng.u64(2..=5))?)
        }
        _ => Ok(bucket),
    }
}

/// Returns the edges of the calendar of `rule`; a run with `rule` is about one of them.
fn edges_of(rule: &Rule) -> Option<Vec<Edge>> {
    let Rule::FixedWindow(rule) = rule else { return None };
    let Windows::Calendar(calendar) = rule.windows() else { return None };
    Some(EDGES.into_iter().filter(|edge| edge.calendar() == calendar).collect())
}

fn draw_faults(rng: &mut fastrand::Rng) -> Faults {
    let mut faults = Faults::default();
    let chances = [
        (Fault::Loss, 0.3),
        (Fault::Duplicate, 0.3),
        (Fault::LongDelay, 0.1),
        (Fault::CrashBeforeSend, 0.02),
        (Fault::CrashAfterSend, 0.02),
        (Fault::CrashBeforeInstall, 0.02),
    ];
    for (fault, most) in chances {
        if rng.bool() {
            faults.chance.insert(fault, most * rng.f64());
        }
    }
    // Slews are drawn later, by a generator of their own.
    for fault in Fault::TIMED.into_iter().filter(|fault| *fault != Fault::ClockSlew) {
        // A frozen clock breaks an assumption; a restart costs seconds of quarantine.
        let is_on = fault != Fault::Freeze
            && if fault == Fault::AllocatorRestart { rng.u32(..4) == 0 } else { rng.bool() };
        if is_on {
            let every = log_uniform(rng, 200 * MILLI, 10 * SECOND);
            faults.every.insert(fault, (every, log_uniform(rng, 10 * MILLI, 5 * SECOND)));
        }
    }
    faults
}

/// Draws no adversaries in half of all runs, otherwise one to three.
fn draw_adversaries(rng: &mut fastrand::Rng) -> Vec<Lie> {
    let count = if rng.bool() { 0 } else { rng.usize(1..=3) };
    (0..count).map(|_| Lie::ALL[rng.usize(..Lie::ALL.len())]).collect()
}

/// Draws a number with a uniform logarithm: as often between 1 and 10 as between 10 and 100.
fn log_uniform(rng: &mut fastrand::Rng, least: u64, most: u64) -> u64 {
    let (least, most) = ((least as f64).ln(), (most as f64).ln());
    (least + rng.f64() * (most - least)).exp() as u64
}
