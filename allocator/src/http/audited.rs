//! Configurations as they are in the audit log. One change of a limit with thousands of keys of its own must not take
//! the room of thousands of other decisions.

use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Longest configuration that is written whole, in bytes, and about the longest that is written at all. Some dozens of
/// keys with rules of their own fit. A larger one would leave room for fewer decisions.
const WHOLE_MAX: usize = 8 << 10;

/// The member that may be long, and the name of a key in it.
const OVERRIDES: &str = "override";
const KEY: &str = "key";

/// Returns the configurations `before` and `after` a decision as they are written. Of large ones, the keys with rules
/// of their own are those whose rules differ, as far as they fit; `overrides_omitted` is the number of all others.
pub(super) fn audited(before: Value, after: Value) -> (Value, Value) {
    if [&before, &after].iter().all(|config| config.to_string().len() <= WHOLE_MAX) {
        return (before, after);
    }
    (shortened(&before, &after), shortened(&after, &before))
}

fn shortened(config: &Value, other: &Value) -> Value {
    let known: BTreeMap<&str, &Value> = overrides(other).collect();
    let (mut kept, mut omitted, mut bytes) = (vec![], 0_usize, 0);
    for (key, entry) in overrides(config) {
        let differs = known.get(key) != Some(&entry);
        let with_it = bytes + entry.to_string().len();
        if differs && with_it <= WHOLE_MAX {
            bytes = with_it;
            kept.push(entry.clone());
        } else {
            omitted += 1;
        }
    }
    let Value::Object(config) = config else { return config.clone() };
    let rest = config.iter().filter(|(name, _)| *name != OVERRIDES);
    let mut short: Value = rest.map(|(name, value)| (name.clone(), value.clone())).collect();
    short[OVERRIDES] = json!(kept);
    short["overrides_omitted"] = json!(omitted);
    short
}

/// Returns the keys of `config` that have rules of their own, each with its entry.
fn overrides(config: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let entries = config.get(OVERRIDES).and_then(Value::as_array).into_iter().flatten();
    entries.map(|entry| (entry.get(KEY).and_then(Value::as_str).unwrap_or_default(), entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(limit: impl Fn(usize) -> Option<usize>) -> Value {
        let entry = |key| Some(json!({ "key": format!("k{key}"), "rules": [{ "limit": limit(key)? }] }));
        json!({ "name": "a", "keyed": true, "override": (0..8_000).filter_map(entry).collect::<Vec<_>>() })
    }

    /// The bug: each change of a large limit was a megabyte or two, and 500 of them pushed out all other decisions.
    #[test]
    fn of_a_large_limit_what_differs_is_written() {
        let before = config(|key| (key != 6_000).then_some(10));
        let after = config(|key| (key != 7_000).then_some(if key == 5 { 20 } else { 10 }));
        let (short, longer) = audited(before.clone(), after.clone());
        let keys = |config: &Value| overrides(config).map(|(key, _)| key.to_owned()).collect::<Vec<_>>();
        assert_eq!(
            (keys(&short), &short["overrides_omitted"]),
            (vec!["k5".to_owned(), "k7000".to_owned()], &json!(7_997))
        );
        assert_eq!(
            (keys(&longer), &longer["overrides_omitted"]),
            (vec!["k5".to_owned(), "k6000".to_owned()], &json!(7_997))
        );
        assert_eq!((&longer["name"], &longer["keyed"]), (&json!("a"), &json!(true)));
        let (none, new) = audited(Value::Null, after);
        assert!(none.is_null() && new.to_string().len() < 2 * WHOLE_MAX && keys(&new).len() > 100);
        assert_eq!(audited(before, Value::Null).1, Value::Null);
        let small = json!({ "name": "a", "override": [{ "key": "k", "rules": [] }] });
        assert_eq!(audited(small.clone(), small.clone()), (small.clone(), small));
    }
}
