//! The limits that hold at one allocator of a shared store: the limits of its file, except for limits that operators
//! have put or removed since at any allocator. It says what has to change in the registry, and knows no pool.

use super::{LimitOverride, LimitOverrides, Version};
use crate::named::all_named_for;
use crate::registry::{LimitConfig, by_name};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Reads limits that were put over the API.
pub trait ReadLimit {
    /// Reads the limit called `name` that was put as `put`.
    ///
    /// # Errors
    /// Why the limit cannot be used here, in words for operators.
    fn read(&self, name: &str, put: &Value) -> Result<LimitConfig, String>;
}

/// The limits of the file, and the overrides of the store.
#[derive(Clone, Debug)]
pub struct EffectiveLimits<R> {
    reader: R,
    /// The version of the file, and its limits.
    file: u64,
    limits: BTreeMap<String, LimitConfig>,
    /// The versions of the limits among them that the file does not have, and that stay.
    kept: BTreeMap<String, Version>,
    known: LimitOverrides,
    /// The overrides that hold here.
    holds: BTreeMap<String, Held>,
    /// The overrides that would hold, but cannot be used here. Such a limit stays as it was.
    unusable: BTreeMap<String, LimitOverride>,
}

/// An override that holds.
#[derive(Clone, Debug)]
struct Held {
    by: LimitOverride,
    /// The limit; `None` if it was removed.
    limit: Option<LimitConfig>,
}

/// The changes that make overrides hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Limits to remove.
    pub gone: Vec<String>,
    /// Limits to put or to change.
    pub put: Vec<LimitConfig>,
}

/// A limit that was put, and cannot be used here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// The name of the limit.
    pub limit: String,
    /// The reason, in words.
    pub problem: String,
}

impl<R: ReadLimit + Clone> EffectiveLimits<R> {
    /// Begins with the `limits` of a file of version `file`, without overrides. `reader` reads limits that are put.
    pub fn new(reader: R, file: u64, limits: &[LimitConfig]) -> Self {
        EffectiveLimits {
            reader,
            file,
            limits: by_name(limits),
            kept: BTreeMap::new(),
            known: LimitOverrides::default(),
            holds: BTreeMap::new(),
            unusable: BTreeMap::new(),
        }
    }

    /// Returns the version of the file.
    pub fn file(&self) -> u64 {
        self.file
    }

    /// Returns the limits of the file.
    pub fn of_file(&self) -> impl Iterator<Item = &LimitConfig> {
        self.limits.values()
    }

    /// Returns the overrides of the store, as far as they are known.
    pub fn known(&self) -> &LimitOverrides {
        &self.known
    }

    /// Returns the newest file and decision that are known here.
    pub fn newest(&self) -> Version {
        Version { file: self.file, serial: self.known.serial() }
    }

    /// Returns the version of the limit called `name`, if there is one.
    pub fn version_of(&self, name: &str) -> Version {
        let of_file = || self.kept.get(name).copied().unwrap_or(Version::of_file(self.file));
        self.holds.get(name).map_or_else(of_file, |held| held.by.version)
    }

    /// Returns the version of the root that the limit called `name` asks for the name `asked`. A name that fell to a
    /// pattern when its own limit was removed, or a longer pattern, has the root that was lent from by that limit. So
    /// the version of the removal counts, if it is higher.
    pub fn version_for(&self, name: &str, asked: &str) -> Version {
        let own = self.version_of(name);
        if !name.ends_with('*') {
            return own;
        }
        // The longest pattern comes first.
        let is_longer = |held: &String| held == asked || held.len() > name.len();
        let fell = all_named_for(&self.holds, asked).take_while(is_longer);
        let held = fell.filter_map(|held| self.holds.get(&held)).filter(|held| held.limit.is_none());
        held.map(|held| held.by.version).fold(own, Version::max)
    }

    /// Notes that the file has version `file` from now on, and says these `limits`.
    pub fn file_is(&mut self, file: u64, limits: &[LimitConfig]) {
        self.file_is_but_keeps(file, limits, &[]);
    }

    /// Notes that the file has version `file` from now on, and says these `limits`. The limits `kept` stay, though the
    /// file does not have them. Each keeps its version, because this file says nothing of its rules.
    pub fn file_is_but_keeps(&mut self, file: u64, limits: &[LimitConfig], kept: &[LimitConfig]) {
        let versions =
            kept.iter().map(|limit| (limit.name.to_string(), self.version_of(limit.name.as_str())));
        self.kept = versions.collect();
        (self.file, self.limits) = (file, by_name(limits));
        self.limits.extend(by_name(kept));
        // No override is new. Overrides that hold again, because this version is lower, were reported before.
        self.take_over(self.known.clone());
    }

    /// Returns which of the `current` limits would go if the file had version `file` and said `limits`.
    pub fn missing_in(
        &self,
        (file, limits): (u64, &[LimitConfig]),
        current: &BTreeMap<String, LimitConfig>,
    ) -> Vec<LimitConfig> {
        let mut next = self.clone();
        next.file_is(file, limits);
        next.changes(current).gone.iter().filter_map(|name| current.get(name).cloned()).collect()
    }

    /// Follows the overrides of the store. Returns the new ones that cannot be used; `None` if there is nothing new.
    pub fn follow(&mut self, there: &LimitOverrides) -> Option<Vec<Unusable>> {
        let mut known = self.known.clone();
        known.merge(there);
        (known != self.known).then(|| self.take_over(known))
    }

    /// Returns the changes that make the overrides hold, where the limits are `current`.
    pub fn changes(&self, current: &BTreeMap<String, LimitConfig>) -> Changes {
        let names: BTreeSet<&String> =
            current.keys().chain(self.limits.keys()).chain(self.holds.keys()).collect();
        let mut changes = Changes::default();
        for name in names {
            let is = current.get(name);
            let shall = match self.holds.get(name) {
                Some(held) => held.limit.as_ref(),
                None => self.limits.get(name),
            };
            match shall {
                Some(config) if is != Some(config) => changes.put.push(config.clone()),
                None if is.is_some() => changes.gone.push(name.clone()),
                Some(_) | None => {}
            }
        }
        changes
    }

    fn take_over(&mut self, known: LimitOverrides) -> Vec<Unusable> {
        let (mut holds, mut unusable, mut news) = (BTreeMap::new(), BTreeMap::new(), vec![]);
        for (name, by) in known.holding(self.file) {
            let before = self.holds.get(name).filter(|held| held.by.version.file >= self.file);
            // Thousands of limits take long to read, so only new ones are read.
            let as_before = before.filter(|held| held.by == *by);
            let is_unusable = self.unusable.get(name) == Some(by);
            let held = match as_before.cloned().map_or_else(|| self.understood(name, by), Ok) {
                Ok(held) => Some(held),
                Err(problem) => {
                    if !is_unusable {
                        news.push(Unusable { limit: name.to_owned(), problem });
                    }
                    unusable.insert(name.to_owned(), by.clone());
                    before.cloned()
                }
            };
            holds.extend(held.map(|held| (name.to_owned(), held)));
        }
        (self.known, self.holds, self.unusable) = (known, holds, unusable);
        news
    }

    fn understood(&self, name: &str, by: &LimitOverride) -> Result<Held, String> {
        let Some(put) = &by.put else { return Ok(Held { by: by.clone(), limit: None }) };
        let limit = Some(self.reader.read(name, put)?);
        Ok(Held { by: by.clone(), limit })
    }
}
