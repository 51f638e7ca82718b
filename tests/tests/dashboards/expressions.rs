//! A fleet at work beside a real Prometheus: an allocator with a store of its own, one that leases from it, two that
//! share a store, and callers that want more of each than there is. Every expression must have an answer, and every
//! rule must be healthy.

use super::board::boards;
use super::drawn::draw;
use super::prometheus::{Prometheus, export};
use super::{ALERTS, read};
use lessor::Client;
use lessor_allocator::cells::StoreKind;
use lessor_protocol::CLOCK;
use scenarios::process::{Allocator, Running, lessor};
use scenarios::servers::Server;
use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

/// How long a Prometheus may take to start and to scrape a few times, on a machine that is busy with other work.
const PATIENCE: Duration = Duration::from_secs(60);

/// Seconds that pictures of boards show, unless `BOARD_SECONDS` says otherwise.
const SHOWN: u64 = 10;

pub(super) const CONFIG: &str = r#"
[[limit]]
name = "vendor/rest"
rules = [{ kind = "sliding_window", limit = 100, per = "1s" }]

[[limit]]
name = "vendor/calls"
rules = [{ kind = "concurrency", limit = 10, longest = "1s" }]

[[limit]]
name = "user"
keyed = true
shadow = true
rules = [{ kind = "token_bucket", capacity = 5, refill = 5, per = "1s" }]
"#;

/// Returns the configuration of an allocator that shares a store with others.
pub(super) fn in_store(store: &Server) -> String {
    format!(
        "[store]\nkind = \"redis\"\nurl = {:?}\ntimeout = \"2s\"\n\
         [[limit]]\nname = \"root\"\nrules = [{{ kind = \"sliding_window\", limit = 100, per = \"1s\" }}]\n",
        store.url()
    )
}

/// Returns the configuration of an allocator that leases from the one at `url`.
pub(super) fn leased(limit: &str, url: &str) -> String {
    format!("[[limit]]\nname = {limit:?}\nupstream = {url:?}\n")
}

/// Calls `each` every two milliseconds.
async fn call(mut each: impl FnMut()) {
    let mut tick = interval(Duration::from_millis(2));
    loop {
        tick.tick().await;
        each();
    }
}

/// Starts callers of each limit of these allocators. They go on until the returned values are dropped.
async fn work(allocators: &[&Allocator]) -> (Vec<Client>, JoinSet<()>) {
    let (mut clients, mut callers) = (vec![], JoinSet::new());
    for (index, allocator) in allocators.iter().enumerate() {
        let node = format!("node-{index}");
        let client =
            Client::builder(&allocator.url).node(&node).connect().await.expect("the allocator answers");
        let [rest, calls, root] = ["vendor/rest", "vendor/calls", "root"].map(|name| client.limit(name));
        let (user, waits) = (client.limit("user").key("u-1"), rest.clone());
        callers.spawn(call(move || {
            let _ = (rest.try_acquire(1), user.try_acquire(1), root.try_acquire(1));
            drop(calls.try_enter(1));
        }));
        callers.spawn(async move {
            loop {
                // A caller that was refused comes back a little later.
                if waits.acquire_within(1, Duration::from_millis(500)).await.is_err() {
                    sleep(Duration::from_millis(20)).await;
                }
            }
        });
        clients.push(client);
    }
    (clients, callers)
}

/// Fills in the variables of an expression as Grafana does.
fn filled(expr: &str) -> String {
    let filled =
        expr.replace("$__rate_interval", "5s").replace("$__range", "10s").replace("$__interval", "5s");
    ["$job", "$instance", "$limit"].iter().fold(filled, |filled, name| filled.replace(name, ".+"))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_expression_has_an_answer() {
    let start = |config: &str| Allocator::start(config, "127.0.0.1:0", true);
    let (process, store) = (export().await, Server::start(StoreKind::Redis, &[]));
    let allocator = start(CONFIG);
    let region = start(&leased("vendor/rest", &allocator.url));
    let [one, other] = [start(&in_store(&store)), start(&in_store(&store))];
    let allocators = [&allocator, &region, &one, &other];
    let (clients, callers) = work(&allocators).await;
    let prometheus = Prometheus::start(&read(ALERTS), &allocators.map(Allocator::address), &process);
    let begin = CLOCK.now();
    let end = begin + PATIENCE;
    let mut asked = 0;
    for board in boards() {
        let exprs = board.panels.iter().flat_map(|panel| {
            panel.targets.iter().map(|target| (panel.title.as_str(), filled(&target.expr)))
        });
        for (panel, expr) in exprs {
            // Prometheus must have scraped a few times before rates have values.
            let samples = loop {
                match prometheus.samples(&expr).await {
                    Ok(samples) if !samples.is_empty() => break samples,
                    other => assert!(CLOCK.now() < end, "{}, {panel}: {expr}: {other:?}", board.name),
                }
                sleep(Duration::from_millis(100)).await;
            };
            println!("{} | {panel} | {expr} | {}", board.name, samples[0]);
            assert!(samples.iter().all(|sample| *sample >= 0.0), "{panel}: {samples:?}");
            asked += 1;
        }
        for variable in &board.variables {
            let (name, matches) = (variable.rsplit_once(", ").expect("two arguments"), filled(variable));
            let label = name.1.trim_end_matches(')');
            let matches = matches.trim_start_matches("label_values(").rsplit_once(", ").expect("two").0;
            let path = format!("/api/v1/label/{label}/values");
            let values = prometheus.get(&path, &[("match[]", matches)]).await.expect("the server answers");
            assert!(values.as_array().is_some_and(|values| !values.is_empty()), "{variable}: {values}");
        }
    }
    println!("{asked} expressions, 0 empty, 0 errors");
    let groups = prometheus.get("/api/v1/rules", &[]).await.expect("Prometheus has read the rules");
    let rules = groups["groups"][0]["rules"].as_array().expect("there are rules");
    assert!(rules.len() >= 8, "{rules:?}");
    for rule in rules {
        assert_eq!((&rule["health"], &rule["lastError"]), (&Value::from("ok"), &Value::Null), "{rule}");
    }
    let seconds = std::env::var("BOARD_SECONDS").map_or(SHOWN, |text| text.parse().expect("a number"));
    sleep((begin + Duration::from_secs(seconds)).since(CLOCK.now())).await;
    for board in boards() {
        println!("{}", draw(&prometheus, &board, seconds, filled).await.display());
    }
    drop(callers);
    for client in clients {
        client.shutdown().await;
    }
}

/// A demo writes the addresses of its allocator and its nodes to a file in the form that Prometheus reads, and
/// Prometheus can scrape them.
#[tokio::test(flavor = "multi_thread")]
async fn a_prometheus_finds_the_allocator_and_the_nodes_of_a_demo() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let targets = folder.path().join("demo.json");
    let mut demo = Command::new(lessor());
    demo.args(["demo", "--nodes", "3", "--seconds", "600", "--targets"]).arg(&targets);
    let _demo = Running::start(demo.stderr(Stdio::null()));
    let prometheus = Prometheus::finding(&targets);
    let end = CLOCK.now() + PATIENCE;
    for (expr, expected) in [
        ("count(up{job=\"lessor\"} == 1)", 1.0),
        ("count(up{job=\"calls\"} == 1)", 3.0),
        ("count(lessor_client_admitted_permits_total{limit=\"vendor/rest\"} > 0)", 3.0),
        (
            "count(rate(lessor_client_check_seconds_bucket{limit=\"vendor/rest\",le=\"+Inf\"}[5s]) > 0) > bool 0",
            1.0,
        ),
    ] {
        loop {
            let samples = prometheus.samples(expr).await;
            if samples.as_deref() == Ok(&[expected]) {
                break;
            }
            assert!(CLOCK.now() < end, "{expr}: {samples:?}");
            sleep(Duration::from_millis(100)).await;
        }
    }
}
