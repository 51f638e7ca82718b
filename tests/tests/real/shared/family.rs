//! Limits of a shared store that are below others. A permit of the lower limit is charged to both, whichever allocator
//! lends it. An allocator that does not know of the upper limit is lent nothing.

use super::{CLOCK, LIMIT, PER, Store, call_until};
use lessor::{Client, Limit};
use lessor_allocator::cells::StoreKind;
use scenarios::fleet::{Fleet, eventually};
use scenarios::vendor::Vendor;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::join;
use tokio::time::sleep;

/// Permits a second of each of two limits below the vendor's, and of a key of a limit that is below another keyed
/// limit.
const EACH: u64 = LIMIT * 3 / 4;
const USER: u64 = 30;

/// Percent of the upper limit that must be used. A lease of one lower limit may lie unused while the other could use
/// it.
const USED_PERCENT: u64 = 75;

/// Returns the limits, with `of_a` beside the rules of `a`.
fn limits(of_a: &str) -> String {
    let limit = |name: &str, limit: u64, more: &str| {
        format!(
            "[[limit]]\nname = {name:?}\n{more}\n\
             rules = [{{ kind = \"sliding_window\", limit = {limit}, per = \"1s\", margin = \"50ms\" }}]\n"
        )
    };
    limit("all", LIMIT, "")
        + &limit("a", EACH, of_a)
        + &limit("b", EACH, "parent = \"all\"")
        + &limit("tenant", 2 * USER, "keyed = true")
        + &limit("user", USER, "keyed = true\nparent = \"tenant\"")
}

const BELOW: &str = "parent = \"all\"";

impl Store {
    /// Starts an allocator called `node` with the configuration `version`, which has `of_a` beside the rules of `a`.
    async fn family(&self, node: &str, version: u64, of_a: &str) -> Fleet {
        Fleet::start(&(self.head(&self.server.url(), node, version) + &limits(of_a))).await
    }
}

/// Calls both limits through both clients as often as possible for `span`. Returns a vendor for each of `names`, with
/// the calls that were admitted.
async fn call(
    clients: &[Client; 2],
    names: [(&str, Option<&str>); 2],
    each: u64,
    span: Duration,
) -> [Vendor; 2] {
    let vendors = [Vendor::new(each, PER), Vendor::new(each, PER)];
    let limit = |client: &Client, (name, key): (&str, Option<&str>)| -> Limit {
        let limit = client.limit(name);
        key.map(|key| limit.key(key)).unwrap_or(limit)
    };
    let limits = clients.each_ref().map(|client| names.map(|name| limit(client, name)));
    let until = CLOCK.now() + span;
    join!(
        call_until(&vendors[0], &limits[0][0], until),
        call_until(&vendors[1], &limits[0][1], until),
        call_until(&vendors[0], &limits[1][0], until),
        call_until(&vendors[1], &limits[1][1], until),
    );
    vendors
}

/// Returns a vendor of `limit` calls in any second with the admissions of both.
fn together(vendors: &[Vendor; 2], limit: u64) -> Vendor {
    let both = Vendor::new(limit, PER);
    vendors.iter().for_each(|vendor| both.merge(vendor));
    both
}

pub(super) async fn what_is_below_is_charged_above_too(kind: StoreKind) {
    let store = Store::shared(kind, "family").await;
    let (east, west) = (store.family("east", 1, BELOW).await, store.family("west", 1, BELOW).await);
    let clients = [east.client("x").await, west.client("y").await];
    let stalls = store.stalls();
    let own = call(&clients, [("a", None), ("b", None)], EACH, 6 * PER).await;
    let least = stalls.least_used(USED_PERCENT, LIMIT, 6 * PER);
    let all = together(&own, LIMIT);
    println!("{kind:?}: {} and {} of {} below {}", own[0].count(), own[1].count(), 6 * EACH, 6 * LIMIT);
    assert_eq!((own[0].breach(), own[1].breach(), all.breach()), (None, None, None));
    assert!(all.count() >= least, "{} of {least}", all.count());
    let users = [("user", Some("acme/ann")), ("user", Some("acme/bob"))];
    let stalls = store.stalls();
    let own = call(&clients, users, USER, 4 * PER).await;
    let least = stalls.least_used(USED_PERCENT, 2 * USER, 4 * PER);
    let all = together(&own, 2 * USER);
    println!("{kind:?}: {} and {} of {} by key", own[0].count(), own[1].count(), 4 * USER);
    assert_eq!((own[0].breach(), own[1].breach(), all.breach()), (None, None, None));
    assert!(all.count() >= least, "{} of {least}", all.count());
    for client in clients {
        client.shutdown().await;
    }
    east.stop().await;
    west.stop().await;
}

/// A new configuration puts a limit below another one. Allocators without it would charge only one of both.
async fn who_does_not_know_of_a_limit_above_is_lent_nothing(kind: StoreKind) {
    let store = Store::shared(kind, "unknown").await;
    let old = store.family("old", 1, "").await;
    let (client, patience) = (old.client("x").await, Duration::from_millis(100));
    let a = client.limit("a");
    eventually("the limit is lent", async || a.acquire_within(1, patience).await.ok()).await;
    let new = store.family("new", 2, BELOW).await;
    let knows = new.client("y").await;
    eventually("the newer allocator lends the limit", async || {
        knows.limit("a").acquire_within(1, patience).await.ok()
    })
    .await;
    // By now all permits lent before have ended.
    sleep(Duration::from_secs(3)).await;
    let vendor = Vendor::new(0, PER);
    call_until(&vendor, &a, CLOCK.now() + 2 * PER).await;
    assert_eq!(vendor.count(), 0, "the older allocator still lends the limit below another");
    let all = client.limit("all");
    eventually("the older allocator lends other limits", async || all.acquire_within(1, patience).await.ok())
        .await;
    let both = [knows, client];
    let own = call(&both, [("a", None), ("b", None)], EACH, 2 * PER).await;
    assert_eq!(together(&own, LIMIT).breach(), None);
    assert!(own[0].count() > 0);
    for client in both {
        client.shutdown().await;
    }
    old.stop().await;
    new.stop().await;
}

/// Puts a limit. Returns the status and the body of the answer.
async fn put(url: &str, name: &str, parent: Option<&str>) -> (u16, Value) {
    let mut body =
        json!({ "rules": [{ "kind": "sliding_window", "limit": EACH, "per": "1s", "margin": "50ms" }] });
    body["parent"] = parent.map_or(Value::Null, |parent| json!(parent));
    if parent.is_none() {
        body.as_object_mut().expect("a JSON object").remove("parent");
    }
    let request = reqwest::Client::new().put(format!("{url}/v1/limits/{name}")).header("if-match", "*");
    let request = request.header("content-type", "application/json").body(body.to_string());
    let answer = request.send().await.expect("the server answers");
    let status = answer.status().as_u16();
    (status, serde_json::from_str(&answer.text().await.expect("text")).expect("JSON"))
}

async fn a_family_that_is_put_at_one_is_one_at_all(kind: StoreKind) {
    let store = Store::shared(kind, "kin").await;
    let (east, west) = (store.family("east", 1, "").await, store.family("west", 1, "").await);
    assert_eq!(put(&east.url, "a", Some("all")).await.0, 200);
    eventually("the other allocator follows", async || {
        let shown = reqwest::get(format!("{}/v1/limits/a", west.url)).await.ok()?.text().await.ok()?;
        let shown: Value = serde_json::from_str(&shown).ok()?;
        (shown["parent"] == "all").then_some(())
    })
    .await;
    // These are refused at either allocator: a parent in a circle, and a parent that does not exist.
    for (name, parent) in [("all", "a"), ("b", "absent")] {
        let (status, problem) = put(&west.url, name, Some(parent)).await;
        assert_eq!((status, &problem["field"]), (422, &json!("parent")), "{problem}");
    }
    let gone = reqwest::Client::new().delete(format!("{}/v1/limits/all", west.url)).header("if-match", "*");
    let gone = gone.send().await.expect("the server answers");
    assert_eq!(gone.status().as_u16(), 409, "a limit with limits below it was removed");
    let clients = [east.client("x").await, west.client("y").await];
    sleep(Duration::from_secs(3)).await;
    let own = call(&clients, [("a", None), ("b", None)], EACH, 3 * PER).await;
    assert_eq!(together(&own, LIMIT).breach(), None);
    assert!(own[0].count() > 0 && own[1].count() > 0);
    for client in clients {
        client.shutdown().await;
    }
    east.stop().await;
    west.stop().await;
}

on_stores! {
    redis: a_family_that_is_put_at_one_is_one_at_all;
    postgres: who_does_not_know_of_a_limit_above_is_lent_nothing;
}
