//! A cap on what is in flight, alone and beside a window, worked out by hand.

use super::*;
use crate::fixtures;
use lessor_protocol::InFlight;

/// The longest call of all that follow.
const LONGEST: Duration = Duration::from_secs(60);

pub(super) fn in_flight(limit: u64) -> Rule {
    fixtures::in_flight(limit, LONGEST)
}

/// At most 25 in flight and 1,000 in 30 s: leases last a second.
fn beside_a_window() -> Pool {
    pool(vec![sliding(1_000, 30 * SECOND), in_flight(25)])
}

/// An ask that says what is running.
pub(super) fn says(spent_total: u64, held: u64, running: u64, waiting: u64) -> Ask {
    Ask { running: Some(running), ..ask(spent_total, held, waiting) }
}

#[test]
fn what_runs_is_charged_as_long_as_its_session_says_so() {
    let mut pool = beside_a_window();
    let first = grant(pool.renew(millis(0), A, 1, ask(0, 0, 10)));
    let cap = first.in_flight.expect("it caps what is in flight");
    assert_eq!((first.permits, cap.hold), (10, None));
    assert!(cap.longest >= LONGEST);
    // Six spent, of which four run: two have ended, four are still held.
    pool.renew(millis(500), A, 2, says(6, 4, 4, 0)).expect("true");
    let view = pool.view(millis(500));
    assert_eq!((view.available, view.in_flight, view.books.outstanding), (25 - 8, 4, 4));
    // Two minutes later, twice as long as any call should take, three still run.
    for step in 1..=240 {
        pool.renew(millis(500 + step * 500), A, 2 + step, says(6, 0, 3, 0)).expect("true");
    }
    assert_eq!(pool.view(millis(120_500)).available, 25 - 3);
    pool.renew(millis(121_000), A, 300, says(6, 0, 0, 0)).expect("true");
    assert_eq!(pool.view(millis(121_000)).available, 25);
}

#[test]
fn what_a_silent_session_had_is_in_flight_until_the_longest_call_has_ended() {
    let mut pool = beside_a_window();
    pool.renew(millis(0), A, 1, ask(0, 0, 10)).expect("true");
    pool.renew(millis(500), A, 2, says(6, 4, 4, 0)).expect("true");
    assert!(!pool.is_forgettable(millis(500)));
    // Plenty is left, so its lease lasts for two seconds, until about 2,505 ms. Four run, and the four that it held may
    // have been spent just before.
    for (at, available) in [(1_500, 17), (3_000, 17), (61_000, 17), (62_500, 17), (62_600, 25)] {
        let view = pool.view(millis(at));
        assert_eq!(view.available, available, "at {at} ms: {view:?}");
        assert_eq!(view.in_flight + view.books.outstanding + view.available, 25);
    }
    assert!(pool.is_forgettable(millis(62_600)));
}

#[test]
fn a_late_report_frees_all_but_what_runs_and_what_was_held_until_the_end() {
    let mut pool = beside_a_window();
    pool.renew(millis(0), A, 1, ask(0, 0, 12)).expect("true");
    // Written while the lease was live, heard after its end: of 12, five were spent, of which three run, and four were
    // held, so perhaps spent since. Three were given back.
    let late = grant(pool.renew(millis(5_000), A, 2, says(5, 4, 3, 0)));
    assert_eq!((late.kept, late.permits), (0, 0));
    assert_eq!(pool.view(millis(5_000)).available, 25 - 3 - 4);
    // The next report says that two of the four were spent and run: nothing else can be in flight.
    pool.renew(millis(5_500), A, 3, says(7, 0, 5, 0)).expect("true");
    assert_eq!(pool.view(millis(5_500)).available, 25 - 5);
}

#[test]
fn a_session_that_does_not_say_what_runs_runs_all_that_it_spent() {
    let mut pool = beside_a_window();
    pool.renew(millis(0), A, 1, ask(0, 0, 10)).expect("true");
    pool.renew(millis(500), A, 2, ask(8, 2, 0)).expect("true");
    assert_eq!(pool.view(millis(500)).available, 25 - 10);
    // Its later reports are not about those calls.
    for step in 1..=118 {
        pool.renew(millis(500 + step * 500), A, 2 + step, says(8, 2, 0, 0)).expect("true");
    }
    assert_eq!(pool.view(millis(60_000)).available, 25 - 10, "spent by 500 ms, they end by 60,560");
    assert_eq!(pool.view(millis(60_400)).in_flight, 8);
    pool.renew(millis(60_600), A, 200, says(8, 2, 0, 0)).expect("true");
    assert_eq!(pool.view(millis(60_600)).available, 25 - 2);
}

#[test]
fn a_session_that_leaves_may_leave_calls_behind() {
    let mut pool = beside_a_window();
    pool.renew(millis(0), A, 1, ask(0, 0, 10)).expect("true");
    assert_eq!(pool.leave(millis(500), A.id, 2, goodbye(6, Some(4))), Ok(4));
    assert_eq!(pool.view(millis(60_000)).available, 25 - 4);
    assert_eq!(pool.view(millis(60_600)).available, 25);
    // A session that does not say may leave behind all that it spent.
    pool.renew(millis(61_000), B, 1, ask(0, 0, 10)).expect("true");
    assert_eq!(pool.leave(millis(61_500), B.id, 2, goodbye(6, None)), Ok(4));
    assert_eq!(pool.view(millis(62_000)).available, 25 - 6);
}

#[test]
fn no_session_has_more_in_flight_than_it_was_lent() {
    let mut pool = beside_a_window();
    pool.renew(millis(0), A, 1, ask(0, 0, 5)).expect("true");
    let lie = Ask {
        running: Some(lessor_protocol::PERMITS_MAX),
        busy: lessor_protocol::PERMITS_MAX,
        ..ask(1, 2, 0)
    };
    pool.renew(millis(100), A, 2, lie).expect("what is too much is not believed");
    let view = pool.view(millis(100));
    assert_eq!((view.available, view.books.outstanding), (25 - 5, 2));
    let stranger = pool.renew(millis(200), B, 1, says(0, 0, 1, 0));
    assert!(matches!(stranger, Err(AskError::LeaseUnknown { .. })), "{stranger:?}");
}

#[test]
fn alone_it_lends_to_be_spent_again_and_tells_how_much_to_hold() {
    let mut pool = pool(vec![in_flight(12)]);
    let lent = |grant: Grant| (grant.permits, grant.in_flight.and_then(|InFlight { hold, .. }| hold));
    // A session that is alone may have all of it, half of what is left at a time.
    assert_eq!(lent(grant(pool.renew(millis(0), A, 1, says(0, 0, 0, 12)))), (6, Some(12)));
    let more = Ask { busy: 5, ..says(0, 6, 0, 6) };
    assert_eq!(lent(grant(pool.renew(millis(100), A, 2, more))), (3, Some(12)));
    assert_eq!(pool.view(millis(100)).in_flight, 5, "in use, of those that are held");
    // Another session wants as much: each may hold its half. The first may use what it has, and gives back the excess.
    assert_eq!(lent(grant(pool.renew(millis(200), B, 1, says(0, 0, 0, 12)))), (3, Some(6)));
    assert_eq!(lent(grant(pool.renew(millis(300), A, 3, says(0, 9, 0, 3)))), (0, Some(6)));
    assert_eq!(lent(grant(pool.renew(millis(400), A, 4, says(0, 6, 0, 6)))), (0, Some(6)));
    assert_eq!(lent(grant(pool.renew(millis(500), B, 2, says(0, 3, 0, 9)))), (3, Some(6)));
    assert_eq!(pool.view(millis(500)).available, 0);
    // Both fall silent. Their leases end within two seconds, and all they had in flight 60 s later.
    assert_eq!(pool.view(millis(62_000)).available, 0);
    assert_eq!(pool.view(millis(63_000)).available, 12);
}

#[test]
fn lost_books_wait_for_leases_and_for_calls() {
    let lost = millis(10_000);
    let mut pool = Pool::after_loss(plan(vec![in_flight(12)]), lost, millis(10_500));
    let wait = ClockBounds::default().quarantine() + ClockBounds::default().stretched(LONGEST);
    assert_eq!(pool.view(millis(10_500)).quarantine, wait - SECOND / 2);
    assert_eq!(pool.view(lost + wait).available, 12);
}
