//! Events that begin another timeline of an etcd: a cluster that begins anew, a mark that is deleted, data that are
//! restored from a copy.

use super::{base64, mark, own};
use crate::stores::{cell, swap};
use lessor_allocator::cells::{Cells, CellsError, Swapped, Timeline};
use std::path::Path;

/// A cluster that begins anew at the same addresses has the same id, and its revisions do not tell it from the earlier
/// one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_begins_anew_is_on_another_timeline() {
    let mut store = own().await;
    let before = store.timeline().await;
    let made = [swap("a", None, Some(cell(1, "one")))];
    assert_eq!(store.cells.swap(&before, &made).await, Ok(vec![Swapped::Done]));
    store.server().kill();
    std::fs::remove_dir_all(store.server().folder().join("data")).expect("the folder can be removed");
    store.server().start_again(&[]);
    let moved = store.cells.swap(&before, &made).await;
    let Err(CellsError::Moved { found }) = moved else { panic!("{moved:?}") };
    let cluster = |timeline: &Timeline| timeline.as_str().split_once('-').map(|(id, _)| id.to_owned());
    assert_eq!(cluster(&found), cluster(&before));
    assert_eq!(store.timeline().await, found);
    assert_eq!(store.load("a").await, None);
}

/// An operator can begin another timeline by deleting one key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_mark_it_is_on_another_timeline() {
    let mut store = own().await;
    let before = store.timeline().await;
    assert_eq!(store.swap(swap("a", None, Some(cell(1, "one")))).await, Swapped::Done);
    let key = mark(&store);
    store.server().tell(&format!("/v3/kv/deleterange {{\"key\":\"{key}\"}}"));
    let next = [swap("a", Some(1), Some(cell(2, "two")))];
    let moved = store.cells.swap(&before, &next).await;
    let Err(CellsError::Moved { found }) = moved else { panic!("{moved:?}") };
    assert_ne!(found, before);
    assert_eq!(store.load("a").await, Some(cell(1, "one")));
    assert_eq!(store.cells.swap(&found, &next).await, Ok(vec![Swapped::Done]));
    // A wrong value is not taken for a mark.
    let wrong = base64("no mark");
    store.server().tell(&format!("/v3/kv/put {{\"key\":\"{key}\",\"value\":\"{wrong}\"}}"));
    let strange = store.cells.timeline().await;
    assert!(matches!(&strange, Err(CellsError::Invalid(text)) if text.contains("no mark")), "{strange:?}");
}

fn copy(from: &Path, to: &Path) {
    let copied = std::process::Command::new("cp").arg("-a").args([from, to]).status();
    assert!(copied.expect("the command runs").success());
}

/// A server that was restored from a copy has its earlier mark and fewer changes. The first handle that notices reports
/// it, and ends the timeline for all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_was_put_back_begins_another_timeline() {
    let mut store = own().await;
    let before = store.timeline().await;
    assert_eq!(store.swap(swap("a", None, Some(cell(1, "one")))).await, Swapped::Done);
    let (server, data) = (store.server(), store.server().folder().join("data"));
    server.kill();
    let kept = server.folder().join("kept");
    copy(&data, &kept);
    server.start_again(&[]);
    let mut expected = 1;
    for version in 2..20 {
        let next = swap("a", Some(expected), Some(cell(version, "more")));
        assert_eq!(store.swap(next).await, Swapped::Done);
        expected = version;
    }
    let mut blind =
        Cells::connect(store.config.as_ref().expect("a configuration")).await.expect("the store is there");
    server.kill();
    std::fs::remove_dir_all(&data).expect("the folder can be removed");
    copy(&kept, &data);
    server.start_again(&[]);
    let error = store.cells.load(&["a".to_owned()]).await.expect_err("the store has lost data").to_string();
    assert!(error.contains("the revision is ") && error.contains("restored from a copy"), "{error}");
    let after = store.timeline().await;
    assert_ne!(after, before);
    // A handle that has not looked since the restore.
    let late = blind.swap(&before, &[swap("a", Some(1), None)]).await;
    assert_eq!(late, Err(CellsError::Moved { found: after.clone() }));
    assert_eq!(store.load("a").await, Some(cell(1, "one")));
    assert_eq!(store.cells.swap(&after, &[swap("a", Some(1), None)]).await, Ok(vec![Swapped::Done]));
}
