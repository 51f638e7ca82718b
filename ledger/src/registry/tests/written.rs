//! Tests of what is written down, and of what an allocator knows that begins with it.

use super::*;
use crate::CarryOver;
use crate::registry::limit::PoolId;
use crate::rule::Gap;
use std::ops::Bound;

const FAMILY: &str = r#"
[[limit]]
name = "vendor"
rules = [{ kind = "sliding_window", limit = 100, per = "30s", margin = "0s" }]

[[limit]]
name = "tenant"
parent = "vendor"
rules = [{ kind = "fixed_window", limit = 60, per = "1d" }]

[[limit]]
name = "user/*"
keyed = true
rules = [{ kind = "token_bucket", capacity = 10, refill = 1, per = "1s" }]

[[limit]]
name = "cap"
rules = [{ kind = "concurrency", limit = 5, longest = "10s" }]
"#;

/// Begins an allocator that writes down what it lends. Also returns what is written after its first batch.
fn begun() -> (Registry, Written) {
    writing(&config(FAMILY))
}

/// Returns what the asks are lent, and the batch that the answer waits for.
fn lend(registry: &mut Registry, seq: u64, asks: &[Entry]) -> (Vec<u64>, Option<u64>) {
    let Exchanged { grants, waits_for, .. } = registry.leases(millis(10 * seq), &caller(seq), asks);
    (grants.iter().map(|grant| grant.permits).collect(), waits_for)
}

fn available(registry: &mut Registry, name: &str, now: Moment) -> u64 {
    let limit = registry.limit(name).expect("it is there");
    limit.view(now, &PoolId::default()).expect("it has a pool").available
}

#[test]
fn what_was_lent_is_known_to_the_next_process_and_nothing_else_waits() {
    let (mut registry, mut written) = begun();
    let lent = lend(&mut registry, 1, &[ask("tenant", None, 0, 0, 20)]);
    assert_eq!(lent, (vec![20], Some(2)), "not before it is durable");
    let keys: Vec<Entry> = (0..3).map(|key| ask("user/a", Some(&format!("k{key}")), 0, 0, 5)).collect();
    assert_eq!(lend(&mut registry, 2, &keys).0, [5; 3]);
    assert!(registry.is_unwritten());
    let batch = registry.write_down(millis(30));
    assert_eq!((batch.number, batch.pools.len()), (2, 5), "the pool, that above it, and three keys");
    written.apply(&batch);
    registry.raise_high_water(&batch);
    for gap in [Gap::Counted, Gap::Unknown] {
        let mut after = config(FAMILY).restored(&written, gap, millis(40), 8);
        assert_eq!(after.quarantined(millis(40)).len(), 0);
        // Up to the high-water mark, an eighth of what was left may have been lent too.
        let left = available(&mut after, "tenant", millis(40));
        assert!((30..=40).contains(&left), "{left} of 40");
        let above = available(&mut after, "vendor", millis(40));
        assert!((65..=80).contains(&above), "{above} of 80");
        // The pool of an unused key is whole, the pool of a used key is not.
        let asks = [ask("user/a", Some("k1"), 0, 0, 10), ask("user/a", Some("new"), 0, 0, 10)];
        let lent = after.leases(millis(40), &caller(1), &asks).grants;
        assert!(lent[0].permits < lent[1].permits, "{lent:?}");
        // What was out ends with its lease, and stays spent for the day.
        assert!(available(&mut after, "tenant", millis(60_000)) <= 40);
        assert_eq!(available(&mut after, "vendor", millis(60_000)), 100);
    }
}

/// A store has one boot for all of its rows. A row that a later boot did not write anew would be read by the wrong
/// clock.
#[test]
fn the_first_batch_of_a_life_writes_pools_again_that_no_node_has_used_since() {
    let (mut registry, mut written) = begun();
    lend(&mut registry, 1, &[ask("tenant", None, 0, 0, 20), ask("user/a", Some("k"), 0, 0, 5)]);
    written.apply(&registry.write_down(millis(20)));
    let mut life = config(FAMILY).restored(&written, Gap::Unknown, millis(70_000), 8);
    life.begin_writing(0);
    let first = life.write_down(millis(70_000));
    assert!(first.is_first);
    assert!(first.pools.keys().eq(written.pools.keys()), "{:?}", first.pools.keys());
    for (place, row) in &first.pools {
        let row = serde_json::to_value(row.as_ref().expect("it is kept")).expect("plain data");
        assert_eq!(row["record"]["written"], millis(70_000).as_nanos(), "{place:?}");
    }
    written.apply(&first);
    let mut next = config(FAMILY).restored(&written, Gap::Counted, millis(70_010), 9);
    assert!(available(&mut next, "tenant", millis(70_010)) <= 40, "what was lent stays lent");
}

#[test]
fn an_answer_within_its_block_waits_for_nothing() {
    let (mut registry, _) = begun();
    let mut waits = |first: u64, want: u64, spends: bool| {
        let mut waited = 0;
        for seq in first..first + 100 {
            let spent = if spends { seq - first } else { 0 };
            let (_, waits_for) = lend(&mut registry, seq, &[ask("vendor", None, spent, 0, want)]);
            waited += u64::from(waits_for.is_some());
            if registry.is_unwritten() {
                let batch = registry.write_down(millis(10 * seq));
                registry.raise_high_water(&batch);
            }
        }
        waited
    };
    // A second of asks. The end of a lease that holds nothing must be durable, too.
    let (idle, busy) = (waits(1, 0, false), waits(101, 1, true));
    assert!((1..10).contains(&idle), "{idle} of 100 that lend nothing");
    assert!((1..60).contains(&busy), "{busy} of 100 that lend a permit");
}

#[test]
fn a_limit_that_was_changed_meanwhile_begins_anew() {
    let (mut registry, mut written) = begun();
    lend(&mut registry, 1, &[ask("tenant", None, 0, 0, 20)]);
    written.apply(&registry.write_down(millis(20)));
    let shut = |text: &str| {
        let after = config(text).restored(&written, Gap::Counted, millis(40), 8);
        let waits = after.quarantined(millis(40)).into_iter();
        waits.map(|(name, _)| name.to_owned()).collect::<Vec<String>>()
    };
    assert_eq!(shut(FAMILY), [""; 0]);
    assert_eq!(
        shut(&FAMILY.replace("limit = 60", "limit = 61")),
        ["tenant", "vendor"],
        "and who is above it"
    );
    assert_eq!(shut(&FAMILY.replace("parent = \"vendor\"\n", "")), ["tenant", "vendor"]);
    assert_eq!(shut(&FAMILY.replace("capacity = 10", "capacity = 11")), ["user/*"]);
    assert_eq!(shut(&FAMILY.replace("limit = 60", "# \nlimit = 60").replace("# \n", "")), [""; 0]);
    let with_drift = format!("clock_drift_ppm = 2000\n{FAMILY}");
    assert_eq!(shut(&with_drift), ["cap", "tenant", "user/*", "vendor"]);
}

/// In an earlier format a store had the row of a cap, and no pools of it.
#[test]
fn a_cap_whose_pools_were_not_written_down_begins_anew() {
    let (mut registry, mut written) = begun();
    assert!(lend(&mut registry, 1, &[ask("cap", None, 0, 0, 5)]).0[0] > 0);
    written.apply(&registry.write_down(millis(20)));
    let waits = |written: &Written| {
        let after = config(FAMILY).restored(written, Gap::Counted, millis(40), 8);
        after.quarantined(millis(40)).into_iter().map(|(name, _)| name.to_owned()).collect::<Vec<String>>()
    };
    assert_eq!(waits(&written), [""; 0]);
    written.pools.retain(|place, _| place.limit != "cap");
    let row = written.limits.get_mut("cap").expect("it is there");
    row.basis = row.basis.replace("\"counts_calls\":true,", "");
    assert_eq!(waits(&written), ["cap"]);
}

#[test]
fn what_was_written_by_other_rules_is_of_no_use() {
    let (mut registry, mut written) = begun();
    lend(&mut registry, 1, &[ask("user/a", Some("k"), 0, 0, 10)]);
    written.apply(&registry.write_down(millis(20)));
    let stale = written.pools.clone();
    let other = config(&FAMILY.replace("capacity = 10", "capacity = 1000"));
    let limit = other.limits.iter().find(|limit| limit.name.as_str() == "user/*").expect("it is there");
    registry.put(millis(30), limit, crate::CarryOver::AsIs, false).expect("room");
    written.apply(&registry.write_down(millis(40)));
    // The store has only half of what belongs together.
    written.pools = stale;
    let after = other.restored(&written, Gap::Counted, millis(50), 8);
    let ask = [ask("user/a", Some("k"), 0, 0, 500)];
    assert_eq!(after.leases(millis(50), &caller(1), &ask).grants[0].permits, 0, "as after a loss");
}

#[test]
fn a_quarantine_goes_on_and_does_not_begin_again() {
    let (_, mut written) = begun();
    let other = config(&FAMILY.replace("limit = 100, per = \"30s\"", "limit = 90, per = \"30s\""));
    let mut life = other.restored(&written, Gap::Counted, millis(0), 8);
    life.begin_writing(0);
    written.apply(&life.write_down(millis(0)));
    let wait = |registry: &Registry, now| {
        registry.quarantined(now).into_iter().find(|(name, _)| *name == "vendor").map(|(_, wait)| wait)
    };
    let first = wait(&life, millis(0)).expect("it was changed");
    let next = other.restored(&written, Gap::Counted, millis(20_000), 9);
    let left = wait(&next, millis(20_000)).expect("it is not over");
    assert_eq!(left, first - Duration::from_secs(20));
}

/// `api/x` was a limit of its own, and now falls to a pattern whose books do not have what it lent.
#[test]
fn the_heir_of_a_limit_that_is_no_more_begins_as_after_a_loss() {
    let rule = "rules = [{ kind = \"sliding_window\", limit = 100, per = \"10s\", margin = \"0s\" }]";
    let all = |names: &[&str]| {
        let limits = names.iter().map(|name| format!("[[limit]]\nname = {name:?}\n{rule}\n"));
        config(&limits.collect::<String>())
    };
    let (before, mut written) = (all(&["api/x", "api/v1/*", "api/*", "b/*"]), Written::default());
    let mut registry = before.registry(Past::None, millis(0), 7);
    registry.begin_writing(0);
    written.apply(&registry.write_down(millis(0)));
    let shut = |names: &[&str]| {
        let after = all(names).restored(&written, Gap::Counted, millis(40), 8);
        let waits = after.quarantined(millis(40)).into_iter();
        waits.map(|(name, _)| name.to_owned()).collect::<Vec<String>>()
    };
    assert_eq!(shut(&["api/x", "api/v1/*", "api/*", "b/*"]), [""; 0]);
    assert_eq!(shut(&["api/v1/*", "api/*", "b/*"]), ["api/*"], "what was called api/x");
    assert_eq!(shut(&["api/x", "api/*", "b/*"]), ["api/*"], "what begins with api/v1/");
    assert_eq!(shut(&["api/x", "api/v1/*", "api/*"]), [""; 0], "no limit has the names of b/*");
}

/// Returns a limit that keeps back `reserve` permits of a second, as safe shares for three nodes.
fn safe(reserve: u64) -> Config {
    config(&format!(
        "[[limit]]\nname = \"safe\"\nreserve = {reserve}\nfallback = \"safe_share\"\nsafe = {{ nodes = 3 }}\n\
         rules = [{{ kind = \"sliding_window\", limit = 100, per = \"1s\", margin = \"0s\" }}]"
    ))
}

/// The bug: nodes that were cut off went on with shares of a larger reserve, while the next run lent all of that
/// reserve, too.
#[test]
fn an_allocator_that_begins_with_a_smaller_reserve_keeps_back_what_nodes_may_go_on_with() {
    let mut before = safe(30).registry(Past::None, millis(0), 7);
    before.begin_writing(0);
    let mut written = Written::default();
    written.apply(&before.write_down(millis(0)));
    // An allocator that runs in between writes the shares down, too.
    for began in [10, 20] {
        for gap in [Gap::Counted, Gap::Unknown] {
            let mut after = safe(3).restored(&written, gap, millis(began), 8);
            assert_eq!(available(&mut after, "safe", millis(5_000)), 70, "{gap:?}");
            assert_eq!(available(&mut after, "safe", millis(700_000)), 97, "{gap:?}");
        }
        let mut after = safe(3).restored(&written, Gap::Counted, millis(began), 8);
        after.begin_writing(0);
        written = Written::default();
        written.apply(&after.write_down(millis(began)));
    }
    // A limit whose rules cannot carry on waits until the shares are over.
    let file = "[[limit]]\nname = \"safe\"\nrules = [{ kind = \"token_bucket\", capacity = 50, refill = 1, per = \"1s\" }]";
    let mut other = config(file).restored(&written, Gap::Counted, millis(20), 8);
    assert_eq!([5_000, 590_000, 700_000].map(|at| available(&mut other, "safe", millis(at))), [0, 0, 50]);
}

/// The bug: calls that an earlier run had let begin were forgotten if the file had another cap.
#[test]
fn an_allocator_that_begins_with_another_cap_waits_for_the_calls_of_the_one_before() {
    let cap = |longest: &str| {
        config(&format!(
            "[[limit]]\nname = \"cap\"\nrules = [{{ kind = \"concurrency\", limit = 5, longest = \"{longest}\" }}]"
        ))
    };
    let mut before = cap("60s").registry(Past::None, millis(0), 7);
    before.begin_writing(0);
    let mut written = Written::default();
    written.apply(&before.write_down(millis(0)));
    let mut after = cap("1s").restored(&written, Gap::Counted, millis(10), 8);
    assert_eq!([50_000, 63_000].map(|at| available(&mut after, "cap", millis(at))), [0, 5]);
}

/// A cap cannot count the calls that nodes begin on safe shares, either.
#[test]
fn a_limit_that_begins_anew_waits_for_what_nodes_may_go_on_with() {
    let config_of = |config: Config| config.limits.into_iter().next().expect("it has one");
    let capped = || {
        config(
            "[[limit]]\nname = \"safe\"\nrules = [{ kind = \"concurrency\", limit = 90, longest = \"1s\" }]",
        )
    };
    let mut registry = safe(30).registry(Past::None, millis(0), 7);
    let put = |registry: &mut Registry, at, config| {
        registry.put(millis(at), &config_of(config), CarryOver::AsIs, false).expect("there is room")
    };
    let limit = registry.limit("safe").expect("it is there");
    let preview = limit.preview(&config_of(capped()), CarryOver::AsIs, millis(10), Bound::Unbounded, 1);
    let waits = preview.reset_quarantine.expect("it begins anew");
    assert!((590..700).contains(&waits.as_secs()), "{waits:?}");
    put(&mut registry, 10, capped());
    assert_eq!([590_000, 700_000].map(|at| available(&mut registry, "safe", millis(at))), [0, 90]);
    put(&mut registry, 700_000, safe(30));
    put(&mut registry, 1_400_000, safe(3));
    let figures = |registry: &mut Registry, at| {
        registry.limit("safe").expect("it is there").figures(millis(at)).quarantine.is_zero()
    };
    put(&mut registry, 1_400_010, capped());
    assert_eq!(
        [1_900_000, 2_100_000].map(|at| figures(&mut registry, at)),
        [false, true],
        "operators see it"
    );
    // A limit that was removed in between waits, too, though by its present rules it keeps back less than before.
    put(&mut registry, 2_700_000, safe(30));
    put(&mut registry, 3_400_000, capped());
    registry.remove("safe");
    registry.sweep_retired(millis(3_950_000), 100);
    put(&mut registry, 3_950_010, safe(3));
    assert_eq!([3_980_000, 4_100_000].map(|at| available(&mut registry, "safe", millis(at))), [70, 97]);
}

/// Removes the limit called `name` over the API, and starts the allocator again with `after`, before what the limit
/// lent is over.
fn removed_and_started_again(before: &Config, name: &str, after: &Config) -> Registry {
    let mut registry = before.registry(Past::None, millis(0), 7);
    registry.begin_writing(0);
    let mut written = Written::default();
    written.apply(&registry.write_down(millis(0)));
    lend(&mut registry, 1, &[ask(name, None, 0, 0, 100)]);
    write(&mut registry, &mut written, 20);
    assert!(registry.remove(name));
    written.apply(&registry.write_down(millis(30)));
    after.restored(&written, Gap::Counted, millis(40), 8)
}

/// Without a restart, asks for the name are rejected until what the limit lent is over.
#[test]
fn a_name_falls_to_no_pattern_while_what_a_removed_limit_lent_counts_though_the_allocator_starts_again() {
    let rule = "rules = [{ kind = \"sliding_window\", limit = 100, per = \"10m\", margin = \"0s\" }]";
    let both = format!("[[limit]]\nname = \"api/x\"\n{rule}\n[[limit]]\nname = \"api/*\"\n{rule}\n");
    let pattern = format!("[[limit]]\nname = \"api/*\"\n{rule}\n");
    let after = removed_and_started_again(&config(&both), "api/x", &config(&pattern));
    let lent = after.leases(millis(3_000), &caller(1), &[ask("api/x", None, 0, 0, 100)]).grants.remove(0);
    assert_eq!(lent.permits, 0, "as in a life that removed it, and in one that starts without it");
}

#[test]
fn safe_shares_of_a_removed_limit_are_kept_back_though_the_allocator_starts_again() {
    let other = config(
        "[[limit]]\nname = \"other\"\nrules = [{ kind = \"concurrency\", limit = 1, longest = \"1s\" }]",
    );
    let mut after = removed_and_started_again(&safe(30), "safe", &other);
    after.put(millis(50), &safe(3).limits[0], CarryOver::AsIs, false).expect("room");
    assert_eq!(available(&mut after, "safe", millis(5_000)), 70);
}

#[test]
fn calls_of_a_removed_cap_are_waited_for_though_the_allocator_starts_again() {
    let cap = |longest: &str| {
        config(&format!(
            "[[limit]]\nname = \"cap\"\nrules = [{{ kind = \"concurrency\", limit = 5, longest = \"{longest}\" }}]"
        ))
    };
    let other = config(
        "[[limit]]\nname = \"other\"\nrules = [{ kind = \"concurrency\", limit = 1, longest = \"1s\" }]",
    );
    let mut after = removed_and_started_again(&cap("60s"), "cap", &other);
    after.put(millis(50), &cap("1s").limits[0], CarryOver::AsIs, false).expect("room");
    assert_eq!([50_000, 63_000].map(|at| available(&mut after, "cap", millis(at))), [0, 5]);
}

/// A panic loses what a crash does not: a new registry in the same process keeps only what `keep_decisions_of` takes
/// over.
#[test]
fn safe_shares_of_a_larger_reserve_are_kept_back_after_a_panic() {
    let mut broken = safe(30).registry(Past::None, millis(0), 7);
    broken.put(millis(10), &safe(3).limits[0], CarryOver::AsIs, false).expect("room");
    // As `Shared::start_over` does.
    let mut next = safe(3).registry(Past::Lost(millis(20)), millis(20), 8);
    next.keep_decisions_of(&mut broken, millis(20));
    assert_eq!(available(&mut next, "safe", millis(10_000)), 70);
}

#[test]
fn what_is_written_of_a_removed_limit_goes_once_what_it_lent_is_over() {
    let rule = "rules = [{ kind = \"sliding_window\", limit = 100, per = \"10s\", margin = \"0s\" }]";
    let config = config(&format!("[[limit]]\nname = \"a\"\n{rule}\n"));
    let mut registry = config.registry(Past::None, millis(0), 7);
    registry.begin_writing(0);
    let mut written = Written::default();
    lend(&mut registry, 1, &[ask("a", None, 0, 0, 100)]);
    written.apply(&registry.write_down(millis(10)));
    assert!(registry.remove("a"));
    for (now, is_written) in [(20, true), (9_000, true), (60_000, false)] {
        registry.sweep_retired(millis(now), 10);
        written.apply(&registry.write_down(millis(now)));
        assert_eq!(written.limits.contains_key("a"), is_written, "at {now} ms");
    }
}

mod gone;
