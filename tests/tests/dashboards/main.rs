//! Dashboards and alerts for people on call: every panel answers one question, every alert fires when it should and has
//! its page in the runbook, and a real Prometheus has an answer to every expression.

mod board;
mod drawn;
mod expressions;
mod fires;
#[expect(dead_code, reason = "an example has a main of its own")]
#[path = "../../../client/examples/metrics.rs"]
mod metrics;
mod prometheus;

use board::{Board, boards};
use scenarios::process::Allocator;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    let path = project().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

const ALERTS: &str = "dashboards/prometheus/alerts.yml";

#[test]
fn every_panel_answers_one_question_in_units() {
    for Board { name, panels, .. } in boards() {
        assert!(panels.len() > 5, "{name} has {} panels", panels.len());
        for panel in panels {
            let at = format!("{name}: {}", panel.title);
            assert!(!panel.title.is_empty(), "{at}");
            assert!(panel.question.contains('?'), "{at}: {:?} asks nothing", panel.question);
            assert!(!panel.unit.is_empty(), "{at} has no unit");
            assert!(!panel.targets.is_empty(), "{at} shows nothing");
            for target in panel.targets {
                assert_eq!(target.datasource, "${datasource}", "{at}");
                for choice in ["job=~\"$job\"", "instance=~\"$instance\""] {
                    assert!(
                        target.expr.contains(choice),
                        "{at}: {} does not filter by the chosen job and instance",
                        target.expr
                    );
                }
            }
        }
    }
}

#[test]
fn no_two_boards_or_panels_are_in_each_others_place() {
    let boards = boards();
    let names: BTreeSet<&String> = boards.iter().map(|board| &board.uid).collect();
    assert_eq!(names.len(), boards.len());
    for Board { name, places, .. } in &boards {
        let ids: BTreeSet<u64> = places.iter().map(|place| place.id).collect();
        assert_eq!(ids.len(), places.len(), "{name}: an id is used twice");
        for (index, one) in places.iter().enumerate() {
            assert!(one.x + one.w <= 24, "{name}: {one:?} is too wide");
            let other = places[..index].iter().find(|other| other.overlaps(one));
            assert_eq!(other, None, "{name}: a panel overlaps {one:?}");
        }
    }
}

#[test]
fn links_lead_to_boards_that_are_there() {
    let boards = boards();
    for board in &boards {
        for link in &board.links {
            let is_there = boards.iter().any(|other| *link == format!("/d/{}", other.uid));
            assert!(is_there, "{}: {link}", board.name);
        }
    }
}

#[test]
fn alerts_fire_when_they_should_and_only_then() {
    let folder = project().join("dashboards/prometheus");
    for args in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts.test.yml"]] {
        let output = Command::new("promtool").args(args).current_dir(&folder).output();
        let output = output.unwrap_or_else(|error| panic!("promtool, of Debian's prometheus: {error}"));
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&said));
    }
}

#[test]
fn every_alert_is_tried_and_has_its_page_in_the_runbook() {
    let (alerts, cases, runbook) =
        (read(ALERTS), read("dashboards/prometheus/alerts.test.yml"), read("docs/runbook.md"));
    let names = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let names: Vec<&str> = names.collect();
    assert!(names.len() >= 8, "{names:?}");
    for name in names {
        let page = format!("runbook_url: docs/runbook.md#{}", name.to_lowercase());
        assert!(alerts.contains(&page), "{name} has no link to its page in the runbook");
        assert!(
            runbook.lines().any(|line| line == format!("## {name}")),
            "{name} has no page in the runbook"
        );
        let tried = cases.matches(&format!("alertname: {name}\n")).count();
        assert!(tried >= 2, "{name} has {tried} test cases: one must fire, and one must not");
    }
}

/// Returns the metrics in the rows of a table.
fn rows(table: &str) -> impl Iterator<Item = &str> {
    table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next())
}

/// The table in the docs names each metric that a server shows, and no other. All metrics in dashboards and alerts are
/// among those of servers and clients.
#[tokio::test]
async fn the_table_of_metrics_is_what_a_server_shows() {
    let leased = "[[limit]]\nname = \"leased\"\nupstream = \"http://127.0.0.1:9\"\n";
    let allocator = Allocator::start(&format!("{}\n{leased}", expressions::CONFIG), "127.0.0.1:0", true);
    let shown = reqwest::get(format!("{}/metrics", allocator.url)).await.expect("the server answers");
    let shown = shown.text().await.expect("text");
    let shown: BTreeSet<&str> =
        shown.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let docs = read("docs/metrics.md");
    let (of_servers, of_clients) = docs.split_once("## In the client").expect("a section of each");
    assert_eq!(rows(of_servers).collect::<BTreeSet<&str>>(), shown);
    let shown: BTreeSet<&str> = shown.into_iter().chain(rows(of_clients)).collect();
    let exprs = boards().into_iter().flat_map(|board| board.panels).flat_map(|panel| panel.targets);
    let asked: String = exprs.map(|target| target.expr + "\n").chain([read(ALERTS)]).collect();
    for word in asked.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_')) {
        let parts = ["_bucket", "_sum", "_count"].map(|part| word.strip_suffix(part).unwrap_or(word));
        let is_known = parts.iter().any(|name| shown.contains(name));
        assert!(is_known || !word.starts_with("lessor_"), "{word} is not a metric in docs/metrics.md");
    }
}
