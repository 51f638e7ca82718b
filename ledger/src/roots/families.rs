//! Which limits of a store are below which, by the newest configuration that any signing allocator knew. The head has
//! them. An allocator that knows less would lend from a limit without charging the one above, so it is lent nothing of
//! that limit.

use crate::named::named_for;
use crate::overrides::Version;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Most limits of a store that can be below others. All of them are in the head, which is written several times a
/// second.
pub const BELOW_MAX: usize = 200;

/// The limits that are below others, each with the one above.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Families {
    /// Version of the configuration that says so.
    version: Version,
    /// The parent of each limit, see [`parents_of`].
    above: BTreeMap<String, String>,
}

/// Returns the limit above each of `limits`, which are names with their parents. A limit without a parent that fits a
/// pattern with one is there, too, as far as there is room: a space follows its name, and its parent is empty. No limit
/// is called so, and earlier versions of Lessor overlook it.
pub fn parents_of<'a>(
    limits: impl Iterator<Item = (&'a str, Option<&'a str>)> + Clone,
) -> BTreeMap<String, String> {
    let with = limits.clone().filter_map(|(name, parent)| Some((name.to_owned(), parent?.to_owned())));
    let mut above: BTreeMap<String, String> = with.collect();
    let stems = above.keys().filter_map(|name| name.strip_suffix('*'));
    let mut stems: Vec<String> = stems.map(str::to_owned).collect();
    stems.sort_unstable();
    // Of stems that begin alike, the shortest is enough. Then only the last one up to a name can begin it.
    stems.dedup_by(|stem, shorter| stem.starts_with(shorter.as_str()));
    let fits = |name: &str| {
        let last = stems.partition_point(|stem| stem.as_str() <= name).checked_sub(1);
        last.is_some_and(|last| name.starts_with(&stems[last]))
    };
    let without = limits.filter(|(name, parent)| parent.is_none() && fits(name));
    let room = BELOW_MAX.saturating_sub(above.len());
    above.extend(without.take(room).map(|(name, _)| (apart(name), String::new())));
    above
}

/// Returns the entry for the limit called `name`, which is below none.
fn apart(name: &str) -> String {
    format!("{name} ")
}

/// Whether `entry` is for a limit that is below none.
fn is_apart(entry: &str) -> bool {
    entry.ends_with(' ')
}

/// What an allocator that asks a root knows of the limit above.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParentRef {
    /// Name of the root's limit, as it is configured.
    pub limit: String,
    /// The limit above that.
    pub parent: Option<String>,
    /// Version of the newest configuration that the allocator knows.
    pub known: Version,
}

impl Families {
    /// Creates the families that an allocator with the configuration `version` knows.
    pub fn new(version: Version, above: BTreeMap<String, String>) -> Self {
        Families { version, above }
    }

    /// Whether no limit is below another.
    pub fn is_empty(&self) -> bool {
        self.above.is_empty()
    }

    /// Merges the families that an allocator knows. The newer configuration is right; of two with the same version, all
    /// entries count.
    pub fn keep(&mut self, known: &Families) {
        match known.version.cmp(&self.version) {
            Ordering::Greater => self.clone_from(known),
            Ordering::Less => {}
            Ordering::Equal => {
                for (limit, parent) in &known.above {
                    if self.above.len() >= BELOW_MAX && !is_apart(limit) && !self.above.contains_key(limit) {
                        // A limit that is below none makes room.
                        let apart = self.above.keys().rfind(|entry| is_apart(entry)).cloned();
                        apart.into_iter().for_each(|entry| _ = self.above.remove(&entry));
                    }
                    if self.above.len() < BELOW_MAX {
                        self.above.entry(limit.clone()).or_insert_with(|| parent.clone());
                    }
                }
            }
        }
    }

    /// Returns the limit above the one that is called `stored` in its cell, if the allocator that asks does not know of
    /// it. `parent_ref` is what the allocator knows.
    pub fn unknown_to(&self, parent_ref: &ParentRef, stored: &str) -> Option<&str> {
        let limit = match self.version.cmp(&parent_ref.known) {
            Ordering::Less => None,
            Ordering::Equal => Some(parent_ref.limit.clone()),
            // There the limit may be configured under another name or pattern.
            Ordering::Greater => named_for(&self.above, stored).filter(|named| !self.is_apart(named, stored)),
        };
        let above = limit.and_then(|limit| self.above.get(&limit)).map(String::as_str);
        above.filter(|above| parent_ref.parent.as_deref() != Some(*above))
    }

    /// Whether the newest configuration has a limit that is below none for the name `stored`, and that holds rather than
    /// the limit called `named`.
    fn is_apart(&self, named: &str, stored: &str) -> bool {
        let Some(stem) = named.strip_suffix('*') else { return false };
        let longer = (stem.len() + 1..=stored.len()).filter_map(|end| stored.get(..end));
        let mut longer = longer.map(|longer| apart(&format!("{longer}*")));
        self.above.contains_key(&apart(stored)) || longer.any(|entry| self.above.contains_key(&entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn families(file: u64, above: &[(&str, &str)]) -> Families {
        let above = above.iter().map(|(limit, parent)| (limit.to_string(), parent.to_string()));
        Families::new(Version::of_file(file), above.collect())
    }

    fn parent_ref(limit: &str, parent: Option<&str>, file: u64) -> ParentRef {
        ParentRef {
            limit: limit.to_owned(),
            parent: parent.map(str::to_owned),
            known: Version::of_file(file),
        }
    }

    #[test]
    fn an_allocator_that_knows_less_is_told_of_a_limit_above_and_no_other_is() {
        let known = families(2, &[("a", "all"), ("user/*", "all")]);
        for (parent_ref, stored, above) in [
            (parent_ref("a", None, 1), "a", Some("all")),
            (parent_ref("a", None, 2), "a", Some("all")),
            (parent_ref("a", Some("other"), 2), "a", Some("all")),
            (parent_ref("a", Some("all"), 1), "a", None),
            (parent_ref("a", None, 3), "a", None),
            (parent_ref("b", Some("all"), 1), "b", None),
            // Another pattern matches the name there than here.
            (parent_ref("*", None, 1), "user/7", Some("all")),
            (parent_ref("user/*", Some("all"), 1), "user/7", None),
            // The same configuration puts this limit below none.
            (parent_ref("user/7", None, 2), "user/7", None),
        ] {
            assert_eq!(known.unknown_to(&parent_ref, stored), above, "{parent_ref:?}, {stored}");
        }
    }

    /// The bug: during a rollout, allocators with the older file were lent nothing of a limit that is below none, if a
    /// pattern with a parent fits its name.
    #[test]
    fn a_limit_that_is_below_none_is_told_from_a_pattern_that_has_a_parent() {
        let limits = [
            ("user/*", Some("all")),
            ("user/7", None),
            ("user/team/*", None),
            ("user/team/b", Some("team")),
            ("other", None),
            ("all", None),
        ];
        let known = Families::new(Version::of_file(2), parents_of(limits.into_iter()));
        assert_eq!(known.above.len(), 4, "{known:?}");
        for (limit, stored, above) in [
            ("user/7", "user/7", None),
            ("user/*", "user/70", Some("all")),
            ("user/*", "user/team", Some("all")),
            ("user/team/*", "user/team/a", None),
            ("user/team/b", "user/team/b", Some("team")),
            ("*", "user/tea", Some("all")),
            ("*", "other", None),
        ] {
            for (file, parent) in [(1, above), (2, known.above.get(limit).map(String::as_str)), (3, None)] {
                let unknown = known.unknown_to(&parent_ref(limit, None, file), stored);
                assert_eq!(unknown, parent, "{limit}, {stored}, file {file}");
            }
        }
    }

    #[test]
    fn limits_that_are_below_none_take_no_room_from_others() {
        let names: Vec<String> = (0..2 * BELOW_MAX).map(|n| format!("a{n}")).collect();
        let apart = || names.iter().map(|name| (name.as_str(), None));
        let limits = apart().chain([("a*", Some("all"))]);
        let mut known = Families::new(Version::of_file(1), parents_of(limits));
        assert_eq!(known.above.len(), BELOW_MAX);
        let others: Vec<(&str, &str)> = names[..BELOW_MAX].iter().map(|name| (name.as_str(), "z")).collect();
        known.keep(&families(1, &others));
        assert_eq!((known.above.len(), known.above.keys().any(|entry| is_apart(entry))), (BELOW_MAX, false));
    }

    #[test]
    fn what_is_newer_is_kept_and_of_the_same_age_all_of_it() {
        let mut known = families(1, &[("a", "x")]);
        known.keep(&families(1, &[("a", "y"), ("b", "y")]));
        assert_eq!(known, families(1, &[("a", "x"), ("b", "y")]));
        known.keep(&families(3, &[("c", "z")]));
        known.keep(&families(2, &[("a", "x")]));
        assert_eq!(known, families(3, &[("c", "z")]));
        known.keep(&families(4, &[]));
        assert!(known.is_empty());
        let names: Vec<String> = (0..2 * BELOW_MAX).map(|n| n.to_string()).collect();
        let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "z")).collect();
        known.keep(&families(4, &many));
        assert_eq!(known.above.len(), BELOW_MAX);
    }

    /// Compares with each stem in turn. Names and stems begin with each other, and stems sort before and after `*`.
    #[test]
    fn a_limit_below_none_is_named_if_any_pattern_with_a_parent_fits() {
        let parts = ["", "a", "a!", "a!b", "a/", "a/b", "ab", "ac/d", "b", "é", "éa"];
        for chosen in 0..1_u32 << parts.len() {
            let is_chosen = |at: usize| chosen >> at & 1 == 1;
            let stems = parts.iter().enumerate().filter(|(at, _)| is_chosen(*at)).map(|(_, stem)| *stem);
            let patterns: Vec<String> = stems.clone().map(|stem| format!("{stem}*")).collect();
            let names = parts.iter().skip(1).map(|name| (*name, None));
            let limits = patterns.iter().map(|pattern| (pattern.as_str(), Some("all"))).chain(names.clone());
            let above = parents_of(limits);
            for (name, _) in names {
                let fits = stems.clone().any(|stem| name.starts_with(stem));
                assert_eq!(above.contains_key(&apart(name)), fits, "{name} and {patterns:?}");
            }
        }
    }
}
