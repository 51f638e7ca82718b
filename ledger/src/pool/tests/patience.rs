//! Calls that wait go before calls that may come.

use super::*;
use crate::share::Owner;

/// Ten permits a second, all of which are out: nine were spent, and `B` holds one for its next call.
fn all_out(rule: Rule) -> Pool {
    let mut pool = Pool::new(plan(vec![rule]), millis(0));
    let (mut seq, mut lent) = (0, 0);
    // Both sessions say that their calls wait.
    while lent < 9 {
        seq += 1;
        let wants = Ask { demand_milli: 9_000, ..ask(lent, 0, 9 - lent) };
        lent += grant(pool.renew(millis(0), A, seq, wants)).permits;
    }
    let one = Ask { demand_milli: 1_000, ..ask(0, 0, 1) };
    assert_eq!(grant(pool.renew(millis(0), B, 1, one)).permits, 1);
    pool
}

/// The ask of a session that holds `held` permits and wants one for its next call.
fn ahead(held: u64) -> Ask {
    Ask { held, want: 1, demand_milli: 1_000, ..Ask::default() }
}

/// `A` has spent all that it was lent, and four of its calls wait.
fn a_waits(pool: &mut Pool, at: u64, seq: u64) -> Grant {
    grant(pool.renew(millis(at), A, 20 + seq, Ask { waiting: 4, demand_milli: 9_000, ..ask(9, 0, 4) }))
}

#[test]
fn what_is_held_for_a_call_that_may_come_is_left_to_a_call_that_waits() {
    let mut pool = all_out(sliding(10, SECOND));
    assert_eq!(a_waits(&mut pool, 20, 2).permits, 0);
    let kept = grant(pool.renew(millis(25), B, 2, ahead(1)));
    assert_eq!((kept.kept, kept.permits, kept.term), (1, 0, Duration::ZERO), "its lease ends");
    let gone = grant(pool.renew(millis(35), B, 3, ahead(0)));
    assert_eq!(gone.permits, 0);
    assert_eq!(a_waits(&mut pool, 40, 3).permits, 1);
}

#[test]
fn a_session_whose_calls_only_try_leaves_nothing() {
    let mut pool = all_out(sliding(10, SECOND));
    let tries = Holder { id: SessionId(3), ..B };
    grant(pool.renew(millis(0), tries, 1, ahead(0)));
    a_waits(&mut pool, 20, 2);
    grant(pool.renew(millis(25), B, 2, ask(0, 0, 0)));
    let lent = grant(pool.renew(millis(40), tries, 2, ahead(0)));
    assert_eq!(lent.permits, 1);
    assert!(!lent.term.is_zero());
}

#[test]
fn a_session_that_comes_first_leaves_nothing() {
    let mut pool = all_out(sliding(10, SECOND));
    a_waits(&mut pool, 20, 2);
    let first = Holder { share: Share { priority: 1, ..Share::EVEN }, ..B };
    let kept = grant(pool.renew(millis(25), first, 2, ahead(1)));
    assert!(!kept.term.is_zero(), "{kept:?}");
}

/// The session's next call would wait for as long as the session is told to. Its callers may not wait that long.
#[test]
fn where_leases_are_long_nothing_is_left() {
    let mut pool = all_out(sliding(10, 10 * SECOND));
    a_waits(&mut pool, 20, 2);
    let kept = grant(pool.renew(millis(25), B, 2, ahead(1)));
    assert!(!kept.term.is_zero(), "{kept:?}");
}

/// The callers have gone, or have what they waited for.
#[test]
fn what_may_come_is_provided_for_again_when_no_call_waits() {
    let mut pool = all_out(sliding(10, SECOND));
    a_waits(&mut pool, 20, 2);
    let later = grant(pool.renew(millis(500), B, 2, ahead(0)));
    assert_eq!(later.permits, 1);
}

/// The bug: leases of long windows left nothing to callers that wait. The session that was served first asked again
/// before the other one asked at all, and held for six seconds what the other one waited for. A session of an identity
/// that was never lent anything claims nothing, and waits all the same.
#[test]
fn a_session_that_was_just_served_leaves_the_last_permit_to_a_call_that_waits() {
    let newcomer = Holder { share: Share { owner: Owner(7), ..Share::EVEN }, ..B };
    for other in [B, newcomer] {
        let mut pool = Pool::new(plan(vec![fixed(10, 366 * 24 * 3_600 * SECOND)]), millis(0));
        let mut spent = 0;
        for seq in 1..=30 {
            spent += grant(pool.renew(millis(0), A, seq, ask(spent, 0, 10 - spent))).permits;
        }
        for (holder, spent) in [(A, 10), (other, 0)] {
            assert_eq!(grant(pool.renew(millis(10), holder, 31, ask(spent, 0, 1))).permits, 0);
        }
        assert!(pool.top_up(2, millis(1_000)));
        let busy = |spent, waiting| Ask { want: 5, demand_milli: 2_000, ..ask(spent, 0, waiting) };
        assert_eq!(grant(pool.renew(millis(1_001), A, 32, busy(10, 1))).permits, 1);
        let told = grant(pool.renew(millis(1_080), A, 33, busy(11, 0)));
        assert_eq!((told.permits, told.ask_after), (0, Duration::from_millis(421)));
        assert_eq!(grant(pool.renew(millis(1_100), other, 32, ask(0, 0, 1))).permits, 1);
    }
}

/// The bug: a shortage lasted for as long as its session said that its round trip is.
#[test]
fn a_lie_about_a_distance_makes_no_shortage_last() {
    let mut pool = all_out(sliding(10, SECOND));
    let far = Holder { id: SessionId(3), rtt: Duration::from_secs(1 << 40), ..A };
    assert_eq!(grant(pool.renew(millis(20), far, 1, ask(0, 0, 4))).permits, 0);
    grant(pool.renew(millis(25), B, 2, ahead(0)));
    assert!(pool.yields(Place::own(B.id)));
    // Its leases are the longest, of 2 s, so it counts for two of them and half a second.
    assert_eq!(grant(pool.renew(millis(4_400), B, 3, ask(0, 0, 1))).permits, 1);
    grant(pool.renew(millis(4_600), B, 4, ahead(1)));
    assert!(!pool.yields(Place::own(B.id)));
}

/// The bug: once callers of a high priority had waited, callers of a low one made all sessions of both leave permits.
#[test]
fn a_shortage_of_those_that_come_first_is_over_while_others_wait() {
    let mut pool = all_out(sliding(10, SECOND));
    let first = Holder { id: SessionId(3), share: Share { priority: 1, ..Share::EVEN }, ..A };
    assert_eq!(grant(pool.renew(millis(20), first, 1, ask(0, 0, 4))).permits, 0);
    for (at, seq) in [(60, 2), (100, 3)] {
        assert_eq!(a_waits(&mut pool, at, seq).permits, 0);
    }
    grant(pool.renew(millis(110), first, 2, ahead(0)));
    grant(pool.renew(millis(110), B, 2, ahead(0)));
    assert_eq!([first.id, B.id].map(|id| pool.yields(Place::own(id))), [false, true]);
}
