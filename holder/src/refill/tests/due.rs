//! When a pool asks again, and when it falls silent, worked out by hand.

use super::*;
use crate::answer::{AnswerTiming, Outcome};
use lessor_protocol::InFlight;
use lessor_protocol::wire::code;

/// Permits held are renewed in time, however long the allocator has asked to wait. A pool that holds nothing waits that
/// long.
#[test]
fn a_pool_that_waits_for_more_still_renews_what_it_holds() {
    for (permits, due) in [(4, millis(750)), (0, millis(1_500))] {
        let (slot, mut refill) = (Hand::new(), Refill::new(millis(0), false));
        let seen = Seen { waiting: 9, ..Seen::default() };
        refill.write(&slot, seen, millis(0), RTT);
        let answer = Grant { ask_after: TERM * 3 / 2, ..grant(0, permits) };
        refill.believe(&slot, &answer, exact(), millis(0), millis(0), 0);
        assert_eq!(refill.due(&slot, seen, millis(10), RTT), due, "with {permits}");
    }
}

#[test]
fn a_call_that_ended_after_the_last_ask_is_reported_before_the_pool_falls_silent() {
    let (slot, mut refill) = (Hand::new(), Refill::new(millis(0), false));
    let capped =
        |permits| Grant { in_flight: Some(InFlight { longest: 60 * TERM, hold: None }), ..grant(0, permits) };
    refill.write(&slot, Seen { waiting: 1, ..Seen::default() }, millis(0), RTT);
    refill.believe(&slot, &capped(1), exact(), millis(0), millis(0), 0);
    refill.enter(&slot, 1, millis(10)).expect("it is there");
    let ask = |refill: &mut Refill, second: u64, ends: u64| {
        let ask = refill.write(&slot, Seen::default(), millis(second * 1_000), RTT);
        refill.hand_back(&slot, ends, millis(second * 1_000 + 5));
        refill.believe(&slot, &capped(0), exact(), millis(second * 1_000), millis(second * 1_000 + 10), 0);
        (ask.want, ask.running)
    };
    // In the end nothing is wanted any more, and the call goes on.
    let asks: Vec<_> = (1..20).map(|second| ask(&mut refill, second, 0)).collect();
    assert_eq!(asks.last(), Some(&(0, Some(1))));
    assert_eq!(ask(&mut refill, 20, 1), (0, Some(1)));
    assert!(!refill.is_idle(), "the allocator counts the call still");
    assert_eq!(ask(&mut refill, 21, 0), (0, Some(0)));
    assert!(refill.is_idle());
}

#[test]
fn a_wait_is_stretched_by_a_fifth_at_most() {
    let wait = |random| {
        let mut refill = Refill::new(millis(0), false);
        refill.refused(millis(0), 100 * TERM, random);
        refill.not_before().since(millis(0)).as_secs()
    };
    assert_eq!([0, 1, 19, 20, 21, 22].map(wait), [100, 101, 119, 120, 100, 101]);
}

#[test]
fn an_event_is_acted_on_within_a_tenth_of_a_second_where_no_caller_waits() {
    for (random, due) in [(7_000_000, millis(107)), (107_000_000, millis(107)), (99_999_999, millis(200))] {
        let (slot, mut refill) = holding(10);
        refill.on_event(millis(100), false, random);
        let asks = refill.due(&slot, Seen::default(), millis(100), RTT);
        assert!(asks <= due && due < asks + Duration::from_millis(1), "{asks:?} by {random}");
    }
}

#[test]
fn a_rare_key_is_called_seldom_and_has_nothing_that_others_wait_for() {
    let is_rare =
        |slot: &Hand, refill: &Refill, refused| refill.is_rare(slot, Seen { refused, ..Seen::default() });
    let (slot, mut refill) = (Hand::new(), Refill::new(millis(0), false));
    assert_eq!([0, 2, 3].map(|refused| is_rare(&slot, &refill, refused)), [true, true, false]);
    let answers = [
        (grant(0, 0), true),
        (paced(0, Duration::ZERO, false), false),
        (Grant { in_flight: Some(InFlight { longest: TERM, hold: None }), ..grant(0, 0) }, false),
        (grant(0, 1), true),
    ];
    for (answer, rare) in answers {
        believe(&mut refill, &slot, &answer, millis(10));
        assert_eq!(is_rare(&slot, &refill, 0), rare, "{answer:?}");
    }
    refill.on_unrecognised(&slot, millis(20));
    assert!(!is_rare(&slot, &refill, 0), "the allocator does not know what the pool holds");
}

#[test]
fn an_ask_that_holds_up_no_caller_waits_a_tenth_of_a_second_from_when_it_was_due() {
    let (slot, mut refill) = holding(5);
    let mut latest = |when, now| refill.latest(&slot, Seen::default(), (when, millis(0)), now, RTT);
    assert_eq!(latest(millis(150), millis(100)), millis(250), "the ask is due later");
    assert_eq!(latest(millis(150), millis(150)), millis(250));
    assert_eq!(latest(millis(150), millis(190)), millis(250), "the ask was due at 150 ms");
    assert_eq!(latest(millis(950), millis(940)), millis(960), "not after the lease ends");
}

#[test]
fn a_pool_that_is_refused_for_good_is_silent_once_all_is_reported() {
    let (slot, mut refill) = holding(10);
    spend(&slot, 5, millis(10));
    refill.forget(&slot);
    believe(&mut refill, &slot, &grant(0, 1), millis(20));
    spend(&slot, 1, millis(30));
    refill.refused_for_good(&slot, millis(40), TERM, 0);
    assert!(!refill.is_idle(), "a spent permit is not yet reported");
    assert_eq!(refill.write(&slot, Seen::default(), millis(50), RTT).spent_total, 1);
    refill.refused_for_good(&slot, millis(60), TERM, 0);
    assert!(refill.is_idle(), "the allocator has forgotten the lease of the five permits");
}

/// The bug: an answer that lends nothing for good counted as a report that was taken in. A role was wrong for a moment:
/// the node forgot the key, and counted from zero in its session. The allocator took all that it had lent for unspent.
#[test]
fn a_pool_is_not_forgotten_before_a_grant_shows_that_its_spends_are_known() {
    let (slot, mut refill) = holding(5);
    spend(&slot, 5, millis(10));
    for code in [code::FORBIDDEN, code::KEYS_FULL, code::LIMIT_UNKNOWN, "of a later version"] {
        assert_eq!(refill.write(&slot, Seen::default(), millis(20), RTT).spent_total, 5);
        let timing = AnswerTiming { first_sent: millis(20), now: millis(30), clocks: exact() };
        assert_eq!(refill.on_answer(&slot, Err(code), timing, true, 0), Outcome::Unavailable);
        assert!(refill.is_idle() && !refill.is_forgettable(&slot, millis(60_000)), "{code}");
    }
    refill.write(&slot, Seen::default(), millis(70_000), RTT);
    refill.believe(&slot, &grant(0, 0), exact(), millis(70_000), millis(70_001), 0);
    assert!(refill.is_idle() && refill.is_forgettable(&slot, millis(70_001)));
}

#[test]
fn a_rate_that_the_allocator_does_not_know_mints_no_more_and_is_not_told() {
    let (slot, mut refill) = (Hand::new(), Refill::new(millis(0), false));
    believe(&mut refill, &slot, &paced(20, Duration::ZERO, true), millis(0));
    refill.forget(&slot);
    assert!(pace(&refill).take(1, millis(900)).is_err());
    assert_eq!(refill.write(&slot, Seen::default(), millis(900), RTT).rate, RateClaim::None);
}

#[test]
fn a_turn_is_given_up_early_only_where_callers_wait_and_nothing_is_left() {
    let (slot, mut refill) = (Hand::new(), Refill::new(millis(0), false));
    let short = Grant { horizon: Duration::from_millis(100), ..paced(1, Duration::ZERO, true) };
    believe(&mut refill, &slot, &short, millis(0));
    let due =
        |refill: &Refill, waiting| refill.due(&slot, Seen { waiting, ..Seen::default() }, millis(20), RTT);
    assert_eq!([0, 1].map(|waiting| due(&refill, waiting)), [millis(100); 2]);
    spend(&slot, 1, millis(20));
    assert_eq!([0, 1].map(|waiting| due(&refill, waiting)), [millis(100), millis(20)]);
}

/// The bug: permits left were taken to last a billion times as long, so that no ask was ahead of their end.
#[test]
fn what_the_allocator_does_not_know_is_used_until_it_runs_dry_at_the_known_demand() {
    let (slot, mut refill) = holding(60);
    spend(&slot, 50, millis(100));
    let ask = refill.write(&slot, Seen { waiting: 10, ..Seen::default() }, millis(100), RTT);
    assert_eq!((ask.held, ask.demand_milli / 1_000), (10, 33));
    refill.on_unrecognised(&slot, millis(100));
    // Ten last 300 ms at 33 a second. The answer must come by then: 40 ms with the guard.
    let due = refill.due(&slot, Seen::default(), millis(100), RTT);
    assert!((millis(350)..millis(370)).contains(&due), "{due:?}");
}

/// A new session reports what the one before has not reported.
#[test]
fn calls_let_pass_are_told_once_though_the_allocator_does_not_know_the_lease() {
    let (slot, mut refill) = holding(10);
    let seen = |shadow_refused| Seen { shadow_refused, waiting: 10, ..Seen::default() };
    let ask = refill.write(&slot, seen(4), millis(10), RTT);
    refill.believe(&slot, &grant(ask.held, 0), exact(), millis(10), millis(11), 0);
    refill.on_unrecognised(&slot, millis(20));
    assert_eq!((ask.shadow_refused, refill.write(&slot, seen(6), millis(30), RTT).shadow_refused), (4, 2));
}
