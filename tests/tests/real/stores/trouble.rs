//! Failures between a handle and any kind of server.

use super::{Store, cell, swap};
use lessor_allocator::cells::{Cells, CellsError, Swapped};
use lessor_protocol::Clock;
use scenarios::wire::Wire;
use std::time::Duration;

macro_rules! troubles {
    ($($store:ident)*) => {$(
        mod $store {
            use crate::stores::$store::own;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn a_wrong_password_is_told_and_not_shown() {
                super::a_wrong_password_is_told_and_not_shown(own().await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn an_answer_that_is_lost_says_nothing_of_what_was_done() {
                super::an_answer_that_is_lost_says_nothing_of_what_was_done(own().await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn a_server_that_is_stopped_is_not_waited_for() {
                super::a_server_that_is_stopped_is_not_waited_for(own().await).await;
            }
        }
    )*};
}

troubles! { redis postgres etcd }

async fn a_wrong_password_is_told_and_not_shown(store: Store) {
    let server = store.server();
    let config = server.config_with("s3cret-and-wrong", "test");
    let error = Cells::connect(&config).await.expect_err("the password is wrong");
    let told = format!("{error} {error:?} {config:?} {:?}", Cells::new(&config));
    assert!(
        matches!(&error, CellsError::Unreachable(text) if text.to_lowercase().contains("password")),
        "{told}"
    );
    assert!(!told.contains("s3cret"), "{told}");
    // The right password is not shown either, nor one that is given apart from the URL.
    let mut config = server.config("test");
    let right = server.password();
    config.password = Some(lessor_allocator::cells::Password::new("s3cret"));
    let told = format!("{config:?} {:?}", Cells::new(&config));
    assert!(!told.contains(&right) && !told.contains("s3cret"), "{told}");
}

async fn an_answer_that_is_lost_says_nothing_of_what_was_done(store: Store) {
    let server = store.server();
    let wire = Wire::to(server.address()).await;
    let prefix = store.config.expect("a configuration").prefix;
    let mut cells = Cells::connect(&server.config_through(&wire, &prefix)).await.expect("the store is there");
    let timeline = cells.timeline().await.expect("the store is there");
    for round in 0..20 {
        let name = format!("cell {round}");
        wire.lose_an_answer();
        let lost = cells.swap(&timeline, &[swap(&name, None, Some(cell(1, "one")))]).await;
        assert!(matches!(lost, Err(CellsError::Unreachable(_))), "{lost:?}");
        // The server received the swap and did it. The next call connects again and finds that.
        let found = cells.load(std::slice::from_ref(&name)).await.expect("the store is there").1.remove(0);
        assert_eq!(found, Some(cell(1, "one")));
        let next = cells.swap(&timeline, &[swap(&name, Some(1), Some(cell(2, "two")))]).await;
        assert_eq!(next, Ok(vec![Swapped::Done]));
    }
}

async fn a_server_that_is_stopped_is_not_waited_for(store: Store) {
    let (server, mut config) = (store.server(), store.config.expect("a configuration"));
    // Enough for a server that hashes a password on a busy machine, before it is stopped.
    config.timeout = Duration::from_millis(1_500);
    let mut cells = Cells::connect(&config).await.expect("the store is there");
    let timeline = cells.timeline().await.expect("the store is there");
    let clock = Clock::since_boot();
    server.stop();
    let mut expected = None;
    // The first swap uses the existing connection, the others one that the server does not accept.
    for version in 1..=3 {
        let begun = clock.now();
        let late = cells.swap(&timeline, &[swap("a", None, Some(cell(version, "one")))]).await;
        let took = clock.now().since(begun);
        assert!(matches!(&late, Err(CellsError::Unreachable(text)) if text.contains("1.5s")), "{late:?}");
        assert!(took >= config.timeout && took < 4 * config.timeout, "{took:?}");
    }
    server.go_on();
    // At most one of the three swaps may be done now. A client that looks first may see it come later.
    config.timeout = Duration::from_secs(10);
    let mut cells = Cells::connect(&config).await.expect("the store is there");
    loop {
        let next = cell(expected.map_or(10, |version: u64| version + 10), "next");
        let swapped = cells.swap(&timeline, &[swap("a", expected, Some(next.clone()))]).await;
        match swapped.expect("the store is there").remove(0) {
            Swapped::Done => break assert_eq!(cells.load(&["a".to_owned()]).await.unwrap().1, [Some(next)]),
            Swapped::Other(other) => {
                expected = other.map(|cell| cell.version);
                assert!(expected.is_none_or(|version| version <= 3), "{expected:?}");
            }
        }
    }
}

/// After `swaps` of a cell a server that was killed and started again has the last one, on the same timeline.
pub(crate) async fn killed_and_started_again_it_is_the_one_it_was(mut store: Store, swaps: u64) {
    let before = store.timeline().await;
    for version in 0..swaps {
        let expected = version.checked_sub(1);
        assert_eq!(store.swap(swap("a", expected, Some(cell(version, "one")))).await, Swapped::Done);
    }
    let server = store.server();
    server.kill();
    let lost = store.cells.timeline().await;
    assert!(matches!(lost, Err(CellsError::Unreachable(_))), "{lost:?}");
    server.start_again(&[]);
    let last = [swap("a", Some(swaps - 1), None)];
    assert_eq!(store.cells.swap(&before, &last).await, Ok(vec![Swapped::Done]));
    assert_eq!(store.timeline().await, before);
}

/// Values that another program wrote under these `names` are not taken for cells.
pub(crate) async fn what_is_no_cell_is_not_taken_for_one(store: &mut Store, names: &[&str]) {
    let timeline = store.timeline().await;
    for &name in names {
        let loaded = store.cells.load(&[name.to_owned()]).await;
        assert!(matches!(&loaded, Err(CellsError::Invalid(text)) if text.contains(name)), "{loaded:?}");
        let swapped = store.cells.swap(&timeline, &[swap(name, None, Some(cell(1, "")))]).await;
        assert!(matches!(&swapped, Err(CellsError::Invalid(text)) if text.contains(name)), "{swapped:?}");
    }
    // Where a part of the batch was done, the error does not say that nothing was.
    let batch = [swap("a", None, Some(cell(1, "one"))), swap(names[0], None, None)];
    let partly = store.cells.swap(&timeline, &batch).await;
    assert!(matches!(&partly, Err(CellsError::Unreachable(text)) if text.contains(names[0])), "{partly:?}");
    assert_eq!(store.load("a").await, Some(cell(1, "one")));
}

/// Lets waiting tasks see what has arrived: the runtime polls its sockets once, and then the tasks have their turn.
pub(crate) async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

/// Polls until `is_so` holds of what `look` finds, since the change comes at an unknown time.
pub(crate) async fn wait_for<T>(mut look: impl AsyncFnMut() -> Option<T>, is_so: impl Fn(&T) -> bool) {
    let patience = tokio::time::timeout(Duration::from_secs(30), async {
        loop {
            if look().await.is_some_and(|seen| is_so(&seen)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    patience.await.expect("the answer comes in time");
}
