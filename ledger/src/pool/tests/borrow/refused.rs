//! Tests of a pool whose asks are refused: what it says again, and when.

use super::*;

/// A pool whose ask was refused was lent nothing, so it has nothing to say.
#[test]
fn what_is_refused_was_not_lent() {
    let mut pool = borrowing();
    grant(pool.renew(millis(0), A, 1, ask(0, 0, 1)));
    pool.ask_above(millis(0), RTT).expect("it leases");
    pool.on_refusal_above(
        millis(1),
        Refusal { reason: RefusalReason::Other, retry_after: Duration::from_millis(20) },
    );
    assert!(pool.rests_above());
}

/// The bug: it was made again after each term, for as long as the pool above refused.
#[test]
fn a_report_that_was_refused_unread_is_due_again_once_the_pause_is_over() {
    let shut = Refusal { reason: RefusalReason::Quarantine, retry_after: Duration::from_secs(3_600) };
    for waiting in [0, 1] {
        let mut pool = lent_one();
        assert_eq!(grant(pool.renew(millis(5), A, 2, ask(0, 0, 1))).permits, 1);
        grant(pool.renew(millis(7), A, 3, ask(1, 0, waiting)));
        assert!(pool.ask_above(millis(200), RTT).is_some_and(|ask| ask.spent_total == 1));
        pool.on_refusal_above(millis(204), shut);
        assert_eq!(pool.asks_above(millis(204), RTT), millis(5_204), "{waiting} waits");
        assert!(pool.ask_above(millis(5_204), RTT).is_some_and(|ask| ask.spent_total == 1));
        pool.on_rejection_above(millis(5_208), false);
        assert_eq!(pool.asks_above(millis(5_208), RTT), millis(6_208), "{waiting} waits");
    }
    // Calls that have ended are told sooner than spends.
    for waiting in [0, 1] {
        let (mut pool, _) = lent_of_a_cap(4, None);
        let runs = |running, waiting| Ask { running: Some(running), ..ask(4, 0, waiting) };
        grant(pool.renew(millis(10), A, 14, runs(4, 0)));
        pool.ask_above(millis(20), RTT).expect("it leases");
        assert_eq!(pool.on_grant_above(millis(24), millis(20), &capped(0, 0, None)), GrantOutcome::Believed);
        grant(pool.renew(millis(30), A, 15, runs(0, waiting)));
        assert_eq!(pool.ask_above(millis(60), RTT).and_then(|said| said.running), Some(0));
        pool.on_refusal_above(millis(64), shut);
        assert_eq!(pool.asks_above(millis(64), RTT), millis(5_064), "{waiting} waits");
    }
}
