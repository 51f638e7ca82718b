//! Decisions in the audit log whose store failed.

use super::*;
use crate::samples::STORE;
use std::path::Path;

const LIMIT: &str =
    "[[limit]]\nname = \"a\"\nrules = [{ kind = \"sliding_window\", limit = 10, per = \"30s\" }]\n";
const BODY: &str = r#"{"rules":[{"kind":"sliding_window","limit":9,"per":"30s"}]}"#;

fn app(store: &str, log: &Path) -> App {
    App::of(&format!("{LIMIT}{store}[audit]\npath = {log:?}\n"), true)
}

/// Each decision that an operator can make about the limit, and its action.
async fn decide_all(app: &App) -> Vec<(&'static str, Reply)> {
    vec![
        ("pause", app.post("/v1/limits/a/pause", "{}").await),
        ("resume", app.post("/v1/limits/a/resume", "").await),
        ("block", app.post("/v1/limits/a/nodes/n/block", "").await),
        ("unblock", app.request("DELETE", "/v1/limits/a/nodes/n/block", None, "").await),
        ("put", app.request("PUT", "/v1/limits/a", Some("*"), BODY).await),
        ("remove", app.request("DELETE", "/v1/limits/a?confirm=true", Some("*"), "").await),
    ]
}

fn lines(log: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
}

/// The bug: a decision was in force, but not in the audit log, if the store could not keep it.
#[tokio::test]
async fn a_decision_that_the_store_cannot_keep_is_written_down() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("audit.jsonl");
    let app = app("", &log);
    // From now on there is something to write, and no store that takes it.
    app.shared.with(|registry, _| registry.begin_writing(0));
    let topped_up = app.post("/v1/limits/a/top-up", r#"{"permits":1}"#).await;
    // The bug: the answer was that of an ask for permits, and an operator took a change in force for one that was not made.
    let is_in_force = |reply: &Reply| {
        let (code, _, detail) = reply.problem(503);
        code == "store_failing" && detail.contains("is in force") && reply.json()["in_force"] == json!(true)
    };
    assert!(is_in_force(&topped_up), "{}", topped_up.text);
    let mut actions = vec!["top_up"];
    for (action, reply) in decide_all(&app).await {
        assert!(is_in_force(&reply), "{action}: {}", reply.text);
        actions.push(action);
    }
    let lines = lines(&log);
    assert_eq!(lines.iter().map(|line| line["action"].as_str().expect("text")).collect::<Vec<_>>(), actions);
    assert!(lines.iter().all(|line| line.get("outcome").is_none()), "they are in force: {lines:?}");
    assert!(app.shared.with(|registry, _| registry.limit("a").is_none()), "it is removed");
}

/// The bug: a decision that a shared store may have taken was not in the audit log.
#[tokio::test]
async fn a_decision_that_a_silent_store_may_have_taken_is_written_down_as_unknown() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("audit.jsonl");
    let app = app(STORE, &log);
    let mut actions = vec![];
    for (action, reply) in decide_all(&app).await {
        assert_eq!(reply.problem(503).0, "store_failing", "{action}");
        assert!(reply.json().get("in_force").is_none(), "{action}: the store may not have it");
        actions.push(action);
    }
    let lines = lines(&log);
    assert_eq!(lines.iter().map(|line| line["action"].as_str().expect("text")).collect::<Vec<_>>(), actions);
    assert!(lines.iter().all(|line| line["outcome"] == json!("unknown")), "{lines:?}");
    // An objection of the allocator changes nothing, and is no decision.
    let before = lines.len();
    assert_eq!(app.post("/v1/limits/b/pause", "{}").await.problem(404).0, "limit_unknown");
    assert_eq!(self::lines(&log).len(), before);
}
