//! A stranger who reaches the API and has read the protocol: it reads what the allocator shows, and says what it likes in
//! the names of others. A strict vendor judges.

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use lessor::Client;
use scenarios::fleet::{Fleet, eventually};
use scenarios::process::Allocator;
use scenarios::vendor::Vendor;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;

const CONFIG: &str = r#"
[store]
kind = "memory"
[[limit]]
name = "vendor"
rules = [{ kind = "sliding_window", limit = 600, per = "3s", margin = "50ms" }]
"#;

/// The highest sequence number that there is.
const LAST: u64 = (1 << 53) - 1;

/// Whatever the API shows of nodes and sessions.
const SHOWN: [&str; 5] = [
    "/v1/limits/vendor/top?count=100",
    "/v1/limits/vendor",
    "/v1/limits/vendor/pools",
    "/v1/status",
    "/v1/events/recent",
];

/// Adds all whole numbers in `value`.
fn numbers(value: &Value, found: &mut BTreeSet<u64>) {
    match value {
        Value::Number(number) => found.extend(number.as_u64().filter(|number| *number <= LAST)),
        Value::Array(values) => values.iter().for_each(|value| numbers(value, found)),
        Value::Object(fields) => fields.values().for_each(|value| numbers(value, found)),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Says goodbye for each node that is shown, as each session that a number of what is shown may be. Permits that came back.
async fn says_goodbye_for_all(http: &reqwest::Client, url: &str) -> u64 {
    let (mut sessions, mut nodes) = (BTreeSet::new(), vec![]);
    for path in SHOWN {
        let answer = http.get(format!("{url}{path}")).send().await.expect("it answers");
        let Ok(shown) = answer.json::<Value>().await else { continue };
        for node in shown["nodes"].as_array().into_iter().flatten() {
            nodes.push((node["node"].as_str().expect("a name").to_owned(), node["spent"].as_u64()));
        }
        numbers(&shown, &mut sessions);
    }
    assert!(!nodes.is_empty(), "it sees some nodes, or the test would prove nothing");
    let mut returned = 0;
    for (node, spent) in &nodes {
        for session in &sessions {
            let spent = json!({ "limit": "vendor", "spent_total": spent, "held": LAST });
            let goodbye = json!({ "session": session, "seq": LAST, "spent": [spent] });
            let said = http.post(format!("{url}/v1/nodes/{node}/leave")).json(&goodbye).send().await;
            let said: Value = said.expect("it answers").json().await.expect("JSON");
            returned += said["returned"].as_u64().unwrap_or_default();
        }
    }
    returned
}

/// The bug: the API showed sessions, and a goodbye in the name of one gave back what its node went on to spend.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_goodbye_of_a_stranger_gives_nothing_back() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    let vendor = Arc::new(Vendor::new(600, Duration::from_secs(3)));
    let mut calling = tokio::task::JoinSet::new();
    for node in 0..6 {
        let named = Client::builder(&allocator.url).node(&format!("node-{node}"));
        let client = named.connect().await.expect("it answers");
        let vendor = Arc::clone(&vendor);
        calling.spawn(async move {
            let limit = client.limit("vendor");
            loop {
                vendor.wait(&limit, Duration::from_millis(500)).await;
                tokio::time::sleep(Duration::from_millis(15)).await;
            }
        });
    }
    let http = reqwest::Client::new();
    let mut returned = 0;
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        returned += says_goodbye_for_all(&http, &allocator.url).await;
    }
    calling.shutdown().await;
    let admitted = vendor.count();
    println!("{admitted} admitted, {returned} given back by a stranger, {:?}", vendor.breach());
    assert_eq!(vendor.breach(), None);
    assert_eq!(returned, 0);
    assert!(admitted >= 1_200, "{admitted} admitted in ten seconds, of 200 a second");
}

/// One who hears all that nodes say, and passes it on.
#[derive(Clone, Debug, Default)]
struct Eavesdropper {
    url: String,
    http: reqwest::Client,
    heard: Arc<Mutex<Value>>,
}

impl Eavesdropper {
    /// One before the allocator at `url`, and where nodes find it.
    async fn before(url: &str) -> (Self, String) {
        let here = Eavesdropper { url: url.to_owned(), ..Eavesdropper::default() };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let own = format!("http://{}", listener.local_addr().expect("it is bound"));
        let router = Router::new().route("/v1/leases", post(Eavesdropper::pass_on)).with_state(here.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (here, own)
    }

    async fn pass_on(State(here): State<Self>, body: Bytes) -> (StatusCode, Bytes) {
        *here.heard.lock().expect("no thread panics with it") = serde_json::from_slice(&body).expect("JSON");
        let sent = here.http.post(format!("{}/v1/leases", here.url)).body(body);
        let answer = sent.header("content-type", "application/json").send().await.expect("it answers");
        (answer.status(), answer.bytes().await.expect("a body"))
    }

    fn heard(&self) -> Value {
        self.heard.lock().expect("no thread panics with it").clone()
    }
}

/// The bug: a session that a stranger had ended went on, and each of its asks was refused.
#[tokio::test]
async fn a_client_whose_session_was_ended_by_a_stranger_begins_another_one() {
    let fleet = Fleet::start(CONFIG).await;
    let (stranger, url) = Eavesdropper::before(&fleet.url).await;
    let client = Client::builder(&url).node("a").connect().await.expect("it answers");
    let limit = client.limit("vendor");
    limit.acquire(1).await.expect("there are permits");
    for _ in 0..2 {
        let said = eventually("an ask for the limit", async || {
            limit.acquire(1).await.expect("there are permits");
            Some(stranger.heard()).filter(|said| said["asks"][0]["limit"] == "vendor")
        })
        .await;
        let spent = json!({ "limit": "vendor", "spent_total": said["asks"][0]["spent_total"], "held": 0 });
        let goodbye = json!({ "session": said["session"], "seq": LAST, "spent": [spent] });
        let leave = stranger.http.post(format!("{}/v1/nodes/a/leave", fleet.url)).json(&goodbye).send().await;
        assert_eq!(leave.expect("it answers").status(), 200);
        eventually("another session", async || {
            limit.acquire(1).await.expect("there are permits");
            (stranger.heard()["session"] != said["session"]).then_some(())
        })
        .await;
        eventually("a lease of it", async || {
            limit.acquire(1).await.expect("there are permits");
            let asked = &stranger.heard()["asks"][0];
            (asked["limit"] == "vendor" && asked["held"].as_u64() > Some(0)).then_some(())
        })
        .await;
    }
    client.shutdown().await;
    fleet.stop().await;
}
