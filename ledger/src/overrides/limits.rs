//! The limits that operators have put and removed over the API, in a shared store. They are in one cell, and the head
//! has the version of the newest. So all allocators follow them, whichever allocator an operator told.

use super::Version;
use crate::cells::{VALUE_MAX, check_count};
use crate::named::LIMITS_MAX;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Format of the cell. Other formats are refused.
const FORMAT: u32 = 1;

/// The cell: the last decision of operators about each limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitOverrides {
    format: u32,
    /// Serial of the newest decision.
    serial: u64,
    limits: BTreeMap<String, LimitOverride>,
}

/// The last decision of operators about one limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitOverride {
    /// The version of this decision. It holds for an allocator that has no newer file.
    pub version: Version,
    /// The limit as in a file; `None` if it was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub put: Option<Value>,
}

/// The error that the cell of the overrides is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the store has no room for more limits put or removed over the API, {LIMITS_MAX} limits and {VALUE_MAX} bytes \
     at most: move them to the configuration files, and raise store.version there"
)]
pub struct OverridesFull;

impl Default for LimitOverrides {
    fn default() -> Self {
        LimitOverrides { format: FORMAT, serial: 0, limits: BTreeMap::new() }
    }
}

impl LimitOverrides {
    /// Reads the value of the cell.
    ///
    /// # Errors
    /// What is wrong with the value. The overrides are unknown then.
    pub fn read(value: &[u8]) -> Result<Self, String> {
        let overrides: LimitOverrides = serde_json::from_slice(value).map_err(|error| error.to_string())?;
        check_count("serial", overrides.serial)?;
        match overrides.format {
            FORMAT => Ok(overrides),
            other => Err(format!("it has format {other}, and this version knows {FORMAT}")),
        }
    }

    /// Returns the value of the cell.
    pub fn write(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data")
    }

    /// Puts the limit called `name`, or removes it. The decision is later than all decisions here, and than `known`,
    /// the newest file and decision that any allocator knows. If there is no room, decisions go that newer files have
    /// replaced.
    ///
    /// # Errors
    /// If there is still no room. Nothing changes in that case.
    pub fn decide(&mut self, name: &str, known: Version, put: Option<Value>) -> Result<(), OverridesFull> {
        let before = self.limits.values().map(|limit| limit.version);
        let newest = before.fold(known, Version::or_newer);
        let version = Version { file: newest.file, serial: newest.serial.max(self.serial) + 1 };
        let mut next = LimitOverrides { serial: version.serial, ..self.clone() };
        next.limits.insert(name.to_owned(), LimitOverride { version, put });
        if !next.fits() {
            next.limits.retain(|_, limit| limit.version.file >= version.file);
        }
        if !next.fits() {
            return Err(OverridesFull);
        }
        *self = next;
        Ok(())
    }

    /// Takes over each override of `other` that is not older than the one here. So an allocator forgets no decision
    /// that it knows, even if a store has lost it and other allocators have decided since. If there is no room for all,
    /// decisions go that a newer file had replaced at a later decision: [`LimitOverrides::decide`] drops them, too.
    pub fn merge(&mut self, other: &LimitOverrides) {
        self.serial = self.serial.max(other.serial);
        for (name, limit) in &other.limits {
            if self.limits.get(name).is_none_or(|known| known.version <= limit.version) {
                self.limits.insert(name.clone(), limit.clone());
            }
        }
        if !self.fits() {
            let newest = self.limits.values().map(|limit| limit.version.file).max().unwrap_or_default();
            self.limits.retain(|_, limit| limit.version.file >= newest);
        }
    }

    /// Whether the overrides fit in a cell.
    pub fn fits(&self) -> bool {
        self.limits.len() <= LIMITS_MAX && self.write().len() <= VALUE_MAX
    }

    /// Returns the serial of the newest decision.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// Returns the overrides that hold for an allocator with a file of version `file`, by the limit.
    pub fn holding(&self, file: u64) -> impl Iterator<Item = (&str, &LimitOverride)> {
        let held = self.limits.iter().filter(move |(_, limit)| limit.version.file >= file);
        held.map(|(name, limit)| (name.as_str(), limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn names(overrides: &LimitOverrides, file: u64) -> Vec<(&str, Version, bool)> {
        overrides.holding(file).map(|(name, limit)| (name, limit.version, limit.put.is_some())).collect()
    }

    fn version(file: u64, serial: u64) -> Version {
        Version { file, serial }
    }

    #[test]
    fn what_is_decided_holds_until_a_newer_file_says_otherwise() {
        let mut overrides = LimitOverrides::default();
        overrides.decide("a", Version::of_file(1), Some(json!({ "rules": [] }))).expect("room");
        overrides.decide("b", Version::of_file(1), None).expect("room");
        assert_eq!(names(&overrides, 1), [("a", version(1, 1), true), ("b", version(1, 2), false)]);
        assert_eq!(names(&overrides, 2), []);
        overrides.decide("a", Version::of_file(2), None).expect("room");
        assert_eq!(names(&overrides, 2), [("a", version(2, 3), false)]);
        // An allocator with an older file decides: that is later all the same.
        overrides.decide("b", Version::of_file(1), None).expect("room");
        assert_eq!(names(&overrides, 2), [("a", version(2, 3), false), ("b", version(2, 4), false)]);
    }

    /// The store lost the last decision, and no allocator is left that knows it. Roots may still go by it.
    #[test]
    fn what_is_decided_is_later_than_what_any_allocator_knows() {
        let mut overrides = LimitOverrides::default();
        overrides.decide("a", version(3, 7), None).expect("room");
        assert_eq!((overrides.serial(), names(&overrides, 3)), (8, vec![("a", version(3, 8), false)]));
    }

    #[test]
    fn of_two_that_differ_the_later_of_each_limit_is_known() {
        let put = |n: u64| Some(json!({ "n": n }));
        let overrides = |all: &[(&str, Option<Value>)]| {
            let mut overrides = LimitOverrides::default();
            for (name, put) in all {
                overrides.decide(name, Version::of_file(1), put.clone()).expect("room");
            }
            overrides
        };
        let older = overrides(&[("a", put(1)), ("b", put(2))]);
        let newer = overrides(&[("a", put(1)), ("b", put(2)), ("a", None)]);
        let merged = |one: &LimitOverrides, other: &LimitOverrides| {
            let mut merged = one.clone();
            merged.merge(other);
            merged
        };
        assert_eq!((merged(&older, &newer), merged(&newer, &older)), (newer.clone(), newer.clone()));
        // The store lost all of these, and got other decisions from an allocator that did not know them.
        let since = overrides(&[("c", put(3)), ("b", put(4))]);
        let both = merged(&newer, &since);
        assert_eq!(both.serial(), 3);
        let known: Vec<_> = both.holding(1).map(|(name, limit)| (name, limit.put.clone())).collect();
        assert_eq!(
            known,
            [("a", None), ("b", put(4)), ("c", put(3))],
            "of two that count the same, the store's"
        );
        assert_eq!(merged(&both, &since), both);
    }

    #[test]
    fn it_is_read_as_it_was_written_and_nothing_else_is() {
        let mut overrides = LimitOverrides::default();
        overrides.decide("a", Version::of_file(1), Some(json!({ "rules": [{ "limit": 3 }] }))).expect("room");
        overrides.decide("b", Version::of_file(1), None).expect("room");
        assert_eq!(LimitOverrides::read(&overrides.write()), Ok(overrides.clone()));
        let written = String::from_utf8(overrides.write()).expect("text");
        let newer = written.replace("\"format\":1", "\"format\":2");
        assert!(LimitOverrides::read(newer.as_bytes()).is_err_and(|why| why.contains("format 2")));
        let strange = written.replace("\"serial\"", "\"what\":1,\"serial\"");
        assert!(LimitOverrides::read(strange.as_bytes()).is_err_and(|why| why.contains("what")));
        assert!(LimitOverrides::read(b"{}").is_err());
        // The bug: the next decision after one of these overflowed.
        for high in ["\"serial\":18446744073709551615", "\"serial\":9223372036854775808"] {
            let high = written.replace("\"serial\":2", high);
            assert!(LimitOverrides::read(high.as_bytes()).is_err_and(|why| why.contains("counted")));
        }
        let high = written.replace("[1,2]", "[1,18446744073709551615]");
        assert!(LimitOverrides::read(high.as_bytes()).is_err_and(|why| why.contains("counted")));
    }

    #[test]
    fn there_is_room_for_so_much_and_for_more_once_files_have_replaced_it() {
        let mut overrides = LimitOverrides::default();
        let large = || Some(json!({ "rules": "x".repeat(VALUE_MAX / 3) }));
        for name in ["a", "b"] {
            overrides.decide(name, Version::of_file(1), large()).expect("room");
        }
        let full = overrides.clone();
        assert_eq!(overrides.decide("c", Version::of_file(1), large()), Err(OverridesFull));
        assert_eq!(overrides, full, "nothing changed");
        overrides.decide("a", Version::of_file(1), None).expect("that takes less");
        overrides.decide("c", Version::of_file(1), large()).expect("room");
        let before = overrides.clone();
        overrides.decide("d", Version::of_file(2), large()).expect("two of them are in a newer file");
        assert_eq!(names(&overrides, 0), [("d", version(2, 5), true)]);
        // The bug: allocators that knew the earlier decisions went on with all of them. These never fitted again, so the
        // store was told of no decision that it lost, and each look at it was an error in the log.
        let mut known = before.clone();
        known.merge(&overrides);
        assert_eq!(known, overrides);
        let mut other_order = overrides.clone();
        other_order.merge(&before);
        assert_eq!(other_order, overrides);
    }
}
