//! Crashes of the core, suspensions of a shared store, and events of limits that are below others.

use super::*;
use crate::samples::{self, LIMIT, STORE, allocator, limits};
use lessor_ledger::overrides::Decision;
use lessor_ledger::share::Owner;
use lessor_protocol::push::{Event, Kind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

#[test]
fn a_panic_in_the_core_is_a_crash_and_not_the_end() {
    let shared = allocator(LIMIT);
    let epoch = shared.with(|registry, now| {
        assert!(registry.quarantined(now).is_empty());
        registry.epoch()
    });
    let bug = catch_unwind(AssertUnwindSafe(|| shared.with(|_, _| panic!("a bug, for the test"))));
    assert!(bug.is_err());
    for _ in 0..2 {
        shared.with(|registry, now| {
            assert_eq!(registry.quarantined(now).len(), 1);
            assert_ne!(registry.epoch(), epoch);
        });
    }
}

/// A panic beside other exchanges: later exchanges find a new life, and concurrent ones see no books that are half
/// written.
#[test]
fn a_panic_in_an_exchange_beside_others_is_a_crash_too() {
    let shared = allocator(LIMIT);
    let life = || shared.beside(|registry, now| (registry.quarantined(now).len(), registry.epoch()));
    let (quarantined, epoch) = life();
    assert_eq!(quarantined, 0);
    let bug = catch_unwind(AssertUnwindSafe(|| shared.beside(|_, _| panic!("a bug, for the test"))));
    assert!(bug.is_err());
    for _ in 0..2 {
        let (quarantined, next) = life();
        assert_eq!(quarantined, 1);
        assert_ne!(next, epoch);
    }
    assert_eq!(shared.with(|registry, now| registry.quarantined(now).len()), 1);
}

/// The head that a task has just read may be older than a decision that an operator has made meanwhile.
#[test]
fn a_suspension_is_not_undone_by_a_task_that_read_the_store_before() {
    let shared = allocator(&[STORE, LIMIT].concat());
    let (there, before) = (Moment::from_nanos(1_000), Suspensions::default());
    let mut after = before.clone();
    after.decide("a", &Decision::Pause(None), there).expect("there is room");
    let is_paused = || {
        shared.with(|registry, now| {
            registry.limit("a").is_some_and(|limit| limit.suspension().paused_until(now).is_some())
        })
    };
    shared.follow_suspensions(&before, there);
    assert!(!is_paused());
    shared.follow_suspensions(&after, there);
    shared.follow_suspensions(&before, there);
    assert!(is_paused());
    after.decide("a", &Decision::Resume, there).expect("there is room");
    shared.follow_suspensions(&after, there);
    assert!(!is_paused());
}

/// The store outlives broken books: later grants are durable, and the store says that the earlier books were lost.
#[tokio::test]
async fn a_panic_in_the_core_leaves_a_store_that_is_written() {
    let config = samples::config(LIMIT);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.redb");
    let shared = Shared::open(config.clone(), true, &path).expect("it can be made");
    let is_paused = |shared: &Shared| {
        shared.with(|registry, now| {
            registry.limit("a").is_some_and(|limit| limit.suspension().paused_until(now).is_some())
        })
    };
    let paused = shared.with(|registry, now| registry.decide(now, "a", &Decision::Pause(None)));
    assert_eq!(paused, Some(Ok(false)));
    let bug = catch_unwind(AssertUnwindSafe(|| shared.with(|_, _| panic!("a bug, for the test"))));
    assert!(bug.is_err());
    let next = shared.with(|registry, now| {
        assert_eq!(registry.quarantined(now).len(), 1);
        registry.next_batch()
    });
    assert!(next.is_some() && is_paused(&shared), "that is no part of the books");
    assert_eq!(shared.durable(next).await, Ok(()));
    shared.close_store();
    drop(shared);
    let after = Shared::open(config, false, &path).expect("it is there");
    assert_eq!(after.with(|registry, now| registry.quarantined(now).len()), 1, "it goes on waiting");
    assert!(is_paused(&after));
    after.close_store();
}

#[tokio::test]
async fn what_happens_to_a_limit_happens_to_those_below_it() {
    let text = limits(&[("other", 1), ("vendor", 1), ("tenant", 1)])
        + "parent = \"vendor\"\n"
        + &limits(&[("user/*", 1)])
        + "parent = \"tenant\"\n";
    let shared = allocator(&text);
    let mut listener = shared.events().listen(None, Owner::NONE).expect("there is room");
    shared.tell(&Event::of(Kind::ToppedUp, "vendor"));
    shared.tell(&Event::of(Kind::Paused, "other"));
    for (kind, name) in [
        (Kind::ToppedUp, "vendor"),
        (Kind::ToppedUp, "tenant"),
        (Kind::ToppedUp, "user/*"),
        (Kind::Paused, "other"),
    ] {
        assert_eq!(listener.next().await, Some(Event::of(kind, name)));
    }
}

/// The bug: a store that was damaged, or put back from a copy, counted as no store at all for a start with `--fresh`, such
/// as a service manager makes after each crash: the whole limit was lent once more.
#[test]
fn a_lost_store_goes_before_fresh() {
    // The lost store may have known the second limit, which the file has again after the loss.
    let [config, more] = [LIMIT, &limits(&[("a", 1), ("b", 1)])].map(samples::config);
    let damaged = |path: &Path| {
        let mut bytes = std::fs::read(path).expect("a file");
        bytes[..4].copy_from_slice(b"junk");
        std::fs::write(path, bytes).expect("a file");
    };
    let older = |path: &Path| {
        let copy = std::fs::read(path).expect("a file");
        let shared = Shared::open(config.clone(), true, path).expect("it can be used");
        shared.close_store();
        std::fs::write(path, copy).expect("a file");
    };
    let unsealed = |path: &Path| std::fs::remove_file(path.with_extension("redb.seal")).expect("it is there");
    for breaks in [&damaged as &dyn Fn(&Path), &older, &unsealed] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.redb");
        let starts = [
            (&config, 0, None),
            (&config, 1, Some("a store was there")),
            (&config, 1, Some("the store knows")),
            (&more, 2, Some("the store knows")),
        ];
        for (start, (config, quarantined, says)) in starts.into_iter().enumerate() {
            if start == 1 {
                breaks(&path);
            }
            let shared = Shared::open(config.clone(), true, &path).expect("it can be used");
            assert_eq!(shared.with(|registry, now| registry.quarantined(now).len()), quarantined);
            let warning = shared.fresh_warning();
            assert_eq!(warning.is_some(), says.is_some());
            assert!(warning.unwrap_or_default().contains(says.unwrap_or_default()));
            shared.close_store();
        }
    }
}

/// The bug: a limit that was added to the file of an allocator with a store could not be begun with `--fresh`.
#[test]
fn a_limit_that_is_new_in_the_file_may_begin_afresh() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.redb");
    let quarantined = |names: &[&str], fresh| {
        let limits = limits(&names.iter().map(|name| (*name, 1)).collect::<Vec<_>>());
        let shared = Shared::open(samples::config(&limits), fresh, &path).expect("it can be used");
        let quarantined = shared.with(|registry, now| registry.quarantined(now).len());
        shared.close_store();
        quarantined
    };
    assert_eq!(quarantined(&["a"], true), 0);
    assert_eq!(quarantined(&["a", "b"], true), 0);
    assert_eq!(quarantined(&["a", "b", "c"], false), 1);
    assert_eq!(quarantined(&["a", "b", "c"], true), 1, "the store knows that c may have lent");
    assert_eq!(quarantined(&["a", "d", "c"], true), 2, "d may be b with another name");
}
