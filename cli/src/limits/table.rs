//! Formats the output of `lessor limits` for people: columns that line up, one limit or pool a line.

use super::standing::{is_one, of_millis, stands};
use serde_json::Value;

/// Formats all limits.
pub(crate) fn limits(body: &Value) -> String {
    let mut rows = vec![["LIMIT", "RULES", "AVAILABLE", "OUT", "LESSEES", "STATE"].map(str::to_owned)];
    for limit in body["limits"].as_array().into_iter().flatten() {
        rows.push([
            text(&limit["name"]),
            rules(limit),
            available(limit),
            limit["outstanding"].to_string(),
            limit["lessees"].to_string(),
            stands(limit, None).1,
        ]);
    }
    aligned(&rows)
}

/// Formats the permits that can be lent now. A keyed limit or a pattern without a pool has no such number: each key and
/// name would begin with a full pool.
fn available(limit: &Value) -> String {
    let is_unused = limit["pools"] == 0 && !is_one(limit);
    if is_unused { "-".to_owned() } else { limit["available"].to_string() }
}

/// Keys of a configuration that are shown where they are set.
const SELDOM: [&str; 14] = [
    "fallback",
    "parent",
    "upstream",
    "reserve",
    "safe",
    "guaranteed",
    "weights",
    "priorities",
    "vendor",
    "lease_max",
    "term",
    "keys_max",
    "names_max",
    "override",
];

/// Formats one limit.
pub(super) fn limit(limit: &Value) -> String {
    let keys = [
        "keyed",
        "shadow",
        "ease_off",
        "lessees_max",
        "pools",
        "lessees",
        "available",
        "outstanding",
        "granted",
        "spent",
        "returned",
    ];
    let mut rows = vec![["limit".to_owned(), text(&limit["name"])]];
    rows.push(["state".to_owned(), stands(limit, None).1]);
    rows.push(["rules".to_owned(), rules(limit)]);
    // Few limits have these.
    let is_set = |value: &Value| match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(object) => !object.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    };
    let more = SELDOM.into_iter().filter(|key| is_set(&limit[key]));
    rows.extend(more.map(|key| [key.to_owned(), text(&limit[key])]));
    let margins = limit["rules"].as_array().into_iter().flatten().filter_map(|rule| rule["margin"].as_str());
    let margins: Vec<&str> = margins.collect();
    if !margins.is_empty() {
        rows.push(["margin".to_owned(), margins.join(" + ")]);
    }
    let others = ["burned", "topped_up", "vendor_withheld", "vendor_paused_pools"];
    rows.extend(keys.into_iter().chain(others).map(|key| [key.to_owned(), text(&limit[key])]));
    aligned(&rows)
}

/// Formats the effect of a change.
pub(super) fn preview(body: &Value) -> String {
    let name = text(&body["limit"]);
    if body["is_new"] == Value::Bool(true) {
        let wait = body["begins_anew_ms"].as_u64();
        let wait = wait.map(|wait| format!(", and lend nothing for {}", of_millis(wait))).unwrap_or_default();
        return format!("{name} would be new{wait}\n");
    }
    let mut rows = vec![["POOL", "AVAILABLE", "AFTER", "OVER", "OUT", "LESSEES"].map(str::to_owned)];
    for pool in body["pools"].as_array().into_iter().flatten() {
        let key = pool.get("key").or(pool.get("limit")).unwrap_or(&body["limit"]);
        let figures = ["available_before", "available_after", "over", "outstanding", "lessees"];
        let [before, after, over, out, lessees] = figures.map(|figure| pool[figure].to_string());
        rows.push([text(key), before, after, over, out, lessees]);
    }
    let mut shown = aligned(&rows);
    let waits =
        body["pools"].as_array().into_iter().flatten().filter_map(|pool| pool["quarantine_ms"].as_u64());
    if let Some(wait) = body["begins_anew_ms"].as_u64() {
        shown.push_str(&format!("the limit would start afresh, and lend nothing for {}\n", of_millis(wait)));
    } else if let Some(wait) = waits.max().filter(|wait| *wait > 0) {
        shown.push_str(&format!("the limit would lend nothing for up to {}\n", of_millis(wait)));
    }
    shown
}

/// Formats the rules, with a + between two: `sliding_window 9000/30s`, `fixed_window 9000/month UTC`.
fn rules(limit: &Value) -> String {
    const PER: [&str; 3] = ["per", "calendar", "longest"];
    let one = |rule: &Value| {
        let count =
            ["limit", "refill"].into_iter().find_map(|key| rule.get(key)).map(text).unwrap_or_default();
        let per = PER.into_iter().find_map(|key| rule.get(key)).map(text).unwrap_or_default();
        let begins = match (&rule["anchor"], &rule["anchor_day"]) {
            (Value::String(anchor), _) if anchor == "first_use" => " from first use".to_owned(),
            (_, Value::String(day)) if day != "monday" => format!(" from {day}"),
            (_, Value::Number(day)) if day.as_u64() != Some(1) => format!(" from day {day}"),
            _ => String::new(),
        };
        let zone = rule["zone"].as_str().map(|zone| format!(" {zone}")).unwrap_or_default();
        format!("{} {count}/{per}{begins}{zone}", text(&rule["kind"]))
    };
    limit["rules"].as_array().into_iter().flatten().map(one).collect::<Vec<_>>().join(" + ")
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Formats columns as wide as their widest entry. Characters that could move a terminal's cursor are escaped.
pub(crate) fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let rows: Vec<[String; N]> = rows.iter().map(|row| row.each_ref().map(|cell| plain(cell))).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

fn plain(text: &str) -> String {
    text.chars()
        .flat_map(|c| if c.is_control() { c.escape_debug().collect::<Vec<_>>() } else { vec![c] })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn columns_line_up_and_nothing_moves_the_cursor() {
        let rules = json!([{ "kind": "sliding_window", "limit": 9, "per": "30s" }]);
        let one = json!({ "name": "a", "rules": rules, "available": 1, "outstanding": 20, "lessees": 3,
            "keyed": false, "pools": 0, "paused": true, "blocked_nodes": 2, "quarantine_ms": 0 });
        let other = json!({ "name": "evil\u{1b}[2J", "rules": [], "available": 0, "outstanding": 0, "lessees": 0,
            "keyed": true, "pools": 0, "paused": false, "blocked_nodes": 0, "quarantine_ms": 0 });
        let shown = limits(&json!({ "limits": [one, other] }));
        let row = |cells: [&str; 6]| {
            let [name, rules, available, out, lessees, state] = cells;
            format!("{name:<13}  {rules:<20}  {available:<9}  {out:<3}  {lessees:<7}  {state}\n")
        };
        let expected = [
            row(["LIMIT", "RULES", "AVAILABLE", "OUT", "LESSEES", "STATE"]),
            row(["a", "sliding_window 9/30s", "1", "20", "3", "paused, 2 blocked"]),
            row(["evil\\u{1b}[2J", "", "-", "0", "0", "ok"]),
        ];
        assert_eq!(shown, expected.concat());
    }

    /// The bug: a pattern without a name in use seemed to be empty.
    #[test]
    fn what_is_not_in_use_has_no_number_of_permits() {
        let of = |more: Value| {
            let mut limit = json!({ "keyed": false, "pools": 0, "available": 0 });
            limit.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            available(&limit)
        };
        assert_eq!(of(json!({ "names": 0 })), "-");
        assert_eq!(of(json!({ "names": 1, "pools": 1 })), "0");
        assert_eq!(of(json!({ "keyed": true })), "-");
        assert_eq!(of(json!({})), "0");
    }

    /// The bugs: a month was left out, and so was when a window begins. Whether a limit refuses at all was not shown.
    #[test]
    fn a_rule_has_its_period_and_a_limit_what_holds_beside_its_rules() {
        let of = |rules: Value| super::rules(&json!({ "rules": rules }));
        let monthly = json!({ "kind": "fixed_window", "limit": 1_000_000, "calendar": "month", "anchor_day": 5,
            "zone": "Europe/Berlin" });
        assert_eq!(of(json!([monthly])), "fixed_window 1000000/month from day 5 Europe/Berlin");
        let used = json!({ "kind": "fixed_window", "limit": 5, "per": "1d", "anchor": "first_use" });
        assert_eq!(of(json!([used])), "fixed_window 5/1d from first use");
        let capped = json!([{ "kind": "leaky_bucket", "burst": 1, "refill": 5, "per": "1s" },
            { "kind": "concurrency", "limit": 10, "longest": "3s" }]);
        assert_eq!(of(capped), "leaky_bucket 5/1s + concurrency 10/3s");
        let shown = limit(
            &json!({ "name": "a", "shadow": true, "fallback": "open", "upstream": "http://centre:7400", "reserve": 10,
                "weights": { "a": 2 }, "guaranteed": {}, "rules": [{ "margin": "250ms" }] }),
        );
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = shown.lines().map(words).collect();
        // The bug: why 40 of 50 were available was nowhere.
        let set = ["reserve 10", "weights {\"a\":2}", "margin 250ms"];
        for line in ["shadow true", "fallback open", "upstream http://centre:7400"].into_iter().chain(set) {
            assert!(lines.iter().any(|shown| shown == line), "{line}: {shown}");
        }
        assert!(!shown.contains("parent") && !shown.contains("guaranteed"), "{shown}");
    }

    #[test]
    fn a_preview_says_for_how_long_nothing_would_be_lent() {
        let pool =
            |waits: u64| json!({ "available_before": 9, "available_after": 0, "quarantine_ms": waits });
        // The bug: a column LEASES had the sessions, which may hold nothing.
        let head = preview(&json!({ "limit": "a", "is_new": false, "pools": [] }));
        assert_eq!(head, "POOL  AVAILABLE  AFTER  OVER  OUT  LESSEES\n");
        let last = |anew: Option<u64>, pools: [u64; 2]| {
            let pools = pools.map(pool);
            let shown =
                preview(&json!({ "limit": "a", "is_new": false, "begins_anew_ms": anew, "pools": pools }));
            shown.lines().skip(3).map(str::to_owned).collect::<Vec<_>>()
        };
        let new =
            |anew: Option<u64>| preview(&json!({ "limit": "a", "is_new": true, "begins_anew_ms": anew }));
        assert_eq!(new(None), "a would be new\n");
        assert_eq!(new(Some(3_600_000)), "a would be new, and lend nothing for 1h\n");
        assert_eq!(last(None, [0, 0]), [""; 0]);
        assert_eq!(last(None, [0, 60_000]), ["the limit would lend nothing for up to 1m"]);
        assert_eq!(last(Some(7), [0, 60_000]), ["the limit would start afresh, and lend nothing for 7ms"]);
    }
}
