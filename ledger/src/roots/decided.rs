//! What operators have put and removed over the API of any allocator of a store. It is in a cell beside the head. So all
//! allocators go by it whichever of them was told, and an allocator that is started later does too. The head says which is the
//! newest.

use super::Version;
use crate::cells::VALUE_MAX;
use crate::named::LIMITS_MAX;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// What cells of another version say is not guessed at.
const FORMAT: u32 = 1;

/// The cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decided {
    format: u32,
    /// Counts what was decided.
    serial: u64,
    limits: BTreeMap<String, Entry>,
}

/// The last that was decided about one limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// When that was: it holds for an allocator that has no newer file.
    pub version: Version,
    /// What the limit is, as in a file; `None` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub put: Option<Value>,
}

/// There is room for no more of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "what was put and removed over the API fills its cell in the store, {LIMITS_MAX} limits and {VALUE_MAX} bytes at most: \
     say it in the files, and raise their store.version"
)]
pub struct DecidedFull;

impl Default for Decided {
    fn default() -> Self {
        Decided { format: FORMAT, serial: 0, limits: BTreeMap::new() }
    }
}

impl Decided {
    /// Reads it.
    ///
    /// # Errors
    /// What is wrong with it. Which limits there are is unknown then.
    pub fn read(value: &[u8]) -> Result<Self, String> {
        let decided: Decided = serde_json::from_slice(value).map_err(|error| error.to_string())?;
        match decided.format {
            FORMAT => Ok(decided),
            other => Err(format!("it has format {other}, and this version knows {FORMAT}")),
        }
    }

    /// As it is written.
    pub fn write(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data")
    }

    /// The limit called `name` is `put` from now on, or is no more. That is later than all that was decided here, and than
    /// `known`, the newest file and decision that any allocator knows.
    ///
    /// # Errors
    /// If there is no room, not even without what newer files have replaced. Nothing changes then.
    pub fn decide(&mut self, name: &str, known: Version, put: Option<Value>) -> Result<(), DecidedFull> {
        let before = self.limits.values().map(|entry| entry.version);
        let newest = before.fold(known, Version::or_newer);
        let version = Version { file: newest.file, serial: newest.serial.max(self.serial) + 1 };
        let mut next = Decided { serial: version.serial, ..self.clone() };
        next.limits.insert(name.to_owned(), Entry { version, put });
        if !next.fits() {
            next.limits.retain(|_, entry| entry.version.file >= version.file);
        }
        if !next.fits() {
            return Err(DecidedFull);
        }
        *self = next;
        Ok(())
    }

    /// Takes over what was decided later there than here; where that cannot be told, what was decided there. So nothing is
    /// forgotten that an allocator knows of, whatever a store has lost, and whatever allocators that did not know of it decided
    /// since.
    pub fn merge(&mut self, other: &Decided) {
        self.serial = self.serial.max(other.serial);
        for (name, entry) in &other.limits {
            if self.limits.get(name).is_none_or(|known| known.version <= entry.version) {
                self.limits.insert(name.clone(), entry.clone());
            }
        }
    }

    /// Whether a store keeps it.
    pub fn fits(&self) -> bool {
        self.limits.len() <= LIMITS_MAX && self.write().len() <= VALUE_MAX
    }

    /// Which it is.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// What holds for an allocator that has a file of version `file`, by the limit.
    pub fn holding(&self, file: u64) -> impl Iterator<Item = (&str, &Entry)> {
        let held = self.limits.iter().filter(move |(_, entry)| entry.version.file >= file);
        held.map(|(name, entry)| (name.as_str(), entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn names(decided: &Decided, file: u64) -> Vec<(&str, Version, bool)> {
        decided.holding(file).map(|(name, entry)| (name, entry.version, entry.put.is_some())).collect()
    }

    fn version(file: u64, serial: u64) -> Version {
        Version { file, serial }
    }

    #[test]
    fn what_is_decided_holds_until_a_newer_file_says_otherwise() {
        let mut decided = Decided::default();
        decided.decide("a", Version::of_file(1), Some(json!({ "rules": [] }))).expect("room");
        decided.decide("b", Version::of_file(1), None).expect("room");
        assert_eq!(names(&decided, 1), [("a", version(1, 1), true), ("b", version(1, 2), false)]);
        assert_eq!(names(&decided, 2), []);
        decided.decide("a", Version::of_file(2), None).expect("room");
        assert_eq!(names(&decided, 2), [("a", version(2, 3), false)]);
        // The highest file is gone from a store that was emptied: what is later stays later.
        decided.decide("b", Version::of_file(1), None).expect("room");
        assert_eq!(names(&decided, 2), [("a", version(2, 3), false), ("b", version(2, 4), false)]);
    }

    /// The store lost what was decided last, and no allocator is left that knows it: roots may go by that.
    #[test]
    fn what_is_decided_is_later_than_what_any_allocator_knows() {
        let mut decided = Decided::default();
        decided.decide("a", version(3, 7), None).expect("room");
        assert_eq!((decided.serial(), names(&decided, 3)), (8, vec![("a", version(3, 8), false)]));
    }

    #[test]
    fn of_two_that_differ_the_later_of_each_limit_is_known() {
        let put = |n: u64| Some(json!({ "n": n }));
        let decided = |all: &[(&str, Option<Value>)]| {
            let mut decided = Decided::default();
            for (name, put) in all {
                decided.decide(name, Version::of_file(1), put.clone()).expect("room");
            }
            decided
        };
        let older = decided(&[("a", put(1)), ("b", put(2))]);
        let newer = decided(&[("a", put(1)), ("b", put(2)), ("a", None)]);
        let merged = |one: &Decided, other: &Decided| {
            let mut merged = one.clone();
            merged.merge(other);
            merged
        };
        assert_eq!((merged(&older, &newer), merged(&newer, &older)), (newer.clone(), newer.clone()));
        // The store lost all of that, and was told something else by an allocator that knew nothing of it.
        let since = decided(&[("c", put(3)), ("b", put(4))]);
        let both = merged(&newer, &since);
        assert_eq!(both.serial(), 3);
        let known: Vec<_> = both.holding(1).map(|(name, entry)| (name, entry.put.clone())).collect();
        assert_eq!(
            known,
            [("a", None), ("b", put(4)), ("c", put(3))],
            "of two that count the same, the store's"
        );
        assert_eq!(merged(&both, &since), both);
    }

    #[test]
    fn it_is_read_as_it_was_written_and_nothing_else_is() {
        let mut decided = Decided::default();
        decided.decide("a", Version::of_file(1), Some(json!({ "rules": [{ "limit": 3 }] }))).expect("room");
        decided.decide("b", Version::of_file(1), None).expect("room");
        assert_eq!(Decided::read(&decided.write()), Ok(decided.clone()));
        let written = String::from_utf8(decided.write()).expect("text");
        let newer = written.replace("\"format\":1", "\"format\":2");
        assert!(Decided::read(newer.as_bytes()).is_err_and(|why| why.contains("format 2")));
        let strange = written.replace("\"serial\"", "\"what\":1,\"serial\"");
        assert!(Decided::read(strange.as_bytes()).is_err_and(|why| why.contains("what")));
        assert!(Decided::read(b"{}").is_err());
    }

    #[test]
    fn there_is_room_for_so_much_and_for_more_once_files_have_replaced_it() {
        let mut decided = Decided::default();
        let large = || Some(json!({ "rules": "x".repeat(VALUE_MAX / 3) }));
        for name in ["a", "b"] {
            decided.decide(name, Version::of_file(1), large()).expect("room");
        }
        let full = decided.clone();
        assert_eq!(decided.decide("c", Version::of_file(1), large()), Err(DecidedFull));
        assert_eq!(decided, full, "nothing changed");
        decided.decide("a", Version::of_file(1), None).expect("that takes less");
        decided.decide("c", Version::of_file(1), large()).expect("room");
        decided.decide("d", Version::of_file(2), large()).expect("two of them are in a newer file");
        assert_eq!(names(&decided, 0), [("d", version(2, 5), true)]);
    }
}
