//! Requests that are refused as a whole.

use super::*;
use lessor_ledger::share::Owner;
use lessor_protocol::push::{Event, Kind};
use lessor_protocol::wire::code;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Posts `body` as an exchange to an allocator that has lent permits. Checks that it is refused as a whole with
/// `status`, `code` and `field`, that the books are untouched, and that the next exchange is answered. Returns the
/// detail.
async fn refused(body: impl Into<Body>, status: u16, code: &str, field: &str) -> String {
    let app = App::new(true);
    app.lease(1, 1, json!([ask(10)])).await;
    let before = app.books().await;
    let reply = app.post("/v1/leases", body).await;
    let (is_code, is_field, detail) = reply.problem(status);
    assert_eq!((is_code.as_str(), is_field.as_str()), (code, field), "{detail}");
    assert_eq!(app.books().await, before);
    assert_eq!(app.lease(1, 2, json!([ask(0)])).await.len(), 1, "alive");
    detail
}

#[tokio::test]
async fn what_is_no_json_is_malformed() {
    let nested = "[".repeat(100_000);
    let texts = [
        "",
        "{",
        "nonsense",
        "{}x",
        "[1,2",
        "\u{feff}{}",
        "{'node':1}",
        "{\"node\":\"\u{1}\"}",
        "NaN",
        &nested,
        r#"{"node":"a","session":1,"seq":1,"asks":[}"#,
        r#"{"node":"a","node":"a","session":1,"seq":1,"asks":[]}"#,
    ];
    for text in texts {
        refused(text.to_owned(), 400, "malformed", "").await;
    }
    refused(&b"{\"node\":\"\xff\xfe\"}"[..], 400, "malformed", "").await;
    refused("{}".encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>(), 400, "malformed", "").await;
    for text in ["5", "\"x\"", "null", "[]", "true"] {
        let detail = refused(text, 400, "malformed", "").await;
        assert_eq!(detail, format!("the body is {text}: expected an object"));
    }
}

#[tokio::test]
async fn wrong_types_in_the_envelope_are_named() {
    let body = |node: &str, session: &str, seq: &str, asks: &str| {
        format!(r#"{{"node":{node},"session":{session},"seq":{seq},"asks":{asks}}}"#)
    };
    for value in ["-1", "1.5", "1e400", "18446744073709551616", "9007199254740992", "\"1\"", "null", "[1]"] {
        let expected = format!("is {value}: {NUMBER}");
        let detail = refused(body("\"a\"", value, "1", "[]"), 422, code::INVALID, "session").await;
        assert_eq!(detail, format!("session {expected}"));
        let detail = refused(body("\"a\"", "1", value, "[]"), 422, code::INVALID, "seq").await;
        assert_eq!(detail, format!("seq {expected}"));
    }
    let detail = refused(body("7", "1", "1", "[]"), 422, code::INVALID, "node").await;
    assert_eq!(detail, "node is 7: expected a string");
    let detail = refused(body("\"\"", "1", "1", "[]"), 422, code::INVALID, "node").await;
    assert_eq!(detail, "node is empty");
    let detail = refused(body("\"a\\nb\"", "1", "1", "[]"), 422, code::INVALID, "node").await;
    assert_eq!(detail, "node contains '\\n', allowed are A-Z a-z 0-9 . _ : / -");
    let detail = refused(body("\"a\"", "1", "1", "{}"), 422, code::INVALID, "asks").await;
    assert_eq!(detail, "asks is {}: expected a list");
    let detail = refused(r#"{"node":"a","session":1,"seq":1}"#, 422, code::INVALID, "asks").await;
    assert_eq!(detail, "asks is missing: expected a list");
    let long = body(&format!("\"{}\"", "x".repeat(500_000)), "1", "1", "[]");
    let detail = refused(long, 422, code::INVALID, "node").await;
    assert_eq!(detail, "node is 500000 bytes long, at most 128 are allowed");
}

#[tokio::test]
async fn too_many_asks_are_counted_and_not_answered() {
    let body = |entry: &str, count| {
        format!(r#"{{"node":"a","session":2,"seq":1,"asks":[{}]}}"#, vec![entry; count].join(","))
    };
    let good = ask(1).to_string();
    let detail = refused(body(&good, 1_001), 422, code::INVALID, "asks").await;
    assert_eq!(detail, "asks has 1001 entries: send at most 1000 at once");
    let detail = refused(body("{}", 300_000), 422, code::INVALID, "asks").await;
    assert_eq!(detail, "asks has 300000 entries: send at most 1000 at once");
    refused(body(&good, 100_000), 413, "too_large", "").await;
}

/// The bug: a sign-in was read like a body of a node, and kept in memory a hundred times as large.
#[tokio::test]
async fn a_sign_in_is_short_and_has_a_token() {
    let app = App::new(true);
    let says = async |body: String, status| app.post("/v1/sign-in", body).await.problem(status).2;
    let long = format!(r#"{{"token":"{}"}}"#, "a".repeat(17 << 10));
    assert_eq!(says(long, 413).await, "the body is larger than 16384 bytes");
    assert_eq!(says("{}".to_owned(), 422).await, "token is missing: expected a string");
    assert_eq!(says(r#"{"token":7}"#.to_owned(), 422).await, "token is 7: expected a string");
    let twice = says(r#"{"token":"a","token":"b"}"#.to_owned(), 400).await;
    assert!(twice.starts_with("duplicate field `token`"), "{twice}");
    says(r#"{"token":"a"}"#.to_owned(), 409).await;
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let detail = refused(vec![b' '; 10_000_000], 413, "too_large", "").await;
    assert_eq!(detail, "the body is larger than 1048576 bytes");
    let key = "k".repeat(1 << 20);
    let ask = format!(r#"{{"limit":"export","key":"{key}","spent_total":0,"held":0,"want":1}}"#);
    refused(format!(r#"{{"node":"a","session":2,"seq":1,"asks":[{ask}]}}"#), 413, "too_large", "").await;
    // Ten gigabytes are refused by their header, before any of the body arrives.
    let app = App::new(true);
    let request = Request::post("/v1/leases").header("content-type", "application/json");
    let request = request.header("content-length", "10737418240").body(Body::new(Stuck));
    let (code, ..) = app.send(request.expect("a request")).await.problem(413);
    assert_eq!(code, "too_large");
}

/// A body that never arrives.
struct Stuck;

impl axum::body::HttpBody for Stuck {
    type Data = axum::body::Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Self::Data>, Infallible>>> {
        Poll::Pending
    }
}

/// The paused clock runs ahead as soon as every task waits.
#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_arrive_is_cut_off() {
    let detail = refused(Body::new(Stuck), 408, "timeout", "").await;
    assert_eq!(detail, "the body took longer than 5 s to arrive");
}

/// The bug: each body that had yet to arrive took a place of a decision.
#[tokio::test(start_paused = true)]
async fn bodies_that_do_not_arrive_take_no_place_of_a_decision() {
    let app = App::new(true);
    let waiting: Vec<_> = [(Method::POST, "export/pause"), (Method::PUT, "export?dry_run=false")]
        .into_iter()
        .cycle()
        .take(100)
        .map(|(method, path)| {
            let request = Request::builder().method(method).uri(format!("/v1/limits/{path}"));
            let request = request.header("content-type", "application/json").body(Stuck);
            tokio::spawn(app.service.answer(request.expect("a request"), identity))
        })
        .collect();
    // Each request gets as far as it can.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let resumed = app.post("/v1/limits/vendor/rest/resume", "").await;
    assert_eq!(resumed.status, StatusCode::OK, "{}", resumed.text);
    for waits in waiting {
        let answer = waits.await.expect("no panic").expect("routes do not fail");
        assert_eq!(answer.status(), StatusCode::REQUEST_TIMEOUT);
    }
}

#[tokio::test]
async fn only_plain_json_is_read() {
    let app = App::new(true);
    let media = [
        ("content-type", "text/plain"),
        ("content-type", "application/x-www-form-urlencoded"),
        ("content-type", "application/jsonp"),
        ("x-nothing", "at-all"),
        ("content-encoding", "gzip"),
    ];
    for (name, value) in media {
        let mut request = Request::post("/v1/leases").header(name, value);
        if name == "content-encoding" {
            request = request.header("content-type", "application/json");
        }
        let reply = app.send(request.body("{}".into()).expect("a request")).await;
        assert_eq!(reply.problem(415).0, "unsupported_media_type", "{name}: {value}");
    }
    let good = Request::post("/v1/leases").header("content-type", "Application/JSON; charset=utf-8");
    let body = json!({ "node": "a", "session": 1, "seq": 1, "asks": [] }).to_string();
    assert_eq!(app.send(good.body(body.into()).expect("a request")).await.status, StatusCode::OK);
}

#[tokio::test]
async fn unknown_paths_and_wrong_methods_are_problems() {
    let app = App::new(true);
    for path in ["/v2/leases", "/v1/leases/", "/v1/limits/", "/etc/passwd", "/debug"] {
        assert_eq!(app.get(path).await.problem(404).0, "not_found", "{path}");
    }
    for path in ["/v1/nodes/a", "/v1/nodes/a/stay", "/v1/nodes/%ff/leave", "/v1/limits/export/pools"] {
        assert_eq!(app.post(path, "{}").await.problem(404).0, "not_found", "{path}");
    }
    let wrong = [
        (Method::GET, "/v1/leases", "POST"),
        (Method::GET, "/v1/nodes/a/leave", "POST"),
        (Method::DELETE, "/v1/limits", "GET,HEAD"),
        (Method::POST, "/metrics", "GET,HEAD"),
    ];
    for (method, path, allow) in wrong {
        let request = Request::builder().method(method).uri(path).body(Body::empty());
        let reply = app.send(request.expect("a request")).await;
        assert_eq!(reply.problem(405).0, "method_not_allowed");
        assert_eq!(reply.allow.as_deref(), Some(allow), "{path}");
    }
}

#[tokio::test]
async fn wrong_goodbyes_are_refused_and_change_nothing() {
    let app = App::new(true);
    app.lease(1, 1, json!([ask(10)])).await;
    let before = app.books().await;
    let entries = vec![json!({ "limit": "vendor/rest", "spent_total": 0 }); 1_001];
    let cases = [
        ("{", 400, "malformed", ""),
        (r#"{"session":1}"#, 422, code::INVALID, "seq"),
        (r#"{"session":1,"seq":2,"spent":5}"#, 422, code::INVALID, "spent"),
        (
            r#"{"session":1,"seq":2,"spent":[{"limit":"vendor/rest"}]}"#,
            422,
            code::INVALID,
            "spent[0].spent_total",
        ),
        (r#"{"session":1,"seq":2,"spent":[5]}"#, 422, code::INVALID, "spent[0]"),
        (r#"{"seq":1,"spent":[]}"#, 422, code::INVALID, "session"),
        (r#"{"session":"1","seq":1,"spent":[]}"#, 422, code::INVALID, "session"),
        (
            r#"{"session":1,"seq":2,"spent":[{"limit":"vendor/rest","spent_total":0,"held":-1}]}"#,
            422,
            code::INVALID,
            "spent[0].held",
        ),
        (
            r#"{"session":1,"seq":2,"spent":[{"limit":"vendor/rest","spent_total":0,"spent_total":1}]}"#,
            400,
            "malformed",
            "spent[0].spent_total",
        ),
        (&json!({ "session": 1, "seq": 2, "spent": entries }).to_string(), 422, code::INVALID, "spent"),
        // The count is looked at before any entry is.
        (
            &json!({ "session": 1, "seq": 2, "spent": vec![5; 1_001] }).to_string(),
            422,
            code::INVALID,
            "spent",
        ),
    ];
    for (body, status, code, field) in cases {
        let problem = app.post("/v1/nodes/node-1/leave", body.to_owned()).await.problem(status);
        assert_eq!((problem.0.as_str(), problem.1.as_str()), (code, field));
        assert_eq!(app.books().await, before);
    }
    let lie = json!({ "session": 1, "seq": 2, "spent": [{ "limit": "vendor/rest", "spent_total": 11 }] });
    let reply = app.post("/v1/nodes/node-1/leave", lie.to_string()).await.json();
    assert_eq!(reply["errors"][0]["code"], json!(code::TOTALS_WRONG));
    assert_eq!(app.books().await, before);
}

/// The bug: each such event was sent to a whole fleet, and logged.
#[tokio::test]
async fn of_many_keys_whose_vendor_refuses_at_once_some_are_told() {
    let app = App::new(true);
    let exchange = |seq: u64| {
        let ask = |key: u64| {
            let observed = json!({ "number": seq, "refused_total": seq, "wait_ms": 1 });
            json!({ "limit": "export", "key": format!("k{key}"), "spent_total": 0, "held": 0, "want": 1, "observed": observed })
        };
        json!({ "node": "a", "session": 1, "seq": seq, "asks": (0..150).map(ask).collect::<Vec<_>>() })
    };
    let told = app.shared.events().sent();
    for seq in [1, 2] {
        assert_eq!(app.post("/v1/leases", exchange(seq).to_string()).await.status, StatusCode::OK);
    }
    assert_eq!(app.shared.events().sent() - told, 128);
}

/// The bug: an event about a limit that others are below counted as one, made one for each of those, and stopped all
/// of their keys.
#[tokio::test]
async fn events_for_limits_below_count_and_stop_no_other_key() {
    let limit = |name: &str, more: &str| {
        format!(
            "[[limit]]\nname = {name:?}\nkeyed = true\n{more}\
             rules = [{{ kind = \"token_bucket\", capacity = 10, refill = 1, per = \"1h\" }}]\n"
        )
    };
    let below: String = (0..300).map(|n| limit(&format!("b{n:03}"), "parent = \"above\"\n")).collect();
    let app = App::of(&format!("{}{below}", limit("above", "")), true);
    let mut listener = app.shared.events().listen(None, Owner::NONE).expect("room");
    let observed = json!({ "number": 1, "refused_total": 1, "wait_ms": 60_000 });
    let ask = json!({ "limit": "above", "key": "acme", "spent_total": 0, "held": 0, "want": 1, "observed": observed });
    let before = app.shared.events().sent();
    // The first ask makes the pool, about which a vendor can say something then.
    app.lease(1, 1, json!([ask])).await;
    app.lease(1, 2, json!([ask])).await;
    assert_eq!(app.shared.events().sent() - before, 128);
    let own = listener.next().await.expect("it goes on");
    assert_eq!(
        (own.kind, own.limit.as_deref(), own.key.as_deref()),
        (Kind::Paused, Some("above"), Some("acme"))
    );
    for n in 0..127 {
        let event = listener.next().await.expect("it goes on");
        assert_eq!(event, Event::of(Kind::Changed, &format!("b{n:03}")));
    }
    // A decision of an operator is told in full, and a pause of all keys is one.
    assert_eq!(app.post("/v1/limits/above/pause", r#"{"for":"10m"}"#).await.status, StatusCode::OK);
    assert_eq!(app.shared.events().sent() - before, 128 + 301);
    assert_eq!(listener.next().await.map(|event| event.kind), Some(Kind::Lagged));
    assert_eq!(listener.next().await.map(|event| event.kind), Some(Kind::Paused));
}
