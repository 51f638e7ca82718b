//! Strictness towards operators' requests: duplicate fields, foreign hosts, numbers that do not add up, and two
//! requests at once.

use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

/// Rounds that are enough for two threads to change the same limit in the wrong order.
const ROUNDS: u32 = 300;

impl App {
    async fn change(&self, method: &str, path: &str, host: &str, body: &str) -> Reply {
        let request = Request::builder().method(method).uri(path).header("if-match", "*");
        let request = request.header("host", host).header("content-type", "application/json");
        self.send(request.body(Body::from(body.to_owned())).expect("a request")).await
    }
}

/// The bug: the last of two fields with one name was used, while a filter in front of the allocator may go by the
/// first.
#[tokio::test]
async fn a_field_that_is_there_twice_is_refused_by_its_name() {
    let app = App::new(true);
    let before = app.books().await;
    let rule = r#"{"kind":"sliding_window","limit":1,"limit":1000000,"per":"30s"}"#;
    for (method, path, body, field) in [
        ("POST", "/v1/limits/vendor/rest/top-up", r#"{"permits":1,"permits":1000000}"#.to_owned(), "permits"),
        ("POST", "/v1/limits/vendor/rest/pause", r#"{"for":"1s","for":"9h"}"#.to_owned(), "for"),
        ("PUT", "/v1/limits/vendor/rest", format!(r#"{{"rules":[{rule}]}}"#), "rules[0].limit"),
        ("PUT", "/v1/limits/new", r#"{"rules":[],"rules":[]}"#.to_owned(), "rules"),
        // The bug: the last of two parameters was used.
        ("DELETE", "/v1/limits/vendor/rest?confirm=false&confirm=true", String::new(), "confirm"),
        ("PUT", "/v1/limits/vendor/rest?dry_run=true&dry_run=false", "{}".to_owned(), "dry_run"),
    ] {
        let reply = app.change(method, path, "127.0.0.1:7400", &body).await;
        let (code, named, detail) = reply.problem(400);
        assert_eq!((code.as_str(), named.as_str()), ("malformed", field), "{detail}");
    }
    assert_eq!(app.books().await, before);
}

/// Top-ups of three times the maximum, twice over: no sum may wrap, and no number may leave what JSON keeps exact.
#[tokio::test]
async fn top_ups_that_add_up_to_more_than_can_be_said_are_refused() {
    for rule in [
        r#"{"kind":"sliding_window","limit":1000,"per":"30s"}"#,
        r#"{"kind":"sliding_log","limit":1000,"per":"30s"}"#,
        r#"{"kind":"fixed_window","limit":1000,"per":"30s"}"#,
        r#"{"kind":"token_bucket","capacity":1000,"refill":1000,"per":"30s"}"#,
    ] {
        let app = App::new(true);
        let body = format!(r#"{{"rules":[{rule}]}}"#);
        let made = app.change("PUT", "/v1/limits/vendor/rest", "127.0.0.1", &body).await;
        assert_eq!(made.status, StatusCode::OK, "{rule}");
        assert_eq!(app.lease(1, 1, json!([ask(10)])).await[0]["permits"], json!(10));
        let most = lessor_protocol::PERMITS_MAX;
        let mut said = vec![];
        for permits in [5, most - 1, most, most] {
            let body = json!({ "permits": permits }).to_string();
            let reply = app.post("/v1/limits/vendor/rest/top-up?confirm=true", body).await;
            said.push((reply.status.as_u16(), reply.json()["field"].as_str().map(str::to_owned)));
        }
        let available = app.get("/v1/limits/vendor/rest").await.json()["available"].as_u64();
        println!("{rule}: {said:?}, available {available:?}");
        let refused = (422, Some("permits".to_owned()));
        assert_eq!(said, [(200, None), refused.clone(), refused.clone(), refused], "{rule}");
        assert_eq!(available, Some(995), "{rule}");
        assert_eq!(app.lease(2, 1, json!([ask(10)])).await[0]["permits"], json!(10));
    }
}

/// The bug: the allocator was changed under its lock, but the configuration for a new life only after the lock was
/// released.
#[test]
fn two_puts_at_once_leave_what_a_new_life_starts_from_as_the_allocator_has_it() {
    let app = App::new(true);
    let put = |limit: u64| {
        let body = format!(r#"{{"rules":[{{"kind":"sliding_window","limit":{limit},"per":"30s"}}]}}"#);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let reply =
            runtime.block_on(app.change("PUT", "/v1/limits/vendor/rest?confirm=true", "127.0.0.1", &body));
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    };
    let ceiling = |config: &crate::config::LimitConfig| config.rules[0].ceiling();
    let mut apart = vec![];
    for round in 0..ROUNDS {
        thread::scope(|scope| {
            let put = &put;
            (1..=4).for_each(|limit| drop(scope.spawn(move || put(limit))));
        });
        let here =
            app.shared.with(|registry, _| ceiling(registry.limit("vendor/rest").expect("there").config()));
        let bug = catch_unwind(AssertUnwindSafe(|| app.shared.with(|_, _| panic!("a bug, for the test"))));
        assert!(bug.is_err());
        let next =
            app.shared.with(|registry, _| ceiling(registry.limit("vendor/rest").expect("there").config()));
        if next != here {
            apart.push((round, here, next));
        }
    }
    println!("{} of {ROUNDS} rounds apart, the first {:?}", apart.len(), apart.first());
    assert!(apart.is_empty(), "{} of {ROUNDS} rounds apart, the first {:?}", apart.len(), apart.first());
}

/// The bug: a stranger who reached the API could make the allocator call any address, and lend what was answered there.
#[tokio::test]
async fn a_limit_is_leased_only_from_those_that_the_file_names() {
    const LEASED: &str = "[[limit]]\nname = \"leased\"\nupstream = \"http://centre:7400\"\n";
    let put = async |app: &App, name: &str, upstream: &str| {
        let body = json!({ "upstream": upstream }).to_string();
        let request = Request::put(format!("/v1/limits/{name}")).header("content-type", "application/json");
        app.send(request.body(Body::from(body)).expect("a request")).await
    };
    let app = App::of(LEASED, true);
    assert_eq!(put(&app, "a", "http://centre:7400/").await.status, StatusCode::CREATED);
    let (code, field, detail) = put(&app, "b", "http://169.254.169.254/latest").await.problem(422);
    assert_eq!((code.as_str(), field.as_str()), ("invalid", "upstream"), "{detail}");
    assert_eq!(put(&app, "c", "http://other:7400").await.problem(422).1, "upstream");
    let app = App::of(&format!("[server]\nupstreams = [\"http://other:7400\"]\n{LEASED}"), true);
    assert_eq!(put(&app, "c", "http://other:7400").await.status, StatusCode::CREATED);
    assert_eq!(put(&app, "b", "http://third:7400").await.problem(422).1, "upstream");
}

/// The bug: the session was the epoch, which each answer shows, so a stranger could say goodbye in the name of a
/// region.
#[test]
fn the_session_with_those_above_is_no_number_that_is_shown() {
    let config = "[[limit]]\nname = \"leased\"\nupstream = \"http://centre:7400\"\n";
    let of_life = || {
        let app = App::of(config, true);
        app.shared.with(|registry, now| {
            let upstream = registry.upstreams().pop_first().expect("there is one");
            let due = registry.asks_above(now, &upstream, std::time::Duration::from_millis(1));
            (registry.epoch(), due.session)
        })
    };
    let ((epoch, session), (_, next)) = (of_life(), of_life());
    assert!(session != epoch && session.abs_diff(epoch) > 1_000_000, "{session}, {epoch}");
    assert_ne!(session, next);
}

/// The bug: a site whose own name leads to the allocator was taken for the allocator's page.
#[tokio::test]
async fn what_is_sent_to_another_name_changes_nothing() {
    let app = App::new(true);
    let before = app.books().await;
    for (method, path, body) in [
        ("POST", "/v1/limits/vendor/rest/top-up", r#"{"permits":1}"#),
        ("POST", "/v1/limits/vendor/rest/pause", "{}"),
        ("POST", "/v1/limits/vendor/rest/nodes/a/block", ""),
        ("DELETE", "/v1/limits/vendor/rest", ""),
        ("PUT", "/v1/limits/new", r#"{"rules":[{"kind":"sliding_window","limit":1,"per":"30s"}]}"#),
    ] {
        let (code, field, detail) = app.change(method, path, "evil.example:7400", body).await.problem(421);
        assert_eq!((code.as_str(), field.as_str()), ("wrong_host", "host"), "{detail}");
    }
    assert_eq!(app.books().await, before);
    let paused = app.change("POST", "/v1/limits/vendor/rest/pause", "127.0.0.1:7400", "{}").await;
    assert_eq!(paused.status, StatusCode::OK);
}

/// The bug: such a site could read, though not change. Names of the file are accepted, and probes and nodes use any
/// name.
#[tokio::test]
async fn what_is_sent_to_another_name_is_not_shown() {
    let app = App::of(&format!("[server]\nhosts = [\"lessor.example.com\"]\n{CONFIG}"), true);
    let look = async |path: &str, host: &str| {
        let request = Request::get(path).header("host", host).body(Body::empty());
        app.send(request.expect("a request")).await
    };
    for path in ["/", "/page/main.js", "/v1/limits", "/v1/limits/vendor/rest", "/v1/status", "/metrics"] {
        let (code, _, detail) = look(path, "evil.example:7400").await.problem(421);
        assert!(code == "wrong_host" && detail.contains("add the name to hosts in [server]"), "{detail}");
        for host in ["lessor.example.com", "localhost:7400", "10.1.2.3:7400", "allocator"] {
            assert_eq!(look(path, host).await.status, StatusCode::OK, "{path} at {host}");
        }
    }
    for path in ["/livez", "/healthz", "/readyz"] {
        assert_eq!(look(path, "probe.example").await.status, StatusCode::OK, "{path}");
    }
}

/// The bugs: the answer said that calls in flight were added, and an id that was not set made the next top-up without one
/// a repetition.
#[tokio::test]
async fn a_top_up_that_would_add_nothing_is_refused() {
    let app = App::of(
        "[[limit]]\nname = \"cap\"\nrules = [{ kind = \"concurrency\", limit = 5, longest = \"1s\" }]\n\
         [[limit]]\nname = \"a\"\nrules = [{ kind = \"fixed_window\", limit = 5, per = \"1d\" }]\n",
        true,
    );
    let (_, field, detail) = app.post("/v1/limits/cap/top-up", r#"{"permits":5}"#).await.problem(422);
    assert!(field == "limit" && detail.contains("no effect"), "{field}: {detail}");
    let unset = app.post("/v1/limits/a/top-up", r#"{"permits":5,"id":""}"#).await;
    assert_eq!(unset.problem(422).1, "id");
    assert_eq!(app.post("/v1/limits/a/top-up", r#"{"permits":5}"#).await.json()["topped_up"], 5);
}

/// The bug: the name in use did not exist for one request, and the pattern not for the other.
#[tokio::test]
async fn a_request_for_a_name_of_a_pattern_is_told_what_to_name() {
    let rules = "rules = [{ kind = \"fixed_window\", limit = 5, per = \"1d\" }]";
    let app = App::of(&format!("[[limit]]\nname = \"api/*\"\n{rules}\n"), true);
    let of_pattern = [
        app.get("/v1/limits/api/x").await,
        // The bug: of this request the name did not exist.
        app.get("/v1/limits/api/x/top").await,
        app.post("/v1/limits/api/x/pause", "{}").await,
        app.post("/v1/limits/api/x/nodes/n/block", "").await,
        app.request("DELETE", "/v1/limits/api/x?confirm=true", Some("*"), "").await,
    ];
    for reply in of_pattern {
        let (code, _, detail) = reply.problem(404);
        assert!(code == "limit_unknown" && detail.contains("the pattern \"api/*\""), "{detail}");
        assert_eq!(reply.json()["pattern"], "api/*");
    }
    let (_, _, detail) = app.post("/v1/limits/api/*/top-up", r#"{"permits":1}"#).await.problem(404);
    assert!(detail.contains("is a pattern: name one"), "{detail}");
    assert_eq!(app.get("/v1/limits/other").await.problem(404).2, "there is no limit \"other\"");
}

/// The bug: the name had no limit of its own, so nothing was compared, and no confirmation asked for, although the
/// pattern's parent was no longer charged.
#[tokio::test]
async fn a_limit_of_its_own_for_a_name_of_a_pattern_is_compared_with_the_pattern() {
    let rules =
        |limit: u64| format!("rules = [{{ kind = \"fixed_window\", limit = {limit}, per = \"1d\" }}]");
    let pattern = format!("[[limit]]\nname = \"api/*\"\nparent = \"routes\"\n{}\n", rules(5));
    let app = App::of(&format!("{pattern}[[limit]]\nname = \"routes\"\n{}\n", rules(50)), true);
    let put = async |path: &str, parent: Option<&str>, limit: u64| {
        let mut body = json!({ "rules": [{ "kind": "fixed_window", "limit": limit, "per": "1d" }] });
        parent.into_iter().for_each(|parent| body["parent"] = json!(parent));
        app.request("PUT", &format!("/v1/limits/{path}"), None, &body.to_string()).await
    };
    for (name, parent, limit, why) in [
        ("api/x", None, 5, "no longer be charged to \"routes\""),
        // Names that begin so leave the shorter pattern.
        ("api/v1/*", None, 5, "no longer be charged to \"routes\""),
        ("api/x", Some("routes"), 51, "by more than 10 times"),
    ] {
        let (code, field, detail) = put(name, parent, limit).await.problem(409);
        assert_eq!((code.as_str(), field.as_str()), ("confirm_needed", "confirm"), "{name}: {detail}");
        assert!(detail.contains(why) && detail.contains("the pattern \"api/*\""), "{name}: {detail}");
        let tried = put(&format!("{name}?dry_run=true"), parent, limit).await.json();
        assert!(tried["confirm"].as_str().is_some_and(|said| said.contains(why)), "{name}: {tried}");
        assert_eq!(tried["is_new"], json!(true), "{name}");
    }
    for (path, parent) in [
        ("api/x", Some("routes")),
        ("api/v1/*", Some("routes")),
        ("api/y?confirm=true", None),
        ("other", None),
    ] {
        let made = put(path, parent, 5).await;
        assert_eq!(made.status, StatusCode::CREATED, "{path}: {}", made.text);
    }
}
