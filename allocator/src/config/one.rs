//! One limit as JSON, as the admin API takes it: the same shape and the same checks as in the file. A name in the body
//! must be the one in the path.

use super::{ConfigError, LimitConfig, check, raw};
use lessor_ledger::limit_text;
use lessor_ledger::rule::SlidingWindow;
use lessor_protocol::PERMITS_MAX;
use serde_json::Value;

/// Parses the limit `name` from `body`, which has the shape of a `[[limit]]` in the file.
///
/// # Errors
/// If `body` is wrong. The error is the first problem.
pub fn limit_from_json(name: &str, body: &Value) -> Result<LimitConfig, ConfigError> {
    read(name, body, limit_text::limit)
}

/// Parses the limit `name` from a decision that an earlier run may have kept, see [`limit_text::decided_limit`].
///
/// # Errors
/// If the decision is wrong. The error is the first problem.
pub(crate) fn limit_from_decision(name: &str, put: &Value) -> Result<LimitConfig, ConfigError> {
    read(name, put, limit_text::decided_limit)
}

fn read(name: &str, body: &Value, check_limit: check::CheckLimit) -> Result<LimitConfig, ConfigError> {
    let wrong = |problem: String| ConfigError::at("", 0, problem);
    let Value::Object(members) = body else {
        return Err(wrong("the body is no object: send the keys of a [[limit]]".to_owned()));
    };
    let mut members = members.clone();
    let said = members.insert("name".to_owned(), Value::String(name.to_owned()));
    if said.as_ref().is_some_and(|said| *said != Value::String(name.to_owned())) {
        return Err(wrong(format!("limit {name:?}: name differs in the body: leave it out")));
    }
    // Whether the parent exists is for the allocator to check.
    let parent = match members.remove("parent") {
        None => None,
        Some(Value::String(parent)) => Some(parent),
        Some(other) => {
            return Err(wrong(format!("limit {name:?}: parent is {other}: use the name of a limit")));
        }
    };
    // TOML has no null, and no number above 2^63.
    if let Some((key, _)) = members.iter().find(|(_, value)| has(value, Value::is_null)) {
        return Err(wrong(format!("limit {name:?}: {key} is null, or holds null: leave that out")));
    }
    let is_too_large = |value: &Value| value.is_u64() && !value.is_i64();
    if let Some((key, _)) = members.iter().find(|(_, value)| has(value, is_too_large)) {
        return Err(wrong(format!(
            "limit {name:?}: {key} is or holds a number above {PERMITS_MAX}, the most that can be counted"
        )));
    }
    let mut document = toml::Table::new();
    let limit = toml::Value::try_from(Value::Object(members))
        .map_err(|error| wrong(format!("limit {name:?}: {error}")))?;
    document.insert("limit".to_owned(), toml::Value::Array(vec![limit]));
    let text = document.to_string();
    let mut config = check::config(&text, &raw::read(&text)?, SlidingWindow::MARGIN, check_limit)?;
    Ok(LimitConfig { parent, ..config.limits.remove(0) })
}

/// Whether `value`, or a value in it, is of a kind.
fn has(value: &Value, is_it: fn(&Value) -> bool) -> bool {
    match value {
        Value::Array(entries) => entries.iter().any(|value| has(value, is_it)),
        Value::Object(members) => members.values().any(|value| has(value, is_it)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => is_it(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use serde_json::json;

    fn wrong(body: Value) -> (Option<String>, String) {
        let error = limit_from_json("vendor/rest", &body).expect_err("it is wrong");
        (error.key().map(str::to_owned), error.problem().to_owned())
    }

    #[test]
    fn json_means_what_the_file_means() {
        let text = r#"[[limit]]
name = "vendor/rest"
ease_off = false
weights = { "a*" = 3 }
rules = [{ kind = "sliding_window", limit = 9000, per = "30s" }]"#;
        let body = json!({ "ease_off": false, "weights": { "a*": 3 },
            "rules": [{ "kind": "sliding_window", "limit": 9000, "per": "30s" }] });
        let limits = Config::parse(text).expect("valid").limits;
        assert_eq!(limit_from_json("vendor/rest", &body), Ok(limits[0].clone()));
        // A limit as it is shown can be sent back; stores keep it in this form.
        let leased =
            Config::parse("[[limit]]\nname = \"vendor/*\"\nkeyed = true\nupstream = \"http://centre:7400\"");
        for limit in limits.iter().chain(&leased.expect("valid").limits) {
            let shown = serde_json::to_value(limit.raw()).expect("plain data");
            assert_eq!(limit_from_json(limit.name.as_str(), &shown), Ok(limit.clone()));
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_value() {
        let rule = |per: Value| json!({ "rules": [{ "kind": "fixed_window", "limit": 1, "per": per }] });
        let (key, problem) = wrong(rule(json!("1ms")));
        assert_eq!(key.as_deref(), Some("rules[0].per"), "{problem}");
        assert!(problem.contains("1ms"), "{problem}");
        let (key, problem) = wrong(rule(json!(7)));
        assert_eq!(key.as_deref(), Some("rules[0].per"), "{problem}");
        let (key, problem) = wrong(json!({ "rules": [], "colour": "red" }));
        assert!(problem.contains("colour"), "{key:?} {problem}");
        assert!(wrong(json!({ "name": "other", "rules": [] })).1.contains("name"));
        assert!(wrong(json!([1])).1.contains("no object"));
        // The bug: the error was "u64 value was too large", and named no key.
        let (key, problem) = wrong(json!({ "weights": { "n": u64::MAX }, "rules": [] }));
        assert_eq!(key.as_deref(), Some("weights"), "{problem}");
        assert!(
            problem.ends_with("a number above 9007199254740991, the most that can be counted"),
            "{problem}"
        );
        // The bug: the error was "unsupported unit type", and its key was read as "unsupported".
        for rules in [json!(null), json!([{ "per": null }])] {
            let (key, problem) = wrong(json!({ "shadow": true, "rules": rules }));
            assert_eq!(key.as_deref(), Some("rules"), "{problem}");
            assert!(problem.ends_with("rules is null, or holds null: leave that out"), "{problem}");
        }
    }

    /// The bug: a value or a name that holds `": ` was cut there, and the word after it was taken for the key.
    #[test]
    fn a_key_is_found_before_a_value_that_looks_like_the_end_of_a_name() {
        let (key, problem) = wrong(json!({ "shadow": "a\": keyed is", "rules": [] }));
        assert_eq!(key.as_deref(), Some("shadow"), "{problem}");
        let error = limit_from_json("a\": keyed is", &json!({ "rules": [] })).expect_err("no name");
        assert_eq!(error.key(), Some("name"), "{error}");
    }
}
