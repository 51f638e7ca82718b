//! Compares what a pool can lend after changes and top-ups with one central limiter, which `lessor replay` uses. They
//! agree after every step.

use crate::exact::{Limiter, Verdict};
use crate::pool::ledgers::Ledgers;
use crate::rule::{FixedWindow, RefillStyle, SlidingWindow, TokenBucket, Windows};
use crate::{CarryOver, Rule};
use lessor_protocol::{ClockBounds, Moment};
use proptest::prelude::*;
use std::time::Duration;

/// Start of every run, in nanoseconds: not in the first window, and at no edge.
const START: u64 = 1_000_003;

const AT_ONCE: Verdict = Verdict::Served(Duration::ZERO);

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Take(u64),
    TopUp(u64),
    Change(CarryOver, Vec<Rule>),
}

/// Applies `steps` to a pool and to a central limiter. Permits that the pool lends are spent at once.
fn check(rules: &[Rule], steps: Vec<Step>) {
    let mut now = Moment::from_nanos(START);
    let clocks = ClockBounds::try_new(0).expect("no drift");
    let (mut pool, mut limiter) = (Ledgers::new(rules, clocks, now), Limiter::new(rules, now));
    let mut before = rules.to_vec();
    for step in steps {
        let shown = format!("{step:?}");
        match step {
            Step::Wait(nanos) => now = now + Duration::from_nanos(nanos),
            Step::Take(permits) => {
                let permits = permits.min(pool.available());
                take(&mut limiter, now, permits);
                pool.charge(permits);
                pool.settle(permits, now);
            }
            Step::TopUp(permits) => {
                pool.top_up(permits);
                limiter.top_up(now, permits);
            }
            Step::Change(way, rules) => {
                pool.change((&before, &rules), (clocks, now), way, (0, now));
                limiter.set(now, &rules, way);
                before = rules;
            }
        }
        pool.advance(now);
        pool.audit(0, std::iter::empty);
        let remains = limiter.peek(now, 0).remaining;
        assert_eq!(pool.available(), remains, "after {shown}: {pool:?} {limiter:?}");
    }
}

/// Takes `permits` one by one until a single call can take the rest. A call may not take more than the limit itself
/// holds, topped up or not. Where a bucket may go into debt, only the last call does.
fn take(limiter: &mut Limiter, now: Moment, permits: u64) {
    for left in (1..=permits).rev() {
        match limiter.try_acquire(now, left).verdict {
            Verdict::TooLarge(_) => assert_eq!(limiter.try_acquire(now, 1).verdict, AT_ONCE),
            verdict @ (Verdict::Served(_) | Verdict::NotFor(_) | Verdict::Never) => {
                return assert_eq!(verdict, AT_ONCE, "{left} of {limiter:?}");
            }
        }
    }
}

/// Generates rules of a few kinds and periods, so that a change mostly finds its rule. Their windows are so short that
/// a sub-window is a nanosecond and nothing is rounded.
fn rule(debt: std::ops::Range<u64>) -> impl Strategy<Value = Rule> {
    // From a limit of 0 no call may take anything, topped up or not.
    let limit = 1u64..12;
    let (short, long) = (Duration::from_nanos(100), Duration::from_nanos(400));
    let per = prop_oneof![3 => Just(short), 1 => Just(long)];
    let millis = prop_oneof![3 => Just(Duration::from_millis(50)), 1 => Just(Duration::from_millis(120))];
    let windows = prop_oneof![
        millis.clone().prop_map(|per| Windows::Epoch { per }),
        millis.prop_map(|per| Windows::FirstUse { per }),
    ];
    let style = prop_oneof![2 => Just(RefillStyle::Greedy), 1 => Just(RefillStyle::Interval)];
    let bucket = (limit.clone(), 0u64..12, per.clone(), 0u64..12, debt, style);
    prop_oneof![
        (limit.clone(), per.clone()).prop_map(|(limit, per)| {
            Rule::SlidingWindow(SlidingWindow::try_new(limit, per, Duration::ZERO).expect("valid"))
        }),
        (limit.clone(), per).prop_map(|(limit, per)| {
            Rule::SlidingLog(SlidingWindow::try_new(limit, per, Duration::ZERO).expect("valid"))
        }),
        (limit, windows).prop_map(|(limit, windows)| {
            Rule::FixedWindow(FixedWindow::of(limit, windows).expect("valid"))
        }),
        bucket.prop_map(|(capacity, refill, per, initial, debt, style)| {
            let bucket = TokenBucket::try_new(capacity, refill, per, initial.min(capacity));
            let bucket = bucket.and_then(|bucket| bucket.with_debt(debt));
            let bucket = bucket.and_then(|bucket| bucket.with_refill_style(style));
            Rule::TokenBucket(bucket.expect("valid"))
        }),
    ]
}

/// Generates rules without debt: beside another rule, no single call may do what many small leases may.
fn rules() -> impl Strategy<Value = Vec<Rule>> {
    prop::collection::vec(rule(0..1), 1..4)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let edge = 49_999_999u64..50_000_002;
    let wait = prop_oneof![0u64..5, 0u64..150, 99u64..102, 399u64..402, 0..60_000_000u64, edge];
    let step = prop_oneof![
        3 => wait.prop_map(Step::Wait),
        3 => (0u64..12).prop_map(Step::Take),
        1 => (1u64..12).prop_map(Step::TopUp),
        2 => (prop::sample::select(CarryOver::ALL.to_vec()), rules())
            .prop_map(|(carry_over, rules)| Step::Change(carry_over, rules)),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_pool_and_a_central_limiter_agree_on_changes_and_top_ups(rules in rules(), steps in steps()) {
        check(&rules, steps);
    }

    /// The bug: a bucket went on with the level of another bucket of the same period.
    #[test]
    fn rules_in_another_order_keep_their_books(
        (rules, order) in rules().prop_flat_map(|rules| (Just(rules.clone()), Just(rules).prop_shuffle())),
        takes in prop::collection::vec((0u64..12, 0..60_000_000u64), 1..10),
    ) {
        let mut now = Moment::from_nanos(START);
        let clocks = ClockBounds::try_new(0).expect("no drift");
        // Half of the rules come later, so two of one period know of different takes.
        let first = &rules[..rules.len().div_ceil(2)];
        let (mut pool, half) = (Ledgers::new(first, clocks, now), takes.len() / 2);
        for (index, (permits, nanos)) in takes.into_iter().enumerate() {
            if index == half {
                pool.change((first, &rules), (clocks, now), CarryOver::AsIs, (0, now));
            }
            now = now + Duration::from_nanos(nanos);
            pool.advance(now);
            let permits = permits.min(pool.available());
            pool.charge(permits);
            pool.settle(permits, now);
        }
        let saved = |pool: &Ledgers, rules: &[Rule]| {
            let saved = rules.iter().map(|rule| format!("{rule:?}")).zip(pool.save().expect("it lends its own"));
            let mut saved: Vec<String> = saved.map(|(rule, saved)| format!("{rule} {saved:?}")).collect();
            saved.sort();
            saved
        };
        let before = saved(&pool, &rules);
        pool.change((&rules, &order), (clocks, now), CarryOver::AsIs, (0, now));
        prop_assert_eq!(saved(&pool, &order), before);
    }

    /// With a single rule, every change is one that the rule carries over.
    #[test]
    fn they_agree_on_the_same_rule_with_other_numbers(
        first in rule(0..6), steps in steps(), others in prop::collection::vec(rule(0..6), 200),
    ) {
        let same = |other: &Rule| std::mem::discriminant(other) == std::mem::discriminant(&first);
        let mut others = others.into_iter().filter(same).cycle();
        let steps = steps.into_iter().map(|step| match step {
            Step::Change(carry_over, _) => Step::Change(carry_over, vec![others.next().unwrap_or(first)]),
            step @ (Step::Wait(_) | Step::Take(_) | Step::TopUp(_)) => step,
        });
        let steps = steps.collect();
        check(&[first], steps);
    }
}
