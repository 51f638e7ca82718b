//! One request of a replay, as a line of JSON: the contract between `lessor replay` and the author of its input. It is
//! checked here, and trusted afterwards. It knows no limits.

use lessor_allocator::config::rules_from_json;
use lessor_ledger::{CarryOver, Rule};
use lessor_protocol::{Moment, NodeName, PERMITS_MAX};
use serde::{Deserialize, Deserializer, de};
use std::time::Duration;

/// A request: the call, its time, and its limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) at: Moment,
    pub(crate) limit: String,
    pub(crate) key: Option<String>,
    pub(crate) node: Option<NodeName>,
    pub(crate) call: Call,
}

/// The operation of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    TryAcquire(u64),
    Peek(u64),
    /// With the longest wait, if it is bounded.
    Acquire(u64, Option<Duration>),
    Refund(u64),
    TopUp(u64),
    Set(Vec<Rule>, CarryOver),
}

/// The fields of a line, as they are written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRequest {
    at_ns: u64,
    limit: String,
    key: Option<String>,
    node: Option<String>,
    op: Op,
    permits: Option<u64>,
    timeout_ns: Option<u64>,
    rules: Option<serde_json::Value>,
    #[serde(default, deserialize_with = "carry_over")]
    carry: Option<CarryOver>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Op {
    TryAcquire,
    Peek,
    Acquire,
    Refund,
    TopUp,
    Set,
}

impl Request {
    /// Parses one line, without its end. `margin` is for rules that set none.
    ///
    /// # Errors
    /// The problem with the line, beginning with the field.
    pub(crate) fn parse(line: &[u8], margin: Duration) -> Result<Self, String> {
        let raw = read(line)?;
        let node = raw.node.as_deref().map(NodeName::try_new).transpose();
        Ok(Request {
            at: Moment::from_nanos(raw.at_ns),
            node: node
                .map_err(|error| format!("node {:?} {error}", raw.node.as_deref().unwrap_or_default()))?,
            call: call(&raw, margin)?,
            limit: raw.limit,
            key: raw.key,
        })
    }
}

fn read(line: &[u8]) -> Result<RawRequest, String> {
    let text = std::str::from_utf8(line).map_err(|error| format!("is no UTF-8: {error}"))?;
    // serde would also accept an array of the values in order; this format does not.
    if !text.trim_start().starts_with('{') {
        return Err(format!("{} is no JSON object", piece(text)));
    }
    let document = &mut serde_json::Deserializer::from_str(text);
    let raw = serde_path_to_error::deserialize(&mut *document).map_err(|error| {
        let path = error.path().to_string();
        let said = said(&error.into_inner());
        // The error names a missing or repeated field already.
        if path == "." { said } else { format!("{path}: {said}") }
    })?;
    document.end().map_err(|error| said(&error))?;
    Ok(raw)
}

/// Formats `error` with its column, and without its line, which is always the first.
fn said(error: &serde_json::Error) -> String {
    let place = format!(" at line {} column {}", error.line(), error.column());
    let said = error.to_string();
    format!("{} (column {})", said.strip_suffix(&place).unwrap_or(&said), error.column())
}

/// Returns the quoted beginning of an unchecked text.
fn piece(text: &str) -> String {
    /// Characters that are shown: enough to find the text.
    const SHOWN: usize = 40;
    let cut: String = text.chars().take(SHOWN).collect();
    let more = if cut.len() < text.len() { "…" } else { "" };
    format!("{cut:?}{more}")
}

fn call(raw: &RawRequest, margin: Duration) -> Result<Call, String> {
    let permits = match (raw.permits, raw.op) {
        (Some(permits), _) if permits > PERMITS_MAX => {
            return Err(format!("permits is {permits}: use at most {PERMITS_MAX} (2^53 - 1)"));
        }
        (Some(permits), _) => permits,
        // A request that only looks, or sets rules, takes none.
        (None, Op::Peek | Op::Set) => 0,
        (None, _) => return Err("permits is missing: say how many".to_owned()),
    };
    Ok(match raw.op {
        Op::TryAcquire => Call::TryAcquire(permits),
        Op::Peek => Call::Peek(permits),
        Op::Acquire => Call::Acquire(permits, raw.timeout_ns.map(Duration::from_nanos)),
        Op::Refund => Call::Refund(permits),
        Op::TopUp => Call::TopUp(permits),
        Op::Set => {
            let rules =
                raw.rules.as_ref().ok_or("rules is missing: set needs rules as in a configuration")?;
            Call::Set(rules_from_json(&rules.to_string(), margin)?, raw.carry.unwrap_or_default())
        }
    })
}

/// Parses the name of a way to carry a balance over.
fn carry_over<'de, D: Deserializer<'de>>(source: D) -> Result<Option<CarryOver>, D::Error> {
    let Some(name) = Option::<String>::deserialize(source)? else { return Ok(None) };
    let carry_over = CarryOver::named(&name).ok_or_else(|| {
        let names = CarryOver::ALL.map(CarryOver::name).join(", ");
        de::Error::custom(format!("{} is none of {names}", piece(&name)))
    })?;
    Ok(Some(carry_over))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Request, String> {
        Request::parse(line.as_bytes(), Duration::ZERO)
    }

    #[test]
    fn a_line_says_what_is_asked_and_ignores_what_the_operation_does_not_need() {
        let line = r#"{"at_ns":5,"limit":"a","key":"k","node":"n","op":"acquire","permits":2,"timeout_ns":7,"carry":null}"#;
        let request = parse(line).expect("good");
        assert_eq!((request.at.as_nanos(), request.limit.as_str()), (5, "a"));
        assert_eq!((request.key.as_deref(), request.node.is_some()), (Some("k"), true));
        assert_eq!(request.call, Call::Acquire(2, Some(Duration::from_nanos(7))));
        let peek = parse(r#"{"at_ns":5,"limit":"a","op":"peek","timeout_ns":1}"#).expect("good");
        assert_eq!(peek.call, Call::Peek(0));
    }

    #[test]
    fn a_complaint_names_field_and_value() {
        let check = |line: &str, expected: &str| {
            let problem = parse(line).expect_err(line);
            assert!(problem.starts_with(expected), "{line} gave {problem:?}");
        };
        let with = |rest: &str| format!("{{\"at_ns\":0,\"limit\":\"a\",\"op\":\"try_acquire\",{rest}}}");
        check(&with("\"permits\":\"5\""), "permits: invalid type: string \"5\", expected u64 (column ");
        check(&with("\"permits\":-1"), "permits: invalid value: integer `-1`, expected u64");
        check(&with("\"permits\":1.5"), "permits: invalid type: floating point `1.5`, expected u64");
        check(
            &with("\"permits\":9007199254740992"),
            "permits is 9007199254740992: use at most 9007199254740991",
        );
        check(&with("\"permit\":1"), "permit: unknown field `permit`, expected one of `at_ns`, `limit`");
        check(&with("\"key\":\"k\""), "permits is missing");
        check(&with("\"permits\":1,\"node\":\"a b\""), "node \"a b\" contains ' '");
        check(&with("\"permits\":1,\"permits\":1"), "duplicate field `permits`");
        check(
            r#"{"at_ns":0,"limit":"a","op":"try","permits":1}"#,
            "op: unknown variant `try`, expected one of",
        );
        check(r#"{"limit":"a","op":"peek"}"#, "missing field `at_ns`");
        check(r#"{"at_ns":0,"limit":"a","op":"set","permits":0}"#, "rules is missing");
        check(r#"{"at_ns":0,"limit":"a","op":"set","rules":[]}"#, "rules is empty");
        check(
            r#"{"at_ns":0,"limit":"a","op":"set","rules":[{"kind":"sliding_window","limit":1,"per":30}]}"#,
            "rules[0].per: invalid type: integer `30`, expected a number with a unit",
        );
        check(
            r#"{"at_ns":0,"limit":"a","op":"set","rules":[{"kind":"token_bucket","capacity":1,"per":"1s"}]}"#,
            "rules[0].refill is missing",
        );
        check(r#"[0,"a",null,null,"peek",0,null,null,null]"#, "\"[0,\\\"a\\\"");
        check("{\"at_ns\":", "at_ns: EOF while parsing");
        check(r#"{"at_ns":0,"limit":"a","op":"peek"} {}"#, "trailing characters");
        assert!(Request::parse(b"{\xff}", Duration::ZERO).expect_err("bad").starts_with("is no UTF-8"));
    }
}
