//! A password changes while a store is in use: the next connection reads it from the file again.

use super::Store;
use lessor_allocator::cells::{Cells, CellsConfig, CellsError, Password, StoreKind};
use scenarios::servers::Server;
use std::sync::Arc;

/// The new password.
const NEXT: &str = "another-s3cret";

async fn the_next_connection_says_what_is_in_the_file(kind: StoreKind, change: &str) {
    let server = Arc::new(tokio::task::block_in_place(|| Server::start(kind, &[])));
    let store = Store::on(Arc::clone(&server)).await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("password");
    std::fs::write(&file, format!("{}\n", server.password())).expect("a writable file");
    let before = format!(":{}@", server.password());
    let bare = if kind == StoreKind::Redis { "" } else { "@" };
    let url = server.url().replace(&before, bare).parse().expect("a URL");
    let password = Some(Password::file(&file).expect("the file has one line"));
    let config = CellsConfig { url, password, ..store.config.clone().expect("a configuration") };
    let mut cells = Cells::connect(&config).await.expect("the password is right");
    let timeline = cells.timeline().await.expect("the store is there");

    tokio::task::block_in_place(|| server.tell(&change.replace("NEXT", NEXT)));
    let mut next = cells.another();
    let refused = next.timeline().await;
    assert!(matches!(refused, Err(CellsError::Unreachable(_))), "{refused:?}");
    std::fs::write(&file, format!("{NEXT}\n")).expect("a writable file");
    assert_eq!(next.timeline().await, Ok(timeline.clone()));
    assert_eq!(cells.timeline().await, Ok(timeline.clone()), "an open connection goes on, or signs in again");
    // If the file is empty, the earlier password stays in use.
    std::fs::write(&file, "").expect("a writable file");
    assert_eq!(cells.another().timeline().await, Ok(timeline));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_of_redis_changes_without_a_restart() {
    let change = "CONFIG SET requirepass NEXT";
    the_next_connection_says_what_is_in_the_file(StoreKind::Redis, change).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_of_postgres_changes_without_a_restart() {
    let change = "ALTER ROLE lessor PASSWORD 'NEXT'";
    the_next_connection_says_what_is_in_the_file(StoreKind::Postgres, change).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_of_etcd_changes_without_a_restart() {
    let change = r#"/v3/auth/user/changepw {"name":"root","password":"NEXT"}"#;
    the_next_connection_says_what_is_in_the_file(StoreKind::Etcd, change).await;
}
