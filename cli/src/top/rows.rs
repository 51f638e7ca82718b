//! Computes rows from two looks at all limits: rates, and how much a limit needs an operator. No IO, no clock.

use crate::limits::standing::{count, is_one, left_milli, refusals, stands};
use crate::limits::table;
use crate::span::span;
use crate::top::TopSort;
use lessor_protocol::Moment;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

/// One look at all limits.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub(super) at: Moment,
    limits: BTreeMap<String, Value>,
}

/// One limit between two looks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(super) name: String,
    pub(super) state: String,
    /// How much the limit needs an operator: from 0, not at all, to 3.
    pub(super) bad: u8,
    pub(super) available: u64,
    /// Whether no key or name is in use: each would begin with a full pool.
    is_unused: bool,
    /// The part that is left, in thousandths.
    left_milli: u64,
    /// The most that can be available; `None` for a limit with many pools.
    pub(super) ceiling: Option<u64>,
    pub(super) outstanding: u64,
    pub(super) lessees: u64,
    /// Rates per second; `None` before there were two looks.
    pub(super) spent: Option<f64>,
    pub(super) refused: Option<f64>,
    /// Seconds until a permit is wanted that is not there, as the allocator foresees it. `None` for a limit with many
    /// pools, one of which is nearly always empty.
    pub(super) empty_in: Option<f64>,
}

impl Look {
    /// Reads the answer to `GET /v1/limits` at `at`.
    pub(super) fn of(at: Moment, body: &Value) -> Self {
        let limits = body["limits"].as_array().into_iter().flatten();
        Look { at, limits: limits.map(|limit| (table::text(&limit["name"]), limit.clone())).collect() }
    }
}

/// Returns a row for each limit of `now`, with rates since `before`.
pub(super) fn rows(now: &Look, before: Option<&Look>) -> Vec<Row> {
    let row = |(name, limit): (&String, &Value)| {
        let earlier = before.and_then(|before| before.limits.get(name));
        let seconds = before.map_or(0.0, |before| now.at.since(before.at).as_secs_f64());
        Row::of(name, limit, earlier.filter(|_| seconds > 0.0), seconds)
    };
    now.limits.iter().map(row).collect()
}

/// Sorts the rows: the most important first.
pub(super) fn sort(rows: &mut [Row], by: TopSort) {
    // Milli-permits are exact enough for an operator, and floats do not implement `Ord`.
    let milli = |rate: Option<f64>| (rate.unwrap_or_default() * 1_000.0) as u64;
    rows.sort_by_cached_key(|row| {
        let first = match by {
            TopSort::Attention => Reverse(u64::from(row.bad)),
            TopSort::Left => Reverse(u64::MAX - row.left_milli),
            TopSort::Spent => Reverse(milli(row.spent)),
            TopSort::Refused => Reverse(milli(row.refused)),
            TopSort::Name => Reverse(0),
        };
        (first, row.name.clone())
    });
}

/// Formats the rows for people, without a terminal.
pub(super) fn table(rows: &[Row]) -> String {
    let mut lines = vec![HEAD.map(str::to_owned)];
    lines.extend(rows.iter().map(Row::cells));
    table::aligned(&lines)
}

/// Titles above the cells of a row.
pub(super) const HEAD: [&str; 8] =
    ["LIMIT", "STATE", "LEFT", "SPENT/S", "EMPTY IN", "REFUSED/S", "LENT", "LESSEES"];

impl Row {
    fn of(name: &str, limit: &Value, earlier: Option<&Value>, seconds: f64) -> Self {
        // Totals that fall are from another process: there is no rate between the two looks.
        let rate = |total: fn(&Value) -> u64| {
            let grown = total(limit).checked_sub(total(earlier?))?;
            Some(grown as f64 / seconds)
        };
        let is_one = is_one(limit);
        let (bad, state) = stands(limit, earlier);
        Row {
            name: name.to_owned(),
            state,
            bad,
            available: count(limit, "available"),
            is_unused: !is_one && count(limit, "pools") == 0,
            left_milli: left_milli(limit),
            ceiling: is_one.then(|| count(limit, "ceiling")),
            outstanding: count(limit, "outstanding"),
            lessees: count(limit, "lessees"),
            spent: rate(|limit| count(limit, "spent")),
            refused: rate(refusals),
            empty_in: limit["time_to_empty_ms"].as_f64().filter(|_| is_one).map(|ms| ms / 1_000.0),
        }
    }

    /// Formats the cells below [`HEAD`].
    pub(super) fn cells(&self) -> [String; 8] {
        let rate = |rate: Option<f64>| rate.map_or("-".to_owned(), |rate| format!("{rate:.1}"));
        let left = match self.ceiling {
            Some(ceiling) => format!("{} of {ceiling}", self.available),
            None if self.is_unused => "-".to_owned(),
            None => self.available.to_string(),
        };
        let empty = match self.empty_in {
            Some(seconds) if seconds < 1.0 => "now".to_owned(),
            Some(seconds) => span(Duration::from_secs(seconds.round() as u64)),
            None => "-".to_owned(),
        };
        [
            self.name.clone(),
            self.state.clone(),
            left,
            rate(self.spent),
            empty,
            rate(self.refused),
            self.outstanding.to_string(),
            self.lessees.to_string(),
        ]
    }

    /// Formats the row for scripts.
    pub(super) fn json(&self) -> Value {
        json!({
            "name": self.name, "state": self.state, "attention": self.bad, "available": self.available,
            "ceiling": self.ceiling, "outstanding": self.outstanding, "lessees": self.lessees,
            "spent_per_second": self.spent, "refused_per_second": self.refused, "empty_in_seconds": self.empty_in,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::top) fn look(second: u64, limits: &[(&str, u64, u64, u64)]) -> Look {
        let limit = |(name, available, spent, empty): &(&str, u64, u64, u64)| {
            let lasts = (*name == "busy").then_some(4_000);
            json!({ "name": name, "keyed": false, "paused": *name == "stopped", "ceiling": 100, "available": available,
                "spent": spent, "time_to_empty_ms": lasts, "asks": { "empty": empty }, "outstanding": 1, "lessees": 2 })
        };
        let body = json!({ "limits": limits.iter().map(limit).collect::<Vec<Value>>() });
        Look::of(Moment::ORIGIN + Duration::from_secs(second), &body)
    }

    /// The bug: an allocator of a shared store that no node asks needed attention.
    #[test]
    fn a_leased_limit_that_has_nothing_in_hand_is_not_empty() {
        let of = |leased: bool, empty: u64| {
            let limit = json!({ "name": "a", "keyed": false, "paused": false, "leased": leased, "ceiling": 100,
                "available": 0, "spent": 0, "asks": { "empty": empty }, "outstanding": 0, "lessees": 0 });
            Look::of(Moment::ORIGIN + Duration::from_secs(empty), &json!({ "limits": [limit] }))
        };
        let state = |leased, empty| rows(&of(leased, empty), Some(&of(leased, 0)))[0].state.clone();
        assert_eq!([false, true].map(|leased| state(leased, 0)), ["empty", "ok"]);
        assert_eq!([false, true].map(|leased| state(leased, 9)), ["empty, refusing"; 2]);
    }

    #[test]
    fn what_needs_an_operator_is_first_and_rates_are_between_two_looks() {
        let before =
            look(10, &[("busy", 90, 5, 0), ("idle", 100, 0, 0), ("stopped", 50, 0, 0), ("used-up", 0, 9, 1)]);
        let now = look(
            12,
            &[("busy", 60, 35, 0), ("idle", 100, 0, 0), ("stopped", 50, 0, 0), ("used-up", 0, 9, 9)],
        );
        let mut rows = rows(&now, Some(&before));
        sort(&mut rows, TopSort::Attention);
        let shown: Vec<String> = rows.iter().map(|row| row.cells().join("|")).collect();
        assert_eq!(
            shown,
            [
                "stopped|paused|50 of 100|0.0|-|0.0|1|2",
                "used-up|empty, refusing|0 of 100|0.0|-|4.0|1|2",
                "busy|ok|60 of 100|15.0|4s|0.0|1|2",
                "idle|ok|100 of 100|0.0|-|0.0|1|2",
            ]
        );
        let mut first = |by| {
            sort(&mut rows, by);
            rows[0].name.clone()
        };
        assert_eq!(
            [TopSort::Left, TopSort::Spent, TopSort::Refused, TopSort::Name].map(&mut first),
            ["used-up", "busy", "used-up", "busy"]
        );
    }

    #[test]
    fn another_life_has_no_rate_to_the_one_before() {
        let (before, now) = (look(10, &[("a", 10, 500, 5)]), look(11, &[("a", 100, 0, 0)]));
        let [row] = &rows(&now, Some(&before))[..] else { panic!("one limit") };
        assert_eq!((row.spent, row.refused), (None, None));
        assert_eq!(rows(&now, None)[0].spent, None, "nor has the first look");
    }
}
