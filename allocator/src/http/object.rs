//! The body of an operator's request: one JSON object in which no field is there twice. Handlers of changes call
//! [`object`].

use super::problem::Problem;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value, json};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

/// Decodes the object in `body`; an empty body is an empty object.
///
/// # Errors
/// If the body is no object, or one of its fields is there twice: the error names the path of the field.
pub(super) fn object(body: &[u8]) -> Result<Value, Problem> {
    if body.is_empty() {
        return Ok(json!({}));
    }
    let twice = RefCell::new(None);
    let mut json = serde_json::Deserializer::from_slice(body);
    let read = Once { place: Place::Top, twice: &twice }.deserialize(&mut json);
    match read.and_then(|value| json.end().map(|()| value)) {
        Ok(value) if value.is_object() => Ok(value),
        Ok(_) => Err(Problem::malformed("the body must be an object")),
        Err(error) => Err(match twice.take() {
            Some(path) => Problem::twice(&path),
            None => Problem::malformed(error.to_string()),
        }),
    }
}

/// Returns a field that is twice in `object`. The values are not kept, because nodes send them.
pub(super) fn twice(object: &str) -> Option<String> {
    serde_json::Deserializer::from_str(object).deserialize_map(Names).ok().flatten()
}

/// Looks for a name that is there twice.
struct Names;

impl<'de> Visitor<'de> for Names {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Option<String>, A::Error> {
        let (mut names, mut twice) = (BTreeSet::new(), None);
        while let Some(name) = fields.next_key::<String>()? {
            fields.next_value::<IgnoredAny>()?;
            twice = names.replace(name).or(twice);
        }
        Ok(twice)
    }
}

/// The path of a value.
#[derive(Clone, Copy)]
enum Place<'a> {
    Top,
    Field(&'a Place<'a>, &'a str),
    Entry(&'a Place<'a>, usize),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Top => Ok(()),
            Place::Field(Place::Top, name) => f.write_str(name),
            Place::Field(above, name) => write!(f, "{above}.{name}"),
            Place::Entry(above, index) => write!(f, "{above}[{index}]"),
        }
    }
}

/// Reads any value, and stops at the first field that is there twice.
struct Once<'a> {
    place: Place<'a>,
    /// Path of a field that is there twice.
    twice: &'a RefCell<Option<String>>,
}

impl<'de> DeserializeSeed<'de> for Once<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Once<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut values = vec![];
        loop {
            let entry = Once { place: Place::Entry(&self.place, values.len()), twice: self.twice };
            match entries.next_element_seed(entry)? {
                Some(value) => values.push(value),
                None => return Ok(Value::Array(values)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let place = Place::Field(&self.place, &name);
            if values.contains_key(&name) {
                self.twice.replace(Some(place.to_string()));
                return Err(A::Error::custom("a field is there twice"));
            }
            let value = fields.next_value_seed(Once { place, twice: self.twice })?;
            values.insert(name, value);
        }
        Ok(Value::Object(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_field_twice_is_read_as_it_is() {
        for text in [
            r#"{"a":[1,-2,2.5,"x",null,true,{"a":{"a":[]}}],"b":{"a":9007199254740993}}"#,
            r#"{ "a" : 1 , "A" : 2 }"#,
            "{}",
        ] {
            let expected: Value = serde_json::from_str(text).expect("JSON");
            assert_eq!(object(text.as_bytes()).ok(), Some(expected));
        }
        for text in ["[]", "1", "{", "{} {}", "", " ", &"[".repeat(10_000)] {
            assert_eq!(object(text.as_bytes()).is_ok(), text.is_empty(), "{text:.9}");
        }
    }
}
