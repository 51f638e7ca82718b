//! Very many limits, or very large ones: answers about them stay small, and do not slow exchanges down.

use super::*;
use crate::config::limit_from_json;
use lessor_ledger::CarryOver;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

fn put(app: &App, name: &str, body: &Value) {
    let limit = limit_from_json(name, body).expect("valid");
    app.shared.with(|registry, now| registry.put(now, &limit, CarryOver::AsIs, true)).expect("room");
}

fn rules() -> Value {
    json!([{ "kind": "sliding_window", "limit": 10, "per": "30s" }])
}

/// The bug: each limit that was put over the API made 2 to 7 kB of each scrape, for as long as the process lived.
#[tokio::test]
async fn limits_that_come_later_are_shown_up_to_a_bound_and_all_others_as_one() {
    let app = App::new(true);
    for limit in 0..1_000 {
        put(&app, &format!("l{limit:03}"), &json!({ "rules": rules() }));
    }
    for (seq, limit) in (1..).zip(["l000", "l998", "l999"]) {
        let ask = json!({ "limit": limit, "spent_total": 0, "held": 0, "want": 3, "waiting": 3 });
        assert_eq!(app.lease(1, seq, json!([ask])).await[0]["permits"], 3);
    }
    let text = app.get("/metrics").await.text;
    println!("{} bytes for 1,003 limits", text.len());
    assert!(text.len() < 500_000, "{} bytes", text.len());
    let is = |line: &str| text.lines().any(|other| other == line);
    assert!(is("lessor_granted_permits_total{limit=\"l000\"} 3"), "it was among the first");
    assert!(is("lessor_granted_permits_total{limit=\"(others)\"} 6"));
    assert!(is("lessor_pools{limit=\"(others)\"} 800") && is("lessor_pools{limit=\"vendor/rest\"} 1"));
    assert!(is("lessor_asks_total{limit=\"(others)\",outcome=\"granted\"} 2"));
    // A removed limit does not free its place for another one: its counters must not fall.
    app.shared.with(|registry, _| registry.remove("l000"));
    app.shared.with(|registry, _| registry.remove("l999"));
    let text = app.get("/metrics").await.text;
    let is = |line: &str| text.lines().any(|other| other == line);
    assert!(is("lessor_pools{limit=\"(others)\"} 799") && is("lessor_pools{limit=\"l000\"} 0"));
    assert!(is("lessor_granted_permits_total{limit=\"(others)\"} 6"), "no counter falls");
}

/// The bug: its counters stood still until the new limit had counted as much, and so did all after a panic.
#[tokio::test]
async fn counters_of_a_limit_that_begins_anew_go_on() {
    let app = App::new(true);
    put(&app, "l", &json!({ "rules": rules() }));
    let lease = async |session: u64, limit: &str, want: u64| {
        let ask = json!({ "limit": limit, "spent_total": 0, "held": 0, "want": want, "waiting": want });
        app.lease(session, 1, json!([ask])).await[0]["permits"].clone()
    };
    let scrape = async |line: &str| {
        let text = app.get("/metrics").await.text;
        assert!(text.lines().any(|other| other == line), "no {line} in {text}");
    };
    assert_eq!(lease(1, "l", 3).await, 3);
    assert_eq!(lease(2, "nope", 1).await, 0);
    scrape("lessor_granted_permits_total{limit=\"l\"} 3").await;
    app.shared.with(|registry, now| {
        registry.remove("l");
        registry.sweep_retired(now + Duration::from_secs(3_600), 1_000);
        assert_eq!(registry.retired(), 0);
    });
    scrape("lessor_granted_permits_total{limit=\"l\"} 3").await;
    put(&app, "l", &json!({ "rules": rules() }));
    assert_eq!(lease(3, "l", 2).await, 2);
    scrape("lessor_granted_permits_total{limit=\"l\"} 5").await;
    // A limit that goes on where it was is not counted twice.
    app.shared.with(|registry, _| registry.remove("l"));
    scrape("lessor_granted_permits_total{limit=\"l\"} 5").await;
    put(&app, "l", &json!({ "rules": rules() }));
    scrape("lessor_granted_permits_total{limit=\"l\"} 5").await;
    scrape("lessor_asks_wrong_total{reason=\"limit_unknown\"} 1").await;
    let bug = catch_unwind(AssertUnwindSafe(|| app.shared.with(|_, _| panic!("a bug, for the test"))));
    assert!(bug.is_err());
    assert_eq!((lease(4, "nope", 1).await, lease(5, "vendor/rest", 1).await), (json!(0), json!(0)));
    let text = app.get("/metrics").await.text;
    for line in [
        "lessor_asks_wrong_total{reason=\"limit_unknown\"} 2",
        "lessor_granted_permits_total{limit=\"l\"} 5",
        "lessor_asks_total{limit=\"vendor/rest\",outcome=\"quarantine\"} 1",
    ] {
        assert!(text.lines().any(|other| other == line), "no {line} in {text}");
    }
}

/// The bug: configurations were copied under the lock that each exchange needs. One of 860 kB took a while.
#[tokio::test]
async fn limits_are_shown_one_request_at_a_time_and_exchanges_go_on() {
    let app = App::new(true);
    let overrides: Vec<Value> =
        (0..8_000).map(|key| json!({ "key": format!("k{key}"), "rules": rules() })).collect();
    put(&app, "large", &json!({ "keyed": true, "rules": rules(), "override": overrides }));
    let turn = app.shared.turn_to_show(None).await.expect("room");
    for path in ["/v1/limits", "/v1/limits/large", "/v1/limits/large/pools", "/v1/limits/large/top"] {
        let waits = timeout(Duration::from_millis(50), app.get(path)).await;
        assert!(waits.is_err(), "{path} waits for its turn");
    }
    let put = Request::put("/v1/limits/new?dry_run=true").header("content-type", "application/json");
    let body = Body::from(json!({ "rules": rules() }).to_string());
    let waits = timeout(Duration::from_millis(50), app.send(put.body(body).expect("a request"))).await;
    assert!(waits.is_err(), "a change that is not made waits, too");
    assert_eq!(app.get("/metrics").await.status, StatusCode::OK, "they have turns of their own");
    let scrape = app.shared.turn_to_scrape(None).await.expect("room");
    let waits = timeout(Duration::from_millis(50), app.get("/metrics")).await;
    assert!(waits.is_err(), "the next scrape waits");
    drop(scrape);
    assert_eq!(app.lease(1, 1, json!([ask(10)])).await[0]["permits"], 10, "meanwhile");
    drop(turn);
    let all = app.get("/v1/limits").await;
    assert_eq!(all.json()["limits"][1]["override"].as_array().map(Vec::len), Some(8_000));
    assert!(all.text.len() > 600_000, "{} bytes", all.text.len());
    let one = app.get("/v1/limits/large").await.json();
    assert_eq!((&one["name"], &one["pools"], &one["keyed"]), (&json!("large"), &json!(0), &json!(true)));
}

/// The bug: each request for all limits took what it shows before it waited for its turn, and any number waited.
#[tokio::test]
async fn requests_that_wait_for_a_long_answer_are_few_and_hold_nothing() {
    let app = Arc::new(App::new(true));
    let config =
        app.shared.with(|registry, _| registry.limit("export").expect("it is there").shared_config());
    let before = Arc::strong_count(&config);
    let turn = app.shared.turn_to_show(None).await.expect("room");
    let mut waiting = JoinSet::new();
    for n in 0..100 {
        let (app, path) = (app.clone(), if n % 2 == 0 { "/v1/limits" } else { "/v1/limits/export" });
        waiting.spawn(async move { app.get(path).await });
    }
    for _ in 0..37 {
        let refused = waiting.join_next().await.expect("they were refused").expect("no panic");
        let (code, _, detail) = refused.problem(503);
        assert!(code == "answers_full" && detail.contains("64 requests"), "{code}: {detail}");
    }
    assert_eq!((waiting.len(), Arc::strong_count(&config)), (63, before));
    let put = Request::put("/v1/limits/export?confirm=true").header("if-match", "*");
    let body = json!({ "keyed": true, "keys_max": 2000, "rules": rules() }).to_string();
    let put = put.header("content-type", "application/json").body(Body::from(body)).expect("a request");
    let mut changing = JoinSet::new();
    let other = app.clone();
    changing.spawn(async move { other.send(put).await });
    drop(turn);
    let changed = changing.join_next().await.expect("one").expect("no panic");
    assert_eq!(changed.status, StatusCode::OK, "a change that was made is not refused: {}", changed.text);
    let answered = waiting.join_all().await;
    assert!(answered.iter().all(|reply| reply.status == StatusCode::OK));
}
