//! Tests of the forecast that people see: how scarce the permits of a pool are, and when it will be empty.

use super::*;
use crate::CarryOver;
use crate::fixtures::in_flight;
use crate::share::Trust;
use crate::sizing::Scarcity;
use lessor_protocol::{Observed, Rate};

/// The ask of a node that tries to spend `per_second` permits a second.
fn tries(spent_total: u64, held: u64, want: u64, per_second: u64) -> Ask {
    Ask { spent_total, held, want, demand_milli: per_second * 1_000, ..Ask::default() }
}

fn lasts(pool: &mut Pool, at: Moment) -> Option<Duration> {
    pool.view(at).forecast.time_to_empty(at)
}

fn standing(pool: &mut Pool, at: Moment) -> Scarcity {
    pool.view(at).forecast.standing
}

/// Checks for how many milliseconds the rest of a new pool with `rules` lasts once it has lent 100 to a node that tries
/// to spend `per_second`.
#[track_caller]
fn check(rules: Vec<Rule>, per_second: u64, expected: Option<u64>) {
    let mut pool = pool(rules);
    grant(pool.renew(millis(0), A, 1, ask(0, 0, 50)));
    grant(pool.renew(millis(0), A, 2, tries(0, 50, 50, per_second)));
    assert_eq!(pool.view(millis(0)).books.outstanding, 100);
    let found = lasts(&mut pool, millis(0)).map(|lasts| lasts.as_millis() as u64);
    assert_eq!(found, expected);
}

#[test]
fn what_is_left_lasts_as_long_as_nodes_take_more_than_comes_back() {
    // 900 permits are left: the first that is missing is the one after them.
    check(vec![sliding(1_000, 30 * SECOND)], 100, Some(9_010));
    check(vec![sliding(1_000, 30 * SECOND)], 30, None);
    check(vec![log(1_000, 30 * SECOND)], 100, Some(9_010));
    // It refills by a clock that may run fast.
    check(vec![bucket(1_000, 50, SECOND)], 100, Some(18_001));
    check(vec![bucket(1_000, 101, SECOND)], 100, None);
    check(vec![bucket(1_000, 0, SECOND)], 1, Some(901_000));
    // Of two rules, the first to be empty counts.
    check(vec![sliding(1_000, 30 * SECOND), bucket(500, 0, SECOND)], 100, Some(4_010));
    // No session takes anything.
    check(vec![sliding(1_000, 30 * SECOND)], 0, None);
}

#[test]
fn a_window_that_begins_anew_before_it_is_used_up_is_never_empty() {
    for window in [fixed, first_use] {
        check(vec![window(1_000, 20 * SECOND)], 40, None);
        check(vec![window(1_000, 20 * SECOND)], 50, Some(18_020));
    }
    check(vec![at_intervals(1_000, 1_000, 20 * SECOND)], 40, None);
    check(vec![at_intervals(1_000, 1_000, 20 * SECOND)], 100, Some(9_010));
}

#[test]
fn calls_in_flight_and_a_steady_flow_have_nothing_to_use_up() {
    check(vec![in_flight(1_000, SECOND)], 100, None);
    let mut pool = pool(vec![flow(200, 10, SECOND)]);
    grant(pool.renew(millis(0), A, 1, tries(0, 0, 10, 1_000)));
    assert_eq!(lasts(&mut pool, millis(0)), None);
}

/// A node spends evenly, and asks ten times a second for what it is about to spend: first 20 a second for 20 s, then
/// 50. The moment foreseen 5 s into that is when the first ask finds too few.
#[test]
fn what_is_foreseen_comes_true() {
    let rules = [
        sliding(1_000, 30 * SECOND),
        log(1_000, 30 * SECOND),
        sliding(800, 24 * SECOND),
        bucket(1_000, 30, SECOND),
        at_intervals(1_000, 60, 2 * SECOND),
        fixed(1_000, 50 * SECOND),
        first_use(1_000, 60 * SECOND),
    ];
    for rule in rules {
        let mut pool = pool(vec![rule]);
        let (mut spent, mut foreseen) = (0, None);
        let empty = (1..3_000).find(|step| {
            let (now, per_second) = (millis(step * 100), if *step < 200 { 20 } else { 50 });
            // The node has no callers that wait, and a new session's first lease is small: it starts slowly.
            let lent = grant(pool.renew(now, A, *step, tries(spent, 0, per_second / 10, per_second)));
            spent += lent.permits;
            if *step == 250 {
                foreseen = lasts(&mut pool, now).map(|lasts| now + lasts);
                assert!(foreseen.is_some(), "{rule:?}: {:?}", pool.view(now));
            }
            *step > 20 && lent.permits < per_second / 10
        });
        let empty = millis(empty.expect("it is used up") * 100);
        let foreseen = foreseen.unwrap_or_else(|| panic!("{rule:?} is empty at {empty:?} already"));
        let off = empty.since(foreseen).max(foreseen.since(empty));
        // The last permits are lent more slowly, and a refill at intervals counts as its average.
        assert!(off < SECOND, "{rule:?}: off by {off:?}");
    }
}

#[test]
fn nothing_is_left_for_a_session_that_wants_something_now() {
    let mut pool = pool(vec![sliding(1_000, 30 * SECOND)]);
    for step in 1..=20 {
        let spent = pool.view(millis(step)).books.granted;
        grant(pool.renew(millis(step), A, step, tries(spent, 0, 1_000, 900)));
    }
    assert_eq!(standing(&mut pool, millis(20)), Scarcity::Scarce);
    assert_eq!(lasts(&mut pool, millis(20)), Some(Duration::ZERO));
    // B is new: it says nothing but that it wants one.
    let mut pool = self::pool(vec![fixed(10, 100 * SECOND)]);
    for step in 1..=10 {
        let held = pool.view(millis(step)).books.outstanding;
        grant(pool.renew(millis(step), A, step, ask(0, held, 10)));
    }
    grant(pool.renew(millis(11), A, 11, ask(0, 10, 0)));
    assert_eq!(lasts(&mut pool, millis(11)), None, "all is lent, and no session wants more");
    assert_eq!(grant(pool.renew(millis(12), B, 1, tries(0, 0, 1, 0))).permits, 0);
    assert_eq!(lasts(&mut pool, millis(12)), Some(Duration::ZERO));
}

#[test]
fn it_drains_while_needs_are_greater_than_what_there_is() {
    let mut pool = pool(vec![sliding(1_000, 30 * SECOND)]);
    grant(pool.renew(millis(0), A, 1, ask(0, 0, 10)));
    assert_eq!((standing(&mut pool, millis(0)), lasts(&mut pool, millis(0))), (Scarcity::Abundant, None));
    grant(pool.renew(millis(10), A, 2, tries(0, 10, 100, 5_000)));
    assert_eq!(standing(&mut pool, millis(10)), Scarcity::Draining);
    assert!(lasts(&mut pool, millis(10)).is_some_and(|lasts| lasts < SECOND / 5));
    // The forecast counts down by itself.
    let left = lasts(&mut pool, millis(50)).expect("it was foreseen");
    assert_eq!(Some(left), lasts(&mut pool, millis(10)).map(|lasts| lasts - Duration::from_millis(40)));
    // Another session finds the same, though it wants little and comes first: the forecast is not about the session
    // that asks.
    let first = Holder { share: Share { priority: B.share.priority + 1, ..B.share }, ..B };
    grant(pool.renew(millis(60), first, 1, ask(0, 0, 1)));
    assert_eq!(standing(&mut pool, millis(60)), Scarcity::Draining);
    // What is wanted is what nodes said last.
    grant(pool.renew(millis(70), A, 3, tries(100, 0, 0, 0)));
    assert_eq!((standing(&mut pool, millis(70)), lasts(&mut pool, millis(70))), (Scarcity::Abundant, None));
}

#[test]
fn who_has_been_quiet_for_long_wants_nothing() {
    let mut pool = pool(vec![sliding(1_000, 30 * SECOND)]);
    grant(pool.renew(millis(0), A, 1, tries(0, 0, 100, 5_000)));
    let found = |pool: &mut Pool, at| (standing(pool, millis(at)), lasts(pool, millis(at)).is_some());
    assert_eq!(found(&mut pool, 2_999), (Scarcity::Draining, true));
    assert_eq!(found(&mut pool, 3_000), (Scarcity::Abundant, false), "three terms");
}

#[test]
fn who_leaves_wants_nothing() {
    let mut pool = pool(vec![sliding(1_000, 30 * SECOND)]);
    grant(pool.renew(millis(0), A, 1, tries(0, 0, 100, 5_000)));
    grant(pool.renew(millis(0), B, 1, tries(0, 0, 100, 5_000)));
    pool.leave(millis(10), A.id, 2, goodbye(0, None)).expect("it is known");
    assert_eq!(standing(&mut pool, millis(10)), Scarcity::Draining, "B is there");
    pool.leave(millis(20), B.id, 2, goodbye(0, None)).expect("it is known");
    assert_eq!((standing(&mut pool, millis(20)), lasts(&mut pool, millis(20))), (Scarcity::Abundant, None));
}

#[test]
fn in_quarantine_and_while_the_vendor_pauses_it_nothing_is_foreseen() {
    let nothing = |pool: &mut Pool, at| (standing(pool, at), lasts(pool, at)) == (Scarcity::Abundant, None);
    let plan = plan(vec![sliding(1_000, 30 * SECOND)]);
    let mut lost = Pool::after_loss(plan, millis(0), millis(0));
    let answer = lost.renew(millis(10), A, 1, tries(0, 0, 100, 5_000)).expect("a good ask");
    assert!(answer.grant().is_none() && nothing(&mut lost, millis(10)));
    let trust = Sharing { vendor: Trust::default(), ..Sharing::default() };
    let mut paused = shared(trust);
    grant(paused.renew(millis(0), A, 1, tries(0, 0, 100, 5_000)));
    assert!(!nothing(&mut paused, millis(10)));
    let wait = Some(10 * SECOND);
    paused.observe(millis(10), A.id, &Observed { number: 1, refused_total: 1, wait, ..Observed::default() });
    assert!(nothing(&mut paused, millis(10)));
}

#[test]
fn what_is_kept_back_is_not_left_and_what_is_changed_is_foreseen_anew() {
    let mut pool = shared(Sharing { reserve: 50, ..Sharing::default() });
    grant(pool.renew(millis(0), A, 1, ask(0, 0, 10)));
    grant(pool.renew(millis(10), A, 2, tries(0, 10, 1, 10)));
    // 39 of 100 permits can be lent.
    assert_eq!(lasts(&mut pool, millis(10)), Some(4 * SECOND));
    pool.top_up(100, millis(20));
    assert_eq!(lasts(&mut pool, millis(20)), None, "no session has asked since");
    grant(pool.renew(millis(30), A, 3, tries(0, 11, 0, 10)));
    assert_eq!(lasts(&mut pool, millis(30)), Some(14 * SECOND));
    pool.change(plan(vec![sliding(1_000, 30 * SECOND)]), CarryOver::AsIs, millis(40));
    assert_eq!(lasts(&mut pool, millis(40)), None);
}

/// Permits from another allocator come as they are wanted, until that allocator says that they are scarce.
#[test]
fn what_is_leased_lasts_while_more_comes() {
    let borrowed = Plan { is_borrowed: true, ..(*plan(vec![])).clone() };
    let mut pool = Pool::new(Arc::new(borrowed), millis(0));
    assert_eq!(grant(pool.renew(millis(0), A, 1, tries(0, 0, 5, 100))).permits, 0);
    assert_eq!(lasts(&mut pool, millis(0)), None, "it is on its way");
    let rtt = Duration::from_millis(4);
    assert!(pool.ask_above(millis(0), rtt).is_some_and(|ask| ask.want > 1));
    let scarce = Grant {
        kept: 0,
        permits: 1,
        term: SECOND,
        horizon: SECOND,
        ceiling: 1_000,
        ask_after: SECOND,
        retry_after: Some(SECOND),
        rate: Rate::Free,
        in_flight: None,
    };
    assert_eq!(pool.on_grant_above(millis(4), millis(0), &scarce), GrantOutcome::Believed);
    grant(pool.renew(millis(5), A, 2, tries(0, 0, 2, 100)));
    assert!(lasts(&mut pool, millis(5)).is_some_and(|lasts| lasts < SECOND), "no more was to be had");
}
