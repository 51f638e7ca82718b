//! Configurations as they are in the audit log. One change of a limit with thousands of keys of its own must not take
//! the room of thousands of other decisions.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Longest configuration that is written whole, in bytes, and about the longest that is written at all. Some dozens of
/// keys with rules of their own fit. A larger one would leave room for fewer decisions.
const WHOLE_MAX: usize = 8 << 10;

/// The members that may be long, each with the member that says how many of its entries are omitted.
const LONG: [(&str, &str); 4] = [
    ("override", "overrides_omitted"),
    ("weights", "weights_omitted"),
    ("priorities", "priorities_omitted"),
    ("guaranteed", "guaranteed_omitted"),
];

/// The name of a key in an entry of `override`.
const KEY: &str = "key";

/// Returns the configurations `before` and `after` a decision as they are written. Of large ones, the keys with rules
/// of their own and the nodes with numbers of their own are those that differ, as far as they fit; `overrides_omitted`
/// and its like are the numbers of all others.
pub(super) fn audited(before: Value, after: Value) -> (Value, Value) {
    if [&before, &after].iter().all(|config| config.to_string().len() <= WHOLE_MAX) {
        return (before, after);
    }
    (shortened(&before, &after), shortened(&after, &before))
}

fn shortened(config: &Value, other: &Value) -> Value {
    let Value::Object(members) = config else { return config.clone() };
    let (mut short, mut bytes) = (Map::new(), 0);
    for (name, member) in members {
        let Some((_, omitted_as)) = LONG.iter().find(|(long, _)| long == name) else {
            short.insert(name.clone(), member.clone());
            continue;
        };
        let known: BTreeMap<&str, &Value> = other.get(name).map(entries).into_iter().flatten().collect();
        let mut omitted = 0_usize;
        let kept = entries(member).filter(|(key, entry)| {
            let with_it = bytes + key.len() + entry.to_string().len();
            let is_kept = known.get(key) != Some(entry) && with_it <= WHOLE_MAX;
            if is_kept {
                bytes = with_it
            } else {
                omitted += 1
            }
            is_kept
        });
        let kept: Value = match member.is_array() {
            true => kept.map(|(_, entry)| entry.clone()).collect(),
            false => kept.map(|(key, entry)| (key.to_owned(), entry.clone())).collect(),
        };
        short.insert(name.clone(), kept);
        short.insert((*omitted_as).to_owned(), json!(omitted));
    }
    Value::Object(short)
}

/// Returns the entries of a long `member`, each with its key or node.
fn entries(member: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let listed = member.as_array().into_iter().flatten();
    let listed = listed.map(|entry| (entry.get(KEY).and_then(Value::as_str).unwrap_or_default(), entry));
    let named = member.as_object().into_iter().flatten();
    listed.chain(named.map(|(name, entry)| (name.as_str(), entry)))
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
        let keys =
            |config: &Value| entries(&config["override"]).map(|(key, _)| key.to_owned()).collect::<Vec<_>>();
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

    /// The bug: only keys with rules of their own were left out.
    #[test]
    fn of_numbers_of_thousands_of_nodes_those_that_differ_are_written() {
        let config = |number: u64| {
            let numbers = |odd: u64| -> Value {
                (0..5_000).map(|n| (format!("node-{n}"), json!(if n == 7 { number } else { odd }))).collect()
            };
            json!({ "name": "a", "weights": numbers(1), "priorities": numbers(2), "guaranteed": numbers(3) })
        };
        let (before, after) = audited(config(8), config(9));
        for (written, number) in [(before, 8), (after, 9)] {
            for member in ["weights", "priorities", "guaranteed"] {
                assert_eq!(written[member], json!({ "node-7": number }));
                assert_eq!(written[format!("{member}_omitted")], json!(4_999));
            }
        }
        let (_, new) = audited(Value::Null, config(9));
        assert!(
            new.to_string().len() < 2 * WHOLE_MAX
                && new["guaranteed"].as_object().is_some_and(|it| it.len() > 100)
        );
    }
}
