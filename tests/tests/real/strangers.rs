//! A stranger who reaches the API and has read the protocol: it reads what the allocator shows, and says what it likes in
//! the names of others. A strict vendor judges.

use lessor::Client;
use scenarios::process::Allocator;
use scenarios::vendor::Vendor;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

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
