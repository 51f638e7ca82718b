//! A lease that the allocator does not know any more.

use super::*;
use crate::answer::{AnswerTiming, DISPUTE_PAUSE, Outcome};
use lessor_protocol::RateClaim;
use lessor_protocol::wire::code;

#[test]
fn an_allocator_that_forgot_is_told_from_zero() {
    let (slot, mut refill) = holding(100);
    spend(&slot, 40, millis(10));
    refill.forget(&slot);
    // The next lease may end before the lost one: the slot does not keep the old deadline.
    let waiting = Seen { refused: 0, waiting: 7, ..Seen::default() };
    assert!(refill.due(&slot, waiting, millis(20), RTT) <= millis(20), "nothing to wait for");
    assert_eq!(slot.deadline(), Moment::ORIGIN);
    let ask = refill.write(&slot, Seen { refused: 0, waiting: 7, ..Seen::default() }, millis(20), RTT);
    assert_eq!((ask.spent_total, ask.held), (0, 0));
    let short = Grant { term: TERM / 2, ..grant(0, 7) };
    refill.believe(&slot, &short, exact(), millis(20), millis(25), 0);
    assert_eq!(
        slot.deadline(),
        exact().holder_end(millis(20), TERM / 2),
        "the new deadline holds, though the old one was later"
    );
    spend(&slot, 3, millis(30));
    assert_eq!(
        refill.write(&slot, Seen { refused: 0, waiting: 4, ..Seen::default() }, millis(40), RTT).spent_total,
        3
    );
    assert_eq!(refill.close(&slot), 3);
}

/// Whether the ask counts from zero: nothing was ever spent, nothing is held.
fn counts_from_zero(ask: &Ask) -> bool {
    (ask.spent_total, ask.held, ask.rate, ask.running.unwrap_or(0), ask.unguarded, ask.busy)
        == (0, 0, RateClaim::None, 0, 0, 0)
}

/// Lets the allocator answer that it does not know the lease.
fn on_unrecognised(refill: &mut Refill, slot: &Hand, now: Moment) {
    let timing = AnswerTiming { first_sent: now, now, clocks: exact() };
    let outcome = refill.on_answer(slot, Err(code::LEASE_UNKNOWN), timing, false, 0);
    assert_eq!(outcome, Outcome::Unrecognised);
}

/// Holds a hundred permits until 1,000 ms that the allocator does not know from 10 ms on.
fn forgotten() -> (Hand, Refill) {
    let (slot, mut refill) = holding(100);
    on_unrecognised(&mut refill, &slot, millis(10));
    (slot, refill)
}

/// Permits of an unrecognised lease are spent, and not reported to an allocator that could not understand it.
#[test]
fn what_an_allocator_forgot_is_used_up_and_replaced_before_it_is() {
    let due = |refill: &Refill, slot: &Hand, seen, now| refill.due(slot, seen, millis(now), RTT);
    let quiet = Seen::default();
    let ahead = low_water_span(RTT);
    let (slot, mut refill) = forgotten();
    assert_eq!(
        due(&refill, &slot, quiet, 20),
        millis(1_000).before(ahead),
        "due before the lease ends, as no caller spends"
    );
    spend(&slot, 40, millis(30));
    spend(&slot, 60, millis(40));
    assert_eq!(due(&refill, &slot, quiet, 50), millis(50), "all permits are spent");
    assert!(counts_from_zero(&refill.write(&slot, quiet, millis(50), RTT)));
    // The rest is not enough for a caller that waits or was refused.
    let (slot, refill) = forgotten();
    let waiting = |waiting| Seen { waiting, ..quiet };
    assert_eq!(due(&refill, &slot, waiting(100), 20), millis(1_000).before(ahead));
    assert_eq!(due(&refill, &slot, waiting(101), 20), millis(20));
    slot.refuse(200);
    assert_eq!(due(&refill, &slot, quiet, 20), millis(20));
    // The lease is not held beyond its end, nor reported after it.
    let (slot, mut refill) = forgotten();
    assert!(counts_from_zero(&refill.write(&slot, quiet, millis(1_000), RTT)));
    assert_eq!(slot.balance().total(), 0);
}

/// Until the answer comes calls go on with the rest. Then the rest is over, and only the new lease counts.
#[test]
fn a_first_lease_is_asked_for_while_something_is_left_and_takes_its_place() {
    let (slot, mut refill) = forgotten();
    spend(&slot, 10, millis(20));
    let seen = Seen { waiting: 50, ..Seen::default() };
    let ask = refill.write(&slot, seen, millis(900), RTT);
    assert!(counts_from_zero(&ask) && ask.want >= 50, "{ask:?}");
    assert_eq!((slot.balance().free, slot.deadline()), (90, exact().holder_end(millis(0), TERM)));
    spend(&slot, 5, millis(905));
    let short = Grant { term: TERM / 20, ..grant(0, 50) };
    assert_eq!(refill.believe(&slot, &short, exact(), millis(900), millis(910), 0), Belief::Installed);
    assert_eq!((slot.balance().free, slot.deadline()), (50, exact().holder_end(millis(900), TERM / 20)));
    spend(&slot, 3, millis(920));
    let ask = refill.write(&slot, Seen { waiting: 47, ..seen }, millis(930), RTT);
    assert_eq!((ask.spent_total, ask.held), (3, 47), "permits spent of the old lease are not reported");
}

#[test]
fn what_is_left_stays_while_there_is_nothing_in_its_place() {
    let (slot, mut refill) = forgotten();
    let seen = Seen { waiting: 200, ..Seen::default() };
    let write =
        |refill: &mut Refill, now| assert!(counts_from_zero(&refill.write(&slot, seen, millis(now), RTT)));
    write(&mut refill, 900);
    let nothing = Grant { ask_after: Duration::from_millis(20), ..grant(0, 0) };
    assert_eq!(refill.believe(&slot, &nothing, exact(), millis(900), millis(910), 0), Belief::Installed);
    assert_eq!(slot.balance().free, 100);
    assert_eq!(refill.due(&slot, seen, millis(915), RTT), millis(930), "due when the allocator said");
    // An impossible answer, a refusal and no answer leave the rest, too.
    write(&mut refill, 930);
    assert_eq!(refill.believe(&slot, &grant(1, 5), exact(), millis(930), millis(935), 0), Belief::Invalid);
    refill.refused(millis(935), Duration::ZERO, 0);
    refill.unanswered();
    assert_eq!((slot.balance().free, slot.deadline()), (100, exact().holder_end(millis(0), TERM)));
    // No caller waits: the node was told that there is nothing, and asks again when nothing is left.
    write(&mut refill, 936);
    refill.believe(&slot, &grant(0, 0), exact(), millis(936), millis(937), 0);
    assert_eq!(refill.due(&slot, Seen::default(), millis(940), RTT), exact().holder_end(millis(0), TERM));
}

/// A caller that saw the old deadline may take permits that are put in right now. Their lease must not have ended
/// before the caller read the clock.
#[test]
fn a_lease_that_is_over_when_another_made_way_for_it_is_given_back() {
    let (slot, mut refill) = forgotten();
    let seen = Seen { waiting: 50, ..Seen::default() };
    refill.write(&slot, seen, millis(800), RTT);
    let short = Grant { term: TERM / 20, ..grant(0, 50) };
    refill.make_way(&slot, &short);
    assert_eq!((slot.balance().free, slot.deadline()), (0, Moment::ORIGIN), "before the clock is read");
    assert_eq!(refill.believe(&slot, &short, exact(), millis(800), millis(850), 0), Belief::Installed);
    assert_eq!(slot.balance().free, 0);
    assert!(counts_from_zero(&refill.write(&slot, seen, millis(851), RTT)), "an ended lease is not held");
}

/// A caller that was stopped between the two halves of its call puts back what it set aside of the old lease, or spends
/// it.
#[test]
fn what_was_set_aside_of_the_old_lease_is_in_the_place_of_one_of_the_new() {
    for is_spent in [false, true] {
        let (slot, mut refill) = forgotten();
        slot.hold(7, millis(20)).expect("it is there");
        let seen = Seen { waiting: 50, ..Seen::default() };
        refill.write(&slot, seen, millis(900), RTT);
        refill.believe(&slot, &grant(0, 50), exact(), millis(900), millis(910), 0);
        assert_eq!(slot.balance().total(), 50, "no more than was lent");
        if is_spent {
            slot.spend_held(7)
        } else {
            slot.put_back(7);
            0
        };
        let ask = refill.write(&slot, seen, millis(920), RTT);
        assert_eq!((ask.spent_total, ask.held), if is_spent { (7, 43) } else { (0, 50) });
    }
}

/// The bug: set-aside permits were reported as held to an allocator that had lent nothing, which then disputed the
/// whole session.
#[test]
fn what_is_set_aside_is_never_told_however_long_that_lasts() {
    let (slot, mut refill) = forgotten();
    slot.hold(7, millis(20)).expect("it is there");
    spend(&slot, 93, millis(30));
    let seen = Seen { waiting: 50, ..Seen::default() };
    for now in [40, 1_100, 2_000] {
        assert!(counts_from_zero(&refill.write(&slot, seen, millis(now), RTT)));
        // A grant of fewer permits than are set aside is no lease to go on with, and is not claimed.
        refill.believe(&slot, &grant(0, 6), exact(), millis(now), millis(now + 1), 0);
        assert_eq!(slot.balance().free, 0);
        assert_eq!(
            refill.due(&slot, seen, millis(now + 2), RTT),
            millis(now + 1) + GUARD,
            "not at network speed"
        );
    }
    slot.put_back(7);
    assert!(slot.take(1, millis(2_010)).is_err(), "the lease is over");
    assert!(counts_from_zero(&refill.write(&slot, seen, millis(2_020), RTT)));
    assert_eq!(slot.balance().total(), 0);
}

#[test]
fn another_allocator_is_told_of_nothing_that_was_before() {
    // Permits in use, of calls that report their end, reported to the first allocator.
    let (slot, mut refill) = holding(100);
    spend(&slot, 40, millis(10));
    let seen = Seen { shadow_refused: 9, ..Seen::default() };
    assert_eq!(refill.write(&slot, seen, millis(20), RTT).spent_total, 40);
    refill.unanswered();
    refill.move_on(&slot, millis(30));
    refill.move_on(&slot, millis(31));
    spend(&slot, 10, millis(40));
    assert!(counts_from_zero(&refill.write(&slot, seen, millis(50), RTT)));
    // The goodbye says nothing either.
    assert_eq!(refill.close(&slot), 0);

    // A pool with nothing to say stays silent: it may be one of a million keys.
    let (slot, mut refill) = (Hand::new(), Refill::new(millis(0), false));
    refill.move_on(&slot, millis(1));
    assert_eq!(refill.due(&slot, Seen::default(), millis(2), RTT), Moment::NEVER);
    let refused = Seen { refused: 1, ..Seen::default() };
    refill.write(&slot, refused, millis(3), RTT);
    let far = Grant { ask_after: TERM, ..grant(0, 1) };
    refill.believe(&slot, &far, exact(), millis(3), millis(4), 0);
    spend(&slot, 1, millis(5));
    for now in [60_000, 600_000] {
        refill.write(&slot, refused, millis(now), RTT);
        let far = Grant { ask_after: TERM, ..grant(0, 0) };
        refill.believe(&slot, &far, exact(), millis(now), millis(now + 1), 0);
    }
    assert!(refill.is_idle());
    let now = millis(600_002);
    refill.move_on(&slot, now);
    assert!(refill.is_idle());
    assert_eq!(refill.due(&slot, refused, now, RTT), Moment::NEVER);
    let again = Seen { refused: 2, ..Seen::default() };
    assert_eq!(refill.due(&slot, again, now, RTT), now, "the wait was for the other allocator");
    assert!(counts_from_zero(&refill.write(&slot, again, now, RTT)));
}

#[test]
fn who_was_forgotten_asks_again_at_once_and_then_waits() {
    // Granted nothing at 0 ms, for a second; forgotten long after.
    let (slot, mut refill) = (Hand::new(), Refill::new(millis(0), false));
    refill.write(&slot, Seen::default(), millis(0), RTT);
    let belief = refill.believe(&slot, &grant(0, 0), exact(), millis(0), millis(1), 0);
    assert_eq!(belief, Belief::Installed);
    let (seen, now) = (Seen { refused: 1, waiting: 0, ..Seen::default() }, millis(60_000));
    let mut asks_in_vain = || {
        assert_eq!(refill.write(&slot, seen, now, RTT).want, 1);
        on_unrecognised(&mut refill, &slot, now);
        refill.due(&slot, seen, now, RTT)
    };
    assert_eq!(asks_in_vain(), now, "the refused call still wants a permit");
    assert_eq!(asks_in_vain(), now + DISPUTE_PAUSE, "nothing was granted between");
}
