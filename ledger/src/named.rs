//! The name of a limit, or a pattern: with a `*` at its end it stands for all names that begin so. The allocator finds
//! limits by it. Names are checked here and never again.

use lessor_protocol::LimitName;
use lessor_protocol::names::NAME_MAX;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound::{Included, Unbounded};

/// Limits of one allocator at a time, including removed ones that still matter. Each has metrics of its own. Users that
/// are counted apart are keys, not limits.
pub const LIMITS_MAX: usize = 10_000;

/// Names of a pattern that are in use at once, by default. Names are part of a program, while keys come from its users.
pub const NAMES_MAX: usize = 1_000;

/// The name or pattern of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The name or pattern as it is written, with the `*`.
    text: String,
    names: Names,
}

/// The number of names that a [`Named`] stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Just its own.
    One,
    /// All names that begin so, up to a bound of names in use.
    Many {
        /// Most names in use at once.
        names_max: usize,
    },
}

impl Named {
    /// Checks `text`: the name of a limit, or how names begin followed by `*`.
    pub fn try_new(text: &str) -> Result<Self, String> {
        let (stem, names) = match text.strip_suffix('*') {
            Some(stem) => (stem, Names::Many { names_max: NAMES_MAX }),
            None => (text, Names::One),
        };
        let is_any = stem.is_empty() && names != Names::One;
        match LimitName::try_new(stem) {
            Err(error) if !is_any && stem.contains('*') => Err(format!("{error}, and one * at the end")),
            Err(error) if !is_any => Err(error.to_string()),
            Ok(_) | Err(_) => Ok(Named { text: text.to_owned(), names }),
        }
    }

    /// Bounds a pattern to `names_max` names in use at once. A single name stays as it is.
    pub fn with_names_max(self, names_max: usize) -> Self {
        match self.names {
            Names::One => self,
            Names::Many { .. } => Named { names: Names::Many { names_max }, ..self },
        }
    }

    /// Returns the name or pattern as it is written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns how many names it stands for.
    pub fn names(&self) -> Names {
        self.names
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns the key of `limits` for the limit for `name`: the name itself, or else the longest pattern that the name
/// fits. No choice of names makes this slow. It takes one lookup for each byte of the name at most, and mostly one or
/// two in all.
pub fn named_for<T>(limits: &BTreeMap<String, T>, name: &str) -> Option<String> {
    // A pattern is in the same map, and no name.
    if name.ends_with('*') || name.len() > NAME_MAX {
        return None;
    }
    if limits.contains_key(name) {
        return Some(name.to_owned());
    }
    pattern_for(limits, name, name.len())
}

/// Returns the keys of all `limits` that `name` fits: the limit of that name, and patterns, the longest first.
pub fn all_named_for<T>(limits: &BTreeMap<String, T>, name: &str) -> impl Iterator<Item = String> {
    std::iter::successors(named_for(limits, name), move |last| {
        let stem = last.strip_suffix('*').map_or(name.len() + 1, str::len);
        let shorter = (0..stem).rev().find(|end| name.is_char_boundary(*end))?;
        pattern_for(limits, name, shorter)
    })
}

/// Returns the longest pattern among `limits` that `name` fits, with at most `end` bytes before the star.
fn pattern_for<T>(limits: &BTreeMap<String, T>, name: &str, mut end: usize) -> Option<String> {
    // Each character of such a name sorts after the star. So a shorter pattern sorts before a longer one that begins
    // alike, and keys between the two begin alike, too.
    let is_ordered = name.bytes().all(|byte| byte > b'*');
    let mut probe = name.to_owned();
    loop {
        probe.truncate(end);
        probe.push('*');
        let before = limits.range::<str, _>((Unbounded, Included(probe.as_str()))).next_back();
        let shared = match before {
            Some((key, _)) if *key == probe => return Some(probe),
            Some((key, _)) if is_ordered => alike(key, name),
            None if is_ordered => return None,
            Some(_) | None => end,
        };
        let shorter = (0..=shared.min(end.checked_sub(1)?)).rev();
        end = { shorter }.find(|end| name.is_char_boundary(*end))?;
    }
}

/// Returns the number of bytes that both begin with.
fn alike(one: &str, other: &str) -> usize {
    one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_star_stands_at_the_end_or_nowhere() {
        let names = |text| Named::try_new(text).map(|named| named.names());
        let many = Names::Many { names_max: NAMES_MAX };
        assert_eq!(names("api/x"), Ok(Names::One));
        assert_eq!((names("api/*"), names("api*"), names("*")), (Ok(many), Ok(many), Ok(many)));
        for wrong in ["", "api/*/x", "*x", "**", "a b*"] {
            assert!(names(wrong).is_err(), "{wrong:?}");
        }
    }

    /// Looks up one prefix after the other, as a reference.
    fn by_each_prefix(limits: &BTreeMap<String, ()>, name: &str) -> Option<String> {
        if limits.contains_key(name) {
            return Some(name.to_owned());
        }
        let prefixes = (0..=name.len()).rev().filter_map(|end| name.get(..end));
        prefixes.map(|prefix| format!("{prefix}*")).find(|pattern| limits.contains_key(pattern))
    }

    /// Collects all matches, one prefix after the other, as a reference.
    fn all_by_each_prefix(limits: &BTreeMap<String, ()>, name: &str) -> Vec<String> {
        let own = Some(name.to_owned()).filter(|name| limits.contains_key(name));
        let prefixes = (0..=name.len()).rev().filter_map(|end| name.get(..end));
        let patterns = prefixes.map(|prefix| format!("{prefix}*")).filter(|key| limits.contains_key(key));
        own.into_iter().chain(patterns).collect()
    }

    proptest! {
        #[test]
        fn the_longest_pattern_is_found(
            keys in prop::collection::vec("[ab/]{0,5}[*]?", 0..12), name in "[ab/é!]{0,7}", plain in "[ab/]{1,7}",
        ) {
            let limits: BTreeMap<String, ()> = keys.into_iter().map(|key| (key, ())).collect();
            for name in [name, plain] {
                prop_assert_eq!(named_for(&limits, &name), by_each_prefix(&limits, &name), "{}", name);
                let all: Vec<String> = all_named_for(&limits, &name).collect();
                prop_assert_eq!(all, all_by_each_prefix(&limits, &name), "{}", name);
            }
        }
    }
}
