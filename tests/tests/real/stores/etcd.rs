//! Behaviours of etcd only: whom it lets in, what it has room for, and which errors it reports.

mod members;
mod timeline;

use super::trouble::settle;
use super::{Store, cell, prefix, swap};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lessor_allocator::cells::{Cells, CellsConfig, CellsError, StoreKind, Swapped, VALUE_MAX};
use scenarios::etcd::Etcd;
use scenarios::servers::Server;
use scenarios::wire::Wire;
use std::sync::Arc;
use std::time::Duration;

const ETCD: StoreKind = StoreKind::Etcd;

/// Starts a store on an etcd of one member.
pub(super) async fn own() -> Store {
    Store::on(Arc::new(tokio::task::block_in_place(|| Server::start(ETCD, &[])))).await
}

/// Returns the configuration of an etcd, with calls of at most `timeout`.
fn config(etcd: &Etcd, timeout: Duration) -> CellsConfig {
    CellsConfig { timeout, ..etcd.config(&prefix()) }
}

fn config_of(config: &CellsConfig, url: &str) -> CellsConfig {
    CellsConfig { url: url.parse().expect("a URL"), ..config.clone() }
}

/// Returns the key of the timeline's mark, in base64: the prefix and a slash.
fn mark(store: &Store) -> String {
    base64(&format!("{}/", store.config.as_ref().expect("a configuration").prefix))
}

fn base64(text: &str) -> String {
    STANDARD.encode(text)
}

/// A cell is known by its version alone, so any handle can swap it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handle_that_never_loaded_a_cell_swaps_it() {
    let mut store = Store::of_an_etcd().await;
    let timeline = store.timeline().await;
    let mut other =
        Cells::new(store.config.as_ref().expect("a configuration")).expect("a good configuration");
    for version in 0..6_u64 {
        let handle = if version % 2 == 0 { &mut store.cells } else { &mut other };
        let next = [swap("a", version.checked_sub(1), Some(cell(version, "")))];
        assert_eq!(handle.swap(&timeline, &next).await, Ok(vec![Swapped::Done]));
    }
    assert_eq!(store.cells.swap(&timeline, &[swap("a", Some(5), None)]).await, Ok(vec![Swapped::Done]));
    let late = other.swap(&timeline, &[swap("a", Some(5), None)]).await;
    assert_eq!(late, Ok(vec![Swapped::Other(None)]));
}

/// The batch is larger than one transaction may be.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_is_large_is_done_in_parts() {
    let mut store = Store::of_an_etcd().await;
    let config =
        CellsConfig { timeout: Duration::from_secs(30), ..store.config.clone().expect("a configuration") };
    store.cells = Cells::new(&config).expect("a good configuration");
    let names: Vec<String> = (0..200).map(|n| format!("{n}{}", "x".repeat(500))).collect();
    let value = |n: usize| vec![n as u8; if n.is_multiple_of(80) { VALUE_MAX } else { 100 }];
    let make = names.iter().enumerate().map(|(n, name)| swap(name, None, Some(cell(n as u64, value(n)))));
    let made = store.try_swap(&make.collect::<Vec<_>>()).await;
    assert_eq!(made, Ok(vec![Swapped::Done; names.len()]));
    let (_, found) = store.cells.load(&names).await.expect("the store is there");
    for (n, found) in found.into_iter().enumerate() {
        assert_eq!(found, Some(cell(n as u64, value(n))), "{n}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_url_without_a_user_is_told() {
    let store = own().await;
    let config = store.config.as_ref().expect("a configuration");
    let nameless = config_of(config, &format!("etcd://{}", store.server().address()));
    let error = Cells::connect(&nameless).await.expect_err("the URL names no user").to_string();
    assert!(error.contains("not let in") && error.contains("the URL names no user"), "{error}");
}

/// A connection that was closed while it was unused is made again without an error, at one member or another.
#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_is_made_again() {
    let etcd = Etcd::start(&[]);
    let [first, second, _] = etcd.members() else { panic!("three") };
    let wire = Wire::to(first.address()).await;
    let config = config_of(&etcd.config("test"), &etcd.url_by(&wire.address().to_string()));
    let mut cells = Cells::connect(&config).await.expect("the store is there");
    let timeline = cells.timeline().await.expect("the store is there");
    for version in 0..6_u64 {
        wire.lead_to([second, first][version as usize % 2].address());
        // The wire ends the connection, and then the handle sees the end.
        settle().await;
        settle().await;
        let next = [swap("a", version.checked_sub(1), Some(cell(version, "one")))];
        assert_eq!(cells.swap(&timeline, &next).await, Ok(vec![Swapped::Done]));
    }
}

/// A handle whose token is not valid any more is let in again, over the same connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_was_taken_away_is_replaced() {
    let mut store = own().await;
    let timeline = store.timeline().await;
    let password = store.server().password();
    for version in 0..3_u64 {
        // Setting a password, even the same one, ends all tokens of the user.
        let change = format!("/v3/auth/user/changepw {{\"name\":\"root\",\"password\":\"{password}\"}}");
        store.server().tell(&change);
        let next = [swap("a", version.checked_sub(1), Some(cell(version, "one")))];
        assert_eq!(store.cells.swap(&timeline, &next).await, Ok(vec![Swapped::Done]));
    }
}

/// A killed etcd forgets its tokens, and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_started_again_it_is_the_one_it_was() {
    super::trouble::killed_and_started_again_it_is_the_one_it_was(own().await, 20).await;
}

/// The rights that docs/stores.md names are enough for a user, and fewer are reported.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_may_do_what_is_needed_can_do_all() {
    let store = own().await;
    let (server, mut config) = (store.server(), store.config.clone().expect("a configuration"));
    let (key, end) = (base64(&format!("{}/", config.prefix)), base64(&format!("{}0", config.prefix)));
    for told in [
        r#"/v3/auth/role/add {"name":"narrow"}"#,
        &format!(
            r#"/v3/auth/role/grant {{"name":"narrow","perm":{{"permType":"READWRITE","key":"{key}","range_end":"{end}"}}}}"#
        ),
        r#"/v3/auth/user/add {"name":"narrow","password":"na:rr@w"}"#,
        r#"/v3/auth/user/add {"name":"none","password":"none"}"#,
        r#"/v3/auth/user/grant {"user":"narrow","role":"narrow"}"#,
    ] {
        server.tell(told);
    }
    config.url = format!("etcd://narrow:na:rr%40w@{}", server.address()).parse().expect("a URL");
    let mut cells = Cells::connect(&config).await.expect("the user has the rights");
    let timeline = cells.timeline().await.expect("the user has the rights");
    for (expected, next) in [(None, Some(cell(1, "one"))), (Some(1), Some(cell(2, "two"))), (Some(2), None)] {
        assert_eq!(cells.swap(&timeline, &[swap("a", expected, next)]).await, Ok(vec![Swapped::Done]));
    }
    config.url = format!("etcd://none:none@{}", server.address()).parse().expect("a URL");
    let error = Cells::connect(&config).await.expect_err("the user lacks the rights");
    assert!(matches!(&error, CellsError::Unfit(text) if text.contains("permission denied")), "{error:?}");
    // The password may also be given apart from the URL.
    config.url = format!("etcd://narrow@{}", server.address()).parse().expect("a URL");
    config.password = Some(lessor_allocator::cells::Password::new("na:rr@w"));
    Cells::connect(&config).await.expect("the user has the rights");
}

/// A server without room reports that by its alarm.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_full_is_refused() {
    let quota = [("quota-backend-bytes", "200000")];
    let mut store = Store::on(Arc::new(tokio::task::block_in_place(|| Server::start(ETCD, &quota)))).await;
    let timeline = store.timeline().await;
    let mut full = None;
    // The server counts its size ten times a second.
    for n in 0..400 {
        let made = [swap(&format!("{n}"), None, Some(cell(1, vec![7; 50_000])))];
        if let Err(error) = store.cells.swap(&timeline, &made).await {
            full = Some(error);
            break;
        }
    }
    // This swap may have been done. Only the next one is certainly refused.
    assert!(
        matches!(&full, Some(CellsError::Unreachable(text)) if text.contains("database space exceeded")),
        "{full:?}"
    );
    let refused = Cells::connect(store.config.as_ref().expect("a configuration")).await;
    assert!(matches!(&refused, Err(CellsError::Unfit(text)) if text.contains("NOSPACE")), "{refused:?}");
}

/// A value that another program wrote under a cell's name is not taken for a cell.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_cell_is_not_taken_for_one() {
    let mut store = own().await;
    let prefix = store.config.clone().expect("a configuration").prefix;
    let long = base64(&"x".repeat(1_500_000));
    for (name, value) in [("short", "eA=="), ("long", long.as_str()), ("marked", "AAAAAAAAAAAC")] {
        let key = base64(&format!("{prefix}/{name}"));
        store.server().tell(&format!("/v3/kv/put {{\"key\":\"{key}\",\"value\":\"{value}\"}}"));
    }
    super::trouble::what_is_no_cell_is_not_taken_for_one(&mut store, &["short", "long", "marked"]).await;
}

/// etcd has no clock and says so, and it cannot be asked for replicas.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_it_does_not_have_is_told() {
    let mut store = Store::of_an_etcd().await;
    let mut config = store.config.clone().expect("a configuration");
    assert!(!config.url.has_clock());
    let time = store.cells.time().await;
    assert!(matches!(&time, Err(CellsError::Unfit(text)) if text.contains("etcd has no clock")), "{time:?}");
    config.replicas = 1;
    let error = Cells::new(&config).expect_err("etcd knows no replicas");
    assert!(matches!(&error, CellsError::Unfit(text) if text.contains("store.replicas is 1")), "{error:?}");
}
