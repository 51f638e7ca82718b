//! Floods of made-up keys and sessions: by one identity while another needs a key now and then, and beyond the memory
//! of the allocator.

use super::desk::{Allocator, Desk, Way, ask};
use lessor_tls::HttpClient;
use serde_json::{Value, json};
use std::fs;
use std::ops::Range;

/// A monthly limit: spent permits keep a key until the month ends.
fn config(desk: &Desk, keys_max: u64, server: &str) -> String {
    format!(
        r#"
[server]
{server}
[store]
kind = "embedded"
path = {:?}
[auth]
tokens = {:?}
[[role]]
name = "tenants"
identities = ["token:a", "token:b"]
lease = ["plan"]
as = ["*"]
[[role]]
name = "eyes"
identities = ["token:eyes"]
read = ["*"]
metrics = true
[[limit]]
name = "plan"
keyed = true
keys_max = {keys_max}
rules = [{{ kind = "fixed_window", limit = 1000, calendar = "month" }}]
"#,
        desk.file("store"),
        desk.file("tokens.toml")
    )
}

/// Asks for a permit of each of these keys as session one of `node`. Returns how many were granted, and the last error
/// among the others.
async fn keys(
    http: &HttpClient,
    allocator: &Allocator,
    node: &str,
    seq: u64,
    keys: Range<u64>,
) -> (u64, Option<Value>) {
    let entry = |key: u64| json!({ "limit": "plan", "key": format!("tenant-{key}"), "spent_total": 0, "held": 0, "want": 1, "waiting": 1 });
    let asks: Vec<Value> = keys.map(entry).collect();
    let body = json!({ "node": node, "session": 1, "seq": seq, "asks": asks }).to_string();
    let answer = ask(http, "POST", &format!("{}/v1/leases", allocator.url), &body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let answer: Value = serde_json::from_str(&answer.body).expect("JSON");
    let grants = answer["grants"].as_array().expect("a list");
    let mut refused = grants.iter().filter_map(|grant| grant.get("error").filter(|error| !error.is_null()));
    (
        grants.iter().filter(|grant| grant["permits"].as_u64() == Some(1)).count() as u64,
        refused.next_back().cloned(),
    )
}

/// The bug: new tenants were refused until the month ended, even after a restart.
#[tokio::test]
async fn a_flood_of_keys_leaves_room_for_those_of_another_identity() {
    let desk = Desk::new(Way::Plain);
    fs::write(desk.file("lessor.toml"), config(&desk, 5_000, "")).expect("a writable file");
    let (flood, other) = (desk.http(Some(&desk.token("a"))), desk.http(Some(&desk.token("b"))));
    let mut let_in = [0, 0];
    for life in 0..2 {
        let allocator = desk.serve_with(if life == 0 { &["--fresh"] } else { &[] });
        for batch in 0..8 {
            let first = 1_000_000 * life + 1_000 * batch;
            let (admitted, _) =
                keys(&flood, &allocator, &format!("a-{life}"), 1 + batch, first..first + 1_000).await;
            let_in[usize::try_from(life).expect("small")] += admitted;
        }
        let (_, refused) = keys(&flood, &allocator, &format!("a-{life}"), 100, 9_000_000..9_000_001).await;
        let refused = refused.expect("the limit has its maximum of keys");
        assert_eq!(refused["code"], "keys_full", "{refused}");
        let first = 8_000_000 + life * 1_000;
        assert_eq!(keys(&other, &allocator, &format!("b-{life}"), 1, first..first + 100).await.0, 100);
        allocator.running.kill();
    }
    println!("{let_in:?} keys of the flood were let in, in each life of the allocator");
    assert_eq!(let_in, [4_500, 0]);
}

#[tokio::test]
async fn beyond_the_memory_that_there_is_no_key_is_new_and_old_ones_go_on() {
    const MAX: u64 = 64 << 20;
    let desk = Desk::new(Way::Plain);
    fs::write(desk.file("lessor.toml"), config(&desk, 1_000_000, &format!("memory_max = {MAX}")))
        .expect("a writable file");
    let (flood, eyes) = (desk.http(Some(&desk.token("a"))), desk.http(Some(&desk.token("eyes"))));
    let allocator = desk.serve();
    let (mut let_in, mut refused) = (0, None);
    for batch in 0..200 {
        let first = 1_000 * batch;
        let (admitted, last) = keys(&flood, &allocator, "a-1", 1 + batch, first..first + 1_000).await;
        let_in += admitted;
        if last.is_some() {
            refused = last;
            break;
        }
    }
    let refused = refused.expect("200,000 keys take more than there is");
    assert_eq!(refused["code"], "keys_full", "{refused}");
    assert!(refused["detail"].as_str().is_some_and(|detail| detail.contains("memory is short")), "{refused}");
    assert!(let_in >= 2_000, "{let_in} keys");
    let again = keys(&flood, &allocator, "a-2", 1, 0..100).await;
    assert_eq!(again, (100, None), "known keys go on, also for a new node");
    let status = ask(&eyes, "GET", &format!("{}/v1/status", allocator.url), "").await;
    let status: Value = serde_json::from_str(&status.body).expect("JSON");
    let warnings = status["warnings"].to_string();
    assert!(warnings.contains("new keys are refused"), "{warnings}");
    let metrics = ask(&eyes, "GET", &format!("{}/metrics", allocator.url), "").await.body;
    let figure = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)).expect("the line is there");
        line.trim().parse::<f64>().expect("a number") as u64
    };
    let (resident, is_short) = (figure("lessor_resident_bytes "), figure("lessor_memory_short "));
    println!("{let_in} keys were let in; {resident} bytes resident of {MAX}");
    assert_eq!(is_short, 1);
    assert!((MAX..MAX + MAX / 2).contains(&resident), "{resident}");
}

/// The bug: known keys took in sessions until the machine had no memory left.
#[tokio::test]
async fn beyond_the_memory_that_there_is_keys_have_few_new_sessions_and_old_ones_go_on() {
    const MAX: u64 = 64 << 20;
    let desk = Desk::new(Way::Plain);
    fs::write(desk.file("lessor.toml"), config(&desk, 100_000, &format!("memory_max = {MAX}")))
        .expect("a writable file");
    let [flood, other, eyes] = ["a", "b", "eyes"].map(|name| desk.http(Some(&desk.token(name))));
    let allocator = desk.serve();
    let (mut sessions, mut refused) = (0, None);
    while sessions < 300 && refused.is_none() {
        // A node with another name is another session.
        (_, refused) = keys(&flood, &allocator, &format!("a-{sessions}"), 1, 0..1_000).await;
        sessions += 1;
    }
    let refused = refused.expect("300,000 sessions take more than there is");
    assert_eq!(refused["code"], "lessees_full", "{refused}");
    assert!(refused["detail"].as_str().is_some_and(|detail| detail.contains("memory is short")), "{refused}");
    assert_eq!(
        keys(&other, &allocator, "b-1", 1, 0..1_000).await,
        (1_000, None),
        "another identity still gets sessions"
    );
    let metrics = ask(&eyes, "GET", &format!("{}/metrics", allocator.url), "").await.body;
    let resident = metrics.lines().find_map(|line| line.strip_prefix("lessor_resident_bytes "));
    let resident: f64 = resident.expect("the line is there").trim().parse().expect("a number");
    println!("{sessions} sessions came to a thousand keys each; {resident} bytes resident of {MAX}");
    assert!(resident < (MAX + MAX / 2) as f64, "{resident}");
}
