//! Tests of what is told beside a grant: permits left, the share of the reserve, and counts of sessions and answers.

use super::*;
use crate::registry::rows::PoolPlace;
use lessor_protocol::Key;

#[test]
fn a_session_is_counted_once_however_often_it_asks() {
    let registry = registry(Past::None);
    assert_eq!(registry.sessions(), 0);
    for (session, seq, known) in [(1, 1, 1), (1, 2, 1), (2, 1, 2), (3, 1, 3)] {
        let caller = Caller { session, ..caller(seq) };
        registry.leases(millis(seq), &caller, &[ask("vendor/rest", None, 0, 0, 0)]);
        assert_eq!(registry.sessions(), known);
    }
}

#[test]
fn each_answer_is_counted_by_what_it_brought() {
    let mut registry = registry(Past::None);
    let mut permits = vec![];
    for (session, want) in [(1, 10), (2, 0), (3, 0)] {
        let caller = Caller { session, ..caller(1) };
        permits.push(
            registry.leases(millis(0), &caller, &[ask("export", Some("k"), 0, 0, want)]).grants[0].permits,
        );
    }
    assert!(permits[0] > 0 && permits[1..] == [0, 0], "{permits:?}");
    // Sessions ask until nothing is left.
    let mut empty = 0;
    for session in 10..30 {
        let caller = Caller { session, ..caller(1) };
        let grant = &registry.leases(millis(0), &caller, &[ask("export", Some("k"), 0, 0, 5)]).grants[0];
        empty += u64::from(grant.permits == 0);
    }
    assert!(empty > 0);
    let figures = registry.limits(millis(0));
    let of_keys = &figures[0].1; // limits are in the order of their names
    let by_outcome = of_keys.sums.answered.by_outcome();
    assert_eq!(by_outcome[..3], [("granted", 21 - empty), ("empty", empty), ("settled", 2)]);
    assert!(by_outcome[3..].iter().all(|(_, count)| *count == 0), "{by_outcome:?}");
}

#[test]
fn an_answer_says_what_is_left_of_the_rule_with_the_least_limit_and_its_window() {
    let registry = registry(Past::None);
    let grants = registry.leases(millis(0), &caller(1), &[ask("vendor/rest", None, 0, 0, 10)]).grants;
    assert_eq!((grants[0].permits, grants[0].left, grants[0].window_ms), (10, Some(990), Some(30_000)));
}

#[test]
fn a_node_is_told_its_share_of_the_reserve_where_one_is_configured() {
    let reserve = "reserve = 100\nfallback = \"safe_share\"\nsafe = { nodes = 20 }\n";
    for (options, permits) in [(reserve, Some(5)), ("", None)] {
        let rule = "{ kind = \"fixed_window\", limit = 1000, per = \"30s\" }";
        let text = format!("[[limit]]\nname = \"a\"\nrules = [{rule}]\n{options}");
        let registry = config(&text).registry(Past::None, millis(0), 7);
        let grants = registry.leases(millis(0), &caller(1), &[ask("a", None, 0, 0, 10)]).grants;
        assert_eq!(
            grants[0].safe.as_ref().map(|safe| (safe.permits, safe.span_ms)),
            permits.map(|n| (n, 30_000))
        );
    }
}

#[test]
fn the_name_of_a_pool_in_a_store_is_read_as_it_was_written() {
    let key = Key::try_new("k").expect("valid");
    for key in [None, Some(key)] {
        let place = PoolPlace { limit: "api/*".to_owned(), id: key.into() };
        assert_eq!(PoolPlace::parse(&place.text()), Some(place.clone()));
        assert!(place.text().starts_with(&PoolPlace::prefix("api/*")));
    }
    assert_eq!(PoolPlace::parse("[\"a\"]"), None);
}

/// Whichever kind of limit it is of, and however many come before it, a pool that comes twice in one exchange is answered once.
#[test]
fn a_pool_that_comes_twice_in_one_exchange_is_answered_once() {
    const SINGLE: usize = 70;
    let limit = |name: String, more: &str| {
        format!(
            "[[limit]]\nname = {name:?}\n{more}\nrules = [{{ kind = \"fixed_window\", limit = 9, per = \"1m\" }}]\n"
        )
    };
    let single = (0..SINGLE).map(|number| limit(format!("one/{number}"), ""));
    let others = [limit("key".to_owned(), "keyed = true"), limit("any/*".to_owned(), "")];
    let text: String = single.chain(others).collect();
    let registry = config(&text).registry(Past::None, millis(0), 7);
    let mut asks: Vec<Entry> =
        (0..SINGLE).map(|number| ask(&format!("one/{number}"), None, 0, 0, 1)).collect();
    asks.extend([ask("key", Some("a"), 0, 0, 1), ask("key", Some("b"), 0, 0, 1)]);
    asks.extend([ask("any/a", None, 0, 0, 1), ask("any/b", None, 0, 0, 1)]);
    let pools = asks.len();
    asks.extend(asks.clone());
    let grants = registry.leases(millis(0), &caller(1), &asks).grants;
    let (first, again) = grants.split_at(pools);
    assert!(first.iter().all(|grant| grant.permits == 1), "{first:?}");
    for grant in again {
        assert_eq!(error(grant).0, code::DUPLICATE, "{grant:?}");
    }
}
