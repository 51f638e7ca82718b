//! A real Prometheus beside a fleet at work: every expression has an answer, and every rule is in order.

use super::board::boards;
use super::{ALERTS, read};
use lessor::Client;
use lessor_protocol::Clock;
use reqwest::Url;
use scenarios::process::{Allocator, Running};
use serde_json::Value;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

const CLOCK: Clock = Clock::since_boot();

/// How long a Prometheus may take to start and to look a few times, on a machine that is busy with something else.
const PATIENCE: Duration = Duration::from_secs(60);

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

/// A Prometheus that looks at one allocator, as `dashboards/prometheus` says but for how often.
struct Prometheus {
    url: String,
    _running: Running,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    fn start(allocator: &Allocator) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let config = read("dashboards/prometheus/prometheus.yml");
        let config = config.replace("allocator:7400", allocator.address()).replace("5s", "250ms");
        assert!(config.contains(allocator.address()), "the target has another name: {config}");
        let file = folder.path().join("prometheus.yml");
        std::fs::write(&file, config).expect("a file in it");
        std::fs::write(folder.path().join("alerts.yml"), read(ALERTS)).expect("a file in it");
        // It takes no port of the system's choice: one that was free just now is.
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stderr(Stdio::null());
        let running = Running::start(&mut command);
        Prometheus { url: format!("http://127.0.0.1:{port}"), _running: running, _folder: folder }
    }

    /// What it says at `path`, or why it says nothing yet.
    async fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, String> {
        let url = Url::parse_with_params(&format!("{}{path}", self.url), query).expect("a URL");
        let answer = reqwest::get(url).await.map_err(|error| error.to_string())?;
        let body = answer.text().await.map_err(|error| error.to_string())?;
        let body: Value = serde_json::from_str(&body).map_err(|error| format!("{error}: {body}"))?;
        if body["status"] == "success" && body["warnings"].is_null() {
            Ok(body["data"].clone())
        } else {
            Err(body.to_string())
        }
    }

    /// The samples that `expr` has now, but for those that are no numbers.
    async fn samples(&self, expr: &str) -> Result<Vec<f64>, String> {
        let data = self.get("/api/v1/query", &[("query", expr)]).await?;
        let values = data["result"].as_array().into_iter().flatten().map(|sample| &sample["value"][1]);
        let values = values.filter_map(|value| value.as_str()?.parse::<f64>().ok());
        Ok(values.filter(|value| value.is_finite()).collect())
    }
}

/// Callers that want more than there is of each limit, for as long as they are kept.
async fn work(allocator: &Allocator) -> (Vec<Client>, JoinSet<()>) {
    let (mut clients, mut callers) = (vec![], JoinSet::new());
    for node in ["one", "two"] {
        let client = Client::builder(&allocator.url).node(node).connect().await.expect("it answers");
        let (rest, calls, user) =
            (client.limit("vendor/rest"), client.limit("vendor/calls"), client.limit("user").key("u-1"));
        callers.spawn(async move {
            let mut tick = interval(Duration::from_millis(2));
            loop {
                tick.tick().await;
                let _ = (rest.try_acquire(1), user.try_acquire(1));
                drop(calls.try_enter(1));
            }
        });
        clients.push(client);
    }
    (clients, callers)
}

/// As Grafana fills them in.
fn filled(expr: &str) -> String {
    let filled =
        expr.replace("$__rate_interval", "5s").replace("$__range", "10s").replace("$__interval", "5s");
    ["$job", "$instance", "$limit"].iter().fold(filled, |filled, name| filled.replace(name, ".+"))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_expression_has_an_answer() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    let (clients, callers) = work(&allocator).await;
    let prometheus = Prometheus::start(&allocator);
    let end = CLOCK.now() + PATIENCE;
    let mut asked = 0;
    for board in boards() {
        let exprs = board.panels.iter().flat_map(|panel| {
            panel.targets.iter().map(|target| (panel.title.as_str(), filled(&target.expr)))
        });
        for (panel, expr) in exprs {
            // It has to have looked a few times before anything can be said of rates.
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
            let values = prometheus.get(&path, &[("match[]", matches)]).await.expect("it answers");
            assert!(values.as_array().is_some_and(|values| !values.is_empty()), "{variable}: {values}");
        }
    }
    println!("{asked} expressions, 0 empty, 0 errors");
    let groups = prometheus.get("/api/v1/rules", &[]).await.expect("it has read them");
    let rules = groups["groups"][0]["rules"].as_array().expect("there are some");
    assert!(rules.len() >= 8, "{rules:?}");
    for rule in rules {
        assert_eq!((&rule["health"], &rule["lastError"]), (&Value::from("ok"), &Value::Null), "{rule}");
    }
    drop(callers);
    for client in clients {
        client.shutdown().await;
    }
}
