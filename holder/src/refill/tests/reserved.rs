//! Reservations, one step after another: what reports say while they are open, and what comes back.

use super::*;
use crate::refill::reserved::RESERVED_MAX;

fn ask(refill: &mut Refill, slot: &Hand, at: u64) -> Ask {
    refill.write(slot, Seen::default(), millis(at), RTT)
}

/// Holds ten permits, of which six are reserved.
fn reserved() -> (Hand, Refill, u64) {
    let (slot, mut refill) = holding(10);
    let (number, left) = refill.reserve(&slot, 6, millis(10)).expect("ten are there");
    assert_eq!((left, refill.spent(&slot), refill.reserved()), (4, 0, 6));
    (slot, refill, number)
}

#[test]
fn what_is_reserved_is_held_until_it_is_settled_and_the_rest_is_spent_again() {
    let (slot, mut refill, number) = reserved();
    let asked = ask(&mut refill, &slot, 20);
    assert_eq!((asked.spent_total, asked.held), (0, 10), "reserved and free permits are held");
    assert_eq!(refill.give_back(&slot, number, 4, millis(30)), 4);
    refill.settle(number);
    assert_eq!((slot.balance().free, refill.spent(&slot), refill.reserved()), (8, 2, 0));
    // The reservation is over: there is nothing to give back any more.
    assert_eq!(refill.give_back(&slot, number, 1, millis(31)), 0);
    refill.settle(number);
    assert_eq!((slot.balance().free, refill.spent(&slot)), (8, 2));
}

#[test]
fn no_more_comes_back_than_was_taken() {
    let (slot, mut refill, number) = reserved();
    assert_eq!(refill.give_back(&slot, number, 5, millis(20)), 5);
    assert_eq!(refill.give_back(&slot, number, 5, millis(20)), 1);
    assert_eq!(refill.give_back(&slot, number, 5, millis(20)), 0);
    assert_eq!(slot.balance().free, 10);
}

/// The end of a lease ends its reservations: the allocator takes their permits for spent, too. A later lease changes
/// nothing about that.
#[test]
fn nothing_comes_back_once_the_lease_has_ended() {
    for renewed in [false, true] {
        let (slot, mut refill, number) = reserved();
        assert!(refill.is_open(&slot, number, slot.deadline().before(Duration::from_nanos(1))));
        assert!(!refill.is_open(&slot, number, slot.deadline()));
        if renewed {
            // Asked in time, answered too late: none of the ten were kept, and five are new.
            let seen = Seen { waiting: 9, ..Seen::default() };
            let asked = refill.write(&slot, seen, millis(900), RTT);
            assert_eq!((asked.spent_total, asked.held), (0, 10));
            let belief = refill.believe(&slot, &grant(0, 5), exact(), millis(900), millis(1_100), 0);
            assert_eq!(belief, Belief::Installed);
        }
        let free = slot.balance().free;
        assert_eq!(refill.give_back(&slot, number, 6, millis(1_100)), 0);
        assert_eq!((slot.balance().free, refill.reserved()), (free, 0));
        let asked = ask(&mut refill, &slot, 1_100);
        // With a renewal, new permits went in place of the spent ones: either way the allocator hears of six.
        assert_eq!(asked.spent_total, 6, "{asked:?}");
    }
}

#[test]
fn what_is_reserved_of_books_that_were_lost_is_gone() {
    let (slot, mut refill, number) = reserved();
    ask(&mut refill, &slot, 20);
    refill.forget(&slot);
    assert_eq!(refill.give_back(&slot, number, 6, millis(30)), 0);
    assert_eq!((ask(&mut refill, &slot, 1_100).spent_total, slot.balance().total()), (0, 0));
}

#[test]
fn a_client_that_stops_says_that_what_is_reserved_was_spent() {
    let (slot, mut refill, number) = reserved();
    assert_eq!(refill.close(&slot), 6);
    assert_eq!(refill.give_back(&slot, number, 6, millis(30)), 0);
}

/// While the limit is paused no caller may spend permits that come back: they go on to the allocator.
#[test]
fn what_comes_back_while_the_limit_is_paused_is_not_spent() {
    let (slot, mut refill, number) = reserved();
    refill.stop(&slot);
    assert_eq!(refill.give_back(&slot, number, 2, millis(20)), 0);
    let asked = ask(&mut refill, &slot, 30);
    assert_eq!((asked.spent_total, asked.held), (0, 4));
    refill.believe(&slot, &grant(4, 0), exact(), millis(30), millis(31), 0);
    assert_eq!(refill.give_back(&slot, number, 2, millis(32)), 2, "the limit goes on");
}

/// A lease that holds nothing but a reservation is renewed, because otherwise the reservation would end with it.
#[test]
fn a_lease_is_renewed_for_what_is_reserved_of_it() {
    let (slot, mut refill) = holding(6);
    let (number, _) = refill.reserve(&slot, 6, millis(10)).expect("six are there");
    for second in 0..5 {
        let due = refill.due(&slot, Seen::default(), millis(second * 700 + 20), RTT);
        assert!(due < slot.deadline().before(RTT), "{due:?} is too late for {:?}", slot.deadline());
        let now = millis((second + 1) * 700);
        let asked = refill.write(&slot, Seen::default(), now, RTT);
        assert_eq!((asked.held, asked.spent_total), (6, 0));
        refill.believe(&slot, &grant(6, 0), exact(), now, now, 0);
    }
    assert_eq!(refill.give_back(&slot, number, 5, millis(3_600)), 5);
}

#[test]
fn a_reservation_that_is_never_settled_is_spent_in_the_end() {
    let (slot, mut refill, number) = reserved();
    let last = millis(10) + RESERVED_MAX.saturating_sub(Duration::from_nanos(1));
    for now in [last, millis(10) + RESERVED_MAX] {
        // The lease is renewed all the time.
        slot.install(0, 0, now + TERM);
        assert_eq!(refill.is_open(&slot, number, now), now == last);
        refill.write(&slot, Seen::default(), now, RTT);
        assert_eq!(refill.reserved(), if now == last { 6 } else { 0 });
    }
    assert_eq!(refill.spent(&slot), 6);
}

/// The bug this prevents: a node that gives most of its reservations back would seem to try less and less, and be taken
/// for idle.
#[test]
fn what_was_given_back_was_tried_for() {
    let (slot, mut refill, number) = reserved();
    ask(&mut refill, &slot, 20);
    refill.give_back(&slot, number, 6, millis(30));
    refill.settle(number);
    ask(&mut refill, &slot, 40);
    slot.install(1, 0, Moment::ORIGIN);
    refill.installed += 1;
    refill.reserve(&slot, 1, millis(50)).expect("one is there");
    assert!(refill.has_tried(&slot, Seen::default()), "a reservation is a try");
}

#[test]
fn what_was_set_aside_is_reserved_as_it_is() {
    let (slot, mut refill) = holding(5);
    slot.hold(3, millis(10)).expect("five are there");
    let (number, left) = refill.reserve_held(&slot, 3, millis(20));
    assert_eq!((left, slot.balance().held, refill.reserved()), (2, 0, 3));
    assert_eq!(refill.give_back(&slot, number, 1, millis(30)), 1);
    refill.settle(number);
    assert_eq!((slot.balance().free, refill.spent(&slot)), (3, 2));
}
