//! Calls that report their end, worked out by hand: alone, beside a rate, and after a lease has ended under them.

use super::*;
use crate::permits::Short;
use lessor_protocol::InFlight;

/// Creates an answer with a cap; `hold` is set where permits are spent again.
fn capped(kept: u64, permits: u64, hold: Option<u64>) -> Grant {
    Grant { in_flight: Some(InFlight { longest: 10 * TERM, hold }), ..grant(kept, permits) }
}

/// Does the same as [`holding`] for a limit that caps calls in flight.
fn counting(permits: u64, hold: Option<u64>) -> (Hand, Refill) {
    let (slot, mut refill) = (Hand::new(), Refill::new(millis(0), false));
    refill.write(&slot, waiting(permits), millis(0), RTT);
    let belief = refill.believe(&slot, &capped(0, permits, hold), exact(), millis(0), millis(0), 0);
    assert_eq!(belief, Belief::Installed);
    (slot, refill)
}

fn waiting(waiting: u64) -> Seen {
    Seen { waiting, ..Seen::default() }
}

fn enter(slot: &Hand, refill: &mut Refill, permits: u64, now: Moment) {
    refill.enter(slot, permits, now).expect("it is there");
}

/// Returns the claims of an ask: spent, held, running and busy.
fn claims(ask: Ask) -> (u64, u64, Option<u64>, u64) {
    (ask.spent_total, ask.held, ask.running, ask.busy)
}

#[test]
fn beside_a_rate_a_call_is_spent_and_runs_until_it_ends() {
    let (slot, mut refill) = counting(10, None);
    enter(&slot, &mut refill, 4, millis(10));
    assert_eq!(claims(refill.write(&slot, waiting(9), millis(20), RTT)), (4, 6, Some(4), 0));
    assert_eq!(refill.hand_back(&slot, 3, millis(30)), 0, "the rate has been paid for three other calls");
    // Others may wait for it: it is reported within a quarter of the term.
    assert_eq!(refill.due(&slot, Seen::default(), millis(30), RTT), millis(270));
    assert_eq!(claims(refill.write(&slot, waiting(9), millis(40), RTT)), (4, 6, Some(1), 0));
}

#[test]
fn alone_a_call_is_held_and_its_permit_spent_again() {
    let (slot, mut refill) = counting(5, Some(5));
    for call in 0..100 {
        enter(&slot, &mut refill, 5, millis(10 + call));
        assert_eq!(slot.take(1, millis(10 + call)), Err(Short::Empty));
        assert_eq!(refill.hand_back(&slot, 5, millis(10 + call)), 5);
    }
    enter(&slot, &mut refill, 2, millis(200));
    assert_eq!(claims(refill.write(&slot, waiting(5), millis(210), RTT)), (0, 5, Some(0), 2));
}

/// The bug: where permits are spent again, a refused pool asked again after a round trip and 10 ms, whatever it was told:
/// ninety times a second for as long as its limit was paused.
#[test]
fn a_refused_pool_whose_permits_are_spent_again_waits_as_long_as_it_was_told() {
    for in_use in [0, 2] {
        let (slot, mut refill) = counting(5, Some(5));
        enter(&slot, &mut refill, in_use, millis(10));
        let (mut asks, mut now) = (vec![], millis(100));
        while now < millis(10_000) {
            refill.write(&slot, Seen::default(), now, RTT);
            refill.refused(now + RTT, 4 * TERM, 0);
            refill.stop(&slot);
            asks.push(now);
            now = refill.due(&slot, Seen::default(), now + RTT, RTT);
        }
        // With permits in use, the pool asks while their lease may be extended.
        let first = if in_use > 0 { asks.iter().filter(|at| **at < millis(1_000)).count() } else { 1 };
        assert!(asks.len() <= first + 3 && first <= 12, "{} asks, {first} in the lease", asks.len());
    }
}

#[test]
fn what_is_reserved_is_in_use_once_its_call_begins() {
    let (slot, mut refill) = counting(5, Some(5));
    let (number, _) = refill.reserve(&slot, 3, millis(10)).expect("five are there");
    assert_eq!(claims(refill.write(&slot, waiting(5), millis(20), RTT)), (0, 5, Some(0), 0));
    assert_eq!(refill.enter_reserved(&slot, number, millis(30)), Some(3));
    assert_eq!(claims(refill.write(&slot, waiting(5), millis(40), RTT)), (0, 5, Some(0), 3));
    assert_eq!((refill.reserved(), refill.hand_back(&slot, 3, millis(50))), (0, 3));

    let (slot, mut refill) = counting(10, None);
    let (number, _) = refill.reserve(&slot, 4, millis(10)).expect("ten are there");
    assert_eq!(refill.enter_reserved(&slot, number, millis(30)), Some(4));
    assert_eq!(claims(refill.write(&slot, waiting(9), millis(40), RTT)), (4, 6, Some(4), 0));
}

#[test]
fn what_was_reserved_of_a_lease_that_has_ended_is_spent_and_not_in_use() {
    let (slot, mut refill) = counting(10, None);
    let (number, _) = refill.reserve(&slot, 4, millis(10)).expect("ten are there");
    let ended = slot.deadline();
    assert_eq!(refill.enter_reserved(&slot, number, ended), None);
    assert_eq!((refill.reserved(), refill.calls().busy(), refill.calls().running()), (0, 0, Some(0)));
    assert_eq!(refill.enter_reserved(&slot, number, ended), None, "the reservation has ended");
}

/// The bug: permits whose calls ended went back into the slot, and 400 calls began in a paused limit.
#[test]
fn while_a_limit_is_stopped_no_permit_is_spent_again() {
    let (slot, mut refill) = counting(5, Some(5));
    enter(&slot, &mut refill, 3, millis(10));
    refill.stop(&slot);
    assert_eq!(refill.hand_back(&slot, 2, millis(20)), 0);
    assert_eq!(refill.enter(&slot, 1, millis(20)), Err(Short::Empty));
    assert_eq!(claims(refill.write(&slot, waiting(5), millis(30), RTT)), (0, 1, Some(0), 1));
    // An answer that grants says that the pause is over.
    refill.believe(&slot, &capped(1, 2, Some(5)), exact(), millis(30), millis(31), 0);
    enter(&slot, &mut refill, 2, millis(40));
    assert_eq!(refill.hand_back(&slot, 3, millis(50)), 3);
}

#[test]
fn more_than_it_is_told_to_hold_goes_back_as_calls_end() {
    let (slot, mut refill) = counting(6, Some(6));
    enter(&slot, &mut refill, 6, millis(10));
    refill.write(&slot, waiting(4), millis(20), RTT);
    refill.believe(&slot, &capped(6, 0, Some(2)), exact(), millis(20), millis(21), 0);
    assert_eq!(refill.hand_back(&slot, 3, millis(30)), 0, "three permits are in use, and two are the share");
    assert_eq!(refill.hand_back(&slot, 2, millis(31)), 1);
    assert_eq!(claims(refill.write(&slot, waiting(4), millis(40), RTT)), (0, 2, Some(0), 1));
}

#[test]
fn what_a_lease_left_in_use_is_spent_and_runs_until_it_ends() {
    let (slot, mut refill) = counting(5, Some(5));
    enter(&slot, &mut refill, 4, millis(10));
    // The lease ended before the ask arrived: nothing is kept, and two are lent anew.
    assert_eq!(claims(refill.write(&slot, waiting(4), millis(900), RTT)), (0, 5, Some(0), 4));
    refill.believe(&slot, &capped(0, 2, Some(5)), exact(), millis(900), millis(1_100), 0);
    // Five of the seven ended with the lease: the three in hand are gone, and two of those in use are spent and
    // running.
    assert_eq!(slot.balance().free, 0);
    assert_eq!(claims(refill.write(&slot, waiting(4), millis(1_105), RTT)), (2, 2, Some(2), 2));
    refill.believe(&slot, &capped(2, 0, Some(5)), exact(), millis(1_105), millis(1_106), 0);
    assert_eq!(refill.hand_back(&slot, 2, millis(1_110)), 0);
    assert_eq!(refill.hand_back(&slot, 2, millis(1_120)), 2, "as many as were lent anew");
    assert_eq!(claims(refill.write(&slot, waiting(4), millis(1_130), RTT)), (2, 2, Some(0), 0));
}

#[test]
fn what_the_allocator_forgot_ends_unheard() {
    let (slot, mut refill) = counting(5, Some(5));
    enter(&slot, &mut refill, 4, millis(10));
    refill.forget(&slot);
    assert_eq!(claims(refill.write(&slot, waiting(3), millis(1_000), RTT)), (0, 0, Some(0), 0));
    refill.believe(&slot, &capped(0, 3, Some(5)), exact(), millis(1_000), millis(1_001), 0);
    enter(&slot, &mut refill, 3, millis(1_010));
    assert_eq!(refill.hand_back(&slot, 4, millis(1_020)), 0, "any four of the seven");
    assert_eq!(refill.hand_back(&slot, 3, millis(1_030)), 3);
    assert_eq!(claims(refill.write(&slot, waiting(3), millis(1_040), RTT)), (0, 3, Some(0), 0));
}

/// The allocator counts them for as long as a call may take, because its clock does not jump.
#[test]
fn what_is_not_handed_back_is_said_to_be_unguarded() {
    for hold in [None, Some(9)] {
        let (slot, mut refill) = counting(9, hold);
        spend(&slot, 2, millis(10));
        enter(&slot, &mut refill, 3, millis(20));
        refill.lapse(3, millis(30));
        // Permits that were only acquired are seen at the next ask.
        let ask = refill.write(&slot, waiting(4), millis(500), RTT);
        assert_eq!((claims(ask), ask.unguarded), ((5, 4, Some(0), 0), 5), "{hold:?}");
        spend(&slot, 1, millis(510));
        refill.believe(&slot, &capped(4, 0, hold), exact(), millis(500), millis(520), 0);
        assert_eq!((refill.close(&slot), refill.left_running()), (6, Some(1)), "the five are known");
    }
}

/// The bug: a call was given up while calls went on that the allocator had forgotten. It was taken for one of those,
/// and was not counted.
#[test]
fn what_is_not_handed_back_is_said_beside_what_was_forgotten() {
    let (slot, mut refill) = counting(4, Some(4));
    enter(&slot, &mut refill, 4, millis(10));
    refill.forget(&slot);
    refill.write(&slot, waiting(3), millis(1_000), RTT);
    refill.believe(&slot, &capped(0, 3, Some(5)), exact(), millis(1_000), millis(1_001), 0);
    enter(&slot, &mut refill, 3, millis(1_010));
    refill.lapse(2, millis(1_020));
    let ask = refill.write(&slot, waiting(3), millis(1_030), RTT);
    assert_eq!((claims(ask), ask.unguarded), ((2, 1, Some(0), 1), 2));
    // More calls than the known ones must be forgotten ones.
    refill.lapse(4, millis(1_040));
    assert_eq!(refill.hand_back(&slot, 1, millis(1_050)), 0);
    let ask = refill.write(&slot, waiting(3), millis(1_060), RTT);
    assert_eq!((claims(ask), ask.unguarded), ((3, 0, Some(0), 0), 3));
}

/// The bug: a pool was forgotten while calls went on that its allocator had forgotten. The end of such a call was taken
/// for the end of a later one, which went on.
#[test]
fn it_is_not_forgettable_while_a_call_goes_on_that_the_allocator_has_forgotten() {
    let (slot, mut refill) = counting(2, Some(2));
    enter(&slot, &mut refill, 2, millis(10));
    refill.forget(&slot);
    for second in 1..=12 {
        let at = millis(second * 900);
        refill.write(&slot, Seen::default(), at, RTT);
        refill.believe(&slot, &capped(0, 0, Some(2)), exact(), at, at, 0);
    }
    refill.hand_back(&slot, 1, millis(11_000));
    assert!(refill.is_idle() && !refill.is_forgettable(&slot, millis(20_000)));
    refill.hand_back(&slot, 1, millis(20_000));
    assert!(refill.is_forgettable(&slot, millis(20_000)));
}

#[test]
fn it_is_not_idle_while_a_call_is_in_flight() {
    for hold in [None, Some(2)] {
        let (slot, mut refill) = counting(1, hold);
        enter(&slot, &mut refill, 1, millis(10));
        for second in 1..=5 {
            let ask = refill.write(&slot, Seen::default(), millis(second * 900), RTT);
            refill.believe(
                &slot,
                &capped(ask.held, 0, hold),
                exact(),
                millis(second * 900),
                millis(second * 900),
                0,
            );
            assert!(!refill.is_idle(), "{hold:?}");
        }
        refill.hand_back(&slot, 1, millis(5_000));
        for second in 6..=12 {
            let ask = refill.write(&slot, Seen::default(), millis(second * 900), RTT);
            refill.believe(
                &slot,
                &capped(ask.held, 0, hold),
                exact(),
                millis(second * 900),
                millis(second * 900),
                0,
            );
        }
        assert!(refill.is_idle(), "{hold:?}");
    }
}

#[test]
fn it_wants_what_is_in_use_and_a_little_more() {
    let (slot, mut refill) = counting(100, Some(100));
    // 20 in use all the time, for three seconds.
    enter(&slot, &mut refill, 20, millis(0));
    for tenth in 1..=30 {
        let ask = refill.write(&slot, Seen::default(), millis(tenth * 100), RTT);
        let kept = ask.held;
        refill.believe(
            &slot,
            &capped(kept, ask.want, Some(100)),
            exact(),
            millis(tenth * 100),
            millis(tenth * 100),
            0,
        );
    }
    let in_hand = slot.balance().free + refill.calls().busy();
    assert!((24..=36).contains(&in_hand), "{in_hand} for 20 in use: three deviations are 14");
}

#[test]
fn a_session_that_leaves_says_what_is_in_flight() {
    for hold in [None, Some(9)] {
        let (slot, mut refill) = counting(9, hold);
        spend(&slot, 1, millis(5));
        enter(&slot, &mut refill, 3, millis(10));
        assert_eq!((refill.close(&slot), refill.left_running()), (4, Some(4)), "{hold:?}");
        assert_eq!(refill.hand_back(&slot, 3, millis(20)), 0, "no permit is free again");
        assert_eq!(slot.balance().total(), 0);
    }
}

/// A permit counts once each time a call gets it. It may be spent by the call, spent again after it, or spent because
/// the lease or the client ends under it.
#[test]
fn permits_are_admitted_once_for_each_call_whatever_becomes_of_them() {
    let (slot, mut refill) = counting(10, None);
    enter(&slot, &mut refill, 4, millis(10));
    refill.hand_back(&slot, 3, millis(20));
    assert_eq!(refill.admitted(&slot), 4, "beside a rate permits are spent");
    let (slot, mut refill) = counting(5, Some(5));
    for call in 0..10 {
        enter(&slot, &mut refill, 5, millis(10 + call));
        refill.hand_back(&slot, 5, millis(10 + call));
    }
    assert_eq!((refill.admitted(&slot), refill.spent(&slot)), (50, 0));
    enter(&slot, &mut refill, 4, millis(50));
    assert_eq!(refill.admitted(&slot), 54, "permits in use count");
    refill.lapse(1, millis(60));
    assert_eq!((refill.admitted(&slot), refill.spent(&slot)), (54, 1), "a lapsed call is spent");
    slot.take(1, millis(60)).expect("it is free");
    assert_eq!(refill.admitted(&slot), 55, "only acquired");
    refill.forget(&slot);
    assert_eq!((refill.admitted(&slot), refill.spent(&slot)), (55, 5), "permits in use are spent");
    refill.hand_back(&slot, 3, millis(70));
    assert_eq!(refill.admitted(&slot), 55, "a permit handed back later was admitted before");
}

#[test]
fn a_client_that_closes_counts_what_is_in_use_once() {
    let (slot, mut refill) = counting(5, Some(5));
    enter(&slot, &mut refill, 2, millis(10));
    refill.close(&slot);
    assert_eq!(refill.admitted(&slot), 2);
    refill.hand_back(&slot, 2, millis(20));
    assert_eq!(refill.admitted(&slot), 2);
}

#[test]
fn what_is_reserved_is_admitted_when_it_is_spent() {
    let (slot, mut refill) = counting(10, None);
    let (number, _) = refill.reserve(&slot, 6, millis(10)).expect("ten are there");
    assert_eq!(refill.admitted(&slot), 0);
    refill.give_back(&slot, number, 2, millis(20));
    refill.settle(number);
    assert_eq!(refill.admitted(&slot), 4);
}
