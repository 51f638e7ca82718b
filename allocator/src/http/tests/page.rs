//! The page for operators, its requests, and what other web sites must not get.

use super::*;
use std::collections::BTreeMap;

const BROWSER: [(&str, &str); 2] = [("host", "box:7400"), ("origin", "http://elsewhere")];

impl App {
    async fn send_as(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> Reply {
        let request =
            headers.iter().fold(Request::builder().method(method).uri(path), |request, (name, value)| {
                request.header(*name, *value)
            });
        self.send(request.body(Body::empty()).expect("a request")).await
    }

    async fn headers(&self, path: &str) -> BTreeMap<String, String> {
        let request = Request::get(path).body(Body::empty()).expect("a request");
        let response = self.service.answer(request, identity).await.expect("routes do not fail");
        let text = |value: &axum::http::HeaderValue| value.to_str().expect("text").to_owned();
        response.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect()
    }
}

#[tokio::test]
async fn every_file_that_the_page_names_is_there_and_nothing_else_is() {
    let app = App::new(true);
    let index = app.get("/").await;
    assert_eq!((index.status, index.media.as_str()), (StatusCode::OK, "text/html; charset=utf-8"));
    let mut found = 0;
    for name in index.text.split("/page/").skip(1).filter_map(|rest| rest.split('"').next()) {
        let file = app.get(&format!("/page/{name}")).await;
        assert_eq!(file.status, StatusCode::OK, "{name}");
        found += 1;
        for module in file.text.split(" from \"./").skip(1).filter_map(|rest| rest.split('"').next()) {
            let module = app.get(&format!("/page/{module}")).await;
            assert_eq!(
                (module.status, module.media.as_str()),
                (StatusCode::OK, "text/javascript; charset=utf-8")
            );
        }
    }
    assert!(found >= 5, "style sheets, scripts and an icon: {found}");
    assert_eq!(app.get("/page/nope.js").await.problem(404).0, "not_found");
    assert_eq!(app.get("/page/..%2Fmod.rs").await.problem(404).0, "not_found");
    assert_eq!(app.get("/page/%FF").await.problem(404).0, "not_found");
}

/// The plot library is as it was published. All other scripts are ours, and none makes markup of text.
#[tokio::test]
async fn no_script_makes_markup_of_text() {
    let app = App::new(true);
    let main = app.get("/page/main.js").await.text;
    assert!(main.contains("import"), "it is a module");
    let ours = [
        "main",
        "allocator",
        "actions",
        "change",
        "dom",
        "events",
        "figures",
        "limit",
        "list",
        "plot",
        "sign",
        "words",
    ];
    for name in ours {
        let text = app.get(&format!("/page/{name}.js")).await.text;
        for danger in
            ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "http://", "https://"]
        {
            assert!(!text.contains(danger), "{danger} in {name}.js");
        }
    }
}

#[tokio::test]
async fn browsers_are_told_to_load_nothing_else_and_to_keep_nothing() {
    let app = App::new(true);
    for path in [
        "/",
        "/page/main.js",
        "/v1/limits",
        "/v1/limits/nope",
        "/v1/limits/export/top",
        "/v1/status",
        "/v1/events",
    ] {
        let headers = app.headers(path).await;
        let header = |name: &str| headers.get(name).map(String::as_str);
        assert_eq!(header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(header("cache-control"), Some("no-store"), "{path}");
        assert_eq!(header("cross-origin-resource-policy"), Some("same-origin"), "{path}");
    }
    let policy = app.headers("/").await["content-security-policy"].clone();
    assert!(
        policy.starts_with("default-src 'none'; script-src 'self';") && !policy.contains("unsafe"),
        "{policy}"
    );
    assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
}

#[tokio::test]
async fn what_another_site_asks_for_is_not_done() {
    let app = App::new(true);
    let paused = async || app.get("/v1/limits/vendor/rest").await.json()["paused"].clone();
    app.post("/v1/limits/vendor/rest/pause", "{}").await;
    for (method, path) in [
        (Method::POST, "/v1/limits/vendor/rest/resume"),
        (Method::POST, "/v1/limits/vendor/rest/nodes/a/block"),
        (Method::POST, "/v1/limits/vendor/rest/top-up"),
        (Method::PUT, "/v1/limits/vendor/rest"),
        (Method::DELETE, "/v1/limits/vendor/rest"),
        (Method::POST, "/v1/leases"),
        (Method::POST, "/v1/nodes/a/leave"),
    ] {
        let before = app.books().await;
        assert_eq!(
            app.send_as(method.clone(), path, &BROWSER).await.problem(403).0,
            "cross_site",
            "{method} {path}"
        );
        assert_eq!((app.books().await, paused().await), (before, json!(true)), "{method} {path}");
    }
    let own = [("host", "box:7400"), ("origin", "http://box:7400")];
    let resumed = app.send_as(Method::POST, "/v1/limits/vendor/rest/resume", &own).await;
    assert_eq!((resumed.status, paused().await), (StatusCode::OK, json!(false)));
}

#[tokio::test]
async fn who_holds_and_wants_most_is_shown() {
    let app = App::new(true);
    for (session, want) in [(1, 10), (2, 30), (3, 20)] {
        let ask =
            json!({ "limit": "vendor/rest", "spent_total": 0, "held": 0, "want": want, "demand": want * 2 });
        let key = |name: &str| json!({ "limit": "export", "key": name, "spent_total": 0, "held": 0, "want": 1, "demand": session });
        app.lease(session, 1, json!([ask, key(&format!("k{session}")), key("all")])).await;
    }
    let top = app.get("/v1/limits/vendor/rest/top?count=2").await.json();
    assert_eq!(
        (&top["sessions"], &top["demand"], &top["pools"], &top["looked_at"]),
        (&json!(3), &json!(120.0), &json!(1), &json!(1))
    );
    let nodes = top["nodes"].as_array().expect("a list");
    let of =
        |at: usize| (nodes[at]["node"].as_str(), nodes[at]["lessee"].as_u64(), nodes[at]["demand"].as_f64());
    assert_eq!(
        (nodes.len(), of(0), of(1)),
        (2, (Some("node-1"), Some(1), Some(60.0)), (Some("node-1"), Some(2), Some(40.0)))
    );
    let lent: u64 = (0..2).map(|at| nodes[at]["lease"].as_u64().expect("a number")).sum();
    assert!(lent > 0 && lent < top["lease"].as_u64().expect("a number"), "{top}");
    assert!(top.get("keys").is_none(), "it has none");
    assert!(!top.to_string().contains("\"session\""), "it is the secret of the session: {top}");

    let top = app.get("/v1/limits/export/top?count=2").await.json();
    let keys: Vec<&str> =
        top["keys"].as_array().expect("a list").iter().filter_map(|key| key["key"].as_str()).collect();
    assert_eq!((keys, &top["pools"], &top["looked_at"]), (vec!["all", "k3"], &json!(4), &json!(4)));
    assert_eq!(top["nodes"][0]["pools"], json!(2), "a session is one line, however many pools it uses");

    assert_eq!(app.get("/v1/limits/nope/top").await.problem(404).0, "limit_unknown");
    for query in ["count=0", "count=101", "count=x", "key=a", "order=node"] {
        app.get(&format!("/v1/limits/export/top?{query}")).await.problem(422);
    }
}

/// The bug: a node that had used up a limit, and wanted and held nothing any more, came after all that still wanted some.
#[tokio::test]
async fn a_node_that_used_up_a_limit_is_shown_first_once_it_is_away() {
    let app = App::new(true);
    let ask = |limit: &str, spent: &Value, want: u64| {
        let key = (limit == "export").then_some("used");
        json!({ "limit": limit, "key": key, "spent_total": spent, "held": 0, "want": want, "demand": want })
    };
    let none = json!(0);
    let lent = app.lease(1, 1, json!([ask("vendor/rest", &none, 9), ask("export", &none, 3)])).await;
    let [all, of_key] = [&lent[0]["permits"], &lent[1]["permits"]];
    app.lease(1, 2, json!([ask("vendor/rest", all, 0), ask("export", of_key, 0)])).await;
    for session in 2..32 {
        let key = json!({ "limit": "export", "key": format!("k{session}"), "spent_total": 0, "held": 0, "want": 1, "demand": 1 });
        app.lease(session, 1, json!([ask("vendor/rest", &none, 1), key])).await;
    }
    let top =
        async |limit: &str, query: &str| app.get(&format!("/v1/limits/{limit}/top{query}")).await.json();
    let spent = |top: &Value| {
        top["nodes"].as_array().expect("a list").iter().map(|node| node["spent"].as_u64()).max()
    };
    assert_eq!(spent(&top("vendor/rest", "").await), Some(Some(0)), "it is not among the first twenty");
    assert_eq!(top("vendor/rest", "?order=spent").await["nodes"][0]["spent"], *all);
    let keys = top("export", "?order=spent&count=1").await["keys"].clone();
    assert_eq!((&keys[0]["key"], &keys[0]["spent"]), (&json!("used"), of_key), "{lent:?}");
    assert_ne!(top("export", "?order=wanted").await["keys"][0]["key"], json!("used"));
}

/// The bug: the end of a vendor's pause was in no figure of a limit.
#[tokio::test]
async fn a_pause_of_the_vendor_says_for_how_long() {
    let app = App::new(true);
    for seq in [1, 2] {
        let observed = json!({ "number": seq, "refused_total": seq, "wait_ms": 40_000 });
        let ask = |limit: &str, key: Option<&str>| json!({ "limit": limit, "key": key, "spent_total": 0, "held": 0, "want": 1, "observed": observed });
        app.lease(1, seq, json!([ask("vendor/rest", None), ask("export", Some("k"))])).await;
    }
    let lasts = async |limit: &str| {
        let shown = app.get(&format!("/v1/limits/{limit}")).await.json();
        assert_eq!(shown["vendor_paused_pools"], json!(1), "{shown}");
        shown["vendor_paused_ms"].as_u64()
    };
    assert!(lasts("vendor/rest").await.is_some_and(|ms| (30_000..=40_000).contains(&ms)));
    assert_eq!(lasts("export").await, None, "each pool has its own: …/pools has it");
}

/// More pools than are looked at in one step.
#[tokio::test]
async fn every_pool_is_looked_at_once() {
    let app = App::new(true);
    for page in 0..3 {
        let asks: Vec<Value> = (0..500)
            .map(|n| json!({ "limit": "export", "key": format!("{}", page * 500 + n), "spent_total": 0, "held": 0, "want": 1, "demand": n }))
            .collect();
        app.lease(1, page + 1, json!(asks)).await;
    }
    let top = app.get("/v1/limits/export/top?count=3").await.json();
    assert_eq!(
        (&top["pools"], &top["looked_at"], &top["nodes"][0]["pools"]),
        (&json!(1_500), &json!(1_500), &json!(1_500))
    );
    let keys: Vec<&str> =
        top["keys"].as_array().expect("a list").iter().filter_map(|key| key["key"].as_str()).collect();
    assert_eq!(keys, ["1499", "499", "999"]);
}

/// A limit may be named like a path below another one.
#[tokio::test]
async fn a_limit_called_top_is_itself() {
    let app = App::new(true);
    let body = json!({ "rules": [{ "kind": "fixed_window", "limit": 5, "per": "1m" }] });
    let request = Request::put("/v1/limits/export/top?fresh=true").header("content-type", "application/json");
    let made = app.send(request.body(Body::from(body.to_string())).expect("a request")).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text);
    assert_eq!(app.get("/v1/limits/export/top").await.json()["name"], json!("export/top"));
    assert_eq!(app.get("/v1/limits/export/top/top").await.json()["limit"], json!("export/top"));
}

/// The bug: a limit of such a name could not be read, and so not be changed.
#[tokio::test]
async fn a_limit_called_pools_is_itself() {
    let app = App::new(true);
    let of_export = app.get("/v1/limits/export/pools").await.json();
    assert_eq!((&of_export["limit"], of_export["pools"].is_array()), (&json!("export"), true));
    let body = json!({ "rules": [{ "kind": "fixed_window", "limit": 5, "per": "1m" }] }).to_string();
    let made = app.request("PUT", "/v1/limits/export/pools?fresh=true", None, &body).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text);
    assert_eq!(app.get("/v1/limits/export/pools").await.json()["name"], json!("export/pools"));
    assert_eq!(app.get("/v1/limits/export/pools/pools").await.json()["limit"], json!("export/pools"));
}

#[tokio::test]
async fn how_the_allocator_stands_is_said_with_its_reasons() {
    let status = App::new(true).get("/v1/status").await.json();
    assert_eq!(
        (&status["status"], &status["reasons"], &status["store"]),
        (&json!("ready"), &json!([]), &json!("memory"))
    );
    let app = App::new(false);
    let status = app.get("/v1/status").await.json();
    assert_eq!((&status["status"], &status["reasons"]), (&json!("not_ready"), &json!(["quarantine"])));
    assert_eq!(
        (&status["quarantine"]["limits"], &status["quarantine"]["first"][0]),
        (&json!(3), &json!("export"))
    );
    app.shared.stop();
    assert_eq!(app.get("/v1/status").await.json()["reasons"], json!(["stopping", "quarantine"]));
}

#[tokio::test]
async fn what_happened_lately_is_remembered() {
    let app = App::new(true);
    app.post("/v1/limits/vendor/rest/pause", r#"{"for":"1h"}"#).await;
    app.post("/v1/limits/vendor/rest/nodes/a/block", "").await;
    let events = app.get("/v1/events/recent").await.json()["events"].clone();
    let of =
        |at: usize| (events[at]["kind"].as_str(), events[at]["limit"].as_str(), events[at]["node"].as_str());
    assert_eq!(of(0), (Some("blocked"), Some("vendor/rest"), Some("a")));
    assert_eq!(of(1), (Some("paused"), Some("vendor/rest"), None));
    assert!(events[0]["ago_ms"].as_u64().is_some_and(|ago| ago < 60_000), "{events}");
    let left = app.get("/v1/limits/vendor/rest").await.json()["paused_ms"].as_u64().expect("it ends");
    assert!((3_500_000..=3_600_000).contains(&left), "{left}");
    // The bugs: the end of a block looked like the end of a pause, and a new limit like one that is gone.
    app.request("DELETE", "/v1/limits/vendor/rest/nodes/a/block", None, "").await;
    let made = r#"{"rules":[{"kind":"fixed_window","limit":1,"per":"1s"}]}"#;
    app.request("PUT", "/v1/limits/made", None, made).await;
    app.request("PUT", "/v1/limits/made", Some("*"), made).await;
    app.request("DELETE", "/v1/limits/made?confirm=true", Some("*"), "").await;
    let events = app.get("/v1/events/recent").await.json()["events"].clone();
    let of = |at: usize| (events[at]["kind"].as_str(), events[at]["became"].as_str());
    assert_eq!([0, 1, 2].map(of), [Some("gone"), None, Some("new")].map(|became| (Some("changed"), became)));
    assert_eq!((events[3]["kind"].as_str(), events[3]["node"].as_str()), (Some("resumed"), Some("a")));
    app.post("/v1/limits/vendor/rest/pause", "{}").await;
    assert_eq!(
        app.get("/v1/limits/vendor/rest").await.json().get("paused_ms"),
        None,
        "until an operator resumes it"
    );
}
