//! Many keys that are called now and then, through the layer of a server: the answers to their calls, and the exchanges
//! that they cost.

use crate::log::Log;
use crate::middleware::said;
use axum::Router;
use axum::body::Body;
use axum::routing::any;
use lessor::http::{Request, Response};
use lessor::layer::LimitLayer;
use lessor::{Client, Refusal};
use lessor_protocol::Clock;
use scenarios::fleet::{Fleet, eventually};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;
use tonic::codegen::Service;
use tracing::Level;

const CONFIG: &str = r#"
[[limit]]
name = "user"
keyed = true
rules = [{ kind = "sliding_window", limit = 100, per = "60s" }]

[[limit]]
name = "open"
keyed = true
fallback = "open"
rules = [{ kind = "sliding_window", limit = 100, per = "60s" }]

[[limit]]
name = "closed"
keyed = true
rules = [{ kind = "sliding_window", limit = 100, per = "60s" }]

[[limit]]
name = "calls"
rules = [{ kind = "concurrency", limit = 1, longest = "60s" }]

[[limit]]
name = "bucket"
keyed = true
rules = [{ kind = "token_bucket", capacity = 20, refill = 20, per = "1h" }]

[[limit]]
name = "few"
keyed = true
keys_max = 10
rules = [{ kind = "sliding_window", limit = 100, per = "60s" }]
"#;

/// A service that answers 200, behind a layer whose patience is the default.
fn service(client: &Client, limit: &str) -> Router {
    let layer: LimitLayer<Body> = LimitLayer::new(client.limit(limit)).by_header("x-user");
    Router::new().fallback(any(async || "ok")).layer(layer)
}

async fn call(service: &mut Router, user: &str) -> Response<Body> {
    let request = Request::builder().header("x-user", user).body(Body::empty()).expect("a request");
    service.call(request).await.expect("a service that cannot fail")
}

/// A new key has no answer of the allocator yet. A call that does not wait is refused, and a check waits for the
/// answer.
#[tokio::test]
async fn a_check_of_a_new_key_waits_for_the_first_answer() {
    let fleet = Fleet::start(CONFIG).await;
    let client = fleet.client("a").await;
    let user = client.limit("user");
    assert!(user.try_acquire_key("ann", 1).is_err(), "no answer has come yet");
    for key in ["bob", "carol", "dan"] {
        assert_eq!(user.check_key(key, 1).await, Ok(()), "{key}");
        assert_eq!(user.key(key).check(1).await, Ok(()), "{key}");
    }
    let refused = user.check_key("bob", 1_000).await;
    assert_eq!(refused, Err(Refusal::TooLarge { limit: 100 }));
    client.shutdown().await;
    fleet.stop().await;
}

/// The bug: a call for nearly all permits was refused after four answers, each of which brought a part of them.
#[tokio::test]
async fn a_check_for_all_that_there_is_has_it() {
    let fleet = Fleet::start(CONFIG).await;
    let client = fleet.client("a").await;
    let user = client.limit("bucket");
    for permits in [18, 19, 20] {
        let key = format!("user-{permits}");
        assert_eq!(user.check_key(&key, permits).await, Ok(()), "{permits} of 20");
        assert_eq!(user.check_key(&key, 20 - permits).await, Ok(()), "the rest beside {permits}");
        let refused = user.check_key(&key, 1).await;
        assert!(matches!(refused, Err(Refusal::Empty { .. })), "{refused:?}");
    }
    client.shutdown().await;
    fleet.stop().await;
}

/// The bug: the client logged the names that strangers gave themselves, for each key that was refused and for each
/// invalid key.
#[test]
fn what_strangers_call_themselves_is_not_logged() {
    Log::of(Level::INFO, async |log| {
        let fleet = Fleet::start(CONFIG).await;
        let client = fleet.client("a").await;
        let server = service(&client, "few");
        // First more keys than the limit may have, then keys that are too long, then keys with a letter that no key may
        // contain.
        let names = (0..600).map(|number| match number {
            0..300 => format!("stranger-{number}"),
            300..450 => format!("stranger-{number}-{}", "x".repeat(2_000)),
            _ => format!("stranger-{number}-\u{1}").replace('\u{1}', "\t"),
        });
        let calls = names.map(|name| {
            let mut server = server.clone();
            async move { call(&mut server, &name).await.status().as_u16() }
        });
        let statuses = calls.collect::<JoinSet<u16>>().join_all().await;
        let served = statuses.iter().filter(|status| **status == 200).count();
        assert!((1..=20).contains(&served), "{served} of 600 keys were served, and the limit may have 10");
        client.shutdown().await;
        fleet.stop().await;
        let lines = log.lines();
        println!("{} lines of 600 strangers: {lines:#?}", lines.len());
        assert!(lines.iter().all(|line| !line.contains("stranger-")), "{lines:#?}");
        assert!(lines.len() <= 5, "{lines:#?}");
    });
}

/// The outcome of a load.
#[derive(Debug, Default)]
struct Load {
    statuses: BTreeMap<u16, u64>,
    waits: Vec<Duration>,
    /// Answers with 200 which said that no permit is left.
    zeros: u64,
}

/// Makes calls for `lasts` at three instances, by users who each call `per_1000_s` times in 1,000 s on average. Returns
/// their outcome, and the exchanges for each call.
async fn load(fleet: &Fleet, users: u32, per_1000_s: u32, lasts: Duration) -> (Load, f64) {
    let mut clients = vec![];
    for node in ["a", "b", "c"] {
        clients.push(fleet.client(node).await);
    }
    let services: Vec<Router> = clients.iter().map(|client| service(client, "user")).collect();
    let (clock, load) = (Clock::since_boot(), Arc::new(Mutex::new(Load::default())));
    let (mut rng, mut calls) = (fastrand::Rng::with_seed(7), JoinSet::new());
    let began = clock.now();
    let rate = f64::from(users) * f64::from(per_1000_s) / 1_000.0;
    let (mut at, mut count) = (0.0, 0u32);
    while at < lasts.as_secs_f64() {
        at += -(1.0 - rng.f64()).ln() / rate;
        let wait = (began + Duration::from_secs_f64(at)).since(clock.now());
        tokio::time::sleep(wait).await;
        let (mut service, user) = (services[rng.usize(..3)].clone(), format!("u{}", rng.u32(..users)));
        let load = load.clone();
        calls.spawn(async move {
            let sent = clock.now();
            let response = call(&mut service, &user).await;
            let mut load = load.lock().expect("nothing panics while it is held");
            load.waits.push(clock.now().since(sent));
            *load.statuses.entry(response.status().as_u16()).or_default() += 1;
            let is_zero = said(response.headers(), "ratelimit").contains("r=0");
            load.zeros += u64::from(is_zero && response.status() == 200);
        });
        count += 1;
    }
    calls.join_all().await;
    let exchanges: u64 = clients.iter().map(|client| client.stats().exchanges).sum();
    for client in clients {
        client.shutdown().await;
    }
    let mut load = std::mem::take(&mut *load.lock().expect("nothing panics while it is held"));
    load.waits.sort();
    (load, exchanges as f64 / f64::from(count))
}

fn shown(users: u32, load: &Load, cost: f64) {
    let at = |percent: usize| load.waits[(load.waits.len() - 1) * percent / 100];
    println!(
        "{users} users: {:?}, {cost:.2} exchanges a call, waits p50 {:?} p99 {:?}, {} with r=0",
        load.statuses,
        at(50),
        at(99),
        load.zeros
    );
}

/// The bug: a key that held nothing was refused although the fleet had permits for it, and each call cost two
/// exchanges.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_within_their_limit_are_served_and_cost_less_than_an_exchange_each() {
    let fleet = Fleet::start(CONFIG).await;
    let (rare, cost) = load(&fleet, 4_000, 100, Duration::from_secs(8)).await;
    shown(4_000, &rare, cost);
    let (busy, busy_cost) = load(&fleet, 400, 1_200, Duration::from_secs(4)).await;
    shown(400, &busy, busy_cost);
    fleet.stop().await;
    for load in [&rare, &busy] {
        assert_eq!(load.statuses.keys().collect::<Vec<_>>(), [&200], "{:?}", load.statuses);
        assert_eq!(load.zeros, 0, "an answer of 200 says r=0 where the limit has room");
    }
    assert!(cost <= 0.6, "{cost} exchanges a call");
}

/// The bug: in an outage, a new key was refused by a limit with `fallback = "open"`, and with 429 by a closed one.
#[tokio::test]
async fn keys_that_are_new_in_an_outage_do_what_their_limit_does() {
    let fleet = Fleet::start(CONFIG).await;
    let client = fleet.client("a").await;
    let (mut open, mut closed) = (service(&client, "open"), service(&client, "closed"));
    for service in [&mut open, &mut closed] {
        eventually("a first key", async || (call(service, "known").await.status() == 200).then_some(()))
            .await;
    }
    fleet.stop().await;
    let (known, closed_too) = (client.limit("open").key("known"), client.limit("closed").key("known"));
    eventually("an outage", async || {
        let _ = closed_too.try_acquire(1);
        known.try_acquire(1).is_ok_and(|()| known.fallback_passed() > 0).then_some(())
    })
    .await;
    for user in ["new", "newer"] {
        assert_eq!(call(&mut open, user).await.status(), 200, "{user}");
        client.limit("open").try_acquire_key(&format!("{user}-key"), 1).expect("everything passes");
        let refused = call(&mut closed, user).await;
        assert_eq!(refused.status(), 503, "{user}");
        let wait: u64 = said(refused.headers(), "retry-after").parse().expect("whole seconds");
        assert!((1..=60).contains(&wait), "{wait}");
    }
    client.shutdown().await;
}

/// The bug: the layer only acquired, so a request counted as in flight for as long as a call may take.
#[tokio::test]
async fn a_request_is_in_flight_until_it_is_answered() {
    let fleet = Fleet::start(CONFIG).await;
    let client = fleet.client("a").await;
    let layer: LimitLayer<Body> = LimitLayer::new(client.limit("calls"));
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let waits = gate.clone();
    let handler = any(move || async move {
        waits.acquire().await.expect("the semaphore is never closed").forget();
        "ok"
    });
    let mut server = Router::new().fallback(handler).layer(layer);
    for round in 0..3 {
        let mut first = server.clone();
        let first = tokio::spawn(async move { call(&mut first, "x").await.status() });
        // Long enough for the first answer of the allocator.
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(call(&mut server, "x").await.status(), 429, "only one call in flight is allowed");
        gate.add_permits(1);
        assert_eq!(first.await.expect("no panic"), 200, "round {round}");
    }
    client.shutdown().await;
    fleet.stop().await;
}

#[tokio::test]
async fn an_address_with_a_password_is_refused_and_not_shown() {
    let error =
        Client::connect("http://user:secret@127.0.0.1:1").await.expect_err("the URL holds a password");
    assert!(error.to_string().contains("leave them out") && !error.to_string().contains("secret"), "{error}");
}

/// The sum of the metrics of the allocator whose lines have all of `parts`.
async fn counted(fleet: &Fleet, parts: &[&str]) -> u64 {
    let text = reqwest::get(format!("{}/metrics", fleet.url)).await.expect("the server answers");
    let text = text.text().await.expect("text");
    let lines = text.lines().filter(|line| parts.iter().all(|part| line.contains(part)));
    let counted: f64 = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum();
    counted as u64
}

/// Calls 2,000 keys of `limit` once each, and expects that the client soon asks for none of them any more. The metrics
/// count an ask that is refused in the line with all of `parts`.
async fn refused_once(fleet: &Fleet, client: &Client, limit: &str, parts: &[&str]) {
    let limit = client.limit(limit);
    for key in 0..2_000 {
        let _ = limit.try_acquire_key(&format!("k{key}"), 1);
    }
    let asked = async || counted(fleet, parts).await;
    eventually("each key was asked for once", async || (asked().await >= 1_990).then_some(())).await;
    tokio::time::sleep(Duration::from_secs(13)).await;
    let asked = asked().await;
    println!("{asked} asks for 2000 keys, each called once");
    assert!(asked < 3_000, "{asked} asks for 2000 keys, each called once");
    assert!(!matches!(limit.try_acquire_key("k1999", 1), Err(Refusal::Closed)));
}

/// The bug: a client asked again every five seconds, for ever, for keys that the allocator refuses, and for each key
/// that was called once while its limit was paused.
#[tokio::test]
async fn keys_that_are_refused_or_paused_are_asked_for_once() {
    let fleet = Fleet::start(CONFIG).await;
    let client = fleet.client("a").await;
    let pause = reqwest::Client::new().post(format!("{}/v1/limits/user/pause", fleet.url));
    let pause = pause.header("content-type", "application/json").body("{}").send().await;
    assert!(pause.expect("the server answers").status().is_success());
    tokio::join!(
        refused_once(&fleet, &client, "few", &["lessor_asks_wrong", "keys_full"]),
        refused_once(&fleet, &client, "user", &["lessor_asks_total", "paused"]),
    );
    client.shutdown().await;
    fleet.stop().await;
}
