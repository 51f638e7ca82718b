//! The limiter against an oracle that remembers every admission, and looks through all of them when asked about an
//! instant. The oracle is written without looking at the books, and knows nothing of remainders, levels or lines.

mod family;

use super::*;
use crate::CarryOver;
use crate::rule::{Concurrency, FixedWindow, LeakyBucket, RefillStyle, SlidingWindow, TokenBucket};
use family::Tree;
use lessor_protocol::Moment;
use lessor_protocol::moment::{at, nanos};
use proptest::prelude::*;
use std::time::Duration;

const MILLI: u64 = 1_000_000;

/// Whether `rule` lets `permits` in at `at`, after the admissions in `log`, which are in the order of time.
fn allows(rule: &Rule, log: &[(u64, u64)], at: u64, permits: u64) -> bool {
    let sum = |counts: &dyn Fn(u64) -> bool| -> u64 {
        log.iter().filter(|(then, _)| counts(*then)).map(|(_, permits)| permits).sum()
    };
    let slides = |window, limit| sum(&|then| then + nanos(window) > at) + permits <= limit;
    match rule {
        Rule::SlidingWindow(rule) | Rule::SlidingLog(rule) => {
            slides(rule.per() + rule.margin(), rule.limit())
        }
        // As the textbook has it: each permit moves the time at which the next is due by an interval, and a call may
        // come too early by as many intervals as the burst says. Times are in 1/refill of a nanosecond, which makes
        // every interval whole.
        Rule::LeakyBucket(rule) => {
            let (interval, refill) = (u128::from(nanos(rule.per())), u128::from(rule.refill()));
            let mut due = 0;
            for &(then, permits) in log.iter().chain([&(at, permits)]) {
                let then = u128::from(then) * refill;
                let next = then.max(due) + u128::from(permits) * interval;
                if permits > 0 && (refill == 0 || next > then + u128::from(rule.burst()) * interval) {
                    return false;
                }
                due = next;
            }
            true
        }
        Rule::Concurrency(rule) => sum(&|then| then + nanos(rule.longest()) > at) + permits <= rule.limit(),
        Rule::FixedWindow(rule) => {
            let window = |at: u64| at / nanos(rule.per());
            sum(&|then| window(then) == window(at)) + permits <= rule.limit()
        }
        Rule::TokenBucket(rule) => bucket_allows(rule, log, at, permits),
    }
}

/// Whether the bucket lets `permits` in, counted in parts of a permit. `refill` parts of `per` come in each nanosecond,
/// or all of them at once when `per` is over.
fn bucket_allows(rule: &TokenBucket, log: &[(u64, u64)], at: u64, permits: u64) -> bool {
    let per = i128::from(nanos(rule.per()));
    let (brim, debt) = (i128::from(rule.capacity()) * per, i128::from(rule.debt()) * per);
    let came = |until: u64| {
        let since = i128::from(until - START);
        let whole = if rule.refill_style() == RefillStyle::Interval { since / per * per } else { since };
        whole * i128::from(rule.refill())
    };
    let (mut parts, mut last) = (i128::from(rule.initial()) * per, START);
    for &(then, permits) in log.iter().chain([&(at, permits)]) {
        // An interval is one refill after the other: what overflows at one refill is no part of the next.
        parts = brim.min(parts + came(then) - came(last));
        let left = parts - i128::from(permits) * per;
        if permits > 0 && (parts < per || left < -debt) {
            return false;
        }
        (parts, last) = (left, then);
    }
    true
}

/// When the limit begins: in the middle of a fixed window.
const START: u64 = 1_030 * MILLI;

fn allowed(rules: &[Rule], log: &[(u64, u64)], at: u64, permits: u64) -> bool {
    rules.iter().all(|rule| allows(rule, log, at, permits))
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Wait(u64),
    Try(u64),
    Acquire(u64, Option<u64>),
    Peek(u64),
}

/// Takes `steps` at one pool of `rules`.
fn check(rules: &[Rule], steps: Vec<Step>) {
    Tree::new(&[None], vec![rules.to_vec()]).run(steps.into_iter().map(|step| (step, 0)));
}

fn sliding() -> impl Strategy<Value = Rule> {
    (0u64..12, 50u64..120, 0u64..2, any::<bool>()).prop_map(|(limit, per, margin, is_log)| {
        let (per, margin) = (Duration::from_millis(per), Duration::from_nanos(margin));
        let window = SlidingWindow::try_new(limit, per, margin).expect("valid");
        if is_log { Rule::SlidingLog(window) } else { Rule::SlidingWindow(window) }
    })
}

fn fixed() -> impl Strategy<Value = Rule> {
    (0u64..12, 50u64..120).prop_map(|(limit, per)| {
        Rule::FixedWindow(FixedWindow::try_new(limit, Duration::from_millis(per)).expect("valid"))
    })
}

fn bucket() -> impl Strategy<Value = Rule> {
    let per = prop_oneof![Just(100 * MILLI), 1u64..20, 50 * MILLI..120 * MILLI];
    let debt = prop_oneof![2 => Just(0), 1 => 0u64..6];
    let style = prop_oneof![2 => Just(RefillStyle::Greedy), 1 => Just(RefillStyle::Interval)];
    (0u64..12, 0u64..12, per, 0u64..12, debt, style).prop_map(
        |(capacity, refill, per, initial, debt, style)| {
            let rule =
                TokenBucket::try_new(capacity, refill, Duration::from_nanos(per), initial.min(capacity));
            let rule =
                rule.and_then(|rule| rule.with_debt(debt)).and_then(|rule| rule.with_refill_style(style));
            Rule::TokenBucket(rule.expect("valid"))
        },
    )
}

fn leaky() -> impl Strategy<Value = Rule> {
    let per = prop_oneof![Just(100 * MILLI), 1u64..20, 50 * MILLI..120 * MILLI];
    (0u64..6, 0u64..12, per).prop_map(|(burst, refill, per)| {
        Rule::LeakyBucket(LeakyBucket::try_new(burst, refill, Duration::from_nanos(per)).expect("valid"))
    })
}

fn in_flight() -> impl Strategy<Value = Rule> {
    (0u64..12, 50u64..120).prop_map(|(limit, longest)| {
        Rule::Concurrency(Concurrency::try_new(limit, Duration::from_millis(longest)).expect("valid"))
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let edge = (50u64..120, 0u64..3).prop_map(|(millis, off)| millis * MILLI + off - 1);
    let wait = prop_oneof![0u64..5, 0..20 * MILLI, edge];
    let patience = prop::option::of(prop_oneof![Just(0), 0..200 * MILLI]);
    let step = prop_oneof![
        3 => wait.prop_map(Step::Wait),
        3 => (0u64..8).prop_map(Step::Try),
        2 => (0u64..8, patience).prop_map(|(permits, patience)| Step::Acquire(permits, patience)),
        1 => (0u64..14).prop_map(Step::Peek),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_sliding_window_admits_what_its_log_allows(rule in sliding(), steps in steps()) {
        check(&[rule], steps);
    }

    #[test]
    fn a_fixed_window_admits_what_its_log_allows(rule in fixed(), steps in steps()) {
        check(&[rule], steps);
    }

    #[test]
    fn a_bucket_admits_what_its_log_allows(rule in bucket(), steps in steps()) {
        check(&[rule], steps);
    }

    #[test]
    fn what_is_in_flight_lands_when_the_longest_call_is_over(rule in in_flight(), steps in steps()) {
        check(&[rule], steps);
    }

    #[test]
    fn a_steady_flow_admits_what_its_textbook_allows(rule in leaky(), steps in steps()) {
        check(&[rule], steps);
    }

    #[test]
    fn several_rules_admit_what_all_of_them_allow(
        one in prop_oneof![sliding(), fixed(), in_flight()], other in prop_oneof![bucket(), leaky()], third in sliding(), steps in steps(),
    ) {
        check(&[one, other, third], steps);
    }

    /// Permits given back at once leave the books as if they had never been taken. (A sliding window cannot tell them
    /// from permits taken before, and lets those go that would have left first.)
    #[test]
    fn a_refund_at_once_leaves_no_trace(
        rules in prop::collection::vec(prop_oneof![fixed(), bucket()], 1..3), steps in steps(),
    ) {
        let mut one = Limiter::new(&rules, Moment::from_nanos(START));
        let mut other = Limiter::new(&rules, Moment::from_nanos(START));
        let mut now = START;
        for step in steps {
            let at = Moment::from_nanos(now);
            match step {
                Step::Wait(nanos) => now += nanos,
                Step::Try(permits) => {
                    prop_assert_eq!(one.try_acquire(at, permits), other.try_acquire(at, permits));
                }
                Step::Acquire(permits, _) | Step::Peek(permits) => {
                    let peeked = other.peek(at, permits);
                    let is_taken = other.try_acquire(at, permits).verdict == Verdict::Served(Duration::ZERO);
                    let refunded = other.refund(at, if is_taken { permits } else { 0 });
                    prop_assert_eq!(one.peek(at, permits), peeked);
                    prop_assert_eq!(one.peek(at, 0), refunded);
                }
            }
        }
    }
}

fn window(limit: u64) -> Rule {
    Rule::SlidingWindow(
        SlidingWindow::try_new(limit, Duration::from_nanos(100), Duration::ZERO).expect("valid"),
    )
}

fn token_bucket(capacity: u64) -> Rule {
    Rule::TokenBucket(TokenBucket::try_new(capacity, 1, Duration::from_nanos(100), capacity).expect("valid"))
}

const AT_ONCE: Verdict = Verdict::Served(Duration::ZERO);

fn ns(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

#[test]
fn a_later_call_waits_behind_those_that_wait() {
    let mut limiter = Limiter::new(&[window(3)], at(0));
    assert_eq!(limiter.try_acquire(at(0), 2).verdict, AT_ONCE);
    assert_eq!(limiter.acquire(at(10), 3, None).verdict, Verdict::Served(ns(90)));
    // One is free, but it belongs to the call that waits; the next one comes 100 after the turn of that call.
    assert_eq!(limiter.try_acquire(at(20), 1), Outcome { verdict: Verdict::NotFor(ns(180)), remaining: 0 });
    assert_eq!(limiter.acquire(at(30), 1, Some(ns(169))).verdict, Verdict::NotFor(ns(170)));
    assert_eq!(limiter.acquire(at(30), 1, Some(ns(170))).verdict, Verdict::Served(ns(170)));
    limiter.run_out();
    let served: Vec<u64> = limiter.admitted().map(|admission| admission.at.as_nanos()).collect();
    assert_eq!(served, [0, 100, 200]);
}

#[test]
fn a_refund_serves_those_that_wait_sooner_and_new_rules_may_make_them_give_up() {
    let mut limiter = Limiter::new(&[window(3)], at(0));
    limiter.try_acquire(at(0), 3);
    assert_eq!(limiter.acquire(at(10), 2, Some(ns(90))).verdict, Verdict::Served(ns(90)));
    assert_eq!(limiter.acquire(at(10), 1, Some(ns(90))).verdict, Verdict::Served(ns(90)));
    // Two of three come back: the first call that waits takes them, the second still waits until 100.
    assert_eq!(limiter.refund(at(20), 2), Outcome { verdict: AT_ONCE, remaining: 0 });
    let served: Vec<u64> = limiter.admitted().map(|admission| admission.at.as_nanos()).collect();
    assert_eq!(served, [0, 20]);
    // Of two per 100 with one since 0 and two since 20, the next leaves at 100, too few: the turn is 120, too late.
    limiter.set(at(30), &[window(2)], CarryOver::AsIs);
    assert_eq!((limiter.gave_up(), limiter.peek(at(30), 0).remaining), (1, 0));
    limiter.run_out();
    assert_eq!(limiter.admitted().count(), 0);
}

#[test]
fn no_more_comes_back_than_was_taken_and_still_counts() {
    let mut limiter = Limiter::new(&[window(10)], at(0));
    limiter.try_acquire(at(0), 3);
    limiter.try_acquire(at(50), 2);
    assert_eq!(limiter.refund(at(60), 9).remaining, 10);
    limiter.try_acquire(at(60), 4);
    assert_eq!(limiter.refund(at(160), 9).remaining, 10);
    let rule = TokenBucket::try_new(10, 1, ns(100), 0).expect("valid");
    let mut limiter = Limiter::new(&[Rule::TokenBucket(rule)], at(0));
    assert_eq!(limiter.refund(at(0), 5).remaining, 0, "nothing was taken");
    limiter.try_acquire(at(500), 2);
    assert_eq!(limiter.refund(at(500), 5).remaining, 5, "two of five were taken");
}

#[test]
fn of_what_was_taken_twice_the_older_comes_back() {
    let mut limiter = Limiter::new(&[window(3)], at(0));
    limiter.try_acquire(at(0), 1);
    limiter.try_acquire(at(40), 2);
    assert_eq!(limiter.refund(at(50), 1).remaining, 1);
    assert_eq!(limiter.peek(at(100), 0).remaining, 1, "what is left counts until 140");
    assert_eq!(limiter.peek(at(140), 0).remaining, 3);
}

/// Checks what can be taken at 20 after six of ten were taken at 0 and the limit was made `limit`, and at 100.
#[track_caller]
fn check_carry_over(rule: impl Fn(u64) -> Rule, limit: u64, carry_over: CarryOver, then: u64, later: u64) {
    let mut limiter = Limiter::new(&[rule(10)], at(0));
    limiter.try_acquire(at(0), 6);
    assert_eq!(limiter.set(at(20), &[rule(limit)], carry_over).remaining, then, "{carry_over:?} to {limit}");
    assert_eq!(limiter.peek(at(100), 0).remaining, later, "{carry_over:?} to {limit}, later");
}

#[test]
fn a_changed_window_carries_what_is_charged() {
    // Six are charged until 100, of 20 or of 4.
    check_carry_over(window, 20, CarryOver::AsIs, 14, 20);
    check_carry_over(window, 4, CarryOver::AsIs, 0, 4);
    check_carry_over(window, 20, CarryOver::Additive, 14, 20);
    // 6 of 10 are 12 of 20, and 2.4 of 4, so 3.
    check_carry_over(window, 20, CarryOver::Proportional, 8, 20);
    check_carry_over(window, 4, CarryOver::Proportional, 1, 4);
    check_carry_over(window, 4, CarryOver::Reset, 4, 4);
    check_carry_over(window, 0, CarryOver::Proportional, 0, 0);
}

#[test]
fn a_changed_bucket_carries_its_level() {
    // Four are left, and a fifth of one has come by 20; by 100 a whole one has.
    check_carry_over(token_bucket, 20, CarryOver::AsIs, 4, 5);
    check_carry_over(token_bucket, 3, CarryOver::AsIs, 3, 3);
    check_carry_over(token_bucket, 20, CarryOver::Additive, 14, 15);
    check_carry_over(token_bucket, 7, CarryOver::Additive, 1, 2);
    // 4 - (10 - 3) is below zero, so nothing is left: from 20 on 0.8 come.
    check_carry_over(token_bucket, 3, CarryOver::Additive, 0, 0);
    // 4.2 of 10 are 8.4 of 20, and 9.2 with the 0.8 that come; they are 1.26 of 3, and 2.06.
    check_carry_over(token_bucket, 20, CarryOver::Proportional, 8, 9);
    check_carry_over(token_bucket, 3, CarryOver::Proportional, 1, 2);
    check_carry_over(token_bucket, 3, CarryOver::Reset, 3, 3);
}

#[test]
fn rules_are_matched_by_kind_and_period() {
    let hour = |limit| {
        let rule = SlidingWindow::try_new(limit, Duration::from_secs(3600), Duration::ZERO);
        Rule::SlidingWindow(rule.expect("valid"))
    };
    let mut limiter = Limiter::new(&[window(10), hour(100)], at(0));
    limiter.try_acquire(at(0), 8);
    assert_eq!(limiter.set(at(1), &[hour(90), window(12)], CarryOver::AsIs).remaining, 4, "in any order");
    assert_eq!(limiter.set(at(2), &[hour(90)], CarryOver::AsIs).remaining, 82);
    assert_eq!(
        limiter.set(at(3), &[hour(90), window(12)], CarryOver::AsIs).remaining,
        12,
        "forgotten is forgotten"
    );
}

#[test]
fn a_top_up_is_lent_once_and_beyond_the_limit() {
    for rule in [window(10), token_bucket(10)] {
        let mut limiter = Limiter::new(&[rule], at(0));
        limiter.try_acquire(at(0), 6);
        assert_eq!(limiter.top_up(at(1), 3).remaining, 7, "{rule:?}");
        assert_eq!(limiter.top_up(at(1), 30).remaining, 37, "{rule:?}");
        assert_eq!(limiter.peek(at(1), 11).verdict, Verdict::TooLarge(10), "{rule:?}");
    }
}

#[test]
fn a_topped_up_window_allows_more_for_as_long_as_a_spend_counts() {
    let mut limiter = Limiter::new(&[window(10)], at(0));
    limiter.try_acquire(at(0), 6);
    limiter.top_up(at(1), 30);
    for remaining in [24, 14, 4] {
        assert_eq!(limiter.try_acquire(at(1), 10).remaining, remaining);
    }
    // At 100 the six of 0 count no more, at 101 the thirty of 1 do not, and no more is allowed.
    assert_eq!(limiter.try_acquire(at(100), 10).remaining, 0);
    assert_eq!(limiter.peek(at(101), 1).verdict, Verdict::NotFor(ns(99)));
    assert_eq!(limiter.peek(at(200), 0).remaining, 10);
}

#[test]
fn a_topped_up_bucket_gains_nothing_until_it_has_room() {
    let mut limiter = Limiter::new(&[token_bucket(10)], at(0));
    assert_eq!(limiter.top_up(at(0), 5).remaining, 15);
    assert_eq!(limiter.try_acquire(at(1_000), 5).remaining, 10);
    assert_eq!(limiter.try_acquire(at(2_000), 4).remaining, 6);
    assert_eq!(limiter.peek(at(2_100), 0).remaining, 7);
    assert_eq!(limiter.peek(at(9_000), 0).remaining, 10, "what it was topped up with was spent");
}

/// The bug: each rule was asked on its own, and one was ready by a top-up that was over when the other was ready.
#[test]
fn rules_are_ready_when_all_of_them_are_at_one_instant() {
    let bucket = TokenBucket::try_new(10, 1, ns(13), 10).expect("valid");
    let mut limiter = Limiter::new(&[window(10), Rule::TokenBucket(bucket)], at(0));
    limiter.try_acquire(at(0), 10);
    limiter.top_up(at(1), 3);
    limiter.try_acquire(at(50), 3);
    // At 100 the window has room for ten, but only until 101. The bucket has eight at 104, and the window at 150.
    assert_eq!(limiter.peek(at(60), 8).verdict, Verdict::NotFor(ns(90)));
}

#[test]
fn time_that_goes_backwards_is_no_time() {
    let mut limiter = Limiter::new(&[token_bucket(10)], at(1_000));
    limiter.try_acquire(at(1_000), 10);
    assert_eq!(limiter.try_acquire(at(0), 1).verdict, Verdict::NotFor(ns(100)));
    assert_eq!(limiter.peek(at(1_100), 0).remaining, 1);
}
