//! Each rule against a reference that remembers every spend: never more than the promise, whatever is lost,
//! repeated, late or restarted, on clocks at the edge of their drift.

use lessor::pace::{Gait, Pace};
use lessor_ledger::Rule;
use lessor_ledger::pool::Plan;
use lessor_ledger::rule::{
    Concurrency, FixedWindow, LeakyBucket, RefillStyle, SlidingLog, SlidingWindow, TokenBucket, WarmUp,
    Windows,
};
use lessor_ledger::share::Sharing;
use lessor_protocol::{ClockBounds, Moment};
use lessor_sim::edges::EDGES;
use lessor_sim::reference::{breach, opened_breach};
use lessor_sim::small::{Step, World};
use proptest::prelude::*;
use std::time::Duration;

/// Far above what clocks do, so that a missing factor shows at once.
const DRIFT_PPM: u32 = 50_000;

fn step() -> impl Strategy<Value = Step> {
    // Most waits are far below a term (20 ms here), some are around one, a few around a window.
    let short = || prop_oneof![4 => Just(0), 8 => 0u64..3_000_000, 2 => 0u64..30_000_000];
    prop_oneof![
        8 => short().prop_map(|nanos| Step::Wait { nanos }),
        1 => (0u64..500_000_000).prop_map(|nanos| Step::Wait { nanos }),
        3 => (any::<usize>(), 1u64..12).prop_map(|(node, permits)| Step::Spend { node, permits }),
        16 => (any::<usize>(), prop::bool::weighted(0.2)).prop_map(|(node, late)| Step::SpendAll { node, late }),
        24 => (any::<usize>(), 0u64..80, short(), short())
            .prop_map(|(node, waiting, there, back)| Step::Exchange { node, waiting, there, back }),
        4 => (any::<usize>(), 0u64..40).prop_map(|(node, waiting)| Step::Ask { node, waiting }),
        // Mostly the newest message, sometimes any that was ever sent: lost ones simply never arrive.
        3 => Just(Step::Arrive { message: usize::MAX }),
        2 => any::<usize>().prop_map(|message| Step::Arrive { message }),
        3 => Just(Step::Return { answer: usize::MAX }),
        2 => any::<usize>().prop_map(|answer| Step::Return { answer }),
        1 => any::<usize>().prop_map(|node| Step::RestartNode { node }),
    ]
}

/// `usize::MAX` modulo a length is anything: the newest is what is meant.
fn newest(step: Step, messages: usize, answers: usize) -> Step {
    if step == (Step::Arrive { message: usize::MAX }) {
        Step::Arrive { message: messages.saturating_sub(1) }
    } else if step == (Step::Return { answer: usize::MAX }) {
        Step::Return { answer: answers.saturating_sub(1) }
    } else {
        step
    }
}

fn check(rules: Vec<Rule>, ease_off: bool, steps: Vec<Step>, drifts: (i64, [i64; 3]), start: u64) -> World {
    let clocks = ClockBounds::try_new(DRIFT_PPM).expect("below the maximum");
    let plan = Plan {
        rules: rules.clone(),
        is_borrowed: false,
        is_root: false,
        clocks,
        ease_off,
        lessees_max: 100,
        sharing: Sharing::default(),
    };
    let mut world = World::new(plan, start, drifts.0, &drifts.1);
    let (mut messages, mut answers) = (0, 0);
    for step in steps {
        let step = newest(step, messages, answers);
        messages += usize::from(matches!(step, Step::Ask { .. } | Step::Exchange { .. }));
        let arrives = matches!(step, Step::Exchange { .. } | Step::Arrive { .. });
        answers += usize::from(arrives && messages > 0);
        world.step(&step);
        let in_hand = world.in_hand();
        let outstanding = world.outstanding();
        assert!(
            in_hand <= outstanding || world.is_in_quarantine(),
            "nodes can spend {in_hand}, the pool knows of {outstanding}"
        );
    }
    for rule in &rules {
        assert_eq!(breach(rule, &world.spends), None, "{rule:?}");
    }
    world
}

/// When a clock that runs `ppm` fast shows `nanos`, or just before.
fn real(nanos: u64, ppm: i64) -> u64 {
    let rate = u128::try_from(1_000_000 + ppm).expect("it runs forwards");
    u64::try_from(u128::from(nanos) * 1_000_000 / rate).expect("a few centuries at most")
}

fn drifts() -> impl Strategy<Value = (i64, [i64; 3])> {
    let edge = i64::from(DRIFT_PPM);
    let one = prop_oneof![Just(-edge), Just(0), Just(edge), -edge..edge];
    (one.clone(), [one.clone(), one.clone(), one])
}

/// Many steps; in one case of five the allocator forgets everything on the way, which stops it for two seconds.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let crash = prop::option::weighted(0.2, (any::<prop::sample::Index>(), 0u64..3_000_000_000));
    (prop::collection::vec(step(), 1..400), crash).prop_map(|(mut steps, crash)| {
        if let Some((place, nanos)) = crash {
            let place = place.index(steps.len());
            steps.splice(place..place, [Step::RestartAllocator, Step::Wait { nanos }]);
        }
        steps
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, ..ProptestConfig::default() })]

    #[test]
    fn a_sliding_window_never_holds_more_than_its_limit(
        limit in 1u64..40, per_ms in 50u64..400, ease in any::<bool>(), steps in steps(), drifts in drifts(),
    ) {
        let rule = SlidingWindow::try_new(limit, Duration::from_millis(per_ms), Duration::ZERO).expect("valid");
        check(vec![Rule::SlidingWindow(rule)], ease, steps, drifts, 10_000_000_000);
    }

    #[test]
    fn a_sliding_log_never_holds_more_than_its_limit(
        limit in 1u64..40, per_ms in 50u64..400, ease in any::<bool>(), steps in steps(), drifts in drifts(),
    ) {
        let rule = SlidingLog::try_new(limit, Duration::from_millis(per_ms), Duration::ZERO).expect("valid");
        check(vec![Rule::SlidingLog(rule)], ease, steps, drifts, 10_000_000_000);
    }

    #[test]
    fn a_window_of_first_use_never_holds_more_than_its_limit(
        limit in 1u64..40, per_ms in 50u64..400, ease in any::<bool>(), steps in steps(), drifts in drifts(),
    ) {
        let per = Duration::from_millis(per_ms);
        let rule = FixedWindow::of(limit, Windows::FirstUse { per }).expect("valid");
        let world = check(vec![Rule::FixedWindow(rule)], ease, steps, drifts, 10_000_000_000);
        prop_assert_eq!(opened_breach(&rule, &world.grants, &world.spends), None);
    }

    /// Around instants at which windows meet: on nights when clocks change, and on the last day of February.
    #[test]
    fn a_window_of_a_calendar_never_holds_more_than_its_limit(
        limit in 1u64..40, edge in 0..EDGES.len(), ease in any::<bool>(),
        steps in prop::collection::vec(step(), 1..400), drifts in drifts(), before in 0u64..2_000_000_000,
    ) {
        let edge = EDGES[edge];
        let rule = FixedWindow::of(limit, Windows::Calendar(edge.calendar())).expect("valid");
        let start = real(edge.at * 1_000_000_000 - before, drifts.0);
        check(vec![Rule::FixedWindow(rule)], ease, steps, drifts, start);
    }

    #[test]
    fn a_fixed_window_never_holds_more_than_its_limit(
        limit in 1u64..40, per_ms in 50u64..400, ease in any::<bool>(),
        steps in prop::collection::vec(step(), 1..400), drifts in drifts(), start in 0u64..10_000_000_000,
    ) {
        let rule = FixedWindow::try_new(limit, Duration::from_millis(per_ms)).expect("valid");
        check(vec![Rule::FixedWindow(rule)], ease, steps, drifts, start);
    }

    #[test]
    fn a_token_bucket_never_gives_more_than_one_central_bucket(
        capacity in 1u64..40, refill in 0u64..40, per_ms in 50u64..400, steps in steps(), drifts in drifts(),
    ) {
        let rule = TokenBucket::try_new(capacity, refill, Duration::from_millis(per_ms), capacity).expect("valid");
        check(vec![Rule::TokenBucket(rule)], false, steps, drifts, 10_000_000_000);
    }

    /// No report says when a call ends. So each call counts as if it took as long as it may, and so it does in the
    /// reference. Calls that end are for the simulator.
    #[test]
    fn calls_without_a_reported_end_are_in_flight_for_as_long_as_they_may_take(
        limit in 1u64..40, longest_ms in 50u64..400, rate in 1u64..80, beside in any::<bool>(), steps in steps(),
        drifts in drifts(),
    ) {
        let longest = Duration::from_millis(longest_ms);
        let mut rules = vec![Rule::Concurrency(Concurrency::try_new(limit, longest).expect("valid"))];
        if beside {
            let window = SlidingWindow::try_new(rate, longest / 2, Duration::ZERO).expect("valid");
            rules.push(Rule::SlidingWindow(window));
        }
        check(rules, false, steps, drifts, 10_000_000_000);
    }

    #[test]
    fn a_leaky_bucket_never_lets_more_through_than_one_central_limiter(
        burst in 1u64..10, refill in 1u64..40, per_ms in 50u64..400, steps in steps(), drifts in drifts(),
    ) {
        let rule = LeakyBucket::try_new(burst, refill, Duration::from_millis(per_ms)).expect("valid");
        check(vec![Rule::LeakyBucket(rule)], false, steps, drifts, 10_000_000_000);
    }

    #[test]
    fn a_bucket_with_options_never_gives_more_than_it_says(
        capacity in 1u64..40, refill in 0u64..40, per_ms in 50u64..400, option in 0..3, debt in 1u64..40,
        over_ms in 50u64..5_000, factor in 2u64..6, steps in steps(), drifts in drifts(),
    ) {
        let rule = TokenBucket::try_new(capacity, refill, Duration::from_millis(per_ms), capacity).expect("valid");
        let warm_up = WarmUp::try_new(Duration::from_millis(over_ms), factor).expect("valid");
        let rule = match option {
            0 => rule.with_refill_style(RefillStyle::Interval),
            1 => rule.with_debt(debt),
            _ => rule.with_warm_up(warm_up),
        };
        check(vec![Rule::TokenBucket(rule.expect("valid"))], false, steps, drifts, 10_000_000_000);
    }

    #[test]
    fn several_rules_on_one_limit_all_hold(
        limit in 1u64..40, capacity in 1u64..40, ease in any::<bool>(), steps in steps(), drifts in drifts(),
    ) {
        let short = Duration::from_millis(80);
        let rules = vec![
            Rule::SlidingWindow(SlidingWindow::try_new(limit, short * 4, Duration::ZERO).expect("valid")),
            Rule::SlidingWindow(SlidingWindow::try_new(limit.div_ceil(2), short, Duration::ZERO).expect("valid")),
            Rule::TokenBucket(TokenBucket::try_new(capacity, 5, short, capacity).expect("valid")),
        ];
        check(rules, ease, steps, drifts, 10_000_000_000);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    /// Whatever is tried and undone: between any two takes that count, no more than the cap and what is minted.
    #[test]
    fn no_interval_ever_sees_more_than_the_cap_and_what_is_minted(
        cap in 1u64..5, interval in 1u64..200,
        calls in prop::collection::vec((0u64..300, 1u64..4, prop::bool::weighted(0.2)), 1..200),
    ) {
        let pace = Pace::new();
        pace.go(Gait { interval, depth: cap * interval }, 0, Moment::from_nanos(1_000));
        let (mut now, mut spends, mut open) = (1_000, vec![], None);
        for (gap, permits, is_undone) in calls {
            now += gap;
            let Ok(taken) = pace.take(permits, Moment::from_nanos(now)) else { continue };
            // Undone only after the next one, if that is let through.
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
