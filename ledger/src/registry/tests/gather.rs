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

/// Asserts that a registry which goes on with `written` counts what was lent of each of `keys`.
#[track_caller]
fn stays_lent(written: &Written, keys: &[&str]) {
    for key in keys {
        assert!(left(written, key) <= 6, "what was lent of {key} stays lent: {written:?}");
    }
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
    stays_lent(&written, &["a", "b", "c", "d"]);
}

/// Puts the limit with the same rules and another option, which no restart takes for other rules.
fn put_again(registry: &mut Registry, now: u64, option: &str) {
    let text = USERS.replace("keyed = true", &format!("keyed = true\n{option}"));
    registry.put(millis(now), &config(&text).limits.remove(0), CarryOver::AsIs, true).expect("room");
}

/// The bug: the pools that were not copied yet were left out of the batch, and the answers that lent from them did not
/// wait for the next one.
#[test]
fn what_waits_for_a_batch_without_a_limit_that_is_changed_meanwhile_waits_for_the_next_one() {
    let (mut registry, mut written) = begun();
    assert_eq!(lend(&mut registry, 1, &["a", "b", "c"]), Some(2));
    let mut gathering = registry.begin_batch(millis(20));
    registry.gather(millis(20), &mut gathering, 1);
    put_again(&mut registry, 25, "ease_off = false");
    let second = rest(&mut registry, millis(30), gathering);
    assert!(second.is_partial && second.pools.is_empty() && second.marks.is_empty(), "{second:?}");
    written.apply(&second);
    let third = registry.write_down(millis(40));
    assert!(!third.is_partial);
    written.apply(&third);
    stays_lent(&written, &["a", "b", "c"]);
}

/// The bug: the batch had the row by which all earlier rows are dropped, and only the pools that were copied before the
/// second change.
#[test]
fn a_limit_that_is_changed_twice_keeps_its_earlier_rows_until_all_can_be_replaced() {
    let (mut registry, mut written) = begun();
    lend(&mut registry, 1, &["a", "b", "c"]);
    written.apply(&registry.write_down(millis(20)));
    put_again(&mut registry, 25, "ease_off = false");
    let mut gathering = registry.begin_batch(millis(30));
    registry.gather(millis(30), &mut gathering, 1);
    put_again(&mut registry, 35, "");
    let third = rest(&mut registry, millis(40), gathering);
    assert!(third.is_partial);
    for batch in [third, registry.write_down(millis(50))] {
        written.apply(&batch);
        stays_lent(&written, &["a", "b", "c"]);
    }
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
    stays_lent(&written, &["a", "b", "c"]);
}

/// Tops up the pool of `key` with 500 permits at `now`, under the name x. Returns whether they were added.
fn top_up(registry: &mut Registry, now: u64, key: &str) -> bool {
    let pool = Key::try_new(key).ok().into();
    let limit = registry.limit("user").expect("it is there");
    let was_made = limit.top_up(millis(now), pool, 500, Some("x")).expect("there is room");
    registry.note_decision("user");
    was_made
}

/// The bug: the batch had the row by which all earlier rows are dropped, and not the pool whose top-up it does not name.
/// After a crash its key began full.
#[test]
fn a_limit_that_is_written_whole_keeps_its_earlier_rows_if_a_pool_is_put_off() {
    let (mut registry, mut written) = begun();
    lend(&mut registry, 1, &["a", "b", "c"]);
    written.apply(&registry.write_down(millis(20)));
    put_again(&mut registry, 25, "ease_off = false");
    let mut gathering = registry.begin_batch(millis(30));
    registry.gather(millis(30), &mut gathering, 1);
    assert!(top_up(&mut registry, 31, "c"));
    let third = rest(&mut registry, millis(40), gathering);
    assert!(third.is_partial && third.limits.is_empty() && third.pools.is_empty(), "{third:?}");
    written.apply(&third);
    stays_lent(&written, &["a", "b", "c"]);
    written.apply(&registry.write_down(millis(50)));
    assert!(left(&written, "a") <= 6 && left(&written, "c") > 500, "{written:?}");
}

/// The bug: the batch had the name of the top-up, and the next one its permits. After a crash between them the operator who
/// repeats it was told that it was made.
#[test]
fn a_top_up_of_a_limit_that_is_left_out_is_not_named() {
    let (mut registry, mut written) = begun();
    lend(&mut registry, 1, &["a", "b"]);
    assert!(top_up(&mut registry, 15, "a"));
    let mut gathering = registry.begin_batch(millis(20));
    registry.gather(millis(20), &mut gathering, 1);
    put_again(&mut registry, 25, "ease_off = false");
    let second = rest(&mut registry, millis(30), gathering);
    assert!(second.is_partial && second.decisions.is_empty(), "{second:?}");
    written.apply(&second);
    let third = registry.write_down(millis(40));
    assert!(third.decisions.contains_key("user") && third.limits.contains_key("user"), "{third:?}");
    written.apply(&third);
    assert!(left(&written, "a") > 500);
}

/// The bug: the batch had the pool with the permits of the top-up, and the next one its name. After a crash between them
/// the top-up was made again.
#[test]
fn a_top_up_that_is_made_meanwhile_is_written_with_its_name() {
    let (mut registry, mut written) = begun();
    lend(&mut registry, 1, &["a", "b"]);
    let gathering = registry.begin_batch(millis(20));
    let top_up = |registry: &mut Registry, now| top_up(registry, now, "a");
    assert!(top_up(&mut registry, 25));
    let second = rest(&mut registry, millis(30), gathering);
    assert!(second.is_partial && second.pools.len() == 1, "{second:?}");
    written.apply(&second);
    let goes_on = |written: &Written| {
        let config = config(USERS);
        let mut next = config.restored(written, Gap::Counted, millis(40), 8);
        next.take_decisions(&config.limits, written, Gap::Counted, millis(40));
        next
    };
    let mut undone = goes_on(&written);
    assert!(top_up(&mut undone, 50), "neither the permits nor the name were durable");
    written.apply(&registry.write_down(millis(60)));
    assert!(!top_up(&mut goes_on(&written), 70), "both are durable");
    assert!((500..=506).contains(&left(&written, "a")) && left(&written, "b") <= 6);
}
