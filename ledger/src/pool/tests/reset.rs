//! What becomes of a session that forgot a pool and comes back.

use super::*;

/// The bug: such an ask was disputed, and its node began a whole session anew, dropping what it held of all other pools.
#[test]
fn a_session_that_has_told_all_may_count_from_zero() {
    let mut pool = pool(vec![sliding(100, 10 * SECOND)]);
    let first = grant(pool.renew(millis(0), A, 1, ask(0, 0, 4)));
    assert_eq!(first.permits, 4);
    grant(pool.renew(millis(100), A, 2, ask(4, 0, 0)));
    let again = grant(pool.renew(millis(5_000), A, 9, ask(0, 0, 3)));
    assert_eq!((again.kept, again.permits), (0, 3));
    let view = pool.view(millis(5_000));
    assert_eq!((view.available, view.books.spent, view.books.outstanding), (93, 4, 3));
    grant(pool.renew(millis(5_100), A, 10, ask(2, 1, 0)));
    // An old copy of an ask from before it forgot the pool.
    let old = pool.renew(millis(5_200), A, 2, ask(4, 0, 0));
    assert_eq!(old, Err(AskError::Stale { seq: 2, last: 10 }));
}

#[test]
fn what_is_out_is_not_forgotten() {
    let mut pool = pool(vec![sliding(100, 10 * SECOND)]);
    grant(pool.renew(millis(0), A, 1, ask(0, 0, 4)));
    let kept = grant(pool.renew(millis(100), A, 2, ask(1, 3, 0)));
    assert_eq!(kept.kept, 3);
    let error = pool.renew(millis(200), A, 3, ask(0, 0, 3));
    assert_eq!(error, Err(AskError::Totals { spent_total: 0, held: 0, spent: 1, out: 3 }));
    assert_eq!(pool.view(millis(200)).books.outstanding, 3, "nothing changed");
}

#[test]
fn what_ended_unheard_stays_spent_for_who_counts_from_zero() {
    let mut pool = pool(vec![sliding(100, 10 * SECOND)]);
    grant(pool.renew(millis(0), A, 1, ask(0, 0, 4)));
    grant(pool.renew(millis(100), A, 2, ask(1, 3, 0)));
    let ended = millis(5_000);
    assert_eq!(pool.view(ended).books.burned, 3);
    grant(pool.renew(ended, A, 3, ask(0, 0, 2)));
    // Its next totals say nothing of the burned permits: they are about what it holds now and gives back.
    grant(pool.renew(millis(5_100), A, 4, ask(0, 0, 0)));
    let view = pool.view(millis(5_100));
    assert_eq!((view.available, view.books.burned, view.books.outstanding), (96, 3, 0));
}
