//! Decisions are written to the audit log: who, from where, what and why. Larger ones must be confirmed first.

use super::desk::{Desk, PATIENCE, Way, ask};
use serde_json::{Value, json};
use std::process::Command;
use std::time::Duration;

const ROLES: &str = r#"
[[role]]
name = "all"
identities = ["token:root"]
admin = ["*"]
[[role]]
name = "eyes"
identities = ["token:reader"]
read = ["*"]
[audit]
path = "AUDIT"
"#;

fn rules(limit: u64) -> String {
    json!({ "rules": [{ "kind": "sliding_window", "limit": limit, "per": "60s", "margin": "0s" }] })
        .to_string()
}

/// Makes an allocator's folder with an audit log, and a function that reads the log.
fn desk() -> (Desk, impl Fn() -> Vec<Value>) {
    let desk = Desk::new(Way::Plain);
    let file = desk.file("audit.jsonl");
    desk.roles_are(&ROLES.replace("AUDIT", &file.display().to_string()));
    let entries = move || {
        let text = std::fs::read_to_string(&file).expect("a readable file");
        text.lines().map(|line| serde_json::from_str(line).expect("an entry")).collect()
    };
    (desk, entries)
}

#[tokio::test]
async fn each_decision_is_written_down_with_who_what_and_why() {
    let (desk, entries) = desk();
    let (root, reader) = (desk.token("root"), desk.token("reader"));
    let allocator = desk.serve();
    let at = |path: &str| format!("{}/v1/limits/vendor{path}", allocator.url);
    let http = desk.http(Some(&root));
    let deeds = [
        ("POST", at("/pause?reason=vendor%20asked"), r#"{"for":"10m"}"#.to_owned(), "pause"),
        ("POST", at("/resume"), String::new(), "resume"),
        ("POST", at("/top-up"), r#"{"permits":5,"id":"ticket-1"}"#.to_owned(), "top_up"),
        ("POST", at("/nodes/a-1/block"), String::new(), "block"),
        ("DELETE", at("/nodes/a-1/block"), String::new(), "unblock"),
        ("PUT", at(""), rules(700), "put"),
        ("DELETE", at("?confirm=true"), String::new(), "remove"),
    ];
    for (method, url, body, _) in &deeds {
        let answer = ask(&http, method, url, body).await;
        assert!(answer.status < 300, "{method} {url}: {}", answer.body);
        assert!(!answer.headers["x-request-id"].is_empty());
    }
    // A refusal is answered before it is written.
    let written_by = async |count: usize| {
        let is_written = async {
            while entries().len() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, is_written).await.expect("the entry is written in time");
    };
    assert_eq!(ask(&desk.http(Some(&reader)), "POST", &at("/pause"), "{}").await.status, 403);
    written_by(deeds.len() + 1).await;
    assert_eq!(ask(&desk.http(None), "GET", &at(""), "").await.status, 401);
    written_by(deeds.len() + 2).await;
    let written = entries();
    let actions: Vec<&str> = written.iter().map(|entry| entry["action"].as_str().expect("a word")).collect();
    let expected: Vec<&str> =
        deeds.iter().map(|(.., action)| *action).chain(["refused", "refused"]).collect();
    assert_eq!(actions, expected);
    for entry in &written[..deeds.len()] {
        assert_eq!((&entry["who"], &entry["limit"]), (&json!("token:root"), &json!("vendor")));
        assert_eq!(entry["from"], json!("127.0.0.1"));
        assert!(entry["request"].as_str().is_some_and(|name| name.len() > 5), "{entry}");
    }
    assert_eq!((&written[0]["reason"], &written[0]["ms"]), (&json!("vendor asked"), &json!(600_000)));
    assert_eq!((&written[2]["permits"], &written[2]["id"]), (&json!(5), &json!("ticket-1")));
    let limit = |value: &Value| value["rules"][0]["limit"].clone();
    assert_eq!((limit(&written[5]["before"]), limit(&written[5]["after"])), (json!(600), json!(700)));
    assert_eq!(limit(&written[6]["before"]), json!(700));
    let [forbidden, unknown] = &written[deeds.len()..] else { panic!("two") };
    assert_eq!((&forbidden["who"], &forbidden["right"]), (&json!("token:reader"), &json!("operate")));
    assert_eq!(forbidden["limit"], json!("vendor"), "the entry of a refused decision names the limit");
    assert_eq!((&unknown["who"], &unknown["from"]), (&json!("none"), &json!("127.0.0.1")));
    // No secret is in the audit log, nor in the log of the process, which has the same entries.
    let log = std::fs::read_to_string(desk.file("log")).expect("a readable file");
    assert!(log.contains("\"action\":\"pause\""));
    for token in [&root, &reader] {
        let secret = token.rsplit_once('_').expect("a secret").1;
        assert!(!log.contains(secret) && !written.iter().any(|entry| entry.to_string().contains(secret)));
    }
    let read = |args: &[&str]| {
        let output = Command::new(scenarios::process::lessor())
            .arg("audit")
            .arg(desk.file("audit.jsonl"))
            .args(args)
            .output();
        String::from_utf8(output.expect("the command runs").stdout).expect("text")
    };
    assert_eq!(read(&[]).lines().count(), 9);
    assert!(read(&["--action", "pause"]).contains("token:root  pause  vendor  127.0.0.1"), "{}", read(&[]));
    assert_eq!(read(&["--who", "token:reader", "--since", "1h", "--json"]).lines().count(), 1);
    assert_eq!(read(&["--limit", "vendor", "--action", "refused"]).lines().count(), 1);
}

#[tokio::test]
async fn a_request_keeps_its_name_if_that_is_one() {
    let (desk, entries) = desk();
    let root = desk.token("root");
    let allocator = desk.serve();
    let http = desk.http(Some(&root));
    for (said, is_kept) in [("ticket-7_a", true), ("a b", false), (&"x".repeat(65), false)] {
        let request = http::Request::post(format!("{}/v1/limits/vendor/resume", allocator.url));
        let request = request.header("x-request-id", said).body(vec![]).expect("a request");
        let answer = http.send(request, PATIENCE).await.expect("the server answers");
        let named = answer.headers()["x-request-id"].to_str().expect("text").to_owned();
        assert_eq!(named == said, is_kept, "{said}: {named}");
        assert_eq!(entries().last().expect("an entry")["request"], json!(named));
    }
    let long = format!("{}/v1/limits/vendor/resume?reason={}", allocator.url, "x".repeat(501));
    assert_eq!(ask(&http, "POST", &long, "").await.status, 422);
}

/// Confirmation is required for a zero too many, for a removal, and for a top-up of more than the contract has at once.
#[tokio::test]
async fn what_is_larger_than_most_is_done_once_it_is_confirmed() {
    let (desk, entries) = desk();
    let root = desk.token("root");
    let allocator = desk.serve();
    let http = desk.http(Some(&root));
    let url = format!("{}/v1/limits/vendor", allocator.url);
    let top_up = format!("{url}/top-up");
    for (method, url, body) in
        [("POST", &top_up, r#"{"permits":601}"#.to_owned()), ("PUT", &url, rules(600_000))]
    {
        let refused = ask(&http, method, url, &body).await;
        assert!(refused.status == 409 && refused.body.contains("confirm_needed"), "{}", refused.body);
        let done = ask(&http, method, &format!("{url}?confirm=true"), &body).await;
        assert_eq!(done.status, 200, "{}", done.body);
    }
    assert_eq!(entries().len(), 2, "unconfirmed decisions are not in the audit log");
    // A dry run needs no confirmation, and says that the change will.
    let tried = ask(&http, "PUT", &format!("{url}?dry_run=true"), &rules(1)).await;
    assert!(tried.status == 200 && tried.body.contains("by more than 10 times"), "{}", tried.body);
    let run = |args: &[&str]| {
        let output = desk.lessor(&allocator, &root, args);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = run(&["limits", "rm", "vendor"]);
    assert!(code == Some(2) && said.contains("use --yes if that is intended"), "{said}");
    assert_eq!(run(&["limits", "rm", "vendor", "--yes", "--reason", "it is over"]).0, Some(0));
    assert_eq!(entries().last().expect("an entry")["reason"], json!("it is over"));
}

/// A decision is made and written even if its peer has gone before the answer.
#[tokio::test]
async fn a_decision_is_written_down_whether_or_not_its_peer_waits_for_the_answer() {
    let (desk, entries) = desk();
    let root = desk.token("root");
    // Each decision waits for a disk halfway.
    let config = std::fs::read_to_string(desk.file("lessor.toml")).expect("a readable file");
    std::fs::write(desk.file("lessor.toml"), config.replace("kind = \"memory\"", "kind = \"embedded\""))
        .expect("a writable file");
    let allocator = desk.serve();
    let http = desk.http(Some(&root));
    assert_eq!(
        ask(&http, "GET", &format!("{}/v1/whoami", allocator.url), "").await.status,
        200,
        "the allocator serves"
    );
    let address = allocator.url.trim_start_matches("http://");
    const ROUNDS: usize = 20;
    for round in 0..ROUNDS {
        let node = format!("a-{round}");
        let head = format!(
            "POST /v1/limits/vendor/nodes/{node}/block HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {root}\r\n"
        );
        let mut peer = std::net::TcpStream::connect(address).expect("the server listens");
        std::io::Write::write_all(&mut peer, format!("{head}content-length: 0\r\n\r\n").as_bytes())
            .expect("it reads");
        // Some peers leave before their request is read, some in the middle of the decision, and the last one stays.
        let waits = if round + 1 == ROUNDS { 1_000_000 } else { 500 * round as u64 };
        tokio::time::sleep(std::time::Duration::from_micros(waits)).await;
    }
    let blocked = async || -> usize {
        let top = ask(&http, "GET", &format!("{}/v1/limits/vendor/top", allocator.url), "").await.body;
        let top: Value = serde_json::from_str(&top).expect("JSON");
        top["blocked_nodes"].as_array().expect("a list").len()
    };
    // The request on a closed connection may never have been read, so only the decisions that were made count.
    let decided = scenarios::fleet::eventually("decisions", async || {
        let before = blocked().await;
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        (before > 0 && blocked().await == before).then_some(before)
    })
    .await;
    println!("{decided} of {ROUNDS} were decided");
    scenarios::fleet::eventually("all decisions are in the audit log", async || {
        (entries().len() >= decided).then_some(())
    })
    .await;
    assert_eq!(entries().len(), decided);
}
