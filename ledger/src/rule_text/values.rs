//! Values of a rule's fields: numbers, spans with a unit, and days.

use super::timespan;
use lessor_protocol::PERMITS_MAX;
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::time::Duration;

/// The day on which a month or a week begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum AnchorDay {
    /// The day of a month, by its number.
    Number(u64),
    /// The day of a week, by its name.
    Name(String),
}

/// A whole number that is not negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Count(pub u64);

/// A duration, written with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timespan(pub Duration);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_u64(CountVisitor)
    }
}

struct CountVisitor;

impl Visitor<'_> for CountVisitor {
    type Value = Count;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number, not negative")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Count, E> {
        Ok(Count(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Count, E> {
        let wrong = || E::invalid_value(Unexpected::Signed(value), &self);
        u64::try_from(value).map(Count).map_err(|_| wrong())
    }

    fn visit_i128<E: Error>(self, value: i128) -> Result<Count, E> {
        let wrong = || match value < 0 {
            true => E::invalid_value(Unexpected::Other(&value.to_string()), &self),
            false => E::custom(format!(
                "{value} is more than {PERMITS_MAX} (2^53 - 1), the most that can be counted"
            )),
        };
        u64::try_from(value).map(Count).map_err(|_| wrong())
    }
}

impl<'de> Deserialize<'de> for AnchorDay {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnchorDayVisitor)
    }
}

struct AnchorDayVisitor;

impl Visitor<'_> for AnchorDayVisitor {
    type Value = AnchorDay;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a day of the month, 1 to 31, or the name of a weekday")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<AnchorDay, E> {
        Ok(AnchorDay::Number(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<AnchorDay, E> {
        let wrong = || E::invalid_value(Unexpected::Signed(value), &self);
        u64::try_from(value).map(AnchorDay::Number).map_err(|_| wrong())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<AnchorDay, E> {
        Ok(AnchorDay::Name(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for Timespan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TimespanVisitor)
    }
}

struct TimespanVisitor;

impl Visitor<'_> for TimespanVisitor {
    type Value = Timespan;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number with a unit, for example \"30s\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Timespan, E> {
        let wrong = |_| E::invalid_value(Unexpected::Str(text), &self);
        humantime::parse_duration(text).map(Timespan).map_err(wrong)
    }
}

impl Serialize for Timespan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&timespan(self.0))
    }
}
