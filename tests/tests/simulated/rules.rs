//! Each rule against a reference that remembers every spend: never more than the promise, whatever is lost, repeated,
//! late or restarted, on clocks at the edge of their drift.

use lessor::pace::{BucketRate, Pace};
use lessor_ledger::Rule;
use lessor_ledger::rule::{
    Concurrency, FixedWindow, LeakyBucket, RefillStyle, SlidingWindow, TokenBucket, WarmUp, Windows,
};
use lessor_protocol::{ClockBounds, Moment};
use lessor_sim::edges::EDGES;
use lessor_sim::faults::Fault;
use lessor_sim::network::Latency;
use lessor_sim::policy::Policy;
use lessor_sim::reference::{breach, opened_breach};
use lessor_sim::setup::{Calls, Setup, plan};
use lessor_sim::soak::run_as;
use lessor_sim::text::bare;
use lessor_sim::world::{Report, Watch, sustained};
use lessor_sim::{MILLI, SECOND};
use proptest::prelude::*;
use std::time::Duration;

/// Drift bound far above that of real clocks, so that a missing factor shows at once.
const DRIFT_PPM: u32 = 50_000;

/// Fleets for each rule in CI. `RULE_SEEDS` sets another number.
const SEEDS: u64 = 400;

fn seeds() -> u64 {
    std::env::var("RULE_SEEDS").ok().map_or(SEEDS, |seeds| seeds.parse().expect("a number of seeds"))
}

/// Draws three nodes on `rules`, for a few seconds in which more goes wrong than goes well. In one fleet of five, the
/// allocator dies and forgets everything, which stops it for two seconds.
fn fleet(seed: u64, rules: Vec<Rule>, rng: &mut fastrand::Rng) -> Setup {
    let mut setup = Setup { seed, ..bare() };
    setup.demand = (sustained(&rules) * [0.5, 2.0, 8.0][rng.usize(..3)]).clamp(20.0, 2_000.0);
    setup.plan = plan(rules, rng.bool());
    setup.plan.clocks = ClockBounds::try_new(DRIFT_PPM).expect("below the maximum");
    (setup.nodes, setup.drifting) = (3, true);
    (setup.cost_max, setup.sprees) = (if rng.bool() { 1 } else { 11 }, 100);
    setup.patience = if rng.bool() { 0 } else { 40 * MILLI };
    setup.latency = Latency { one_way: rng.u64(0..2 * MILLI), jitter: rng.u64(0..20 * MILLI) };
    setup.faults.chance =
        [(Fault::Loss, 0.3), (Fault::Duplicate, 0.4), (Fault::LongDelay, 0.05)].into_iter().collect();
    setup.faults.every.insert(Fault::NodeCrash, (SECOND, 10 * MILLI));
    setup.faults.every.insert(Fault::Cut, (SECOND, 200 * MILLI));
    setup.lasts = 3 * SECOND;
    if rng.u32(..5) == 0 {
        setup.faults.every.insert(Fault::AllocatorRestart, (3 * SECOND, 10 * MILLI));
        setup.lasts = 6 * SECOND;
    }
    setup.start = 10 * SECOND;
    setup
}

/// Asserts that neither the oracle nor the reference complains of any fleet that `draw` draws, and hands each report to
/// `then`.
fn hold_and(draw: impl Fn(u64, &mut fastrand::Rng) -> Setup, then: impl Fn(&Setup, &Report)) {
    let mut admissions = 0;
    for seed in 0..seeds() {
        let setup = draw(seed, &mut fastrand::Rng::with_seed(seed)).named();
        let watch = Watch { remembers: true, ..Watch::default() };
        let report =
            run_as(Policy::Lessor, setup.clone(), watch).unwrap_or_else(|failure| panic!("{failure}"));
        for rule in &setup.plan.rules {
            assert_eq!(breach(rule, &report.spends), None, "{}", setup.replay);
        }
        then(&setup, &report);
        admissions += report.admissions;
    }
    assert!(admissions > 5 * seeds(), "{admissions} admissions are too few to say anything");
}

fn hold(rule: impl Fn(&mut fastrand::Rng) -> Rule) {
    hold_and(|seed, rng| fleet(seed, vec![rule(rng)], rng), |_, _| {});
}

/// Draws a small limit.
fn limit(rng: &mut fastrand::Rng) -> u64 {
    rng.u64(1..40)
}

/// Draws a short window.
fn per(rng: &mut fastrand::Rng) -> Duration {
    Duration::from_millis(rng.u64(50..400))
}

fn bucket(rng: &mut fastrand::Rng) -> TokenBucket {
    let capacity = limit(rng);
    TokenBucket::try_new(capacity, rng.u64(0..40), per(rng), capacity).expect("valid")
}

#[test]
fn a_sliding_window_never_holds_more_than_its_limit() {
    hold(|rng| {
        Rule::SlidingWindow(SlidingWindow::try_new(limit(rng), per(rng), Duration::ZERO).expect("valid"))
    });
}

#[test]
fn a_sliding_log_never_holds_more_than_its_limit() {
    hold(|rng| {
        Rule::SlidingLog(SlidingWindow::try_new(limit(rng), per(rng), Duration::ZERO).expect("valid"))
    });
}

#[test]
fn a_window_of_first_use_never_holds_more_than_its_limit() {
    let rule = |rng: &mut fastrand::Rng| {
        FixedWindow::of(limit(rng), Windows::FirstUse { per: per(rng) }).expect("valid")
    };
    hold_and(
        |seed, rng| {
            let rule = Rule::FixedWindow(rule(rng));
            fleet(seed, vec![rule], rng)
        },
        |setup, report| {
            let Rule::FixedWindow(rule) = &setup.plan.rules[0] else {
                unreachable!("the rule is a fixed window")
            };
            assert_eq!(opened_breach(rule, &report.grants, &report.spends), None, "{}", setup.replay);
        },
    );
}

/// Fleets run around the boundaries of windows: on nights when clocks change, and on the last day of February.
#[test]
fn a_window_of_a_calendar_never_holds_more_than_its_limit() {
    hold_and(
        |seed, rng| {
            let edge = EDGES[rng.usize(..EDGES.len())];
            let rule = FixedWindow::of(limit(rng), Windows::Calendar(edge.calendar())).expect("valid");
            let mut setup = fleet(seed, vec![Rule::FixedWindow(rule)], rng);
            setup.demand = 200.0;
            setup.start = edge.at * SECOND - rng.u64(0..2 * SECOND);
            setup.faults.every.remove(&Fault::AllocatorRestart);
            setup
        },
        |_, _| {},
    );
}

#[test]
fn a_fixed_window_never_holds_more_than_its_limit() {
    hold(|rng| Rule::FixedWindow(FixedWindow::try_new(limit(rng), per(rng)).expect("valid")));
}

#[test]
fn a_token_bucket_never_gives_more_than_one_central_bucket() {
    hold(|rng| Rule::TokenBucket(bucket(rng)));
}

/// No report says when a call ends. So each call counts for the longest that a call may take, and in the reference it
/// takes that long. Other fleets have calls that end.
#[test]
fn calls_without_a_reported_end_are_in_flight_for_as_long_as_they_may_take() {
    hold_and(
        |seed, rng| {
            let longest = per(rng);
            let mut rules =
                vec![Rule::Concurrency(Concurrency::try_new(limit(rng), longest).expect("valid"))];
            if rng.bool() {
                let window = SlidingWindow::try_new(rng.u64(1..80), longest / 2, Duration::ZERO);
                rules.push(Rule::SlidingWindow(window.expect("valid")));
            }
            Setup { calls: Calls::Silent, ..fleet(seed, rules, rng) }
        },
        |_, _| {},
    );
}

#[test]
fn a_leaky_bucket_never_lets_more_through_than_one_central_limiter() {
    hold(|rng| {
        Rule::LeakyBucket(LeakyBucket::try_new(rng.u64(1..10), rng.u64(1..40), per(rng)).expect("valid"))
    });
}

#[test]
fn a_bucket_with_options_never_gives_more_than_it_says() {
    hold(|rng| {
        let rule = bucket(rng);
        let rule = match rng.u32(..3) {
            0 => rule.with_refill_style(RefillStyle::Interval),
            1 => rule.with_debt(limit(rng)),
            _ => {
                let over = Duration::from_millis(rng.u64(50..5_000));
                rule.with_warm_up(WarmUp::try_new(over, rng.u64(2..6)).expect("valid"))
            }
        };
        Rule::TokenBucket(rule.expect("valid"))
    });
}

#[test]
fn several_rules_on_one_limit_all_hold() {
    hold_and(
        |seed, rng| {
            let (short, most) = (Duration::from_millis(80), limit(rng));
            let window = |limit, per| SlidingWindow::try_new(limit, per, Duration::ZERO).expect("valid");
            let rules = vec![
                Rule::SlidingWindow(window(most, short * 4)),
                Rule::SlidingWindow(window(most.div_ceil(2), short)),
                Rule::TokenBucket(TokenBucket::try_new(most, 5, short, most).expect("valid")),
            ];
            fleet(seed, rules, rng)
        },
        |_, _| {},
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    /// Whatever is tried and undone, between any two takes that count there is no more than the cap and what was
    /// minted.
    #[test]
    fn no_interval_ever_sees_more_than_the_cap_and_what_is_minted(
        cap in 1u64..5, interval in 1u64..200,
        calls in prop::collection::vec((0u64..300, 1u64..4, prop::bool::weighted(0.2)), 1..200),
    ) {
        let pace = Pace::new();
        pace.go(BucketRate { interval, depth: cap * interval }, 0, Moment::from_nanos(1_000));
        let (mut now, mut spends, mut open) = (1_000, vec![], None);
        for (gap, permits, is_undone) in calls {
            now += gap;
            let Ok(taken) = pace.take(permits, Moment::from_nanos(now)) else { continue };
            // A take is undone only after the next one, if that is admitted.
            if let Some(before) = open.take() {
                pace.put_back(before);
            }
            if is_undone { open = Some(taken) } else { spends.push((now, permits)) }
        }
        for (i, &(from, _)) in spends.iter().enumerate() {
            let mut used = 0;
            for &(to, permits) in &spends[i..] {
                used += permits;
                prop_assert!(used * interval <= cap * interval + (to - from), "{used} from {from} to {to}");
            }
        }
    }
}
