//! Reads a JSON object, or explains why it cannot be read: the first field that is missing or of the wrong type, with a
//! short, escaped piece of its value. The explanation costs time only after a failure.

use super::problem::Problem;
use lessor_protocol::PERMITS_MAX;
use lessor_protocol::wire::ASKS_MAX;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// The fields that an object should have.
pub(super) type Shape = &'static [(&'static str, Kind)];

/// The type that a field should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A string.
    Text,
    /// A string, or nothing at all.
    OptionalText,
    /// A whole number: permits, a session, a sequence number.
    Number,
    /// A whole number, or nothing at all.
    OptionalNumber,
    /// A whole number, `null`, or nothing at all.
    NullableNumber,
    /// A list of entries.
    List,
    /// A list of entries, or nothing at all.
    OptionalList,
    /// `true`, `false`, or nothing at all.
    OptionalFlag,
    /// An object of a shape, or nothing at all.
    OptionalObject(Shape),
}

/// The field that is wrong, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub field: &'static str,
    pub detail: String,
}

/// Longest piece of a value that is shown, in characters.
const SHOWN_MAX: usize = 40;

/// Decodes `body` as a `T`, which has `shape`.
pub(super) fn read<'a, T: Deserialize<'a>>(body: &'a [u8], shape: Shape) -> Result<T, Problem> {
    let text = std::str::from_utf8(body).map_err(|error| Problem::malformed(error.to_string()))?;
    serde_json::from_str(text).map_err(|error| match explain(text, shape) {
        Ok(Some(Fault { field, detail })) => Problem::invalid(field, detail),
        Err(error) if error.classify() == Category::Data => {
            let detail = format!("the body is {}: expected an object", shown(text.trim_start()));
            Problem::malformed(detail)
        }
        Ok(None) | Err(_) => Problem::malformed(explained(&error)),
    })
}

/// Returns the text of `error`. Only a data error can quote the input, and then no more than a short piece is shown.
pub(super) fn explained(error: &serde_json::Error) -> String {
    match error.classify() {
        Category::Data => shown(&error.to_string()),
        Category::Syntax | Category::Eof | Category::Io => error.to_string(),
    }
}

/// # Errors
/// If the list in `field` has more than [`ASKS_MAX`] entries.
pub(super) fn check_count(field: &str, count: usize) -> Result<(), Problem> {
    if count > ASKS_MAX {
        let detail = format!("{field} has {count} entries: send at most {ASKS_MAX} at once");
        return Err(Problem::invalid(field, detail));
    }
    Ok(())
}

/// Returns what is wrong with `object` if it is not of `shape`. `Err` if it is no object.
pub(super) fn explain(object: &str, shape: Shape) -> Result<Option<Fault>, serde_json::Error> {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(object)?;
    let fault = shape.iter().find_map(|&(field, kind)| {
        let expected = kind.expected();
        let detail = match (fields.get(field).map(|value| value.get()), kind) {
            (None, _) if kind.may_be_absent() => return None,
            (None, _) => format!("{field} is missing: expected {expected}"),
            (Some(value), Kind::OptionalObject(shape)) if value.starts_with('{') => {
                format!("{field}.{}", explain(value, shape).ok()??.detail)
            }
            (Some(value), _) if kind.fits(value) => return None,
            (Some(value), _) => format!("{field} is {}: expected {expected}", shown(value)),
        };
        Some(Fault { field, detail })
    });
    Ok(fault)
}

/// Returns a short, escaped piece of a JSON value.
pub(super) fn shown(value: &str) -> String {
    let mut shown = String::new();
    for c in value.chars().take(SHOWN_MAX) {
        match c {
            '"' | '\'' | '\\' => shown.push(c),
            _ => shown.extend(c.escape_debug()),
        }
    }
    if value.chars().nth(SHOWN_MAX).is_some() {
        shown.push_str(&format!("… ({} bytes)", value.len()));
    }
    shown
}

impl Kind {
    fn expected(self) -> String {
        match self {
            Kind::Text | Kind::OptionalText => "a string".to_owned(),
            Kind::Number | Kind::OptionalNumber | Kind::NullableNumber => {
                format!("a whole number from 0 to {PERMITS_MAX}")
            }
            Kind::List | Kind::OptionalList => "a list".to_owned(),
            Kind::OptionalFlag => "true or false".to_owned(),
            Kind::OptionalObject(_) => "an object".to_owned(),
        }
    }

    fn may_be_absent(self) -> bool {
        match self {
            Kind::OptionalText
            | Kind::OptionalNumber
            | Kind::NullableNumber
            | Kind::OptionalList
            | Kind::OptionalFlag
            | Kind::OptionalObject(_) => true,
            Kind::Text | Kind::Number | Kind::List => false,
        }
    }

    fn fits(self, value: &str) -> bool {
        match self {
            Kind::Text => reads_as::<String>(value),
            Kind::OptionalText => reads_as::<Option<String>>(value),
            Kind::Number | Kind::OptionalNumber => {
                serde_json::from_str(value).is_ok_and(|number: u64| number <= PERMITS_MAX)
            }
            Kind::NullableNumber => value == "null" || Kind::Number.fits(value),
            Kind::List | Kind::OptionalList => value.starts_with('['),
            Kind::OptionalFlag => reads_as::<bool>(value),
            Kind::OptionalObject(_) => value == "null",
        }
    }
}

fn reads_as<T: DeserializeOwned>(value: &str) -> bool {
    serde_json::from_str::<T>(value).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = &[("name", Kind::Text), ("want", Kind::Number), ("key", Kind::OptionalText)];

    #[track_caller]
    fn check(object: &str, expected: &str) {
        let fault = explain(object, SHAPE).expect("an object");
        assert_eq!(fault.map_or(String::new(), |fault| fault.detail), expected);
    }

    #[test]
    fn the_first_wrong_field_is_named_with_its_value() {
        const NUMBER: &str = "expected a whole number from 0 to 9007199254740991";
        check(r#"{"name":"a","want":1}"#, "");
        check(r#"{"name":"a","want":1,"key":null,"more":{}}"#, "");
        check(r#"{"want":1}"#, "name is missing: expected a string");
        check(r#"{"name":7,"want":1}"#, "name is 7: expected a string");
        check(r#"{"name":"a","want":1,"key":[1]}"#, "key is [1]: expected a string");
        for value in
            ["-1", "1.5", "1e400", "18446744073709551616", "9007199254740992", "\"10\"", "null", "true"]
        {
            let object = format!(r#"{{"name":"a","want":{value}}}"#);
            check(&object, &format!("want is {value}: {NUMBER}"));
        }
    }

    #[test]
    fn a_field_of_an_inner_object_is_named_with_its_path() {
        const OUTER: Shape = &[("rate", Kind::OptionalObject(SHAPE)), ("turn", Kind::OptionalFlag)];
        let detail = |object: &str| explain(object, OUTER).expect("an object").map(|fault| fault.detail);
        assert_eq!(detail(r#"{"rate":{"name":"a","want":1},"turn":true}"#), None);
        assert_eq!(detail(r#"{"rate":null}"#), None);
        assert_eq!(detail(r#"{"rate":[7]}"#).as_deref(), Some("rate is [7]: expected an object"));
        assert_eq!(
            detail(r#"{"rate":{"name":7,"want":1}}"#).as_deref(),
            Some("rate.name is 7: expected a string")
        );
        assert_eq!(detail(r#"{"turn":1}"#).as_deref(), Some("turn is 1: expected true or false"));
    }

    #[test]
    fn only_a_short_piece_is_shown() {
        let object = format!(r#"{{"name":["{}"]}}"#, "\u{202e}".repeat(1_000));
        let fault = explain(&object, SHAPE).expect("an object").expect("a list is no name");
        let start = format!("name is [\"{}… (3004 bytes)", "\\u{202e}".repeat(38));
        assert!(fault.detail.starts_with(&start), "{}", fault.detail);
    }

    #[test]
    fn what_is_no_object_is_not_explained() {
        assert!(explain("[1]", SHAPE).is_err());
        assert!(explain(&"[".repeat(100_000), SHAPE).is_err());
    }
}
