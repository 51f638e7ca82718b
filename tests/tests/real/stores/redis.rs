//! Behaviours of Redis only: servers that start again, take over, forget, or are not fit.

use super::trouble::{settle, wait_for};
use super::{Store, cell, swap};
use lessor_allocator::cells::{Cells, CellsError, StoreKind, Swapped};
use scenarios::servers::Server;
use std::sync::Arc;

const REDIS: StoreKind = StoreKind::Redis;

pub(super) async fn own() -> Store {
    Store::on(Arc::new(Server::start(REDIS, &[]))).await
}

/// Connects to an unfit server and returns the error.
async fn refused(server: &Server) -> CellsError {
    Cells::connect(&server.config("test")).await.expect_err("the store is unfit")
}

/// A server that is started again may have lost its data. It shows that by an id that no server had before.
#[tokio::test]
async fn started_again_it_is_on_another_timeline() {
    let mut store = own().await;
    let before = store.timeline().await;
    assert_eq!(store.swap(swap("a", None, Some(cell(1, "one")))).await, Swapped::Done);
    store.server().start_again(&[]);
    let asked = [swap("a", Some(1), Some(cell(2, "two")))];
    // The first call may still use a connection that it does not know to be closed.
    let lost = store.cells.swap(&before, &asked).await;
    assert!(matches!(lost, Err(CellsError::Unreachable(_) | CellsError::Moved { .. })), "{lost:?}");
    let after = store.timeline().await;
    assert_ne!(after, before);
    assert_eq!(store.cells.swap(&before, &asked).await, Err(CellsError::Moved { found: after.clone() }));
    assert_eq!(store.load("a").await, None);
}

/// This holds even for a server that kept all its data in a file.
#[tokio::test]
async fn started_again_with_all_it_had_it_is_on_another_timeline() {
    let always = [("appendonly", "yes"), ("appendfsync", "always")];
    let mut store = Store::on(Arc::new(Server::start(REDIS, &always))).await;
    let before = store.timeline().await;
    assert_eq!(store.swap(swap("a", None, Some(cell(1, "one")))).await, Swapped::Done);
    store.server().kill();
    let lost = store.cells.load(&["a".to_owned()]).await;
    assert!(matches!(lost, Err(CellsError::Unreachable(_))), "{lost:?}");
    store.server().start_again(&always);
    assert_eq!(store.load("a").await, Some(cell(1, "one")));
    assert_ne!(store.timeline().await, before);
}

/// The master writes what its replica never receives, and is gone. The replica takes over without it.
#[tokio::test]
async fn a_replica_that_takes_over_is_on_another_timeline() {
    let mut master = own().await;
    let replica = master.server().replica();
    let config = replica.config(&master.config.clone().expect("a configuration").prefix);
    let mut cells = Cells::new(&config).expect("a good configuration");
    // A replica shows the id of its master, and must not be taken for it.
    let early = wait_for(
        async || cells.timeline().await.err(),
        |error| matches!(error, CellsError::Unfit(text) if text.starts_with("role is \"slave\"")),
    );
    early.await;
    // With its first replica a master gets another id.
    let info = async || Some(replica.tell("INFO replication"));
    wait_for(info, |info| info.contains("master_link_status:up")).await;
    let timeline = master.timeline().await;
    master.swap(swap("a", None, Some(cell(1, "one")))).await;
    wait_for(async || Some(replica.tell(&format!("EXISTS {}:{{a}}", config.prefix))), |there| there == ":1")
        .await;
    // From here on the replica receives nothing.
    assert_eq!(replica.tell("REPLICAOF 127.0.0.1 1"), "+OK");
    assert_eq!(master.swap(swap("a", Some(1), Some(cell(2, "two")))).await, Swapped::Done);
    master.server().kill();
    replica.promote();
    let next = [swap("a", Some(2), Some(cell(3, "three")))];
    let moved = cells.swap(&timeline, &next).await;
    let Err(CellsError::Moved { found }) = moved else { panic!("{moved:?}") };
    assert_eq!(cells.timeline().await, Ok(found.clone()));
    // On its own timeline the replica shows what it has.
    let there = Swapped::Other(Some(cell(1, "one")));
    assert_eq!(cells.swap(&found, &next).await, Ok(vec![there]));
}

/// The connection stays open. A master that was a replica in between is on another timeline.
#[tokio::test]
async fn a_master_that_was_a_replica_in_between_is_on_another_timeline() {
    let mut store = own().await;
    let timeline = store.timeline().await;
    store.swap(swap("a", None, Some(cell(1, "one")))).await;
    let next = [swap("a", Some(1), Some(cell(2, "two")))];
    let server = store.server();
    assert_eq!(server.tell("REPLICAOF 127.0.0.1 1"), "+OK");
    let refused = store.cells.swap(&timeline, &next).await;
    assert!(matches!(refused, Err(CellsError::Unfit(_))), "{refused:?}");
    server.promote();
    let moved = store.cells.swap(&timeline, &next).await;
    assert!(matches!(moved, Err(CellsError::Moved { .. })), "{moved:?}");
    assert_eq!(store.load("a").await, Some(cell(1, "one")));
}

/// A connection that was closed while it was idle is made again without an error.
#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_is_made_again() {
    let mut store = own().await;
    let timeline = store.timeline().await;
    for version in 0..5_u64 {
        assert_eq!(store.server().tell("CLIENT KILL TYPE normal SKIPME yes"), ":1");
        settle().await;
        let next = [swap("a", version.checked_sub(1), Some(cell(version, "one")))];
        assert_eq!(store.cells.swap(&timeline, &next).await, Ok(vec![Swapped::Done]));
    }
}

#[tokio::test]
async fn a_script_that_was_forgotten_is_told_again() {
    let mut store = own().await;
    assert_eq!(store.swap(swap("a", None, Some(cell(1, "one")))).await, Swapped::Done);
    assert_eq!(store.server().tell("SCRIPT FLUSH"), "+OK");
    let batch = [swap("a", Some(1), Some(cell(2, "two"))), swap("b", None, Some(cell(3, "three")))];
    assert_eq!(store.try_swap(&batch).await, Ok(vec![Swapped::Done; 2]));
}

#[tokio::test]
async fn a_server_that_throws_keys_away_is_refused() {
    for policy in ["allkeys-lru", "allkeys-random"] {
        let error = refused(&Server::start(REDIS, &[("maxmemory-policy", policy)])).await;
        let text = error.to_string();
        assert!(matches!(error, CellsError::Unfit(_)), "{text}");
        assert!(text.contains("maxmemory_policy") && text.contains(policy), "{text}");
    }
    // This policy evicts only keys with an expiry, which cells do not have.
    let server = Server::start(REDIS, &[("maxmemory-policy", "volatile-lru")]);
    Cells::connect(&server.config("test")).await.expect("the store is fit");
}

/// Without a replica no swap is on one. With a replica it is, and once that is stopped it is not.
#[tokio::test]
async fn a_swap_that_is_not_on_as_many_replicas_as_was_asked_is_not_durable() {
    let store = own().await;
    let server = store.server();
    let mut config = store.config.clone().expect("a configuration");
    config.replicas = 1;
    let mut cells = Cells::connect(&config).await.expect("the store is there");
    let timeline = cells.timeline().await.expect("the store is there");
    let first = [swap("a", None, Some(cell(1, "one")))];
    let alone = cells.swap(&timeline, &first).await;
    assert_eq!(alone, Err(CellsError::NotDurable("it is on 0 replicas, of 1".to_owned())));
    // The swap is done all the same. A swap that changes nothing needs no replica.
    assert_eq!(cells.swap(&timeline, &first).await, Ok(vec![Swapped::Other(Some(cell(1, "one")))]));
    let replica = server.replica();
    let online = |info: &String| info.contains("connected_slaves:1") && info.contains("state=online");
    wait_for(async || Some(server.tell("INFO replication")), online).await;
    // The first replica that a server ever has makes it draw another id. That costs a wait and breaks no promise.
    let timeline = cells.timeline().await.expect("the store is there");
    let second = [swap("a", Some(1), Some(cell(2, "two")))];
    assert_eq!(cells.swap(&timeline, &second).await, Ok(vec![Swapped::Done]));
    replica.stop();
    let third = [swap("a", Some(2), Some(cell(3, "three")))];
    let stopped = cells.swap(&timeline, &third).await;
    assert!(matches!(stopped, Err(CellsError::NotDurable(_))), "{stopped:?}");
}

/// `synced` needs a version that can confirm it, and an append-only file. Without them the server is refused.
#[tokio::test]
async fn what_is_to_be_synced_needs_a_server_that_can_say_so() {
    let store = own().await;
    let mut config = store.config.clone().expect("a configuration");
    config.synced = true;
    let error = Cells::connect(&config).await.expect_err("the store is unfit");
    let names_it = |text: &str| text.starts_with("redis_version is") || text.starts_with("aof_enabled is");
    assert!(matches!(&error, CellsError::Unfit(text) if names_it(text)), "{error:?}");
}

/// The rights that docs/stores.md names are enough for a user.
#[tokio::test]
async fn a_user_who_may_do_what_is_needed_can_do_all() {
    let mut store = own().await;
    let server = store.server();
    let mut config = store.config.clone().expect("a configuration");
    let may = "+@connection +info +evalsha +script|load +getrange +set +del +wait";
    let made = server.tell(&format!("ACL SETUSER narrow reset on >narrow ~{}:* {may}", config.prefix));
    assert_eq!(made, "+OK");
    config.url = format!("redis://narrow:narrow@{}", server.address()).parse().expect("a URL");
    store.cells = Cells::connect(&config).await.expect("the user has the rights");
    assert_eq!(store.swap(swap("a", None, Some(cell(1, "one")))).await, Swapped::Done);
    assert_eq!(store.swap(swap("a", Some(1), None)).await, Swapped::Done);
    config.replicas = 1;
    let mut cells = Cells::connect(&config).await.expect("the user has the rights");
    let timeline = cells.timeline().await.expect("the user has the rights");
    let alone = cells.swap(&timeline, &[swap("a", None, Some(cell(2, "two")))]).await;
    assert_eq!(alone, Err(CellsError::NotDurable("it is on 0 replicas, of 1".to_owned())));
}

#[tokio::test]
async fn a_user_who_may_not_is_told_what() {
    let store = own().await;
    let server = store.server();
    server.tell("ACL SETUSER half on >half ~* +@all -evalsha");
    let mut config = store.config.clone().expect("a configuration");
    config.url = format!("redis://half:half@{}", server.address()).parse().expect("a URL");
    let mut cells = Cells::connect(&config).await.expect("the user has the rights");
    let timeline = cells.timeline().await.expect("the user has the rights");
    let refused = cells.swap(&timeline, &[swap("a", None, Some(cell(1, "one")))]).await;
    assert!(matches!(&refused, Err(CellsError::Unfit(text)) if text.contains("evalsha")), "{refused:?}");
}

/// A value that another program wrote under a cell's name is not taken for a cell, nor read if it is longer than one.
#[tokio::test]
async fn what_is_no_cell_is_not_taken_for_one() {
    let mut store = own().await;
    let prefix = store.config.clone().expect("a configuration").prefix;
    let server = store.server();
    server.tell(&format!("SET {prefix}:{{short}} x"));
    server.tell(&format!("SETRANGE {prefix}:{{long}} 30000000 x"));
    server.tell(&format!("LPUSH {prefix}:{{list}} x"));
    super::trouble::what_is_no_cell_is_not_taken_for_one(&mut store, &["short", "long"]).await;
    let loaded = store.cells.load(&["list".to_owned()]).await;
    assert!(
        matches!(&loaded, Err(CellsError::Unreachable(text)) if text.contains("WRONGTYPE")),
        "{loaded:?}"
    );
}
