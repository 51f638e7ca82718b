//! Tests of a pool that the allocator above no longer recognises: what it goes by once it counts from zero.

use super::*;

/// The bug: the new loan lasted until the end of the old one, which the allocator above no longer knew. Permits were
/// lent on and spent after that allocator had counted them as spent.
#[test]
fn a_loan_of_a_new_session_ends_when_its_own_grant_says() {
    let mut pool = borrowing();
    let long = Grant { term: TERM_MAX, horizon: TERM_MAX, ..last_one() };
    grant(pool.renew(millis(0), A, 1, ask(0, 0, 1)));
    assert!(pool.ask_above(millis(0), RTT).is_some_and(|ask| ask.want >= 1));
    assert_eq!(pool.on_grant_above(millis(4), millis(0), &long), GrantOutcome::Believed);
    let lent = grant(pool.renew(millis(5), A, 2, ask(0, 0, 1)));
    assert!(lent.permits == 1 && lent.term >= SECOND / 10, "{lent:?}");
    let a_ends = millis(5) + lent.term;
    // It is spent when another session begins.
    grant(pool.renew(millis(10), A, 3, ask(1, 0, 8)));
    pool.on_unrecognised_above(millis(11));
    let asked = pool.ask_above(millis(12), RTT).expect("it leases");
    assert!((asked.spent_total, asked.held) == (0, 0) && asked.want >= 8, "{asked:?}");
    let short = Grant { permits: 8, term: SECOND / 25, horizon: SECOND / 25, ..last_one() };
    assert_eq!(pool.on_grant_above(millis(16), millis(12), &short), GrantOutcome::Believed);
    let end = millis(12) + short.term;
    // A goes by its old lease, which ends later.
    assert!(a_ends > end);
    assert_eq!(grant(pool.renew(millis(17), A, 4, ask(1, 0, 8))).permits, 0);
    let b = grant(pool.renew(millis(18), B, 1, ask(0, 0, 2)));
    assert!(b.permits > 0 && millis(18) + b.term <= end, "{b:?}");
    assert_eq!(pool.view(end).available, 0);
}
