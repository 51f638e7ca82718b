//! Tests of how identities share the safe shares of a pool.

use super::*;
use crate::share::{Owner, Safe, Sharing};

const NONE: [u64; 0] = [];
const LASTS: Duration = Duration::from_secs(5);

/// A pool of 100 permits a second, of which 40 are safe shares for four nodes.
fn seated() -> Pool {
    let sharing = Sharing { reserve: 40, safe: Some(Safe { nodes: 4, lasts: LASTS }), ..Sharing::default() };
    Pool::new(Arc::new(Plan { sharing, ..Plan::clone(&plan(vec![sliding(100, SECOND)])) }), millis(0))
}

/// Lets the sessions `ids` of `owner` ask. Returns the ids of those with a safe share.
fn seats(pool: &mut Pool, owner: u64, at: u64, ids: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let mut has = |id: &u64| {
        let share = Share { owner: Owner(owner), ..Share::EVEN };
        let holder = Holder { id: SessionId(*id), share, rtt: Duration::ZERO };
        grant(pool.renew(millis(at), holder, at + 1, ask(0, 0, 1)));
        pool.safe_share(millis(at), SessionId(*id)).is_some()
    };
    ids.into_iter().filter(|id| has(id)).collect()
}

/// The bug: the identity that came first had all safe shares, for as long as it asked.
#[test]
fn an_identity_leaves_safe_shares_to_another_one_that_wants_them() {
    let mut pool = seated();
    assert_eq!(seats(&mut pool, 7, 0, 1..=6), [1, 2, 3, 4]);
    assert_eq!(seats(&mut pool, 7, 100, [4, 1]), [4, 1], "none of another identity wants one");
    assert_eq!(seats(&mut pool, 9, 200, 50..=52), NONE);
    // Two of four are too many, the newest ones. They keep what they were told before until it ends.
    assert_eq!(seats(&mut pool, 7, 300, 1..=6), [1, 2]);
    assert_eq!((pool.reserve(), pool.safe_shares.permits()), (40, 40));
    for at in [2_000, 4_000, 6_000] {
        assert_eq!(seats(&mut pool, 9, at, 50..=52), NONE);
        assert_eq!(seats(&mut pool, 7, at, 1..=6), [1, 2]);
    }
    let ended = 100 + 5_000 + 1_000 + 20;
    assert_eq!(seats(&mut pool, 7, ended, 1..=6), [1, 2], "though it comes first");
    assert_eq!(seats(&mut pool, 9, ended, 50..=52), [50, 51]);
    for at in [8_000, 9_000] {
        assert_eq!(seats(&mut pool, 7, at, 1..=6), [1, 2]);
        assert_eq!(seats(&mut pool, 9, at, 50..=52), [50, 51]);
    }
}

/// Otherwise an identity that asks all the time would keep the others from being heard.
#[test]
fn of_several_identities_that_want_safe_shares_the_one_with_the_fewest_comes_first() {
    let mut pool = seated();
    assert_eq!(seats(&mut pool, 7, 0, 1..=2), [1, 2]);
    assert_eq!(seats(&mut pool, 8, 0, 11..=14), [11, 12]);
    assert_eq!(seats(&mut pool, 9, 100, [50]), NONE);
    assert_eq!(seats(&mut pool, 8, 200, 11..=14), [11], "one of two is too many");
    for at in [2_000, 4_000, 6_000] {
        assert_eq!(seats(&mut pool, 9, at, [50]), NONE);
        assert_eq!(seats(&mut pool, 8, at, 11..=14), [11]);
        assert_eq!(seats(&mut pool, 7, at, 1..=2), [1]);
    }
    assert_eq!(seats(&mut pool, 8, 6_200, 11..=14), [11, 12], "two are free");
    assert_eq!(seats(&mut pool, 9, 6_300, [50]), [50]);
}

#[test]
fn safe_shares_that_no_other_identity_wants_any_more_are_for_all() {
    let mut pool = seated();
    assert_eq!(seats(&mut pool, 7, 0, 1..=4), [1, 2, 3, 4]);
    assert_eq!(seats(&mut pool, 9, 100, [50]), NONE);
    assert_eq!(seats(&mut pool, 7, 200, 1..=4), [1, 2]);
    assert_eq!(seats(&mut pool, 7, 4_000, 1..=4), [1, 2]);
    assert_eq!(seats(&mut pool, 7, 9_000, 1..=4), [1, 2], "three and four have ended");
    assert_eq!(seats(&mut pool, 7, 11_000, 1..=4), [1, 2, 3, 4]);
    // Sessions without an identity count as one identity.
    let mut pool = seated();
    assert_eq!(seats(&mut pool, 0, 0, 1..=6), [1, 2, 3, 4]);
    assert_eq!(seats(&mut pool, 0, 100, 1..=6), [1, 2, 3, 4]);
}
