//! Changes by operators over HTTP, and the answers to wrong ones.

use super::*;
use crate::samples::{STORE, limits};

const RULES: &str = r#"{"rules":[{"kind":"sliding_window","limit":LIMIT,"per":"30s"}]}"#;

fn limit(permits: u64) -> String {
    RULES.replace("LIMIT", &permits.to_string())
}

impl App {
    pub(super) async fn request(
        &self,
        method: &str,
        path: &str,
        condition: Option<&str>,
        body: &str,
    ) -> Reply {
        let mut request =
            Request::builder().method(method).uri(path).header("content-type", "application/json");
        if let Some(condition) = condition {
            request = request.header("if-match", condition);
        }
        self.send(request.body(Body::from(body.to_owned())).expect("a request")).await
    }

    async fn etag(&self, path: &str) -> String {
        let request = Request::get(path).body(Body::empty()).expect("a request");
        let response = self.service.answer(request, identity).await.expect("routes do not fail");
        response.headers()["etag"].to_str().expect("text").to_owned()
    }
}

/// The bug: the answer was 200, and the quarantine went on.
#[tokio::test]
async fn fresh_is_refused_for_a_limit_in_quarantine() {
    let app = App::new(false);
    for query in ["?fresh=true", "?fresh=true&dry_run=true"] {
        let path = format!("/v1/limits/vendor/rest{query}");
        let (code, field, detail) = app.request("PUT", &path, Some("*"), &limit(1_000)).await.problem(422);
        assert_eq!((code.as_str(), field.as_str()), ("invalid", "fresh"));
        assert!(detail.contains("it is in quarantine"), "{detail}");
    }
    let ask = json!([{ "limit": "new", "spent_total": 0, "held": 0, "want": 4, "waiting": 4 }]);
    let made = app.request("PUT", "/v1/limits/new?fresh=true", None, &limit(10)).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text);
    assert_eq!(app.lease(1, 1, ask).await[0]["permits"], json!(4), "a new limit lends at once");
    let again = app.request("PUT", "/v1/limits/new?fresh=true", Some("*"), &limit(10)).await;
    assert_eq!(again.status, StatusCode::OK, "the limit is in no quarantine: {}", again.text);
    let waits = app.get("/v1/limits/vendor/rest").await.json()["quarantine_ms"].as_u64();
    assert!(waits > Some(0), "{waits:?}");
}

#[tokio::test]
async fn a_limit_is_made_changed_and_taken_away() {
    let app = App::new(true);
    let path = "/v1/limits/new/one";
    let made = app.request("PUT", path, None, &limit(10)).await;
    assert_eq!(
        (made.status, made.json()["available"].as_u64()),
        (StatusCode::CREATED, Some(10)),
        "{}",
        made.text
    );
    let etag = app.etag(path).await;
    let ask = json!([{ "limit": "new/one", "spent_total": 0, "held": 0, "want": 4, "waiting": 4 }]);
    assert_eq!(app.lease(1, 1, ask.clone()).await[0]["permits"], json!(4));
    // A client cannot change a limit that it has not seen.
    assert_eq!(app.request("PUT", path, None, &limit(20)).await.problem(428).0, "if_match_missing");
    assert_eq!(
        app.request("PUT", path, Some("\"other\""), &limit(20)).await.problem(412).0,
        "changed_meanwhile"
    );
    let changed = app.request("PUT", path, Some(&etag), &limit(20)).await;
    assert_eq!((changed.status, changed.json()["available"].as_u64()), (StatusCode::OK, Some(16)));
    assert_eq!(app.request("PUT", path, Some(&etag), &limit(30)).await.problem(412).0, "changed_meanwhile");
    assert_eq!(app.request("DELETE", path, None, "").await.problem(428).0, "if_match_missing");
    assert_eq!(app.request("DELETE", path, Some("*"), "").await.problem(409).0, "confirm_needed");
    let sure = "/v1/limits/new/one?confirm=true";
    assert_eq!(app.request("DELETE", sure, Some("*"), "").await.status, StatusCode::NO_CONTENT);
    assert_eq!(app.get(path).await.problem(404).0, "limit_unknown");
    let holds = json!([{ "limit": "new/one", "spent_total": 1, "held": 2, "want": 4, "waiting": 4 }]);
    assert_eq!(app.lease(1, 2, holds).await[0]["error"]["code"], json!("limit_unknown"));
    assert_eq!(app.request("DELETE", path, Some("*"), "").await.problem(404).0, "limit_unknown");
    // One of four came back. The rest of the old grant counts: the new limit does not have all of it.
    let again = app.request("PUT", path, None, &limit(20)).await;
    assert_eq!((again.status, again.json()["available"].as_u64()), (StatusCode::CREATED, Some(17)));
}

/// Permits that a pattern lent by a name are still out when that name becomes a limit of its own, which has no record
/// of them.
#[tokio::test]
async fn a_limit_that_a_pattern_stood_for_waits_for_what_is_out() {
    let app = App::new(true);
    let put = async |name: &str, limit: u64| {
        let reply = app.request("PUT", &format!("/v1/limits/{name}"), None, &self::limit(limit)).await;
        assert_eq!(reply.status, StatusCode::CREATED, "{}", reply.text);
        reply.json()["available"].as_u64()
    };
    put("api/*", 10).await;
    let ask = json!([{ "limit": "api/orders", "spent_total": 0, "held": 0, "want": 4, "waiting": 4 }]);
    assert_eq!(app.lease(1, 1, ask).await[0]["permits"], json!(4));
    assert_eq!(put("api/orders", 10).await, Some(0));
    assert_eq!(put("api/users", 10).await, Some(10), "no node used that name");
}

#[tokio::test]
async fn a_dry_run_shows_every_pool_and_changes_none() {
    let app = App::new(true);
    app.lease(1, 1, json!([ask(100)])).await;
    let before = app.books().await;
    let body = r#"{"rules":[{"kind":"sliding_window","limit":60,"per":"30s"}]}"#;
    let path = "/v1/limits/vendor/rest?dry_run=true&carry=reset";
    let preview = app.request("PUT", path, Some("*"), body).await;
    assert_eq!(preview.status, StatusCode::OK, "{}", preview.text);
    let pool = &preview.json()["pools"][0];
    assert_eq!((&pool["available_after"], &pool["outstanding"]), (&json!(0), &json!(100)), "{pool}");
    assert_eq!((&pool["over"], &pool["lessees"]), (&json!(40), &json!(1)));
    assert_eq!(pool["quarantine_ms"], 0);
    assert_eq!(app.books().await, before);
}

/// The bug: what was spent, scaled in proportion, did not fit 64 bits. The allocator lost the books of all limits by that.
#[tokio::test]
async fn a_dry_run_in_proportion_beyond_all_bounds_costs_no_limit_its_books() {
    let app = App::new(true);
    assert_eq!(app.request("PUT", "/v1/limits/a", None, &limit(1)).await.status, StatusCode::CREATED);
    let topped = app.post("/v1/limits/a/top-up?confirm=true", r#"{"permits":10000}"#).await;
    assert_eq!(topped.status, StatusCode::OK, "{}", topped.text);
    let ask = |spent: u64, want: u64| json!([{ "limit": "a", "spent_total": spent, "held": 0, "want": want, "waiting": want }]);
    let lent = app.lease(1, 1, ask(0, 3_000)).await[0]["permits"].as_u64().expect("a number");
    assert!(lent > 1_000, "{lent}");
    app.lease(1, 2, ask(lent, 1)).await;
    let path = "/v1/limits/a?dry_run=true&carry=proportional";
    let tried = app.request("PUT", path, Some("*"), &limit((1 << 53) - 1)).await;
    assert_eq!(
        (tried.status, &tried.json()["pools"][0]["available_after"]),
        (StatusCode::OK, &json!(0)),
        "{}",
        tried.text
    );
    assert_eq!(app.lease(2, 1, json!([self::ask(100)])).await[0]["permits"], json!(100));
}

#[tokio::test]
async fn a_top_up_is_made_once_however_often_it_is_sent() {
    let app = App::new(true);
    let path = "/v1/limits/vendor/rest/top-up";
    let before = app.get("/v1/limits/vendor/rest").await.json()["available"].as_u64().expect("a number");
    for topped_up in [50, 0] {
        let reply = app.post(path, r#"{"permits":50,"id":"ticket-7"}"#).await;
        assert_eq!(reply.json()["topped_up"], json!(topped_up), "{}", reply.text);
        assert_eq!(reply.json()["available"], json!(before + 50));
    }
    // The bug: another number under the same id was answered as if it had been added.
    let (code, field, detail) = app.post(path, r#"{"permits":60,"id":"ticket-7"}"#).await.problem(409);
    assert_eq!((code.as_str(), field.as_str()), ("id_used", "id"), "{detail}");
    assert!(detail.contains("\"ticket-7\"") && detail.contains("50") && detail.contains("60"), "{detail}");
    let check = async |body: &str, field: &str| {
        let (code, wrong, detail) = app.post(path, body.to_owned()).await.problem(422);
        assert_eq!((code.as_str(), wrong.as_str()), ("invalid", field), "{detail}");
    };
    check(r#"{"permits":0}"#, "permits").await;
    check(r#"{"permits":-5}"#, "permits").await;
    check(r#"{"permits":9007199254740992}"#, "permits").await;
    check("{}", "permits").await;
    check(r#"{"permits":1,"permit":1}"#, "body").await;
    assert_eq!(app.post("/v1/limits/export/top-up", r#"{"permits":1}"#).await.problem(422).0, "key_mismatch");
    assert_eq!(app.post("/v1/limits/none/top-up", r#"{"permits":1}"#).await.problem(404).0, "limit_unknown");
}

/// The bug: the top-up of another key under the same id was answered as if that key had been topped up before.
#[tokio::test]
async fn an_id_of_a_top_up_is_used_for_one_key() {
    let app = App::new(true);
    let path = "/v1/limits/export/top-up";
    let of =
        async |key: &str| app.post(path, format!(r#"{{"permits":5,"key":"{key}","id":"ticket-7"}}"#)).await;
    assert_eq!(of("a").await.json()["topped_up"], json!(5));
    let (code, field, detail) = of("b").await.problem(409);
    assert_eq!((code.as_str(), field.as_str()), ("id_used", "id"), "{detail}");
    assert!(detail.contains("\"ticket-7\"") && detail.contains("key \"a\""), "{detail}");
    assert_eq!(of("a").await.json()["topped_up"], json!(0), "the same again");
}

#[tokio::test]
async fn a_paused_limit_and_a_blocked_node_are_lent_nothing() {
    let app = App::new(true);
    let paused = app.post("/v1/limits/vendor/rest/pause", r#"{"for":"10m"}"#).await;
    assert_eq!((paused.status, &paused.json()["paused_ms"]), (StatusCode::OK, &json!(600_000)));
    let grant = app.lease(1, 1, json!([ask(5)])).await[0].clone();
    assert_eq!((&grant["refused"], &grant["permits"]), (&json!("paused"), &json!(0)));
    assert!(grant["retry_after_ms"].as_u64().expect("a number") > 590_000);
    assert_eq!(app.post("/v1/limits/vendor/rest/resume", "").await.json()["was_paused"], json!(true));
    let block = "/v1/limits/vendor/rest/nodes/node-1/block";
    let unknown = app.post("/v1/limits/vendor/rest/nodes/node-7/block", "").await;
    assert_eq!((unknown.status, &unknown.json()["is_known"]), (StatusCode::OK, &json!(false)));
    assert_eq!(app.post(block, "").await.json()["is_known"], json!(true));
    assert_eq!(app.lease(1, 2, json!([ask(5)])).await[0]["refused"], json!("blocked"));
    assert_eq!(app.request("DELETE", block, None, "").await.json()["was_blocked"], json!(true));
    assert_eq!(app.lease(1, 3, json!([ask(5)])).await[0]["permits"], json!(5));
    for span in ["soon", "0s", "0ms"] {
        let body = json!({ "for": span }).to_string();
        assert_eq!(app.post("/v1/limits/vendor/rest/pause", body).await.problem(422).1, "for");
    }
    assert_eq!(
        app.post("/v1/limits/vendor/rest/nodes/a b/block".replace(' ', "%20").as_str(), "")
            .await
            .problem(422)
            .1,
        "node"
    );
    assert_eq!(app.post("/v1/limits/vendor/rest/nonsense", "").await.problem(404).0, "not_found");
}

#[tokio::test]
async fn what_is_wrong_with_a_limit_is_named_and_nothing_changes() {
    let app = App::new(true);
    let before = app.books().await;
    let check = async |path: &str, body: &str, status: u16, field: &str| {
        let (code, wrong, detail) = app.request("PUT", path, Some("*"), body).await.problem(status);
        assert_eq!(wrong, field, "{code}: {detail}");
    };
    let path = "/v1/limits/vendor/rest";
    check(path, r#"{"rules":[{"kind":"sliding_window","limit":5}]}"#, 422, "rules[0].per").await;
    check(path, r#"{"rules":[{"kind":"sliding_window","limit":-5,"per":"1s"}]}"#, 422, "rules[0].limit")
        .await;
    check(path, "{", 400, "").await;
    check(&format!("{path}?carry=all"), &limit(5), 422, "carry").await;
    check(&format!("{path}?dry_run=yes"), &limit(5), 422, "dry_run").await;
    check(&format!("{path}?what=1"), &limit(5), 422, "query").await;
    check("/v1/limits/b%C3%BCro", &limit(5), 422, "name").await;
    check("/v1/limits/none", &limit(5), 412, "").await;
    assert_eq!(app.books().await, before);
}

/// A listener hears events from then on, and the end of the stream.
#[tokio::test]
async fn who_listens_is_told_what_happens() {
    let app = App::new(true);
    let request = Request::get("/v1/events").body(Body::empty()).expect("a request");
    let response = app.service.answer(request, identity).await.expect("routes do not fail");
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    app.post("/v1/limits/vendor/rest/top-up", r#"{"permits":5}"#).await;
    app.post("/v1/limits/vendor/rest/pause", "").await;
    app.shared.stop();
    let body = to_bytes(response.into_body(), usize::MAX).await.expect("our own body");
    let text = String::from_utf8(body.to_vec()).expect("text");
    assert!(text.starts_with(": listening\n\n"), "{text}");
    assert!(text.len() < 1_000, "{text}");
}

/// A pause reaches the limits below, and a limit with others below it cannot be removed.
#[tokio::test]
async fn what_is_below_a_paused_limit_is_lent_nothing() {
    let app = App::new(true);
    let path = "/v1/limits/below";
    let below = r#"{"parent":"vendor/rest","rules":[{"kind":"sliding_window","limit":10,"per":"30s"}]}"#;
    assert_eq!(
        app.request("PUT", path, None, &below.replace("vendor/rest", "none")).await.problem(422).1,
        "parent"
    );
    assert_eq!(app.request("PUT", path, None, below).await.status, StatusCode::CREATED);
    assert_eq!(
        app.request("DELETE", "/v1/limits/vendor/rest", Some("*"), "").await.problem(409).0,
        "has_children"
    );
    let ask = |spent: u64, held: u64| json!([{ "limit": "below", "spent_total": spent, "held": held, "want": 4, "waiting": 4 }]);
    assert_eq!(app.lease(1, 1, ask(0, 0)).await[0]["permits"], json!(4));
    app.post("/v1/limits/vendor/rest/pause", "").await;
    assert_eq!(app.lease(1, 2, ask(1, 0)).await[0]["refused"], json!("paused"));
    // Spent and returned permits count in both limits.
    for name in ["below", "vendor/rest"] {
        let pool = app.get(&format!("/v1/limits/{name}/pools")).await.json()["pools"][0].clone();
        assert_eq!((&pool["spent"], &pool["outstanding"]), (&json!(1), &json!(0)), "{name}: {pool}");
    }
    // A limit that was lowered below what is out keeps the limits below it from extending their leases.
    app.post("/v1/limits/vendor/rest/resume", "").await;
    assert_eq!(app.lease(1, 3, ask(1, 0)).await[0]["permits"], json!(4));
    assert_eq!(
        app.request("PUT", "/v1/limits/vendor/rest?confirm=true", Some("*"), &limit(2)).await.status,
        StatusCode::OK
    );
    let grant = app.lease(1, 4, ask(1, 4)).await[0].clone();
    assert_eq!(
        (&grant["held"], &grant["permits"], &grant["term_ms"]),
        (&json!(4), &json!(0), &json!(0)),
        "{grant}"
    );
}

#[tokio::test]
async fn a_limit_that_is_leased_is_topped_up_where_it_is_leased_from() {
    let app = App::of(&format!("[server]\nupstreams = [\"http://127.0.0.1:9\"]\n{CONFIG}"), true);
    let path = "/v1/limits/leased";
    let made = app.request("PUT", path, None, r#"{"upstream":"http://127.0.0.1:9"}"#).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text);
    let (code, field, detail) =
        app.request("POST", &format!("{path}/top-up"), None, r#"{"permits":5}"#).await.problem(422);
    assert_eq!((code.as_str(), field.as_str()), ("invalid", "limit"));
    assert!(detail.contains("is leased from http://127.0.0.1:9"), "{detail}");
    let shown = app.get("/v1/limits/leased").await.json();
    assert_eq!(shown["upstream"], json!("http://127.0.0.1:9"), "{shown}");
}

/// The bug: of a limit with an upstream of its own, a pause held at one allocator alone, and until its next start.
#[tokio::test]
async fn with_a_shared_store_a_limit_of_another_allocator_is_suspended_for_all() {
    let app = App::of(&format!("{STORE}[[limit]]\nname = \"a\"\nupstream = \"http://127.0.0.1:1\""), true);
    for path in ["/v1/limits/a/pause", "/v1/limits/a/nodes/n/block"] {
        assert_eq!(app.post(path, "").await.problem(503).0, "store_failing");
    }
    let mut suspensions = lessor_ledger::overrides::Suspensions::default();
    let there = lessor_protocol::Moment::from_nanos(1_000_000_000_000);
    suspensions.decide("a", &lessor_ledger::overrides::Decision::Pause(None), there).expect("there is room");
    app.shared.follow_suspensions(&suspensions, there);
    let paused = app
        .shared
        .with(|registry, now| registry.limit("a").and_then(|limit| limit.suspension().paused_until(now)));
    assert_eq!(paused, Some(lessor_protocol::Moment::NEVER));
}

/// A change that cannot be made for all allocators of a store is made at none of them.
#[tokio::test]
async fn a_limit_of_a_shared_store_is_put_and_removed_there_or_not_at_all() {
    let rules = "[{ kind = \"sliding_window\", limit = 9, per = \"30s\" }]";
    let app = App::of(&format!("{STORE}[[limit]]\nname = \"a\"\nrules = {rules}"), true);
    let known = async || app.get("/v1/limits").await.json()["limits"].as_array().expect("a list").len();
    let path = "/v1/limits/a";
    for (method, path, condition, body) in [
        ("PUT", path, Some("*"), limit(10)),
        ("PUT", "/v1/limits/b", None, limit(10)),
        ("DELETE", "/v1/limits/a?confirm=true", Some("*"), String::new()),
    ] {
        let reply = app.request(method, path, condition, &body).await;
        assert_eq!(reply.problem(503).0, "store_failing", "{}", reply.text);
        let path = path.split('?').next().expect("a path");
        assert_eq!(
            (app.get(path).await.status == StatusCode::OK, known().await),
            (path.starts_with("/v1/limits/a"), 1)
        );
    }
    let warming = r#"{"rules":[{"kind":"token_bucket","capacity":1,"refill":9000,"per":"1s","warm_up":{"over":"1s"}}]}"#;
    let tried = app.request("PUT", "/v1/limits/a?dry_run=true", Some("*"), &limit(10)).await;
    assert_eq!(tried.json()["is_new"], json!(false), "{}", tried.text);
    for (query, body, wrong) in [
        ("?carry=reset", limit(10), "carry"),
        ("?carry=proportional&dry_run=true", limit(10), "carry"),
        ("?fresh=true", limit(10), "fresh"),
        ("?dry_run=true", limit(10).replacen('{', "{\"keyed\":true,", 1), "keyed"),
        ("", warming.to_owned(), "rules"),
    ] {
        let (_, field, detail) =
            app.request("PUT", &format!("{path}{query}"), Some("*"), &body).await.problem(422);
        assert_eq!(field, wrong, "{detail}");
    }
    let topped = app.request("POST", "/v1/limits/a/top-up", None, r#"{"permits":5}"#).await;
    assert!(topped.problem(422).2.contains("several allocators share"));
    // What a removed limit lent counts for a while.
    app.shared.with(|registry, _| registry.remove("a"));
    let keyed = limit(10).replacen('{', "{\"keyed\":true,", 1);
    let put = app.request("PUT", "/v1/limits/a?dry_run=true", None, &keyed).await;
    assert_eq!(put.problem(422).1, "keyed");
    // The limit may have been put by another allocator: this one does not say "limit unknown" before it has heard from
    // the store.
    let unknown =
        |session| app.lease(session, 1, json!([{ "limit": "b", "spent_total": 0, "held": 0, "want": 1 }]));
    assert_eq!(unknown(1).await[0]["refused"], json!("other"));
    app.shared.follow_overrides(&lessor_ledger::overrides::LimitOverrides::default());
    assert_eq!(unknown(2).await[0]["error"]["code"], json!("limit_unknown"));
}

/// The bug: the dry run said no more than that the limit is new, which then lent nothing for most of a day.
#[tokio::test]
async fn a_dry_run_says_for_how_long_a_new_limit_lends_nothing() {
    let daily = "rules = [{ kind = \"fixed_window\", limit = 50, per = \"1d\" }]";
    let app = App::of(&format!("[[limit]]\nname = \"api/*\"\n{daily}\n"), true);
    app.lease(1, 1, json!([{ "limit": "api/x", "spent_total": 0, "held": 0, "want": 1 }])).await;
    let body = r#"{"rules":[{"kind":"fixed_window","limit":60,"per":"1d"}]}"#;
    let put = async |name: &str, query: &str| {
        app.request("PUT", &format!("/v1/limits/{name}{query}"), None, body).await.json()
    };
    let waits = |shown: &Value, member: &str| shown[member].as_u64().unwrap_or_default();
    let tried = waits(&put("api/x", "?dry_run=true").await, "begins_anew_ms");
    let lends_nothing = waits(&put("api/x", "").await, "quarantine_ms");
    assert!(tried > 0 && tried.abs_diff(lends_nothing) < 60_000, "{tried} {lends_nothing}");
    assert_eq!(put("unused", "?dry_run=true").await["begins_anew_ms"], Value::Null);
    assert_eq!(waits(&put("unused", "").await, "quarantine_ms"), 0);
    // Unless it is told that nothing was lent before, an allocator waits for what an earlier process may have lent.
    let after_another = App::of(crate::samples::LIMIT, false);
    let mut tried = vec![];
    for query in ["?dry_run=true", "?dry_run=true&fresh=true"] {
        let path = format!("/v1/limits/new{query}");
        tried.push(after_another.request("PUT", &path, None, body).await.json()["begins_anew_ms"].is_u64());
    }
    assert_eq!(tried, [true, false]);
}

/// The bug: nothing was said of a removed pattern, to which names fall again that a shorter one lends meanwhile.
#[tokio::test]
async fn a_dry_run_says_for_how_long_the_names_of_a_removed_pattern_lend_nothing() {
    let daily = "rules = [{ kind = \"fixed_window\", limit = 50, per = \"1d\" }]";
    let limits = ["*", "api/*"].map(|name| format!("[[limit]]\nname = {name:?}\n{daily}\n"));
    let app = App::of(&limits.concat(), true);
    let ask = async |seq: u64, name: &str| {
        app.lease(1, seq, json!([{ "limit": name, "spent_total": 0, "held": 0, "want": 1 }])).await
    };
    ask(1, "api/old").await;
    let removed = app.request("DELETE", "/v1/limits/api%2F*?confirm=true", Some("*"), "").await;
    assert_eq!(removed.status, StatusCode::NO_CONTENT, "{}", removed.text);
    ask(2, "api/new").await;
    let body = r#"{"rules":[{"kind":"fixed_window","limit":60,"per":"1d"}]}"#;
    let shown = app.request("PUT", "/v1/limits/api%2F*?dry_run=true", None, body).await.json();
    assert!(shown["begins_anew_ms"].as_u64() > Some(0), "{shown}");
}

/// The bug: a limit with `/nodes/` in its name could not be told from a node of a shorter one.
#[tokio::test]
async fn a_limit_with_nodes_in_its_name_is_itself() {
    let names = ["eu", "eu/nodes/api", "us/nodes/nodes/api", "us/nodes/n/block"];
    let app = App::of(&limits(&names.map(|name| (name, 10))), true);
    for (path, name, node) in [
        ("eu/nodes/api/nodes/n1/block", "eu/nodes/api", "n1"),
        ("eu/nodes/n1/block", "eu", "n1"),
        ("eu/nodes/other/nodes/n1/block", "eu", "other/nodes/n1"),
        ("us/nodes/nodes/api/nodes/n1/block", "us/nodes/nodes/api", "n1"),
    ] {
        let blocked = app.post(&format!("/v1/limits/{path}"), "").await.json();
        assert_eq!((&blocked["limit"], &blocked["blocked"]), (&json!(name), &json!(node)), "{path}");
        let unblocked = app.request("DELETE", &format!("/v1/limits/{path}"), None, "").await.json();
        assert_eq!((&unblocked["limit"], &unblocked["was_blocked"]), (&json!(name), &json!(true)), "{path}");
    }
    let unknown = app.post("/v1/limits/asia/nodes/a/nodes/b/block", "").await.problem(404);
    assert!(unknown.2.contains("\"asia\""), "{}", unknown.2);
    let removed = app.request("DELETE", "/v1/limits/us/nodes/n/block?confirm=true", Some("*"), "").await;
    assert_eq!(removed.status, StatusCode::NO_CONTENT, "{}", removed.text);
}
