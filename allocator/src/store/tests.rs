//! Exactly what was written is found: over restarts, copies that were put back, damage anywhere, and a store that is
//! made anew.

mod lost;

use super::*;
use lessor_ledger::Rule;
use lessor_ledger::overrides::Suspension;
use lessor_ledger::pool::{Holder, Plan, Pool, SavedPast, SessionId};
use lessor_ledger::registry::limit::PoolId;
use lessor_ledger::rule::{Gap, SlidingWindow};
use lessor_ledger::share::Share;
use lessor_protocol::{Ask, Key, Moment, NodeName};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

fn place(limit: &str, key: &str) -> PoolPlace {
    PoolPlace { limit: limit.to_owned(), id: PoolId::from(Some(Key::try_new(key).expect("valid"))) }
}

fn limit_row(version: u64) -> LimitRow {
    LimitRow { version, basis: "{}".to_owned(), past: SavedPast::None, shares: None, longest: None }
}

/// Makes the row of a pool that has lent `permits`.
fn pool_row(permits: u64) -> PoolRow {
    let rule = SlidingWindow::try_new(1_000, Duration::from_secs(30), Duration::ZERO).expect("valid");
    let plan = Plan { lessees_max: 10, ..Plan::of(vec![Rule::SlidingWindow(rule)]) };
    let now = Moment::from_nanos(SECOND);
    let mut pool = Pool::new(Arc::new(plan), now);
    let holder = Holder { id: SessionId(1), share: Share::EVEN, rtt: Duration::from_millis(1) };
    let ask = Ask { want: permits, waiting: permits, ..Ask::default() };
    pool.renew(now, holder, 1, ask).expect("a good ask");
    let (checkpoint, _) = pool.checkpoint(now, Duration::from_millis(250)).expect("it is kept");
    PoolRow { version: 1, checkpoint, owner: None }
}

fn batch(number: u64) -> Batch {
    Batch { number, ..Batch::default() }
}

/// Makes a store at `path` with two limits, one of which has three pools.
fn filled(path: &Path) -> Embedded {
    let (mut store, found) = Embedded::open(path).expect("it can be made");
    assert_eq!(found.expect_err("there was none"), Lost::Gone);
    let mut first = Batch { is_first: true, ..batch(1) };
    first.limits =
        [("a", 1), ("b", 2)].map(|(name, version)| (name.to_owned(), Some(limit_row(version)))).into();
    first.pools = [("x", 1), ("y", 2), ("z", 3)].map(|(key, n)| (place("a", key), Some(pool_row(n)))).into();
    commit(&mut store, &first).expect("there is room");
    store
}

/// Makes `batch` durable, on the store's own clock.
fn commit(store: &mut Embedded, batch: &Batch) -> Result<(), StoreError> {
    let course = store.course();
    store.commit(batch, course)
}

/// Opens the store at `path`. One that is lost is replaced, as a start does it.
fn reopened(path: &Path) -> Result<Found, Lost> {
    let (mut store, found) = Embedded::open(path).expect("it can be opened");
    if found.is_err() {
        commit(&mut store, &Batch { is_first: true, ..batch(1) }).expect("there is room");
    }
    found
}

/// Simulated allocators keep their rows as [`Written::apply`] says.
#[test]
fn a_store_has_what_a_batch_says_after_each_kind_of_change() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let (mut store, _) = Embedded::open(&path).expect("it can be made");
    let limit = |name: &str, row: Option<u64>| (name.to_owned(), row.map(limit_row));
    let pool = |limit: &str, key: &str, permits: Option<u64>| (place(limit, key), permits.map(pool_row));
    let decided = DecisionRow { topped_up: vec!["once".to_owned()], ..DecisionRow::default() };
    let decision = |row: Option<&DecisionRow>| [("a".to_owned(), row.cloned())].into();
    let batches = [
        Batch {
            is_first: true,
            limits: [limit("a", Some(1)), limit("b", Some(2))].into(),
            pools: [pool("a", "x", Some(1)), pool("a", "y", Some(2)), pool("b", "z", Some(3))].into(),
            decisions: decision(Some(&decided)),
            ..batch(1)
        },
        Batch { pools: [pool("a", "x", Some(4)), pool("a", "y", None)].into(), ..batch(2) },
        // Pools of an earlier version are dropped.
        Batch { limits: [limit("a", Some(3))].into(), pools: [pool("a", "w", Some(5))].into(), ..batch(3) },
        Batch { limits: [limit("a", Some(3))].into(), decisions: decision(None), ..batch(4) },
        Batch { limits: [limit("b", None)].into(), ..batch(5) },
        Batch { is_first: true, limits: [limit("c", Some(4))].into(), ..batch(6) },
    ];
    let mut model = Written::default();
    for batch in batches {
        commit(&mut store, &batch).expect("there is room");
        model.apply(&batch);
        drop(store);
        let (again, found) = Embedded::open(&path).expect("it can be opened");
        assert_eq!(found.expect("it is sound").written, model, "after batch {}", batch.number);
        store = again;
    }
}

#[test]
fn what_was_written_is_found_by_the_same_boot_as_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.redb");
    let mut store = filled(&path);
    let mut second = batch(2);
    second.pools = [(place("a", "x"), None), (place("a", "y"), Some(pool_row(7)))].into();
    commit(&mut store, &second).expect("there is room");
    let course = store.course();
    drop(store);
    let (store, found) = Embedded::open(&path).expect("it can be opened");
    let found = found.expect("it is whole");
    assert_eq!(found.gap, Gap::Counted);
    assert_eq!(store.course(), course, "moments mean what they meant");
    let pools: Vec<_> = found.written.pools.into_iter().collect();
    assert_eq!(pools, [(place("a", "y"), pool_row(7)), (place("a", "z"), pool_row(3))]);
    assert_eq!(found.written.limits.keys().collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn a_limit_that_goes_takes_its_pools_with_it_and_no_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.redb");
    let mut store = filled(&path);
    let mut more = batch(2);
    // Names with a common beginning, or with the separator of names at their end.
    for limit in ["a2", "a\"", "b"] {
        more.pools.insert(place(limit, "x"), Some(pool_row(1)));
    }
    commit(&mut store, &more).expect("there is room");
    let mut gone = batch(3);
    gone.limits.insert("a".to_owned(), None);
    commit(&mut store, &gone).expect("there is room");
    drop(store);
    let found = reopened(&path).expect("it is whole").written;
    assert_eq!(found.limits.keys().collect::<Vec<_>>(), ["b"]);
    let mut left: Vec<&str> = found.pools.keys().map(|place| place.limit.as_str()).collect();
    left.sort_unstable();
    assert_eq!(left, ["a\"", "a2", "b"]);
}

/// Pools that do not come with a new version of their limit belong to earlier rules.
#[test]
fn a_limit_of_another_version_has_no_pool_that_did_not_come_with_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.redb");
    let mut store = filled(&path);
    let pools = |path| reopened(path).expect("it is whole").written.pools.into_keys().collect::<Vec<_>>();
    for (number, version, left) in [(2, 1, ["x", "y", "z"].as_slice()), (3, 7, ["y"].as_slice())] {
        let mut other = batch(number);
        other.limits.insert("a".to_owned(), Some(limit_row(version)));
        other.pools.insert(place("a", "y"), Some(pool_row(5)));
        commit(&mut store, &other).expect("there is room");
        drop(store);
        assert_eq!(pools(&path), left.iter().map(|key| place("a", key)).collect::<Vec<_>>());
        store = Embedded::open(&path).expect("it can be opened").0;
    }
}

#[test]
fn one_process_has_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.redb");
    let _store = filled(&path);
    let other = Embedded::open(&path).map(|_| ()).expect_err("it is open");
    assert!(matches!(&other, StoreError::Taken(taken) if *taken == path), "{other}");
    assert!(other.to_string().contains("another process has it open"), "{other}");
}

/// The bug: another allocator could have the file while this one went on without it, and both lent the limits.
#[test]
fn one_that_is_made_anew_stays_taken() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.redb");
    let mut store = filled(&path);
    let (first, course) = (Batch { is_first: true, ..batch(1) }, store.course());
    let failed = store.recreate_and(&first, course, |_| Err(std::io::Error::other("not synced")));
    assert!(matches!(failed, Err(StoreError::Write { .. })));
    assert!(matches!(Embedded::open(&path), Err(StoreError::Taken(_))));
    // Another process opened the file just before it was replaced, and locks it just after that.
    let before = file::open(&path, false).expect("it is there");
    store.recreate(&first, course).expect("there is room");
    assert!(matches!(Embedded::read_from(before, &path), Err(StoreError::Taken(_))));
}

/// The bug: a start set the file aside that another one was just making.
#[test]
fn a_file_that_another_process_has_is_not_set_aside() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.redb");
    let other = file::open(&path, true).expect("it is made");
    other.lock().expect("it is free");
    assert!(matches!(Embedded::open(&path), Err(StoreError::Taken(_))));
    drop(other);
    assert!(matches!(Embedded::open(&path), Ok((_, Err(Lost::Damaged(_))))));
}

#[test]
fn what_is_behind_its_seal_or_has_none_is_not_believed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, copy) = (folder.path().join("a.redb"), folder.path().join("copy"));
    let mut store = filled(&path);
    std::fs::copy(&path, &copy).expect("a file");
    commit(&mut store, &Batch { limits: [("c".to_owned(), Some(limit_row(3)))].into(), ..batch(2) })
        .expect("room");
    drop(store);
    let newest = folder.path().join("newest");
    std::fs::copy(&path, &newest).expect("a file");
    std::fs::copy(&copy, &path).expect("a file");
    assert_eq!(reopened(&path).expect_err("it is put back"), Lost::Older);
    assert!(folder.path().join("a.redb.lost").exists(), "it is kept for an operator to look at");
    // The same content beside the seal of another store, and without a seal.
    std::fs::copy(&newest, &path).expect("a file");
    assert_eq!(reopened(&path).expect_err("another store was begun"), Lost::Older);
    std::fs::copy(&newest, &path).expect("a file");
    std::fs::remove_file(folder.path().join("a.redb.seal")).expect("it is there");
    assert_eq!(reopened(&path).expect_err("no seal"), Lost::Older);
}

/// The bug: without its seal, a store of another boot was accepted. A copy on a new host had lost all later grants.
#[test]
fn a_store_of_another_boot_without_its_seal_is_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, other) = (folder.path().join("a.redb"), folder.path().join("b.redb"));
    drop(filled(&path));
    let dump = Embedded::check(&path).expect("it is ours").expect("it is whole");
    for (breaks, says) in [(false, None), (true, Some(Lost::Older))] {
        // An imported store is of another boot.
        Embedded::import(&other, &dump).expect("there is room");
        let seal = seal::beside(&other);
        if breaks {
            std::fs::remove_file(&seal).expect("it is there");
        }
        assert_eq!(reopened(&other).err(), says);
        for file in [&other, &seal] {
            std::fs::remove_file(file).expect("it is there");
        }
    }
    Embedded::import(&other, &dump).expect("there is room");
    std::fs::write(seal::beside(&other), "").expect("a file");
    assert_eq!(reopened(&other).err(), Some(Lost::Older), "a seal that says nothing");
}

#[test]
fn of_a_store_that_is_damaged_anywhere_nothing_else_than_was_written_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.redb");
    let store = filled(&path);
    drop(store);
    let (good, seal) =
        (std::fs::read(&path).expect("a file"), std::fs::read(seal::beside(&path)).expect("a file"));
    let written = Embedded::check(&path).expect("it is ours").expect("it is whole");
    let other = folder.path().join("other.redb");
    let (mut as_it_was, mut lost) = (0, 0);
    let mut look = |bytes: &[u8], what: &str| {
        std::fs::write(&other, bytes).expect("a file");
        std::fs::write(seal::beside(&other), &seal).expect("a file");
        match Embedded::check(&other) {
            Ok(Ok(read)) => {
                assert_eq!(read, written, "{what}");
                as_it_was += 1;
            }
            Ok(Err(_)) => lost += 1,
            Err(error) => panic!("{what}: {error}"),
        }
    };
    // Every byte that is not zero was written by the store.
    let offsets = (0..good.len()).filter(|&at| good[at] != 0).step_by(29);
    for at in offsets {
        let mut bad = good.clone();
        bad[at] ^= 0x41;
        look(&bad, &format!("byte {at}"));
    }
    for part in 1..16 {
        look(&good[..good.len() * part / 16], &format!("{part} parts of 16"));
    }
    assert!(as_it_was > 0 && lost > 20, "{as_it_was} as they were, {lost} lost");
}

/// The bug: a mistyped path moved the operator's own configuration away, and overwrote a store that was set aside
/// before.
#[test]
fn a_file_that_never_was_a_store_is_left_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("lessor.toml");
    for text in ["[store]\npath = \"lessor.toml\"\n", "x", "redc", "\n\0\0\0\0\0\0\0\0"] {
        std::fs::write(&path, text).expect("a file");
        let refused = [Embedded::open(&path).map(|_| ()), Embedded::check(&path).map(|_| ())];
        for refused in refused {
            let error = refused.expect_err("it is no store").to_string();
            assert!(error.contains("lessor.toml: this file is no store of Lessor"), "{error}");
        }
        assert_eq!(std::fs::read_to_string(&path).expect("it is there"), text);
        let names = std::fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(names, 1, "nothing was made beside it");
    }
}

/// A crash while a store is made, or a failing disk, leaves such files: no promise rests on them, and they are kept.
#[test]
fn what_is_left_of_a_store_is_set_aside_under_a_name_that_is_free() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.redb");
    drop(filled(&path));
    let mut torn = std::fs::read(&path).expect("a file");
    torn[..4].copy_from_slice(b"junk");
    let left: [&[u8]; 5] = [b"", b"red", b"redb\x1a\x0a\xa9\x0d\x0a", &[0; 8_192], &torn];
    for (number, bytes) in (1..).zip(left) {
        std::fs::write(&path, bytes).expect("a file");
        let lost = reopened(&path).expect_err("it is of no use");
        assert!(matches!(lost, Lost::Damaged(_)), "{lost}");
        let name = if number == 1 { "a.redb.lost".to_owned() } else { format!("a.redb.lost.{number}") };
        assert_eq!(std::fs::read(folder.path().join(name)).expect("it is kept"), bytes);
    }
    assert_eq!(std::fs::read(folder.path().join("a.redb.lost")).expect("it is kept"), b"");
}

#[test]
fn one_that_cannot_be_written_is_made_anew_with_all_there_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.redb");
    let mut store = filled(&path);
    let mut all = Batch { is_first: true, ..batch(2) };
    all.limits.insert("c".to_owned(), Some(limit_row(9)));
    all.pools.insert(place("c", "x"), Some(pool_row(5)));
    store.recreate(&all, store.course()).expect("there is room");
    commit(&mut store, &Batch { pools: [(place("c", "y"), Some(pool_row(6)))].into(), ..batch(3) })
        .expect("room");
    assert!(matches!(Embedded::check(&path), Err(StoreError::Taken(_))), "it is the new one that is open");
    drop(store);
    let found = reopened(&path).expect("it is whole").written;
    assert_eq!(found.limits.keys().collect::<Vec<_>>(), ["c"]);
    assert_eq!(found.pools.keys().cloned().collect::<Vec<_>>(), [place("c", "x"), place("c", "y")]);
}

#[test]
fn what_is_exported_can_be_imported_and_is_of_another_boot_then() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, other) = (folder.path().join("a.redb"), folder.path().join("b.redb"));
    drop(filled(&path));
    let dump = Embedded::check(&path).expect("it is ours").expect("it is whole");
    let text = serde_json::to_string_pretty(&dump).expect("plain data");
    let read = Dump::parse(&text).expect("it was written so");
    assert_eq!((&read, read.counts()), (&dump, [2, 3, 0]));
    Embedded::import(&other, &read).expect("there is room");
    let again = Embedded::import(&other, &read).expect_err("there is one now");
    assert!(again.to_string().contains("there is a file already"), "{again}");
    let (there, here) = (reopened(&other).expect("it is whole"), reopened(&path).expect("it is whole"));
    assert_eq!(there.written, here.written);
    assert_eq!((there.gap, here.gap), (Gap::Unknown, Gap::Counted));
    for (text, says) in [
        (text.replace("\"format\": 1", "\"format\": 2"), "format is 2"),
        (text.replace("[\\\"a\\\"", "[\\\"a"), "which is no pool"),
        (text.replace("\"out\"", "\"owt\""), "owt"),
        ("{".to_owned(), "EOF"),
        // Found by the fuzzer: a name was quoted in full, with its line breaks.
        ("{\"a\\r\\nb\":1}".to_owned(), "unknown field `a  b`"),
        (format!("{{\"{}\":1}}", "a".repeat(5_000)), "unknown field `aaa"),
    ] {
        let wrong = Dump::parse(&text).expect_err(says);
        assert!(wrong.contains(says), "{wrong} {says}");
        assert!(wrong.len() < 1_100 && !wrong.contains(char::is_control), "{wrong}");
    }
}

fn decision_row(name: &str) -> DecisionRow {
    DecisionRow { topped_up: vec![name.to_owned()], ..DecisionRow::default() }
}

/// Stores have rows of earlier versions.
#[test]
fn a_suspension_is_written_under_the_name_that_it_always_had() {
    let mut suspension = Suspension::default();
    assert!(suspension.block(NodeName::try_new("n").expect("valid")));
    let suspension = suspension.save(Moment::from_nanos(SECOND));
    let row = DecisionRow { suspension, ..decision_row("x") };
    let text = serde_json::to_string(&row).expect("plain data");
    assert_eq!(text, r#"{"gate":{"blocked":["n"]},"topped_up":["x"]}"#);
    assert_eq!(serde_json::from_str::<DecisionRow>(&text).expect("as written"), row);
}

#[test]
fn what_was_decided_is_found_and_a_store_of_before_there_was_such_a_thing_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.redb");
    let store = filled(&path);
    drop(store);
    assert_eq!(reopened(&path).expect("it is whole").written.decisions, [].into());
    let (mut store, _) = Embedded::open(&path).expect("it can be opened");
    for (number, decisions) in [
        (2, [("a", Some(decision_row("x"))), ("b", Some(decision_row("y")))]),
        (3, [("a", None), ("c", Some(decision_row("z")))]),
    ] {
        let decisions = decisions.map(|(name, row)| (name.to_owned(), row)).into();
        commit(&mut store, &Batch { decisions, ..batch(number) }).expect("there is room");
    }
    drop(store);
    let left = [("b".to_owned(), decision_row("y")), ("c".to_owned(), decision_row("z"))].into();
    assert_eq!(reopened(&path).expect("it is whole").written.decisions, left);
    // A dump that is printed and imported means the same.
    let dump = Embedded::check(&path).expect("it can be opened").expect("it is whole");
    let text = serde_json::to_string(&dump).expect("plain data");
    let copy = folder.path().join("b.redb");
    Embedded::import(&copy, &Dump::parse(&text).expect("as printed")).expect("it can be made");
    assert_eq!(reopened(&copy).expect("it is whole").written.decisions, left);
    let (mut store, _) = Embedded::open(&path).expect("it can be opened");
    commit(&mut store, &Batch { is_first: true, ..batch(4) }).expect("there is room");
    drop(store);
    assert_eq!(reopened(&path).expect("it is whole").written, Written::default());
}
