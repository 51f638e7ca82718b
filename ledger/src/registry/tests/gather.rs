//! Tests of batches whose pools are copied a few at a time, while exchanges and operators go on.

use super::*;
use crate::CarryOver;
use crate::registry::Gathering;
use crate::registry::rows::Batch;
use crate::rule::Gap;
use lessor_protocol::Key;

const USERS: &str = r#"
[[limit]]
name = "user"
keyed = true
rules = [{ kind = "sliding_window", limit = 10, per = "60s", margin = "0s" }]
"#;

/// Begins a registry with an empty store. Also returns what is in the store.
fn begun() -> (Registry, Written) {
    writing(&config(USERS))
}

/// Lends four permits of the pool of each key, in one exchange. Returns the batch that the answer waits for.
fn lend(registry: &mut Registry, seq: u64, keys: &[&str]) -> Option<u64> {
    let asks: Vec<Entry> = keys.iter().map(|key| ask("user", Some(key), 0, 0, 4)).collect();
    let lent = registry.leases(millis(10 * seq), &caller(seq), &asks);
    assert!(lent.grants.iter().all(|grant| grant.permits > 0), "{lent:?}");
    lent.waits_for
}

/// Gathers the rest of a batch.
fn rest(registry: &mut Registry, now: Moment, mut gathering: Gathering) -> Batch {
    while !registry.gather(now, &mut gathering, 1) {}
    gathering.into_batch()
}

/// Returns what the pool of `key` has left in a registry that goes on with `written`.
fn left(written: &Written, key: &str) -> u64 {
    let now = millis(1_000);
    let mut next = config(USERS).restored(written, Gap::Counted, now, 8);
    let limit = next.limit("user").expect("it is there");
    limit.view_or_new(now, &Some(Key::try_new(key).expect("valid")).into()).available
}

#[test]
fn pools_are_copied_a_few_at_a_time_and_what_is_lent_meanwhile_waits_for_the_next_batch() {
    let (mut registry, mut written) = begun();
    assert_eq!(lend(&mut registry, 1, &["a", "b", "c"]), Some(2));
    let mut gathering = registry.begin_batch(millis(20));
    assert!(!registry.gather(millis(20), &mut gathering, 2), "one is left");
    assert_eq!(lend(&mut registry, 2, &["d"]), Some(3), "what is begun does not have it");
    let second = rest(&mut registry, millis(30), gathering);
    assert_eq!((second.number, second.pools.len()), (2, 3));
    written.apply(&second);
    registry.raise_high_water(&second);
    assert!(registry.is_unwritten());
    let third = registry.write_down(millis(40));
    assert_eq!(third.number, 3);
    assert!(third.pools.keys().any(|place| place.key() == Some("d")), "{third:?}");
    written.apply(&third);
    for key in ["a", "b", "c", "d"] {
        assert!(left(&written, key) <= 6, "what was lent of {key} stays lent");
    }
}

#[test]
fn a_limit_that_is_changed_meanwhile_is_written_again() {
    let (mut registry, mut written) = begun();
    lend(&mut registry, 1, &["a", "b", "c"]);
    let mut gathering = registry.begin_batch(millis(20));
    registry.gather(millis(20), &mut gathering, 1);
    let text = USERS.replace("limit = 10", "limit = 20");
    let changed = config(&text).limits.remove(0);
    registry.put(millis(25), &changed, CarryOver::AsIs, true).expect("room");
    let second = rest(&mut registry, millis(30), gathering);
    assert_eq!(second.pools.len(), 1, "rows of other rules are not mixed");
    written.apply(&second);
    let third = registry.write_down(millis(40));
    assert_eq!(third.pools.len(), 3, "each pool, the one that was copied too");
    assert_ne!(
        third.limits["user"].as_ref().map(|row| row.version),
        written.limits.get("user").map(|row| row.version)
    );
}

#[test]
fn a_limit_that_is_removed_and_put_meanwhile_is_written_whole() {
    let (mut registry, mut written) = begun();
    lend(&mut registry, 1, &["a", "b", "c"]);
    let gathering = registry.begin_batch(millis(20));
    let config = registry.limit("user").expect("it is there").config().clone();
    registry.remove("user");
    registry.put(millis(25), &config, CarryOver::AsIs, true).expect("room");
    written.apply(&rest(&mut registry, millis(30), gathering));
    written.apply(&registry.write_down(millis(40)));
    for key in ["a", "b", "c"] {
        assert!(left(&written, key) <= 6, "what was lent of {key} stays lent");
    }
}
