//! Explains why a JSON object cannot be read: the first field that is missing or of the wrong type, with a short,
//! escaped piece of its value. The decoder calls it only after a failure.

use lessor_protocol::PERMITS_MAX;
use serde::de::DeserializeOwned;
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
    /// A list of entries.
    List,
    /// A list of entries, or nothing at all.
    OptionalList,
}

/// The field that is wrong, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub field: &'static str,
    pub detail: String,
}

/// Longest piece of a value that is shown, in characters.
const SHOWN_MAX: usize = 40;

/// Returns what is wrong with `object` if it is not of `shape`. `Err` if it is no object.
pub(super) fn explain(object: &str, shape: Shape) -> Result<Option<Fault>, serde_json::Error> {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(object)?;
    let fault = shape.iter().find_map(|&(field, kind)| {
        let expected = kind.expected();
        let detail = match fields.get(field) {
            None if kind.may_be_absent() => return None,
            None => format!("{field} is missing: expected {expected}"),
            Some(value) if kind.fits(value.get()) => return None,
            Some(value) => format!("{field} is {}: expected {expected}", shown(value.get())),
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
            Kind::Number | Kind::OptionalNumber => format!("a whole number from 0 to {PERMITS_MAX}"),
            Kind::List | Kind::OptionalList => "a list".to_owned(),
        }
    }

    fn may_be_absent(self) -> bool {
        match self {
            Kind::OptionalText | Kind::OptionalNumber | Kind::OptionalList => true,
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
            Kind::List | Kind::OptionalList => value.starts_with('['),
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
