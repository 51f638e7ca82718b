//! Leases that reach from one fixed window into the next, worked out by hand. Windows are of a second; a term is 33 ms.

use super::*;

/// Returns the grant of `pool` to the new session `who` at `at`.
fn lent_at(pool: &mut Pool, at: u64, who: Holder, permits: u64) -> Grant {
    grant(pool.renew(millis(at), who, 1, ask(0, 0, permits)))
}

#[test]
fn a_lease_goes_on_over_the_boundary_and_counts_on_both_sides() {
    let mut pool = pool(vec![fixed(100, SECOND)]);
    let first = lent_at(&mut pool, 990, A, 20);
    assert_eq!((first.permits, first.term), (20, Duration::from_millis(33)), "as long as any");
    assert_eq!(pool.view(millis(999)).available, 80);
    let view = pool.view(millis(1_000));
    assert_eq!((view.available, view.books.outstanding, view.books.burned), (80, 20, 0));
    // 5 spent, in an unknown window: these count in this one too. 10 come back.
    let second = grant(pool.renew(millis(1_010), A, 2, ask(5, 5, 0)));
    assert_eq!((second.kept, pool.view(millis(1_010)).available), (5, 90));
    // The pool is in slow use, so the lease lasts long, but no further than the window after this one.
    assert_eq!(pool.view(millis(2_000)).available, 95);
    assert_eq!(pool.view(millis(3_000)).available, 100);
}

#[test]
fn what_was_spent_and_told_before_the_boundary_does_not_count_after_it() {
    let mut pool = pool(vec![fixed(100, SECOND)]);
    lent_at(&mut pool, 980, A, 20);
    grant(pool.renew(millis(995), A, 2, ask(12, 3, 0)));
    assert_eq!(pool.view(millis(999)).available, 85);
    assert_eq!(pool.view(millis(1_000)).available, 97);
}

#[test]
fn a_lease_that_ends_unheard_beyond_the_boundary_is_spent_there_too() {
    let mut pool = pool(vec![fixed(100, SECOND)]);
    lent_at(&mut pool, 990, A, 20);
    let view = pool.view(millis(1_100));
    assert_eq!((view.available, view.books.burned), (80, 20));
    // Its report comes late: 15 were never spent.
    grant(pool.renew(millis(1_110), A, 2, ask(5, 0, 0)));
    assert_eq!(pool.view(millis(1_110)).available, 95);
}

#[test]
fn no_report_of_the_window_before_frees_anything_twice() {
    let mut pool = pool(vec![fixed(100, SECOND)]);
    lent_at(&mut pool, 950, A, 20);
    // A's lease ends while its window is open, and is heard of in the next one: nothing of it is charged there.
    lent_at(&mut pool, 995, B, 30);
    assert_eq!(pool.view(millis(1_000)).available, 70);
    grant(pool.renew(millis(1_001), A, 2, ask(0, 0, 0)));
    assert_eq!(pool.view(millis(1_001)).available, 70);
}

#[test]
fn of_two_windows_only_the_one_that_ends_is_charged_ahead() {
    let mut pool = pool(vec![fixed(100, SECOND), fixed(150, 10 * SECOND)]);
    lent_at(&mut pool, 990, A, 20);
    assert_eq!(pool.view(millis(1_000)).available, 80);
    grant(pool.renew(millis(1_010), A, 2, ask(20, 0, 0)));
    lent_at(&mut pool, 1_010, B, 40);
    grant(pool.renew(millis(1_020), B, 2, ask(40, 0, 0)));
    // Of the 150 permits for ten seconds, 60 are spent.
    assert_eq!(pool.view(millis(2_000)).available, 90);
}

#[test]
fn a_pool_that_lost_its_books_waits_for_leases_that_reached_beyond_a_boundary() {
    // A session that was lent permits just before the loss may spend them two seconds later, in the third window from
    // here.
    let mut pool = Pool::after_loss(plan(vec![fixed(100, SECOND)]), millis(999), millis(999));
    let view = pool.view(millis(999));
    assert_eq!(
        view.quarantine,
        Duration::from_millis(3_001),
        "the window that holds 999 + 2,005 ms ends at 4,000 ms"
    );
}

/// The bug: a node that was told to wait until the boundary counted from the arrival of the answer. It asked one way
/// after the boundary, its ask arrived another way later, and the grant arrived three ways after the boundary.
#[test]
fn who_waits_for_the_next_window_asks_so_as_to_be_there_when_it_begins() {
    let mut pool = pool(vec![fixed(1, SECOND)]);
    let far = Holder { rtt: Duration::from_millis(20), ..A };
    assert_eq!(lent_at(&mut pool, 100, B, 1).permits, 1);
    grant(pool.renew(millis(110), B, 2, ask(1, 0, 0)));
    let mut seq = 0;
    let mut renewed = |at: u64, who: Holder| {
        seq += 1;
        let grant = grant(pool.renew(millis(at), Holder { id: SessionId(seq + 2), ..who }, 1, ask(0, 0, 1)));
        assert_eq!(grant.permits, 0);
        (grant.ask_after.as_millis(), grant.retry_after.map(|wait| wait.as_millis()))
    };
    assert_eq!(renewed(500, far), (80, Some(500)), "others may give something back before");
    assert_eq!(renewed(870, far), (80, Some(130)), "there is time to come again");
    assert_eq!(
        renewed(890, far),
        (90, Some(110)),
        "there is not: the ask takes 20 ms, and what it brings as long"
    );
    assert_eq!(renewed(950, far), (30, Some(50)));
    assert_eq!(renewed(985, far), (1, Some(20)), "too late to be there in time");
    assert_eq!(renewed(995, A), (5, Some(10)), "a near node needs no time");
}

/// No node believes an answer that tells it to wait for longer than any lease lasts.
#[test]
fn no_session_is_told_to_wait_for_longer_than_a_lease_lasts() {
    let mut pool = pool(vec![fixed(1, 60 * SECOND)]);
    assert_eq!(lent_at(&mut pool, 100, B, 1).permits, 1);
    grant(pool.renew(millis(110), B, 2, ask(1, 0, 0)));
    // The test begins forty seconds past a minute.
    let far = Holder { rtt: Duration::from_millis(100), ..A };
    for before in (2_000..2_400).step_by(50) {
        let holder = Holder { id: SessionId(before), ..far };
        let lent = grant(pool.renew(millis(20_000 - before), holder, 1, ask(0, 0, 1)));
        assert!(lent.ask_after <= lessor_protocol::TERM_MAX, "{before} ms before: {lent:?}");
    }
}
