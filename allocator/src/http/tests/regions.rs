//! An allocator that leases limits from another one, which does not answer.

use super::*;
use crate::config::Upstream;
use crate::samples::LIMIT;

/// The bug: a region that was cut off from its centre answered that its limits are empty. Its nodes stayed, though another
/// region lent, and entered no fallback.
#[tokio::test]
async fn while_all_upstreams_are_silent_an_empty_answer_is_none() {
    let url = "http://127.0.0.1:1";
    let leased = format!("[[limit]]\nname = \"leased/*\"\nupstream = {url:?}\n");
    let named = |limit: &str| json!({ "limit": limit, "spent_total": 0, "held": 0, "want": 1 });
    let (own, unknown) = (ask(1), named("nope"));
    let leased_one = named("leased/x");
    let mut seq = 0;
    let mut exchange = async |app: &App, asks: Vec<&Value>| {
        seq += 1;
        let body = json!({ "node": "node-1", "session": 1, "seq": seq, "asks": asks });
        app.post("/v1/leases", body.to_string()).await
    };
    let upstream = Upstream::Address(url.to_owned());
    let region = App::of(&leased, true);
    assert_eq!(exchange(&region, vec![&leased_one]).await.status, StatusCode::OK, "it was not asked yet");
    region.shared.silent_upstreams().note(&upstream, true);
    for asks in [vec![&leased_one], vec![&leased_one, &unknown]] {
        assert_eq!(exchange(&region, asks.clone()).await.problem(503).0, "upstream_failing", "{asks:?}");
    }
    for asks in [vec![&unknown], vec![]] {
        assert_eq!(exchange(&region, asks.clone()).await.status, StatusCode::OK, "{asks:?}");
    }
    // The bug: a node was sent away from a limit that could be lent, whenever it did not ask for that at the moment.
    let mixed = App::of(&[CONFIG, &*leased].concat(), true);
    mixed.shared.silent_upstreams().note(&upstream, true);
    assert_eq!(exchange(&mixed, vec![&leased_one]).await.status, StatusCode::OK);
    assert_eq!(exchange(&mixed, vec![&leased_one, &own]).await.json()["grants"][1]["permits"], 1);
    region.shared.silent_upstreams().note(&upstream, false);
    assert_eq!(exchange(&region, vec![&leased_one]).await.status, StatusCode::OK, "it answers again");
}

/// The bug: the help of the metric and two panels left out the silence of upstreams.
#[tokio::test]
async fn each_text_about_readiness_has_each_reason() {
    let text = App::new(true).get("/metrics").await.text;
    let help = text.lines().find_map(|line| line.strip_prefix("# HELP lessor_ready ")).expect("it has one");
    let docs = include_str!("../../../../docs/metrics.md");
    assert!(docs.contains(&format!("\n| `lessor_ready` | | {help} |\n")), "{help}");
    let reason = "every limit is leased from an allocator that does not answer";
    assert!(help.contains(reason), "{help}");
    assert!(include_str!("../../../../dashboards/grafana/allocator.json").contains(reason));
    let of_fleet = "leases every limit from an allocator that does not answer";
    assert!(include_str!("../../../../dashboards/grafana/fleet.json").contains(of_fleet));
}

/// Whether the metrics say that the allocator lends.
async fn lends(app: &App) -> bool {
    app.get("/metrics").await.text.lines().any(|line| line == "lessor_ready 1")
}

/// The bug: a region that was cut off from its centre was ready, and each of its limits `ok`. A region with a limit of its
/// own is ready for that.
#[tokio::test]
async fn a_region_is_not_ready_while_all_of_its_upstreams_are_silent() {
    let leased = |name: &str| format!("[[limit]]\nname = {name:?}\nupstream = \"http://127.0.0.1:1\"\n");
    let upstream = Upstream::Address("http://127.0.0.1:1".to_owned());
    let app = App::of(&leased("b"), true);
    assert_eq!(app.get("/readyz").await.status, StatusCode::OK, "it was not asked yet");
    app.shared.silent_upstreams().note(&upstream, true);
    let (code, _, detail) = app.get("/readyz").await.problem(503);
    assert!(code == "upstream_failing" && detail.contains("http://127.0.0.1:1"), "{code}: {detail}");
    assert!(!lends(&app).await);
    assert_eq!(app.get("/v1/status").await.json()["reasons"], json!(["upstream_failing"]));
    let shown = async |app: &App, name: &str| app.get(&format!("/v1/limits/{name}")).await.json();
    assert_eq!(shown(&app, "b").await["upstream_silent"], true);
    let mixed = App::of(&[LIMIT, &leased("b")].concat(), true);
    mixed.shared.silent_upstreams().note(&upstream, true);
    assert_eq!(mixed.get("/readyz").await.status, StatusCode::OK);
    assert!(lends(&mixed).await);
    let silent = [shown(&mixed, "a").await, shown(&mixed, "b").await];
    assert_eq!(silent.map(|limit| limit["upstream_silent"].clone()), [Value::Null, json!(true)]);
    app.shared.silent_upstreams().note(&upstream, false);
    assert_eq!(app.get("/readyz").await.status, StatusCode::OK);
}
