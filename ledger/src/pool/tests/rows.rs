//! Tests of the rows that are in stores today: each is still written so, and read as the pool that it was. So a store
//! that an older version wrote goes on.

use super::in_flight::in_flight;
use super::*;
use crate::rule::Gap;
use serde_json::Value;

/// What the pools of [`plans`] wrote when this test was made.
const ROWS: &str = include_str!("rows.json");

/// A plan of each kind of rule, by name.
fn plans() -> Vec<(&'static str, Arc<Plan>)> {
    let rules = vec![
        ("sliding window", vec![sliding(100, 30 * SECOND)]),
        ("fixed window", vec![fixed(90, 30 * SECOND)]),
        ("first use", vec![first_use(60, SECOND)]),
        ("token bucket", vec![bucket(70, 50, SECOND)]),
        ("intervals", vec![at_intervals(70, 50, SECOND)]),
        ("in flight", vec![in_flight(60)]),
        ("two", vec![sliding(100, 30 * SECOND), in_flight(40)]),
    ];
    rules.into_iter().map(|(name, rules)| (name, plan(rules))).collect()
}

/// When the rows are written, in milliseconds.
const WRITTEN: u64 = 700;

/// A pool that has lent, heard, burned and let one session go.
fn used(plan: &Arc<Plan>) -> Pool {
    let mut pool = Pool::new(plan.clone(), millis(0));
    let first = grant(pool.renew(millis(0), A, 1, ask(0, 0, 20))).permits;
    grant(pool.renew(millis(10), B, 1, Ask { demand_milli: 9_000, ..ask(0, 0, 6) }));
    let running = |ask: Ask, running| Ask { running: Some(running), ..ask };
    pool.renew(millis(600), A, 2, running(ask(3, first - 4, 5), 2)).expect("true");
    pool.leave(millis(650), B.id, 2, goodbye(2, Some(1))).expect("true");
    pool
}

#[test]
fn rows_of_today_are_written_and_read() {
    let rows: Value = serde_json::from_str(ROWS).expect("JSON");
    let mut written = serde_json::Map::new();
    for (name, plan) in plans() {
        let mut pool = used(&plan);
        let snapshot = pool.snapshot(millis(WRITTEN)).expect("it can be");
        let (checkpoint, _) = pool.checkpoint(millis(WRITTEN), SECOND / 4).expect("it is kept");
        written
            .insert(name.to_owned(), serde_json::json!({ "snapshot": snapshot, "checkpoint": checkpoint }));
    }
    assert_eq!(Value::from(written.clone()), rows, "{}", serde_json::to_string(&written).expect("JSON"));
    for (name, plan) in plans() {
        let row = |kind: &str| rows[name][kind].clone();
        let (before, later) = (used(&plan).view(millis(WRITTEN)), millis(WRITTEN + 5));
        let snapshot: Snapshot = serde_json::from_value(row("snapshot")).expect("a row");
        let mut after =
            Pool::from_snapshot(plan.clone(), &snapshot, Gap::Counted, millis(WRITTEN)).expect("a pool");
        assert_eq!(after.view(millis(WRITTEN)).books, before.books, "{name}");
        assert_eq!(after.view(millis(WRITTEN)).available, before.available, "{name}");
        let checkpoint: Checkpoint = serde_json::from_value(row("checkpoint")).expect("a row");
        let mut after =
            Pool::from_checkpoint(plan.clone(), &checkpoint, Gap::Counted, later).expect("a pool");
        assert!(after.view(later).books.outstanding >= before.books.outstanding, "{name}");
        assert_eq!(after.view(later).in_flight, before.in_flight, "{name}");
    }
}
