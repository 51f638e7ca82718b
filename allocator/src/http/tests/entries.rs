//! Wrong asks, each among good ones.

use super::*;
use crate::shared_store_status::Work;
use lessor_protocol::wire::code;

/// Sends a wrong ask between two good ones. Checks that it gets an error with `code` and `field`, that the others are
/// answered, and that the books of its pool are untouched. Returns the detail.
async fn entry_refused(ask_body: &str, code: &str, field: &str) -> String {
    let app = App::new(true);
    let good = |key: &str| format!(r#"{{"limit":"export","key":"{key}","spent_total":0,"held":0,"want":1}}"#);
    let before = app.get("/v1/limits/vendor/rest/pools").await.text;
    let body =
        format!(r#"{{"node":"node-1","session":1,"seq":1,"asks":[{},{ask_body},{}]}}"#, good("a"), good("b"));
    let reply = app.post("/v1/leases", body).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    assert!(reply.text.len() < 2_000, "nothing is echoed at length: {} bytes", reply.text.len());
    let grants = &reply.json()["grants"];
    assert_eq!((&grants[0]["permits"], &grants[2]["permits"]), (&json!(1), &json!(1)));
    let error = &grants[1]["error"];
    assert_eq!((&error["code"], &error["field"]), (&json!(code), &json!(field)), "{error}");
    assert_eq!(app.get("/v1/limits/vendor/rest/pools").await.text, before);
    error["detail"].as_str().expect("a text").to_owned()
}

#[tokio::test]
async fn wrong_numbers_in_an_ask_are_its_own() {
    for value in ["-1", "1.5", "1e400", "18446744073709551616", "9007199254740992", "\"10\"", "null", "true"]
    {
        for field in ["spent_total", "held", "want", "demand", "waiting", "unguarded", "busy", "largest"] {
            let mut ask = r#"{"limit":"vendor/rest","spent_total":0,"held":0,"want":0"#.to_owned();
            ask = ask.replace(&format!("\"{field}\":0"), &format!("\"{field}\":{value}"));
            if !ask.contains(field) {
                ask.push_str(&format!(",\"{field}\":{value}"));
            }
            let detail = entry_refused(&(ask + "}"), code::INVALID, field).await;
            assert!(detail.starts_with(&format!("{field} is {value}: ")), "{detail}");
        }
    }
    for (field, value, expected) in [
        ("rate", "5", "rate is 5: expected an object"),
        ("rate", r#"{"number":1}"#, "rate.cap is missing: expected a whole number"),
        ("observed", r#"{"number":1,"left":-1}"#, "observed.left is -1: expected a whole number"),
        ("observed", r#"{"number":1,"left":null,"announced":7}"#, "observed.announced is 7: expected a list"),
    ] {
        let ask = format!(r#"{{"limit":"vendor/rest","spent_total":0,"held":0,"want":0,"{field}":{value}}}"#);
        let detail = entry_refused(&ask, code::INVALID, field).await;
        assert!(detail.starts_with(expected), "{detail}");
    }
    let detail =
        entry_refused(r#"{"limit":"vendor/rest","spent_total":0,"held":0}"#, code::INVALID, "want").await;
    assert_eq!(detail, format!("want is missing: {NUMBER}"));
}

#[tokio::test]
async fn wrong_names_in_an_ask_are_its_own() {
    let ask = |limit: &str| format!(r#"{{"limit":{limit},"spent_total":0,"held":0,"want":1}}"#);
    let keyed = |key: &str| format!(r#"{{"limit":"export","key":{key},"spent_total":0,"held":0,"want":1}}"#);
    let detail = entry_refused(&ask("\"nope\""), code::LIMIT_UNKNOWN, "limit").await;
    assert_eq!(detail, "there is no limit \"nope\"");
    entry_refused(&ask("\"x\\\"} 1\\nfake 9\""), code::LIMIT_UNKNOWN, "limit").await;
    entry_refused(&ask("\"\""), code::LIMIT_UNKNOWN, "limit").await;
    entry_refused(&ask(&format!("\"{}\"", "x".repeat(1_000_000))), code::LIMIT_UNKNOWN, "limit").await;
    entry_refused(&ask("3"), code::INVALID, "limit").await;
    entry_refused(&ask("\"export\""), code::KEY_MISMATCH, "key").await;
    entry_refused(&keyed("null"), code::KEY_MISMATCH, "key").await;
    entry_refused(&keyed("\"\""), code::INVALID, "key").await;
    entry_refused(&keyed("[1]"), code::INVALID, "key").await;
    entry_refused(&keyed("\"\\u0000\""), code::INVALID, "key").await;
    let detail = entry_refused(&keyed(&format!("\"{}\"", "k".repeat(1_000_000))), code::INVALID, "key").await;
    assert_eq!(detail, "key is 1000000 bytes long, at most 256 are allowed");
    let twice = r#"{"limit":"export","key":"a","spent_total":0,"held":0,"want":1}"#;
    entry_refused(twice, code::DUPLICATE, "limit").await;
}

#[tokio::test]
async fn an_entry_that_is_no_ask_at_all_is_its_own() {
    let app = App::new(true);
    let asks = json!([5, ask(1), "x", [], null]);
    let grants = app.lease(1, 1, asks).await;
    let details: Vec<&str> = grants.iter().filter_map(|grant| grant["error"]["detail"].as_str()).collect();
    let expected =
        ["5", "\"x\"", "[]", "null"].map(|entry| format!("the ask is {entry}: expected an object"));
    assert_eq!(details, expected);
    assert_eq!(grants[1]["permits"], json!(1));
}

#[tokio::test]
async fn repeated_late_and_lying_asks_change_nothing() {
    let app = App::new(true);
    let first = app.lease(1, 5, json!([ask(10)])).await;
    let lying = |spent_total: u64, held: u64| json!([{ "limit": "vendor/rest", "spent_total": spent_total, "held": held, "want": 5 }]);
    let before = app.books().await;
    let again = app.lease(1, 5, json!([ask(10)])).await;
    assert_eq!(again[0]["permits"], first[0]["permits"], "the same grant, granted once");
    let cases = [
        (1, 4, json!([ask(10)]), code::STALE_SEQUENCE),
        (1, 6, lying(11, 0), code::TOTALS_WRONG),
        (1, 6, lying(5, 6), code::TOTALS_WRONG),
        (1, 6, lying(lessor_protocol::PERMITS_MAX, lessor_protocol::PERMITS_MAX), code::TOTALS_WRONG),
        (2, 1, lying(3, 0), code::LEASE_UNKNOWN),
        (2, 1, lying(0, 3), code::LEASE_UNKNOWN),
    ];
    for (session, seq, asks, code) in cases {
        let grants = app.lease(session, seq, asks).await;
        assert_eq!(grants[0]["error"]["code"], json!(code), "{grants:?}");
        assert_eq!(app.books().await, before);
    }
}

#[tokio::test]
async fn a_flood_of_keys_is_refused_and_old_keys_go_on() {
    let app = App::new(true);
    let ask = |key: u64| json!({ "limit": "export", "key": key.to_string(), "spent_total": 0, "held": 0, "want": 1 });
    for exchange in 0..4 {
        let asks: Vec<Value> = (0..1_000).map(|n| ask(exchange * 1_000 + n)).collect();
        let grants = app.lease(1, exchange, json!(asks)).await;
        let full = grants.iter().filter(|grant| grant["error"]["code"] == json!(code::KEYS_FULL)).count();
        assert_eq!(full, if exchange < 2 { 0 } else { 1_000 });
    }
    let old = app.lease(2, 1, json!([ask(7)])).await;
    assert_eq!(old[0]["permits"], json!(1));
}

/// The bug: one ask for the plain name of a limit with keys, which each client sends every few seconds, was answered while
/// the store was silent. For the client an allocator lent again, and all its fallbacks ended.
#[tokio::test]
async fn while_the_store_is_silent_a_name_without_a_pool_is_no_answer() {
    let app = App::of(&CONFIG.replace("limit = 1000", "limit = 1"), true);
    let all = app.lease(1, 1, json!([ask(1)])).await;
    assert_eq!(all[0]["permits"], 1);
    app.shared.shared_store_status().fell_silent(Work::Exchanging, Some("no answer".to_owned()));
    let named = |limit: &str| json!({ "limit": limit, "spent_total": 0, "held": 0, "want": 0 });
    let (plain, unknown, idle) = (named("export"), named("nope"), ask(0));
    let mut seq = 0;
    let mut exchange = async |asks: Vec<&Value>| {
        seq += 1;
        let body = json!({ "node": "node-2", "session": 2, "seq": seq, "asks": asks });
        app.post("/v1/leases", body.to_string()).await
    };
    for asks in [vec![&ask(1)], vec![&ask(1), &plain, &unknown], vec![&plain], vec![&unknown], vec![&idle]] {
        assert_eq!(exchange(asks.clone()).await.problem(503).0, "store_failing", "{asks:?}");
    }
    assert_eq!(exchange(vec![]).await.status, StatusCode::OK, "a greeting");
    let wrong = json!({ "limit": "vendor/rest", "spent_total": 0, "held": 0, "want": -1 });
    assert_eq!(exchange(vec![&wrong]).await.status, StatusCode::OK, "the node must hear of its mistake");
    let paused = app.post("/v1/limits/vendor/rest/pause", "").await;
    assert_eq!(paused.status, StatusCode::OK, "{}", paused.text);
    assert_eq!(exchange(vec![&ask(1)]).await.json()["grants"][0]["refused"], "paused");
}
