//! Calls in flight, worked out by hand: which calls end first, and how long a refused one would have lasted.

use super::*;
use lessor_protocol::moment::seconds as at;

const SECOND: Duration = Duration::from_secs(1);

/// Creates the calls as a grant does. Permits are spent again up to `hold`, or are spent once.
fn counted(hold: Option<u64>) -> SessionCalls {
    let mut calls = SessionCalls::USUAL.clone();
    calls.on_grant(Some(InFlight { longest: SECOND, hold }), 0, 0);
    calls
}

#[test]
fn a_grant_says_whether_calls_are_counted() {
    let mut calls = counted(None);
    assert!(calls.count());
    calls.on_grant(None, 0, 0);
    assert!(!calls.count());
}

#[test]
fn calls_that_the_allocator_has_forgotten_end_first() {
    let mut calls = counted(None);
    calls.take(3, at(0));
    calls.forget();
    calls.take(5, at(1));
    assert_eq!(calls.hand_back(4, 0, false, at(2)), Ended::default());
    assert_eq!((calls.are_forgotten(), calls.running()), (false, Some(4)));
}

/// Usage is in thousandths of a permit and second.
#[test]
fn a_refused_call_would_have_lasted_as_long_as_others_do() {
    let mut calls = counted(Some(9));
    assert_eq!(calls.usage(3, 2 * SECOND, at(0)), 6_000, "no call was served, so the guess stands");
    calls.take(2, at(0));
    assert_eq!(
        calls.usage(3, 2 * SECOND, at(4)),
        6_000 + 8_000,
        "the three refused calls are counted already"
    );
    assert_eq!(calls.usage(4, 2 * SECOND, at(4)), 14_000 + 4_000, "one refused call more, for four seconds");
}
