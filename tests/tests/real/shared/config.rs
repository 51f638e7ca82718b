//! Limits that operators put and remove by the API of one allocator hold for all allocators of a store. This includes
//! allocators that start later, and holds after the store was emptied.

use super::{CLOCK, LIMIT, PER, Store, Two, USED_PERCENT, call_for};
use lessor::Client;
use lessor_allocator::cells::{Cell, Cells, StoreKind, Swap, Swapped};
use lessor_ledger::overrides::{LimitOverrides, Version};
use lessor_ledger::roots::OVERRIDES;
use rustix::process::Signal;
use scenarios::fleet::eventually;
use scenarios::process::Allocator;
use scenarios::vendor::Vendor;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

/// Longest time until all allocators follow a decision, on a machine that is busy with other work. They look four times
/// a second.
const SOON: Duration = Duration::from_secs(2);

/// Returns rules with `limit` calls in any second.
fn rules(limit: u64) -> Value {
    json!({ "rules": [{ "kind": "sliding_window", "limit": limit, "per": "1s", "margin": "50ms" }] })
}

/// Returns the least use of `limit` in this many seconds. Each window is used up at its beginning, so the measured
/// seconds may begin just after one and end just before another.
fn least(limit: u64, seconds: u64) -> u64 {
    (seconds - 1) * limit * USED_PERCENT / 100
}

/// Sends a request about a limit. Returns the status of the answer, and its etag or "".
async fn tell(method: &str, url: &str, name: &str, seen: Option<&str>, body: Option<Value>) -> (u16, String) {
    let method = method.parse().expect("a method");
    let mut request = reqwest::Client::new().request(method, format!("{url}/v1/limits/{name}?confirm=true"));
    if let Some(seen) = seen {
        request = request.header("if-match", seen);
    }
    if let Some(body) = body {
        request = request.header("content-type", "application/json").body(body.to_string());
    }
    let answer = request.send().await.expect("the server answers");
    let etag = answer.headers().get("etag").map(|etag| etag.to_str().expect("text").to_owned());
    (answer.status().as_u16(), etag.unwrap_or_default())
}

/// Puts a limit. A store that answers too slowly for its clock to be used is asked again.
async fn put(url: &str, name: &str, limit: u64) -> (u16, String) {
    let seen = (tell("GET", url, name, None, None).await.0 == 200).then_some("*");
    eventually("the limit is put", async || {
        let answer = tell("PUT", url, name, seen, Some(rules(limit))).await;
        (answer.0 != 503).then_some(answer)
    })
    .await
}

/// Waits until the allocator at `url` gives this answer about a limit. Returns how long that took.
async fn comes(url: &str, name: &str, answer: &(u16, String)) -> Duration {
    let began = CLOCK.now();
    eventually("the allocator follows the change", async || {
        (tell("GET", url, name, None, None).await == *answer).then_some(())
    })
    .await;
    CLOCK.now().since(began)
}

fn unknown() -> (u16, String) {
    (404, String::new())
}

fn shown(answer: &(u16, String)) -> (u16, String) {
    (200, answer.1.clone())
}

async fn what_is_put_and_removed_at_one_is_so_at_all(kind: StoreKind) {
    let store = Store::shared(kind, "put").await;
    let (east, west) = (store.allocator("east").await, store.allocator("west").await);
    let client = west.client("b").await;
    let made = put(&east.url, "new", LIMIT).await;
    assert_eq!(made.0, 201);
    let took = comes(&west.url, "new", &shown(&made)).await;
    client.limit("new").acquire_within(1, Duration::from_secs(5)).await.expect("the allocator lends");
    // An operator who saw the limit at one allocator can change it at the other.
    let changed = tell("PUT", &west.url, "new", Some(&made.1), Some(rules(LIMIT / 2))).await;
    assert_eq!(changed.0, 200);
    let again = comes(&east.url, "new", &shown(&changed)).await;
    let removed = tell("DELETE", &east.url, "brief", Some("*"), None).await;
    assert_eq!(removed.0, 204);
    let gone = comes(&west.url, "brief", &unknown()).await;
    println!("{kind:?}: followed {took:?}, {again:?} and {gone:?} after the answer");
    assert!(took.max(again).max(gone) < SOON);
    let north = store.allocator("north").await;
    comes(&north.url, "new", &shown(&changed)).await;
    comes(&north.url, "brief", &unknown()).await;
    for allocator in [east, west, north] {
        allocator.stop().await;
    }
}

/// The rules change while both allocators are in full use.
async fn changed_rules_hold_at_all_and_none_too_many_are_admitted(kind: StoreKind) {
    let store = Store::shared(kind, "changed").await;
    let Two { east, west, limits, vendor: before, .. } = store.two().await;
    call_for(&before, &limits, PER).await.expect("the allocator lends");
    let (lowered, _) = tokio::join!(put(&east.url, "vendor", LIMIT / 4), call_for(&before, &limits, 2 * PER));
    assert_eq!(lowered.0, 200);
    // By now all permits lent under the old rules have ended and left their window.
    let after = Vendor::new(LIMIT / 4, PER);
    call_for(&after, &limits, 3 * PER).await.expect("the allocator lends");
    assert_eq!((before.breach(), after.breach()), (None, None));
    assert!(after.count() >= least(LIMIT / 4, 3), "{} of {LIMIT}", after.count());
    assert_eq!(put(&west.url, "vendor", LIMIT).await.0, 200);
    sleep(SOON).await;
    let raised = Vendor::new(LIMIT, PER);
    call_for(&raised, &limits, 2 * PER).await.expect("the allocator lends");
    println!("{kind:?}: {} of {LIMIT} in 3 s by a quarter, {} in 2 s by all", after.count(), raised.count());
    assert_eq!(raised.breach(), None);
    assert!(raised.count() >= least(LIMIT, 2), "{} of {}", raised.count(), 2 * LIMIT);
    east.stop().await;
    west.stop().await;
}

async fn a_store_that_is_emptied_is_told_again(kind: StoreKind) {
    let store = Store::own(kind).await;
    let (east, west) = (store.allocator("east").await, store.allocator("west").await);
    let made = put(&east.url, "new", LIMIT).await;
    assert_eq!(tell("DELETE", &west.url, "brief", Some("*"), None).await.0, 204);
    comes(&east.url, "brief", &unknown()).await;
    store.empty(kind);
    sleep(SOON).await;
    let north = store.allocator("north").await;
    let took =
        comes(&north.url, "new", &shown(&made)).await.max(comes(&north.url, "brief", &unknown()).await);
    assert!(took < SOON, "a new allocator learned of the limits only after {took:?}");
    for allocator in [east, west, north] {
        allocator.stop().await;
    }
}

/// The only allocator that knows the decisions is stopped when the store is emptied, and another one decides something
/// else meanwhile.
async fn what_one_knows_and_what_others_decided_since_both_hold(kind: StoreKind) {
    let store = Store::own(kind).await;
    let east = Allocator::start(&store.config("east", LIMIT, 1), "127.0.0.1:0", true);
    let made = put(&east.url, "made", LIMIT).await;
    let both = put(&east.url, "both", LIMIT).await;
    let changed = put(&east.url, "both", LIMIT / 2).await;
    assert_eq!((made.0, both.0, changed.0), (201, 201, 200));
    east.running.signal(Signal::STOP);
    store.empty(kind);
    let west = store.allocator("west").await;
    let since = put(&west.url, "since", LIMIT).await;
    assert_eq!((since.0, put(&west.url, "both", LIMIT).await.0), (201, 201));
    east.running.signal(Signal::CONT);
    for url in [&east.url, &west.url] {
        for (name, answer) in [("made", &made), ("both", &changed), ("since", &since)] {
            assert!(comes(url, name, &shown(answer)).await < 6 * SOON, "{name}");
        }
    }
    west.stop().await;
}

/// This also holds while the root is in use, by an allocator with the older file.
async fn a_newer_file_wins_over_what_was_put_and_what_is_put_after_it_over_that(kind: StoreKind) {
    let store = Store::shared(kind, "files").await;
    let old = store.allocator("old").await;
    let mut new = Allocator::start(&store.config("new", LIMIT, 1), "127.0.0.1:0", true);
    let newer = Client::builder(&new.url).node("a").connect().await.expect("the allocator answers");
    let clients = [old.client("b").await, newer];
    let limits = clients.each_ref().map(|client| client.limit("vendor"));
    // Calls while the change takes effect, and then under the new limit alone.
    let goes_by = async |limit: u64| {
        let (during, vendor) = (Vendor::new(LIMIT, PER), Vendor::new(limit, PER));
        call_for(&during, &limits, 2 * PER).await.expect("the allocator lends");
        call_for(&vendor, &limits, 2 * PER).await.expect("the allocator lends");
        assert_eq!((during.breach(), vendor.breach()), (None, None));
        assert!(vendor.count() >= least(limit, 2), "{} of {}", vendor.count(), 2 * limit);
    };
    let of_file = tell("GET", &new.url, "vendor", None, None).await;
    let made = put(&old.url, "made", LIMIT).await;
    let first = put(&old.url, "vendor", LIMIT / 4).await;
    comes(&new.url, "vendor", &shown(&first)).await;
    goes_by(LIMIT / 4).await;
    // The new file has the same rules of this limit as before, and does not have the other limit.
    new.rewrite(&store.config("new", LIMIT, 2));
    comes(&new.url, "vendor", &of_file).await;
    assert_eq!(
        tell("GET", &new.url, "made", None, None).await,
        shown(&made),
        "a limit stays until its removal is asked for"
    );
    new.running.signal(Signal::HUP);
    comes(&new.url, "made", &unknown()).await;
    goes_by(LIMIT).await;
    assert_eq!(
        tell("GET", &old.url, "made", None, None).await,
        shown(&made),
        "the file of the old allocator is not newer"
    );
    let second = put(&old.url, "vendor", LIMIT / 2).await;
    comes(&new.url, "vendor", &shown(&second)).await;
    goes_by(LIMIT / 2).await;
    new = new.restart();
    comes(&new.url, "vendor", &shown(&second)).await;
    goes_by(LIMIT / 2).await;
    for client in clients {
        client.shutdown().await;
    }
    old.stop().await;
}

/// The bug: a file that went back to earlier rules under a lower version changed nothing, and each view showed its rules
/// as if they held.
async fn a_file_that_is_rolled_back_to_a_lower_version_is_warned_of(kind: StoreKind) {
    let store = Store::shared(kind, "rolled-back").await;
    let allocator = Allocator::start(&store.config("east", 2 * LIMIT, 2), "127.0.0.1:0", true);
    let get = async |path: &str| {
        let answer = reqwest::get(format!("{}{path}", allocator.url)).await.expect("the server answers");
        answer.text().await.expect("text")
    };
    let goes_by = async |version: u64| {
        eventually("it signs the head", async || {
            let expected = format!("\nlessor_store_config_version {version}\n");
            get("/metrics").await.contains(&expected).then_some(())
        })
        .await;
    };
    goes_by(2).await;
    assert!(!get("/v1/status").await.contains("raise store.version"));
    for (version, warns) in [(1, true), (3, false)] {
        allocator.rewrite(&store.config("east", LIMIT, version));
        allocator.running.signal(Signal::HUP);
        eventually("it goes by its file", async || {
            let expected = format!("\nlessor_config_version {version}\n");
            get("/metrics").await.contains(&expected).then_some(())
        })
        .await;
        goes_by(version.max(2)).await;
        let status = get("/v1/status").await;
        assert_eq!(status.contains("raise store.version above 2"), warns, "{status}");
    }
}

async fn of_two_operators_who_saw_the_same_one_is_told_so(kind: StoreKind) {
    let store = Store::shared(kind, "operators").await;
    let (east, west) = (store.allocator("east").await, store.allocator("west").await);
    let mut seen = put(&east.url, "new", LIMIT).await.1;
    for round in 1..=8 {
        comes(&west.url, "new", &(200, seen.clone())).await;
        comes(&east.url, "new", &(200, seen.clone())).await;
        let change = |url, limit| tell("PUT", url, "new", Some(seen.as_str()), Some(rules(limit)));
        let (one, other) =
            tokio::join!(change(&east.url, LIMIT + round), change(&west.url, 2 * LIMIT + round));
        let mut statuses = [one.0, other.0];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 412], "round {round}");
        seen = if one.0 == 200 { one.1 } else { other.1 };
    }
    east.stop().await;
    west.stop().await;
}

async fn who_was_told_is_killed_at_once_and_the_other_one_knows(kind: StoreKind) {
    let store = Store::shared(kind, "told").await;
    let west = store.allocator("west").await;
    // The killed allocator may be the only one that knew the time of a store without a clock. Then another life of the
    // time begins two seconds later.
    let soon = if kind == StoreKind::Etcd { SOON * 2 } else { SOON };
    for round in 0..3 {
        let east = Allocator::start(&store.config("east", LIMIT, 1), "127.0.0.1:0", true);
        let name = format!("new-{round}");
        let made = put(&east.url, &name, LIMIT).await;
        assert_eq!(made.0, 201);
        east.running.kill();
        assert!(comes(&west.url, &name, &shown(&made)).await < soon, "round {round}");
    }
    // The store as an allocator leaves it if it is killed between its two swaps.
    let mut cells = Cells::new(&store.server.config(&store.prefix)).expect("a good configuration");
    let (timeline, found) = cells.load(&[OVERRIDES.to_owned()]).await.expect("the store is there");
    let cell = found.into_iter().next().flatten().expect("something was put");
    let mut overrides = LimitOverrides::read(&cell.value).expect("ours");
    overrides.decide("new-0", Version::of_file(1), None).expect("there is room");
    let next = Some(Cell { version: cell.version + 1, value: overrides.write() });
    let swap = Swap { name: OVERRIDES.to_owned(), expected: Some(cell.version), next };
    assert_eq!(cells.swap(&timeline, &[swap]).await, Ok(vec![Swapped::Done]));
    comes(&west.url, "new-0", &unknown()).await;
    west.stop().await;
}

on_stores!(
    redis: a_file_that_is_rolled_back_to_a_lower_version_is_warned_of,
        of_two_operators_who_saw_the_same_one_is_told_so,
        who_was_told_is_killed_at_once_and_the_other_one_knows;
    postgres: a_newer_file_wins_over_what_was_put_and_what_is_put_after_it_over_that,
        what_is_put_and_removed_at_one_is_so_at_all,
        what_one_knows_and_what_others_decided_since_both_hold;
    etcd: a_store_that_is_emptied_is_told_again,
        changed_rules_hold_at_all_and_none_too_many_are_admitted,
        who_was_told_is_killed_at_once_and_the_other_one_knows;
);
