//! The whole fleet follows what one node learns from the vendor: the shipping client against the shipping server.

use lessor::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use lessor::{Client, Event, Limit, Refusal};
use lessor_protocol::CLOCK;
use scenarios::fleet::{Fleet, eventually};
use serde_json::Value;
use std::time::Duration;
use tokio::time::sleep;

const CONFIG: &str = r#"
[[limit]]
name = "vendor/rest"
vendor = { ease = "100ms" }
rules = [{ kind = "sliding_window", limit = 9000, per = "30s" }]

[[limit]]
name = "user"
keyed = true
vendor = { ease = "100ms" }
rules = [{ kind = "sliding_window", limit = 900, per = "30s" }]

[[limit]]
name = "deaf"
vendor = { believe = "off" }
rules = [{ kind = "sliding_window", limit = 9000, per = "30s" }]
"#;

/// How long anything may take on a machine that is busy with other work.
const PATIENCE: Duration = Duration::from_secs(30);

async fn client(url: &str, name: &str) -> Client {
    let client = Client::builder(url).node(name).connect().await.expect("the allocator answers");
    let end = CLOCK.now() + PATIENCE;
    while client.stats().listening < 1 {
        assert!(CLOCK.now() < end, "{name} has no event stream");
        sleep(Duration::from_millis(5)).await;
    }
    client
}

fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
    let line = |(name, value): &(&'static str, &'static str)| {
        (HeaderName::from_static(name), HeaderValue::from_static(value))
    };
    lines.iter().map(line).collect()
}

async fn shown(url: &str, limit: &str) -> Value {
    let url = format!("{url}/v1/limits/{}", limit.replace('/', "%2F"));
    let answer = reqwest::get(url).await.expect("the server answers");
    serde_json::from_str(&answer.text().await.expect("text")).expect("JSON")
}

/// Tries calls until `is_it` holds of an answer of `limit`.
async fn until(limit: &Limit, is_it: impl Fn(Result<(), Refusal>) -> bool) {
    let end = CLOCK.now() + PATIENCE;
    while !is_it(limit.try_acquire(1)) {
        assert!(CLOCK.now() < end, "not in time, the last answer is {:?}", limit.try_acquire(1));
        sleep(Duration::from_millis(2)).await;
    }
}

fn is_paused(answer: Result<(), Refusal>) -> bool {
    matches!(answer, Err(Refusal::Paused { .. }))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_node_is_refused_stops_all_of_them_and_they_come_back_by_themselves() {
    let fleet = Fleet::start(CONFIG).await;
    let url = fleet.url.as_str();
    let (one, other) = (client(url, "one").await, client(url, "other").await);
    let (sees, hears) = (one.limit("vendor/rest"), other.limit("vendor/rest"));
    for limit in [&sees, &hears] {
        limit.acquire_within(1, PATIENCE).await.expect("there is plenty");
    }
    let exchanges = one.stats().exchanges;
    let mut events = one.events();
    sees.observe(StatusCode::OK, &headers(&[("content-type", "text/plain")]));
    sees.observe(StatusCode::TOO_MANY_REQUESTS, &headers(&[("retry-after", "1")]));
    assert!(sees.try_acquire(1).is_err(), "the client that saw it stops at once");
    until(&hears, is_paused).await;
    // The other process may hear of it before this one has counted the answer to its report.
    let reported = async || (one.stats().exchanges > exchanges).then_some(());
    eventually("the client reported the refusal", reported).await;
    let told = Event::VendorDisagreed { limit: "vendor/rest".into() };
    let heard = eventually("the event comes in this process, too", async || events.try_next()).await;
    assert_eq!(heard, told, "it is the first one");
    let paused = shown(url, "vendor/rest").await;
    assert_eq!(paused["vendor_paused_pools"], 1, "{paused}");
    assert_eq!(paused["vendor_disagreed"]["refused"], 1);
    assert_eq!(paused["outstanding"], 0, "everything came back");
    for limit in [&sees, &hears] {
        until(limit, |answer| answer.is_ok()).await;
    }
    let after = shown(url, "vendor/rest").await;
    assert_eq!(
        (&after["vendor_paused_pools"], &after["vendor_disagreed"]["refused"]),
        (&0.into(), &1.into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_contract_that_one_node_sees_lowered_is_lowered_for_all() {
    let fleet = Fleet::start(CONFIG).await;
    let url = fleet.url.as_str();
    let one = client(url, "one").await;
    let limit = one.limit("vendor/rest");
    limit.acquire_within(1, PATIENCE).await.expect("there is plenty");
    let said = [("ratelimit-policy", "\"rest\";q=4500;w=30"), ("ratelimit", "\"rest\";r=4000;t=30")];
    limit.observe(StatusCode::OK, &headers(&said));
    let end = CLOCK.now() + PATIENCE;
    loop {
        let shown = shown(url, "vendor/rest").await;
        if shown["vendor_withheld"].as_u64() >= Some(4_500) {
            assert!(shown["available"].as_u64() <= Some(4_500), "{shown}");
            assert_eq!(shown["vendor_disagreed"]["lower_limit"], 1, "{shown}");
            break;
        }
        assert!(CLOCK.now() < end, "{shown}");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_of_one_key_is_no_other_key_s() {
    let fleet = Fleet::start(CONFIG).await;
    let url = fleet.url.as_str();
    let (one, other) = (client(url, "one").await, client(url, "other").await);
    let (sees, hears) = (one.limit("user").key("a"), other.limit("user").key("a"));
    let apart = other.limit("user").key("b");
    for limit in [&sees, &hears, &apart] {
        limit.acquire_within(1, PATIENCE).await.expect("there is plenty");
    }
    sees.observe(StatusCode::TOO_MANY_REQUESTS, &headers(&[("retry-after", "20")]));
    until(&hears, is_paused).await;
    assert_eq!(apart.acquire_within(1, Duration::from_secs(5)).await, Ok(()));
}

/// A vendor that is not believed is only counted. The client that was refused asks again, and goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_believes_no_vendor_goes_on() {
    let fleet = Fleet::start(CONFIG).await;
    let url = fleet.url.as_str();
    let one = client(url, "one").await;
    let limit = one.limit("deaf");
    limit.acquire_within(1, PATIENCE).await.expect("there is plenty");
    limit.observe(StatusCode::TOO_MANY_REQUESTS, &headers(&[("retry-after", "3600")]));
    let end = CLOCK.now() + PATIENCE;
    while shown(url, "deaf").await["vendor_disagreed"]["refused"] != 1 {
        assert!(CLOCK.now() < end, "the allocator was not told of the refusal");
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(limit.acquire_within(1, PATIENCE).await, Ok(()));
}
