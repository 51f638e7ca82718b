//! Everything that can be read: limits, pools, health and metrics.

use super::*;
use crate::access::Access;
use crate::addresses::Address;
use crate::samples::{LIMIT, STORE};
use crate::server::Proven;
use crate::shared_store_status::Work;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[tokio::test]
async fn limits_are_shown_as_they_were_configured_with_their_figures() {
    let app = App::new(true);
    app.lease(1, 1, json!([ask(10)])).await;
    let body = app.get("/v1/limits").await.json();
    let limit = &body["limits"][2];
    let rule = json!({ "kind": "sliding_window", "limit": 1_000, "per": "30s", "margin": "250ms" });
    assert_eq!((&limit["name"], &limit["rules"]), (&json!("vendor/rest"), &json!([rule])));
    assert_eq!((&limit["keyed"], &limit["ease_off"]), (&json!(false), &json!(true)));
    let figures = ["ceiling", "pools", "lessees", "available", "outstanding", "granted", "quarantine_ms"];
    assert_eq!(figures.map(|name| limit[name].as_u64()), [1_000, 1, 1, 990, 10, 10, 0].map(Some));
}

#[tokio::test]
async fn pools_are_shown_by_key_or_by_page() {
    let app = App::new(true);
    let asks: Vec<Value> = ["c", "a/b", "b", "user 42"]
        .map(|key| json!({ "limit": "export", "key": key, "spent_total": 0, "held": 0, "want": 1 }))
        .into();
    app.lease(1, 1, json!(asks)).await;
    let keys = async |query: &str| {
        let reply = app.get(&format!("/v1/limits/export/pools{query}")).await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
        let body = reply.json();
        let pools = body["pools"].as_array().expect("a list").iter();
        let keys: Vec<String> = pools.map(|pool| pool["key"].as_str().expect("a text").to_owned()).collect();
        (keys.join(","), body["next"].as_str().unwrap_or_default().to_owned())
    };
    let pair = |keys: &str, next: &str| (keys.to_owned(), next.to_owned());
    assert_eq!(keys("").await, pair("a/b,b,c,user 42", ""));
    assert_eq!(keys("?count=2").await, pair("a/b,b", "b"));
    assert_eq!(keys("?count=2&after=b").await, pair("c,user 42", "user 42"));
    assert_eq!(keys("?count=2&after=user%2042").await, pair("", ""));
    assert_eq!(keys("?key=user%2042").await, pair("user 42", ""));
    assert_eq!(keys("?key=unused").await, pair("", ""));
    let wrong = [
        ("count=0", "count"),
        ("count=1001", "count"),
        ("count=x", "count"),
        ("after=", "after"),
        ("x=1", "query"),
    ];
    for (query, field) in wrong {
        let problem = app.get(&format!("/v1/limits/export/pools?{query}")).await.problem(422);
        assert_eq!(problem.1, field, "{query}");
    }
    assert_eq!(app.get("/v1/limits/nope/pools").await.problem(404).0, "limit_unknown");
    assert_eq!(app.get("/v1/limits/vendor/rest/pools?key=a").await.problem(422).0, "key_mismatch");
}

#[tokio::test]
async fn pools_of_a_pattern_are_shown_by_name() {
    let app = App::new(true);
    let ask = |name| json!({ "limit": name, "spent_total": 0, "held": 0, "want": 1 });
    app.lease(1, 1, json!([ask("route/b"), ask("route/a"), ask("route/c")])).await;
    let names = async |path: &str| {
        let reply = app.get(&format!("/v1/limits/route/{path}")).await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
        let body = reply.json();
        let pools = body["pools"].as_array().expect("a list").iter();
        let names: Vec<&str> = pools.map(|pool| pool["limit"].as_str().expect("a text")).collect();
        (names.join(","), body["next_limit"].as_str().unwrap_or_default().to_owned())
    };
    let pair = |names: &str, next: &str| (names.to_owned(), next.to_owned());
    assert_eq!(names("*/pools").await, pair("route/a,route/b,route/c", ""));
    assert_eq!(names("*/pools?count=2").await, pair("route/a,route/b", "route/b"));
    assert_eq!(names("*/pools?count=2&after_limit=route/b").await, pair("route/c", ""));
    assert_eq!(names("b/pools").await, pair("route/b", ""));
    assert_eq!(names("unused/pools").await, pair("", ""));
    let body = app.get("/v1/limits").await.json();
    assert_eq!((&body["limits"][1]["name"], &body["limits"][1]["names"]), (&json!("route/*"), &json!(3)));
    assert_eq!(app.get("/v1/limits/route/*/pools?key=a").await.problem(422).1, "key");
}

#[tokio::test]
async fn it_is_ready_once_every_limit_lends_and_until_it_stops() {
    let app = App::new(true);
    let ready = app.get("/readyz").await;
    let well = json!({ "ok": true });
    let checks = json!({ "store": well, "upstreams": well, "config": well, "quarantine": well });
    assert_eq!((ready.status, &ready.json()["checks"]), (StatusCode::OK, &checks));
    // A refused file says why, and the previous configuration stays in force.
    let reloads = crate::reload::Reloads::new(app.shared.clone());
    reloads.refused(&format!("line 3: limit is 0{}", " ".repeat(10_000)));
    let ready = app.get("/readyz").await;
    let config = &ready.json()["checks"]["config"];
    assert_eq!((ready.status, &config["ok"]), (StatusCode::OK, &json!(false)));
    assert!(config["reason"].as_str().is_some_and(|why| why.starts_with("line 3") && why.len() == 500));
    app.shared.shared_store_status().fell_silent(Work::Signing, Some("it is on 0 replicas, of 1".to_owned()));
    let reply = app.get("/readyz").await;
    assert_eq!(reply.problem(503).0, "store_failing");
    assert_eq!(reply.json()["checks"]["store"]["reason"], "it is on 0 replicas, of 1");
    assert_eq!(app.get("/v1/status").await.json()["checks"], reply.json()["checks"]);
    app.shared.shared_store_status().fell_silent(Work::Signing, None);
    app.shared.with(|registry, _| registry.stop());
    assert_eq!(app.get("/readyz").await.problem(503).0, "stopping");
    let app = App::new(false);
    let reply = app.get("/readyz").await;
    assert_eq!(reply.problem(503).0, "quarantine");
    let limits = &reply.json()["limits"];
    assert_eq!((&limits[0]["limit"], &limits[2]["limit"]), (&json!("export"), &json!("vendor/rest")));
    assert!(limits[2]["quarantine_ms"].as_u64().expect("a number") > 30_000);
    assert_eq!(reply.json()["checks"]["quarantine"]["ok"], false);
    for path in ["/livez", "/healthz"] {
        assert_eq!(app.get(path).await.status, StatusCode::OK);
    }
    let refused = app.lease(1, 1, json!([ask(10)])).await;
    assert_eq!((&refused[0]["refused"], &refused[0]["permits"]), (&json!("quarantine"), &json!(0)));
}

/// A scrape: HELP and TYPE of each metric, and the samples by name and labels.
#[derive(Debug)]
struct Scrape {
    help: BTreeMap<String, String>,
    kind: BTreeMap<String, String>,
    samples: BTreeMap<String, String>,
}

impl App {
    async fn scrape(&self) -> Scrape {
        let reply = self.get("/metrics").await;
        assert_eq!(reply.media, "text/plain; version=0.0.4; charset=utf-8");
        let mut scrape = Scrape { help: BTreeMap::new(), kind: BTreeMap::new(), samples: BTreeMap::new() };
        for line in reply.text.lines().filter(|line| !line.is_empty()) {
            let words: Vec<&str> = line.splitn(4, ' ').collect();
            match words[..] {
                ["#", "HELP", name, text] => drop(scrape.help.insert(name.to_owned(), text.to_owned())),
                ["#", "TYPE", name, kind] => drop(scrape.kind.insert(name.to_owned(), kind.to_owned())),
                _ => {
                    let (name, value) = line.rsplit_once(' ').expect("a sample");
                    assert!(value.parse::<f64>().is_ok(), "{line}");
                    let twice = scrape.samples.insert(name.to_owned(), value.to_owned());
                    assert!(twice.is_none(), "{name} twice");
                }
            }
        }
        scrape
    }
}

impl Scrape {
    #[track_caller]
    fn value(&self, name: &str) -> u64 {
        let value = self.samples.get(name).unwrap_or_else(|| panic!("no {name} in {:#?}", self.samples));
        value.parse().expect(value)
    }
}

#[tokio::test]
async fn every_metric_is_described_and_there_from_the_start() {
    let scrape = App::new(true).scrape().await;
    let mut families = BTreeSet::new();
    for name in scrape.samples.keys() {
        let name = name.split('{').next().unwrap_or_default();
        let parts = ["_bucket", "_sum", "_count"].iter();
        let histogram =
            parts.filter_map(|part| name.strip_suffix(part)).find(|stem| scrape.kind.contains_key(*stem));
        families.insert(histogram.unwrap_or(name).to_owned());
    }
    assert_eq!(families.len(), 54, "{families:?}");
    assert_eq!(families, scrape.help.keys().cloned().collect());
    assert_eq!(families, scrape.kind.keys().cloned().collect());
    for (name, kind) in &scrape.kind {
        assert!(name.starts_with("lessor_"), "{name}");
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
    }
    for outcome in ["ok", "malformed", "invalid", "too_large", "timeout", "too_many_exchanges"] {
        assert_eq!(scrape.value(&format!("lessor_exchanges_total{{outcome=\"{outcome}\"}}")), 0);
    }
    for reason in lessor_ledger::rejection::Reason::ALL {
        assert_eq!(scrape.value(&format!("lessor_asks_wrong_total{{reason=\"{}\"}}", reason.code())), 0);
    }
    assert_eq!(scrape.value("lessor_exchange_seconds_count"), 0);
    assert_eq!(scrape.value("lessor_ready"), 1);
}

/// The bug: where tokens were unread or a shared store silent, "the store cannot be written" was said.
#[tokio::test]
async fn a_store_that_cannot_be_used_is_said_with_its_reason() {
    let app = App::of(&[STORE, LIMIT].concat(), true);
    let (code, _, detail) = app.get("/readyz").await.problem(503);
    let why = "the store cannot be used: the store has not answered yet";
    assert_eq!((code.as_str(), detail.as_str()), ("store_failing", why));
    // The bug: metrics said that the allocator lends.
    let scrape = app.scrape().await;
    assert_eq!((scrape.value("lessor_ready"), scrape.value("lessor_store_failing")), (0, 1));
}

/// The bug: each probe of an orchestrator, which has no token, was a refused request and a line of the audit log.
#[tokio::test]
async fn a_probe_without_an_identity_is_no_refused_request() {
    let role = "[[role]]\nname = \"r\"\nidentities = [\"token:a\"]\nread = [\"*\"]\n";
    let app = App::of(&format!("{CONFIG}[auth]\ntokens = \"tokens.toml\"\n{role}"), true);
    let refused = |count| format!("lessor_refused_total{{reason=\"unauthenticated\"}} {count}\n");
    assert_eq!(app.get("/readyz").await.json(), json!({ "status": "ready" }));
    let text = app.shared.metrics().render();
    assert!(text.contains(&refused(0)), "{text}");
    assert_eq!(app.get("/v1/status").await.problem(401).0, "unauthenticated");
    let text = app.shared.metrics().render();
    assert!(text.contains(&refused(1)), "{text}");
}

/// The bug: 401, which a client takes as said by an allocator that lends to others. It ended each fallback.
#[tokio::test]
async fn a_token_that_cannot_be_checked_yet_is_not_refused() {
    let role = "[[role]]\nname = \"r\"\nidentities = [\"token:a\"]\nread = [\"*\"]\n";
    let app = App::of(&format!("{CONFIG}{STORE}[auth]\ntokens = \"store\"\n{role}"), true);
    let config = app.shared.config();
    let auth = config.auth.as_ref().expect("it is said");
    app.shared.set_access(Access::load(auth, &config.server.store).expect("no file is read"));
    let proven = Proven::default();
    let app = App { service: app.service.of_peer(Address::Unix, proven.clone()), ..app };
    let send = async |path: &str, token: &str| {
        let request = Request::post(path).header("content-type", "application/json");
        let request = request.header("authorization", format!("Bearer {token}"));
        app.send(request.body(Body::empty()).expect("a request")).await
    };
    let reply = send("/v1/leases", "lessor_07070707_secret").await;
    let (code, _, detail) = reply.problem(503);
    let why = "the tokens in the store are not read yet: no token can be checked";
    assert_eq!((code.as_str(), detail.as_str()), ("store_failing", why));
    let token = json!({ "token": "lessor_07070707_secret" });
    assert_eq!(app.post("/v1/sign-in", token.to_string()).await.problem(503).0, "store_failing");
    let refused = |count| format!("lessor_refused_total{{reason=\"unauthenticated\"}} {count}\n");
    let text = app.shared.metrics().render();
    assert!(text.contains(&refused(0)), "{text}");
    assert_eq!(app.post("/v1/leases", "{}").await.problem(401).0, "unauthenticated");
    assert_eq!(send("/v1/leases", "no.such.jwt").await.problem(401).0, "unauthenticated");
    let text = app.shared.metrics().render();
    assert!(text.contains(&refused(2)), "{text}");
    assert!(!proven.is_set(), "no identity was proven");
}

#[tokio::test]
async fn metrics_tell_what_happened() {
    let app = App::new(true);
    app.lease(1, 1, json!([ask(10), { "limit": "nope", "spent_total": 0, "held": 0, "want": 1 }])).await;
    app.lease(1, 2, json!([{ "limit": "vendor/rest", "spent_total": 4, "held": 5, "want": 0 }])).await;
    app.post("/v1/leases", "{").await;
    let scrape = app.scrape().await;
    let of = |name: &str| scrape.value(&format!("lessor_{name}{{limit=\"vendor/rest\"}}"));
    let permits = ["ceiling_permits", "available_permits", "outstanding_permits"].map(of);
    assert_eq!(permits, [1_000, 991, 5]);
    let totals = ["granted", "spent", "returned", "burned"].map(|name| of(&format!("{name}_permits_total")));
    assert_eq!(totals, [10, 4, 1, 0]);
    assert_eq!((of("pools"), of("lessees"), of("quarantine_seconds")), (1, 1, 0));
    let asks =
        |outcome| scrape.value(&format!("lessor_asks_total{{limit=\"vendor/rest\",outcome=\"{outcome}\"}}"));
    assert_eq!((asks("granted"), asks("settled"), asks("empty")), (1, 1, 0));
    assert_eq!(scrape.value("lessor_asks_wrong_total{reason=\"limit_unknown\"}"), 1);
    assert_eq!(scrape.value("lessor_exchanges_total{outcome=\"ok\"}"), 2);
    assert_eq!(scrape.value("lessor_exchanges_total{outcome=\"malformed\"}"), 1);
    assert_eq!(scrape.value("lessor_exchange_asks_sum"), 3);
    assert_eq!(scrape.value("lessor_exchange_seconds_bucket{le=\"+Inf\"}"), 2);
}

/// The state of pools, and the time until each is empty, of a limit that drains and one that no node wants.
#[tokio::test]
async fn it_is_told_how_pools_stand_and_when_the_first_is_empty() {
    let app = App::new(true);
    let seconds = |scrape: &Scrape, limit: &str| {
        let seconds = &scrape.samples[&format!("lessor_time_to_empty_seconds{{limit=\"{limit}\"}}")];
        seconds.parse::<f64>().expect("a number")
    };
    let pools = |scrape: &Scrape, limit: &str| {
        ["rich", "drain", "trickle"]
            .map(|state| scrape.value(&format!("lessor_state_pools{{limit=\"{limit}\",state=\"{state}\"}}")))
    };
    let scrape = app.scrape().await;
    assert_eq!((seconds(&scrape, "vendor/rest"), pools(&scrape, "vendor/rest")), (f64::INFINITY, [1, 0, 0]));
    assert_eq!((seconds(&scrape, "export"), pools(&scrape, "export")), (f64::INFINITY, [0, 0, 0]));
    let wants = |limit: &str, key: Option<&str>, demand: u64| json!({ "limit": limit, "key": key, "spent_total": 0, "held": 0, "want": 1, "demand": demand });
    let asks = [
        wants("vendor/rest", None, 5_000),
        wants("export", Some("idle"), 0),
        wants("export", Some("busy"), 100),
    ];
    app.lease(1, 1, json!(asks)).await;
    let scrape = app.scrape().await;
    assert_eq!(pools(&scrape, "vendor/rest"), [0, 1, 0]);
    assert!((0.1..=0.2).contains(&seconds(&scrape, "vendor/rest")), "1,000 at 5,000 a second: {scrape:?}");
    assert_eq!(pools(&scrape, "export"), [1, 1, 0]);
    assert!(seconds(&scrape, "export") < 0.1, "{scrape:?}");
    let limits = app.get("/v1/limits").await.json();
    let (export, rest) = (&limits["limits"][0], &limits["limits"][2]);
    assert_eq!(export["states"], json!({ "rich": 1, "drain": 1, "trickle": 0 }));
    assert!(rest["time_to_empty_ms"].as_u64().is_some_and(|ms| ms <= 200), "{rest}");
    let pools = app.get("/v1/limits/export/pools").await.json();
    let state =
        |index: usize| (&pools["pools"][index]["state"], pools["pools"][index]["time_to_empty_ms"].is_u64());
    assert_eq!((state(0), state(1)), ((&json!("drain"), true), (&json!("rich"), false)));
    // Nothing is lent from a paused limit, so it does not drain.
    app.post("/v1/limits/vendor/rest/pause", "{}").await;
    assert!(seconds(&app.scrape().await, "vendor/rest").is_infinite());
}

/// Seven nodes, one of them with two sessions; then more pools than a scrape looks at.
#[tokio::test]
async fn nodes_are_ranked_by_what_they_hold_and_not_named() {
    let app = App::of(&CONFIG.replace("keys_max = 2000", "keys_max = 10_000"), true);
    let ranks = |scrape: &Scrape, limit: &str| {
        ["1", "2", "3", "4", "5", "rest"].map(|rank| {
            scrape.samples[&format!("lessor_outstanding_rank_permits{{limit=\"{limit}\",rank=\"{rank}\"}}")]
                .clone()
        })
    };
    assert_eq!(ranks(&app.scrape().await, "vendor/rest"), ["0"; 6]);
    let lease = async |node: u64, session: u64, asks: Value| {
        let body = json!({ "node": format!("node-{node}"), "session": session, "seq": 1, "asks": asks });
        assert_eq!(app.post("/v1/leases", body.to_string()).await.status, StatusCode::OK);
    };
    for (node, session) in [(1, 1), (2, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7), (7, 8)] {
        lease(node, session, json!([ask(10)])).await;
    }
    assert_eq!(ranks(&app.scrape().await, "vendor/rest"), ["20", "10", "10", "10", "10", "20"]);
    let some = |from: u64| {
        let ask = |key: u64| json!({ "limit": "export", "key": format!("key-{key}"), "spent_total": 0, "held": 0, "want": 1 });
        (from..from + 500).map(ask).collect::<Vec<Value>>()
    };
    lease(9, 9, json!(some(0))).await;
    assert_eq!(ranks(&app.scrape().await, "export"), ["500", "0", "0", "0", "0", "0"]);
    for (index, from) in (500..5_500).step_by(500).enumerate() {
        lease(9, 10 + index as u64, json!(some(from))).await;
    }
    let scrape = app.scrape().await;
    assert_eq!(ranks(&scrape, "export"), ["NaN"; 6], "5,500 pools with a session each");
    // Some of those leases may have ended by now.
    assert!(ranks(&scrape, "vendor/rest").iter().all(|held| held != "NaN"), "the other limit has few pools");
}

/// Two allocators in one process, as in tests and demos, have metrics of their own.
#[tokio::test]
async fn servers_in_one_process_do_not_share_metrics() {
    let (busy, idle) = (App::new(true), App::new(true));
    busy.lease(1, 1, json!([ask(10)])).await;
    let granted = "lessor_granted_permits_total{limit=\"vendor/rest\"}";
    assert_eq!(busy.scrape().await.value(granted), 10);
    assert_eq!(idle.scrape().await.value(granted), 0);
}

/// The number of series depends on the limits alone. A fleet in full use makes them neither more nor much longer.
#[tokio::test]
async fn ten_thousand_keys_and_a_thousand_nodes_make_no_metrics_of_their_own() {
    const NODES: u64 = 1_000;
    let app = App::of(&CONFIG.replace("keys_max = 2000", "keys_max = 10_000"), true);
    let series = |text: &str| text.lines().filter(|line| !line.starts_with('#')).count();
    let before = app.get("/metrics").await.text;
    for node in 0..NODES {
        let ask = |key: u64| json!({ "limit": "export", "key": format!("key-{node}-{key}"), "spent_total": 0, "held": 0, "want": 1 });
        let asks = json!((0..10).map(ask).collect::<Vec<Value>>());
        let body = json!({ "node": format!("node-{node}"), "session": node + 1, "seq": 1, "asks": asks });
        let reply = app.post("/v1/leases", body.to_string()).await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    }
    let began = app.shared.now();
    let after = app.get("/metrics").await.text;
    println!("{} bytes, {} series, in {:?}", after.len(), series(&after), app.shared.now().since(began));
    assert_eq!(series(&after), series(&before));
    assert!(after.len() < 1_000_000, "{} bytes", after.len());
    assert!(!after.contains("key-") && !after.contains("node-"), "neither is ever a label");
    let metrics: BTreeMap<&str, &str> = after.lines().filter_map(|line| line.rsplit_once(' ')).collect();
    assert_eq!(metrics["lessor_pools{limit=\"export\"}"], "10000");
    assert_eq!(metrics["lessor_sessions"], "1000");
}

/// The bug: what had been in flight of a limit that was removed was shown for ever.
/// The bug: a leased limit with a mistyped name lent nothing, and only a line of the log said so.
#[tokio::test]
async fn an_upstream_that_lends_nothing_usable_is_a_warning() {
    let app = App::new(true);
    let warnings = async || app.get("/v1/status").await.json()["warnings"].to_string();
    assert_eq!(warnings().await, "[]");
    let (unfit, now) = (&app.shared.standing().unfit, app.shared.now());
    let note = |at| unfit.note("http://centre:7400", "nope", at, "there is no limit \"nope\"");
    note(now);
    assert!(warnings().await.contains(r#"http://centre:7400 does not lend \"nope\": there is no limit"#));
    assert_eq!(unfit.warnings(now + Duration::from_secs(60)), [""; 0], "it is over");
    note(now + Duration::from_secs(90));
    assert_eq!(unfit.warnings(now + Duration::from_secs(90)).len(), 1);
}

/// The bug: each start with `--fresh`, such as a service manager makes after each crash, threw away what the store knew,
/// and lent the whole limit again.
#[tokio::test]
async fn what_the_store_knows_goes_before_fresh() {
    let text = "[[limit]]\nname = \"vendor/rest\"\nrules = [{ kind = \"fixed_window\", limit = 100, per = \"30d\" }]";
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("lessor.redb");
    let mut lent = vec![];
    for life in 1..=4 {
        if life == 4 {
            std::fs::remove_file(&path).expect("the operator removes it");
        }
        let shared = Shared::open(samples::config(text), true, &path).expect("a store");
        let app = App { service: Service::new(shared.clone(), Part::Whole), shared };
        let mut of_life = 0;
        for seq in 1..=20 {
            let held = json!({ "limit": "vendor/rest", "spent_total": of_life, "held": 0, "want": 50, "waiting": 50 });
            of_life += app.lease(life, seq, json!([held])).await[0]["permits"].as_u64().expect("a number");
        }
        lent.push(of_life);
        let warnings = app.get("/v1/status").await.json()["warnings"].to_string();
        let is_ignored =
            warnings.contains("--fresh is ignored, except for limits that the store does not know");
        assert_eq!(is_ignored, life == 2 || life == 3, "in life {life}: {warnings}");
        app.shared.close_store();
    }
    println!("{lent:?} permits were lent in each life");
    assert!(lent[0] > 0 && lent[..3].iter().sum::<u64>() <= 100 && lent[3] > 0, "{lent:?}");
}

#[tokio::test]
async fn of_a_limit_that_is_removed_no_gauge_is_left() {
    let rule = "kind = \"concurrency\", limit = 10, longest = \"2m\"";
    let other = "kind = \"fixed_window\", limit = 10, per = \"1s\"";
    let limit = |name: &str, rule: &str| format!("[[limit]]\nname = \"{name}\"\nrules = [{{ {rule} }}]\n");
    let app = App::of(&(limit("gone", rule) + &limit("kept", other)), true);
    let ask = |more: Value| {
        let mut ask = json!({ "limit": "gone", "spent_total": 0, "held": 0, "want": 1 });
        ask.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        json!([ask])
    };
    app.lease(1, 1, ask(json!({}))).await;
    app.lease(1, 2, ask(json!({ "spent_total": 1, "held": 0, "running": 1, "want": 0 }))).await;
    assert_eq!(app.scrape().await.value("lessor_in_flight_permits{limit=\"gone\"}"), 1);
    assert!(app.shared.with(|registry, _| registry.remove("gone")));
    let after = app.scrape().await;
    let of_gone = |(name, _): &(&String, &String)| name.contains("limit=\"gone\"");
    for (name, value) in after.samples.iter().filter(of_gone) {
        let kind = &after.kind[name.split('{').next().unwrap_or_default()];
        let is_none = ["0", "inf", "+Inf", "NaN"].contains(&value.as_str());
        assert!(kind != "gauge" || is_none, "{name} is {value}");
    }
}
