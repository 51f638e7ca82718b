//! Tests of the rows of limits that were removed, or are not configured any more: in a store that is made anew, at the
//! next start and the one after that, and where a removal comes between a grant and its batch.

use super::*;

const WINDOW: &str = "rules = [{ kind = \"sliding_window\", limit = 100, per = \"10m\", margin = \"0s\" }]";

fn limits(names: &[&str]) -> Config {
    config(&names.iter().map(|name| format!("[[limit]]\nname = {name:?}\n{WINDOW}\n")).collect::<String>())
}

fn cap(longest: &str) -> Config {
    config(&format!(
        "[[limit]]\nname = \"cap\"\nrules = [{{ kind = \"concurrency\", limit = 5, longest = \"{longest}\" }}]"
    ))
}

fn other() -> Config {
    config("[[limit]]\nname = \"other\"\nrules = [{ kind = \"concurrency\", limit = 1, longest = \"1s\" }]")
}

/// Begins the next run at `now` with what is `written`. It writes everything anew.
fn next_life(config: &Config, written: &Written, now: u64) -> (Registry, Written) {
    let mut registry = config.restored(written, Gap::Counted, millis(now), now);
    let mut written = Written::default();
    registry.begin_writing(0);
    write(&mut registry, &mut written, now);
    (registry, written)
}

/// Returns what several sessions are lent at `now` that want everything.
fn lent(registry: &Registry, name: &str, now: u64) -> u64 {
    let lent = |session| {
        let caller = Caller { session, ..caller(now) };
        registry.leases(millis(now), &caller, &[ask(name, None, 0, 0, 100)]).grants.remove(0).permits
    };
    (1..20).map(lent).sum()
}

/// The bug: a store that failed for a moment was made anew without the rows of removed limits that still count. After
/// the next start the name fell to a pattern that lent all of it once more.
#[test]
fn a_store_that_is_made_anew_has_what_removed_limits_lent() {
    let (mut registry, _) = writing(&limits(&["api/x", "api/*"]));
    let before = lent(&registry, "api/x", 10);
    assert!(before > 80, "{before}");
    assert!(registry.remove("api/x"));
    let (mut anew, mut gathering) = (Written::default(), registry.begin_whole_batch(millis(30)));
    assert!(registry.gather(millis(30), &mut gathering, usize::MAX));
    anew.apply(&gathering.into_batch());
    let (after, _) = next_life(&limits(&["api/*"]), &anew, 40);
    assert_eq!(lent(&after, "api/x", 3_000), 0);
    // If the file has the limit again, it goes on from its books, or waits.
    let (after, _) = next_life(&limits(&["api/x", "api/*"]), &anew, 40);
    assert!(before + lent(&after, "api/x", 3_000) <= 100);
}

/// The bug: the second start after a removal knew nothing of the limit any more.
#[test]
fn what_a_removed_limit_left_is_known_at_the_second_start() {
    let (mut registry, mut written) = writing(&safe(30));
    assert!(registry.remove("safe"));
    write(&mut registry, &mut written, 10);
    for now in [20, 30, 40] {
        let mut registry;
        (registry, written) = next_life(&other(), &written, now);
        registry.put(millis(now + 5), &safe(3).limits[0], CarryOver::AsIs, false).expect("room");
        assert_eq!(available(&mut registry, "safe", millis(5_000)), 70, "started at {now} ms");
    }
    // The file has the limit again.
    assert_eq!(available(&mut next_life(&safe(3), &written, 50).0, "safe", millis(5_000)), 70);
    // The row is dropped in the end.
    let (_, written) = next_life(&other(), &written, 700_000);
    assert_eq!(written.limits.keys().collect::<Vec<_>>(), ["(gone)", "other", "safe"]);
    let (mut registry, mut written) = next_life(&other(), &written, 700_010);
    registry.sweep_retired(millis(1_500_000), 10);
    write(&mut registry, &mut written, 1_500_000);
    assert_eq!(written.limits.keys().collect::<Vec<_>>(), ["other"]);
}

/// Calls in flight, too, outlast the first start after a removal.
#[test]
fn calls_of_a_removed_cap_are_waited_for_after_the_second_start() {
    let (mut registry, mut written) = writing(&cap("60s"));
    assert!(registry.remove("cap"));
    write(&mut registry, &mut written, 10);
    for now in [20, 30] {
        let mut registry;
        (registry, written) = next_life(&other(), &written, now);
        registry.put(millis(now + 5), &cap("1s").limits[0], CarryOver::AsIs, false).expect("room");
        let lends = [50_000, 63_000].map(|at| available(&mut registry, "cap", millis(at)));
        assert_eq!(lends, [0, 5], "started at {now} ms");
    }
}

/// The bug: an answer waited for a batch that did not have its limit, because the limit was removed meanwhile. After a
/// crash, with the limit in the file again, all of it was lent once more.
#[test]
fn what_was_lent_just_before_a_removal_is_in_the_batch_that_the_answer_waits_for() {
    let (mut registry, mut written) = writing(&limits(&["a"]));
    let before = lent(&registry, "a", 10);
    assert_eq!(registry.next_batch(), Some(2), "all answers wait for it");
    assert!(registry.remove("a"));
    write(&mut registry, &mut written, 20);
    let (after, _) = next_life(&limits(&["a"]), &written, 40);
    let after = lent(&after, "a", 3_000);
    assert!(before > 80 && before + after <= 100, "{before} and {after}");
}

/// Starts over as `Shared::start_over` does.
fn after_a_panic(config: &Config, broken: &mut Registry, now: u64) -> Registry {
    let mut next = config.registry(Past::Lost(millis(now)), millis(now), 8);
    next.keep_decisions_of(broken, millis(now));
    next
}

/// The bug: after a panic the name of a removed limit fell to a pattern, which lent by it while calls of the limit went
/// on.
#[test]
fn the_heir_of_a_removed_limit_waits_for_its_calls_after_a_panic() {
    let limit = |name: &str, longest: &str| {
        format!(
            "[[limit]]\nname = {name:?}\nrules = [{{ kind = \"concurrency\", limit = 5, longest = {longest:?} }}]\n"
        )
    };
    let both = config(&[limit("cap/x", "60s"), limit("cap/*", "1s")].concat());
    let mut broken = both.registry(Past::None, millis(0), 7);
    assert!(lent(&broken, "cap/x", 10) > 0);
    assert!(broken.remove("cap/x"));
    let next = after_a_panic(&config(&limit("cap/*", "1s")), &mut broken, 20);
    assert_eq!(lent(&next, "cap/x", 50_000), 0);
    assert!(lent(&next, "cap/x", 70_000) > 0);
}

/// The bug: what an earlier run had left of a limit replaced what was lost since by a panic.
#[test]
fn a_limit_that_is_put_after_a_panic_waits_though_an_earlier_life_had_one_of_its_name() {
    let (_, written) = writing(&limits(&["api/x", "api/*"]));
    let only = limits(&["api/*"]);
    let mut broken = only.restored(&written, Gap::Counted, millis(20), 8);
    assert!(lent(&broken, "api/x", 700_000) > 0);
    let mut next = after_a_panic(&only, &mut broken, 700_010);
    next.put(millis(700_020), &limits(&["api/x"]).limits[0], CarryOver::AsIs, false).expect("room");
    assert_eq!(lent(&next, "api/x", 710_000), 0);
}

/// The bug: the row of a limit still named limits below it that were removed. At the next start the limit began as
/// after a loss, shut for the rest of its window.
#[test]
fn a_limit_goes_on_where_one_below_it_was_removed() {
    let (mut registry, mut written) = begun();
    lend(&mut registry, 1, &[ask("tenant", None, 0, 0, 20)]);
    write(&mut registry, &mut written, 20);
    assert!(registry.remove("tenant"));
    write(&mut registry, &mut written, 30);
    let mut left = config(FAMILY);
    left.limits.retain(|limit| limit.name.as_str() != "tenant");
    let mut after = left.restored(&written, Gap::Counted, millis(40), 8);
    assert!(after.quarantined(millis(40)).is_empty(), "{:?}", after.quarantined(millis(40)));
    let available = available(&mut after, "vendor", millis(40));
    assert!((60..=80).contains(&available), "{available}");
}
