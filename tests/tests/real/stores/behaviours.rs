//! The behaviours of cells that each store must have.

use super::{Store, cell, count_in, swap};
use lessor_allocator::cells::{
    BATCH_MAX, Cell, Cells, CellsError, NAME_MAX, StoreKind, Swap, Swapped, Timeline, VALUE_MAX,
};
use lessor_protocol::Clock;
use lessor_protocol::names::{KEY_MAX, NAME_MAX as LIMIT_MAX};
use std::time::Duration;

macro_rules! behaviours {
    ($($behaviour:ident)*) => {
        behaviours! { in memory by Store::of(StoreKind::Memory); $($behaviour)* }
        behaviours! { in redis by Store::of(StoreKind::Redis); $($behaviour)* }
        behaviours! { in cluster by Store::of_a_cluster(); $($behaviour)* }
        behaviours! { in postgres by Store::of(StoreKind::Postgres); $($behaviour)* }
        behaviours! { in etcd by Store::of_an_etcd(); $($behaviour)* }
    };
    (in $store:ident by $made:expr; $($behaviour:ident)*) => {
        mod $store {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $behaviour() {
                    super::$behaviour($made.await).await;
                }
            )*
        }
    };
}

behaviours! {
    a_cell_that_was_not_made_is_not_there
    a_cell_is_made_once
    a_cell_is_swapped_by_a_client_that_knows_its_version
    a_stale_version_is_refused_and_shows_what_is_there
    a_cell_that_is_deleted_and_made_anew_is_another_one
    a_batch_does_what_can_be_done_and_says_what_is_there_of_the_rest
    a_cell_twice_in_one_batch_is_refused_and_nothing_done
    any_bytes_are_a_value
    any_name_that_a_limit_and_a_key_can_have_is_a_name
    names_that_look_alike_are_different_cells
    what_no_store_takes_is_refused_and_nothing_done
    on_another_timeline_nothing_is_done
    many_who_count_in_one_cell_lose_nothing
    many_who_make_the_same_cells_make_each_once
    a_call_that_is_dropped_leaves_a_handle_that_works
}

async fn a_cell_that_was_not_made_is_not_there(mut store: Store) {
    assert_eq!(store.load("a").await, None);
    assert_eq!(store.load_all(&[]).await, []);
    // A swap that expects no cell is done. A swap that expects a version finds none.
    assert_eq!(store.swap(swap("a", None, None)).await, Swapped::Done);
    assert_eq!(store.swap(swap("a", Some(1), None)).await, Swapped::Other(None));
    assert_eq!(store.swap(swap("a", Some(1), Some(cell(2, "x")))).await, Swapped::Other(None));
    assert_eq!(store.load("a").await, None);
}

async fn a_cell_is_made_once(mut store: Store) {
    let first = cell(1, "first");
    assert_eq!(store.swap(swap("a", None, Some(first.clone()))).await, Swapped::Done);
    assert_eq!(
        store.swap(swap("a", None, Some(cell(2, "second")))).await,
        Swapped::Other(Some(first.clone()))
    );
    assert_eq!(store.swap(swap("a", None, None)).await, Swapped::Other(Some(first.clone())));
    assert_eq!(store.load("a").await, Some(first));
}

async fn a_cell_is_swapped_by_a_client_that_knows_its_version(mut store: Store) {
    // Versions are any numbers, in no order.
    let versions = [0, u64::MAX, 1, 1 << 63, i64::MAX as u64, 0x0a0d_0a0d_0a0d_0a0d];
    let mut expected = None;
    for version in versions {
        let next = cell(version, format!("{version}"));
        assert_eq!(store.swap(swap("a", expected, Some(next.clone()))).await, Swapped::Done, "{version}");
        assert_eq!(store.load("a").await, Some(next));
        expected = Some(version);
    }
    // Another handle sees the same version.
    store.cells = store.cells.another();
    assert_eq!(store.load("a").await.map(|cell| cell.version), expected);
}

async fn a_stale_version_is_refused_and_shows_what_is_there(mut store: Store) {
    store.swap(swap("a", None, Some(cell(1, "one")))).await;
    let newer = cell(2, "two");
    store.swap(swap("a", Some(1), Some(newer.clone()))).await;
    for next in [Some(cell(3, "three")), None] {
        assert_eq!(store.swap(swap("a", Some(1), next)).await, Swapped::Other(Some(newer.clone())));
        assert_eq!(store.load("a").await, Some(newer.clone()));
    }
}

async fn a_cell_that_is_deleted_and_made_anew_is_another_one(mut store: Store) {
    store.swap(swap("a", None, Some(cell(1, "one")))).await;
    assert_eq!(store.swap(swap("a", Some(1), None)).await, Swapped::Done);
    assert_eq!(store.load("a").await, None);
    assert_eq!(store.swap(swap("a", Some(1), Some(cell(2, "two")))).await, Swapped::Other(None));
    assert_eq!(store.swap(swap("a", None, Some(cell(3, "one")))).await, Swapped::Done);
    assert_eq!(store.swap(swap("a", Some(1), None)).await, Swapped::Other(Some(cell(3, "one"))));
}

async fn a_batch_does_what_can_be_done_and_says_what_is_there_of_the_rest(mut store: Store) {
    let names: Vec<String> = (0..BATCH_MAX).map(|n| format!("cell {n}")).collect();
    // In reverse, so that the order of the batch differs from that of the names.
    let make = |name: &String| swap(name, None, Some(cell(1, name)));
    let made = store.try_swap(&names.iter().rev().map(make).collect::<Vec<_>>()).await;
    assert_eq!(made, Ok(vec![Swapped::Done; BATCH_MAX]));
    let batch = names.iter().enumerate().map(|(n, name)| match n % 5 {
        0 => swap(name, Some(1), Some(cell(2, "changed"))),
        1 => swap(name, Some(1), None),
        2 => swap(name, Some(9), Some(cell(2, "stale"))),
        3 => swap(name, None, Some(cell(2, "made twice"))),
        _ => swap(&format!("new {n}"), None, Some(cell(2, "made"))),
    });
    let swapped = store.try_swap(&batch.collect::<Vec<_>>()).await.expect("the store is there");
    for (n, (swapped, name)) in swapped.into_iter().zip(&names).enumerate() {
        let there = || Swapped::Other(Some(cell(1, name)));
        assert_eq!(swapped, if [2, 3].contains(&(n % 5)) { there() } else { Swapped::Done }, "{name}");
    }
    let (_, found) = store.cells.load(&names).await.expect("the store is there");
    for (n, (found, name)) in found.into_iter().zip(&names).enumerate() {
        let expected = [Some(cell(2, "changed")), None];
        let expected = expected.into_iter().nth(n % 5).unwrap_or_else(|| Some(cell(1, name)));
        assert_eq!(found, expected, "{name}");
    }
    assert_eq!(store.load("new 4").await, Some(cell(2, "made")));
}

async fn a_cell_twice_in_one_batch_is_refused_and_nothing_done(mut store: Store) {
    let twice = [
        swap("b", None, Some(cell(1, ""))),
        swap("a", None, Some(cell(2, ""))),
        swap("a", Some(2), Some(cell(3, ""))),
    ];
    let refused = store.try_swap(&twice).await;
    assert!(matches!(&refused, Err(CellsError::Invalid(text)) if text.contains("\"a\"")), "{refused:?}");
    assert_eq!(store.load_all(&["a", "b"]).await, [None, None]);
}

async fn any_bytes_are_a_value(mut store: Store) {
    let all: Vec<u8> = (0..=255).collect();
    let longest = vec![0xa5; VALUE_MAX];
    let values: [&[u8]; 6] = [b"", b"\0", b"\r\n$5\r\n", b"\xff\xfe'; --\\", &all, &longest];
    let mut expected = None;
    for (version, value) in (1..).zip(values) {
        let next = cell(version, value);
        assert_eq!(store.swap(swap("a", expected, Some(next.clone()))).await, Swapped::Done);
        assert_eq!(store.swap(swap("a", None, None)).await, Swapped::Other(Some(next.clone())));
        assert_eq!(store.load("a").await, Some(next));
        expected = Some(version);
    }
}

async fn any_name_that_a_limit_and_a_key_can_have_is_a_name(mut store: Store) {
    let longest = format!("{}\x1f{}", "x".repeat(LIMIT_MAX), "🦀".repeat(KEY_MAX / 4));
    assert!(longest.len() <= NAME_MAX);
    let any_byte = "y".repeat(NAME_MAX);
    let names = [
        &longest,
        &any_byte,
        "a b",
        "a:b:{c}:d",
        "{}",
        "}{",
        "a\n\r\t",
        "'\"\\;--",
        "ünïcödé",
        "%s$1?*",
        "\u{1}",
    ];
    for (version, name) in (1..).zip(names) {
        assert_eq!(store.swap(swap(name, None, Some(cell(version, name)))).await, Swapped::Done, "{name}");
    }
    for (version, (name, found)) in (1..).zip(names.into_iter().zip(store.load_all(&names).await)) {
        assert_eq!(found, Some(cell(version, name)));
    }
}

async fn names_that_look_alike_are_different_cells(mut store: Store) {
    let names = ["a", "A", "a ", "ä", "a\u{308}", "{a}", "a}", "a\\"];
    for (version, name) in (1..).zip(names) {
        assert_eq!(store.swap(swap(name, None, Some(cell(version, "")))).await, Swapped::Done, "{name}");
    }
    // In any order, and one of them twice.
    let found = store.load_all(&["a ", "b", "A", "a", "a"]).await;
    let versions: Vec<_> = found.into_iter().map(|cell| cell.map(|cell| cell.version)).collect();
    assert_eq!(versions, [Some(3), None, Some(2), Some(1), Some(1)]);
}

async fn what_no_store_takes_is_refused_and_nothing_done(mut store: Store) {
    let (good, long) = (cell(1, "good"), "n".repeat(NAME_MAX + 1));
    let mut refused = vec![
        vec![swap("a", None, Some(good.clone())), swap("", None, None)],
        vec![swap("a", None, Some(good.clone())), swap("nul\0", None, None)],
        vec![swap("a", None, Some(good.clone())), swap(&long, None, None)],
        vec![swap("a", None, Some(good.clone())), swap("big", None, Some(cell(2, vec![0; VALUE_MAX + 1])))],
    ];
    refused.push((0..=BATCH_MAX).map(|n| swap(&format!("{n}"), None, Some(good.clone()))).collect());
    refused.push((0..17).map(|n| swap(&format!("{n}"), None, Some(cell(n, vec![0; VALUE_MAX])))).collect());
    for batch in refused {
        let swapped = store.try_swap(&batch).await;
        assert!(matches!(swapped, Err(CellsError::Invalid(_))), "{swapped:?}");
    }
    assert_eq!(store.load_all(&["a", "0", "16"]).await, [None, None, None]);
    for names in [vec![long], vec![String::new()], vec!["a".to_owned(); BATCH_MAX + 1]] {
        let loaded = store.cells.load(&names).await;
        assert!(matches!(loaded, Err(CellsError::Invalid(_))), "{loaded:?}");
    }
}

async fn on_another_timeline_nothing_is_done(mut store: Store) {
    let timeline = store.timeline().await;
    store.swap(swap("a", None, Some(cell(1, "one")))).await;
    let batch = [
        swap("a", Some(1), Some(cell(2, "two"))),
        swap("b", None, Some(cell(3, "new"))),
        swap("c", Some(9), None),
    ];
    let name = timeline.as_str();
    for other in ["", "nonsense", &name[1..], &name[..name.len() - 1], &format!("{name}0")] {
        let swapped = store.cells.swap(&Timeline::new(other), &batch).await;
        assert_eq!(swapped, Err(CellsError::Moved { found: timeline.clone() }), "{other}");
    }
    assert_eq!(store.load_all(&["a", "b"]).await, [Some(cell(1, "one")), None]);
    let done = store.cells.swap(&timeline, &batch).await;
    assert_eq!(done, Ok(vec![Swapped::Done, Swapped::Done, Swapped::Other(None)]));
}

async fn many_who_count_in_one_cell_lose_nothing(mut store: Store) {
    const COUNTERS: u64 = 8;
    const EACH: u64 = 50;
    let timeline = store.timeline().await;
    let clock = Clock::since_boot();
    let begun = clock.now();
    let counting = (0..COUNTERS).map(|seed| {
        let (mut cells, timeline) = (store.cells.another(), timeline.clone());
        tokio::spawn(async move {
            let mut dice = fastrand::Rng::with_seed(seed);
            let (mut there, mut counted, mut tries) = (None, 0, 0_u64);
            while counted < EACH {
                let count = there.as_ref().map_or(0, count_in);
                let next = cell(dice.u64(..), (count + 1).to_be_bytes());
                let expected = there.as_ref().map(|cell: &Cell| cell.version);
                let swapped = cells.swap(&timeline, &[swap("count", expected, Some(next.clone()))]).await;
                tries += 1;
                match swapped.expect("the store is there").remove(0) {
                    Swapped::Done => (there, counted) = (Some(next), counted + 1),
                    Swapped::Other(other) => {
                        // The cell that is there must be another one than was expected.
                        assert_ne!(other.as_ref().map(|cell| cell.version), expected);
                        there = other;
                    }
                }
            }
            tries
        })
    });
    let mut tries = 0;
    for counting in counting.collect::<Vec<_>>() {
        tries += counting.await.expect("no panic");
    }
    let took = clock.now().since(begun);
    let found = store.load("count").await.expect("the cell was made");
    let counted = COUNTERS * EACH;
    println!("{counted} counted by {COUNTERS} in {tries} tries, {:.0} a second", rate(counted, took));
    assert_eq!(count_in(&found), counted);
}

fn rate(count: u64, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}

/// Batches overlap in different orders. Each cell is made by one maker, and no maker waits for another for ever.
async fn many_who_make_the_same_cells_make_each_once(mut store: Store) {
    const MAKERS: u64 = 6;
    const CELLS: usize = 40;
    const ROUNDS: usize = 10;
    let timeline = store.timeline().await;
    let making = (0..MAKERS).map(|maker| {
        let (mut cells, timeline): (Cells, _) = (store.cells.another(), timeline.clone());
        tokio::spawn(async move {
            let mut dice = fastrand::Rng::with_seed(maker);
            let mut done = vec![];
            for round in 0..ROUNDS {
                let mut batch: Vec<Swap> = (0..CELLS)
                    .map(|n| swap(&format!("{round}/{n}"), None, Some(cell(dice.u64(..), [maker as u8]))))
                    .collect();
                dice.shuffle(&mut batch);
                let swapped = cells.swap(&timeline, &batch).await.expect("the store is there");
                for (swap, swapped) in batch.into_iter().zip(swapped) {
                    match swapped {
                        Swapped::Done => done.push((swap.name, swap.next)),
                        // No maker deletes a cell, so there must be one.
                        Swapped::Other(other) => assert!(other.is_some(), "{}", swap.name),
                    }
                }
            }
            done
        })
    });
    let mut made = vec![];
    for making in making.collect::<Vec<_>>() {
        made.extend(making.await.expect("no panic"));
    }
    made.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(made.len(), CELLS * ROUNDS);
    for (name, cell) in made {
        assert_eq!(store.load(&name).await, cell, "{name}");
    }
}

async fn a_call_that_is_dropped_leaves_a_handle_that_works(mut store: Store) {
    store.swap(swap("a", None, Some(cell(1, "one")))).await;
    let timeline = store.timeline().await;
    for polls in 0..12 {
        let batch = [swap("b", None, Some(cell(polls + 1, "b")))];
        // The call is polled a few times and then dropped, in the middle of whatever it does.
        let mut call = Box::pin(store.cells.swap(&timeline, &batch));
        for _ in 0..polls {
            if tokio::time::timeout(Duration::ZERO, &mut call).await.is_ok() {
                break;
            }
        }
        drop(call);
        assert_eq!(store.load("a").await, Some(cell(1, "one")));
    }
}
