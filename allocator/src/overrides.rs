//! The limits that hold at one allocator of a shared store: those of its file, but for the limits that operators have put and
//! removed since at any allocator. `shared` asks it what to change. It knows no pool.

use crate::config::{Config, LimitConfig, StoreConfig, limit_from_json};
use lessor_ledger::overrides::{LimitOverride, LimitOverrides, Version};
use lessor_ledger::registry::by_name;
use std::collections::{BTreeMap, BTreeSet};

/// The limits of the file, and the overrides of the store.
#[derive(Clone, Debug)]
pub(crate) struct Overrides {
    store: StoreConfig,
    /// The version of the file, and its limits.
    file: u64,
    limits: BTreeMap<String, LimitConfig>,
    known: LimitOverrides,
    /// The overrides that hold here.
    holds: BTreeMap<String, Held>,
    /// The overrides that would hold, but cannot be used here. Such a limit stays what it was.
    unusable: BTreeMap<String, LimitOverride>,
}

/// An override that holds.
#[derive(Clone, Debug)]
struct Held {
    by: LimitOverride,
    /// The limit; `None` if it was removed.
    limit: Option<LimitConfig>,
}

/// What is to be done for overrides to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Limits that go.
    pub gone: Vec<String>,
    /// Limits that come, or become something else.
    pub put: Vec<LimitConfig>,
}

/// A limit that was put, and cannot be had here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unusable {
    /// Which.
    pub limit: String,
    /// Why.
    pub problem: String,
}

impl Overrides {
    /// The file `config`, without overrides.
    pub(crate) fn new(config: &Config) -> Self {
        Overrides {
            store: config.server.store.clone(),
            file: config.server.store.version(),
            limits: by_name(&config.limits),
            known: LimitOverrides::default(),
            holds: BTreeMap::new(),
            unusable: BTreeMap::new(),
        }
    }

    /// The version of the file.
    pub(crate) fn file(&self) -> u64 {
        self.file
    }

    /// The limits of the file.
    pub(crate) fn of_file(&self) -> impl Iterator<Item = &LimitConfig> {
        self.limits.values()
    }

    /// The overrides of the store, as far as is known.
    pub(crate) fn known(&self) -> &LimitOverrides {
        &self.known
    }

    /// The newest file and decision that are known here.
    pub(crate) fn newest(&self) -> Version {
        Version { file: self.file, serial: self.known.serial() }
    }

    /// The version of the limit called `name`, if there is one.
    pub(crate) fn version_of(&self, name: &str) -> Version {
        self.holds.get(name).map_or(Version::of_file(self.file), |held| held.by.version)
    }

    /// The file says this from now on.
    pub(crate) fn file_is(&mut self, config: &Config) {
        (self.file, self.limits) = (config.server.store.version(), by_name(&config.limits));
        // No override is new. Those that hold again, because this version is lower, were told of before.
        self.take_over(self.known.clone());
    }

    /// The limits, `current` ones, that would go if the file said `config`.
    pub(crate) fn missing_in(
        &self,
        config: &Config,
        current: &BTreeMap<String, LimitConfig>,
    ) -> Vec<LimitConfig> {
        let mut next = self.clone();
        next.file_is(config);
        next.changes(current).gone.iter().filter_map(|name| current.get(name).cloned()).collect()
    }

    /// The store has these overrides. Returns those of the new ones that cannot be used; `None` if none is new.
    pub(crate) fn follow(&mut self, there: &LimitOverrides) -> Option<Vec<Unusable>> {
        let mut known = self.known.clone();
        known.merge(there);
        (known != self.known).then(|| self.take_over(known))
    }

    /// What is to be done for the overrides to hold, where the limits are `current`.
    pub(crate) fn changes(&self, current: &BTreeMap<String, LimitConfig>) -> Changes {
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
        let mut limit = limit_from_json(name, put).map_err(|error| error.problem().to_owned())?;
        self.store.lends(&mut limit)?;
        Ok(Held { by: by.clone(), limit: Some(limit) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn config(version: u64, limits: &[(&str, u64)]) -> Config {
        let mut text = format!("[store]\nkind = \"redis\"\nurl = \"redis://h\"\nversion = {version}\n");
        for (name, limit) in limits {
            let rule = format!("{{ kind = \"sliding_window\", limit = {limit}, per = \"1s\" }}");
            text += &format!("[[limit]]\nname = {name:?}\nrules = [{rule}]\n");
        }
        Config::parse(&text).expect("valid")
    }

    fn of(limit: u64) -> Option<Value> {
        Some(json!({ "rules": [{ "kind": "sliding_window", "limit": limit, "per": "1s" }] }))
    }

    /// An allocator that does what it is told.
    struct Follower {
        overrides: Overrides,
        limits: BTreeMap<String, LimitConfig>,
    }

    impl Follower {
        fn new(config: &Config) -> Self {
            Follower { overrides: Overrides::new(config), limits: by_name(&config.limits) }
        }

        /// What it does for all to hold, by name.
        fn does(&mut self) -> Vec<String> {
            let changes = self.overrides.changes(&self.limits);
            changes.gone.iter().for_each(|name| _ = self.limits.remove(name));
            let put: Vec<String> = changes.put.iter().map(|limit| limit.name.to_string()).collect();
            self.limits.extend(by_name(&changes.put));
            assert_eq!(self.overrides.changes(&self.limits), Changes::default(), "that is all");
            changes.gone.into_iter().map(|name| format!("-{name}")).chain(put).collect()
        }

        /// The limits of each, and by which configuration.
        fn limits(&self) -> Vec<(&str, u64, (u64, u64))> {
            let limits = self.limits.iter().map(|(name, limit)| {
                let version = self.overrides.version_of(name);
                (name.as_str(), limit.rules[0].ceiling(), (version.file, version.serial))
            });
            limits.collect()
        }
    }

    fn overrides(all: &[(&str, u64, Option<Value>)]) -> LimitOverrides {
        let mut overrides = LimitOverrides::default();
        for (name, file, put) in all {
            overrides.decide(name, Version::of_file(*file), put.clone()).expect("room");
        }
        overrides
    }

    #[test]
    fn overrides_hold_over_the_file_and_a_newer_file_over_them() {
        let mut follower = Follower::new(&config(1, &[("a", 10), ("b", 10), ("c", 10)]));
        let all = overrides(&[("a", 1, of(20)), ("b", 1, None), ("d", 1, of(20))]);
        assert_eq!(follower.overrides.follow(&all), Some(vec![]));
        assert_eq!(follower.does(), ["-b", "a", "d"]);
        assert_eq!(follower.limits(), [("a", 20, (1, 1)), ("c", 10, (1, 0)), ("d", 20, (1, 3))]);
        // The file changes, and says no higher version: the overrides hold on.
        follower.overrides.file_is(&config(1, &[("a", 30), ("b", 30), ("c", 30)]));
        assert_eq!(follower.does(), ["c"]);
        follower.overrides.file_is(&config(2, &[("a", 30), ("b", 30)]));
        assert_eq!(follower.does(), ["-c", "-d", "a", "b"]);
        assert_eq!(follower.limits(), [("a", 30, (2, 0)), ("b", 30, (2, 0))]);
        let mut later = all.clone();
        later.decide("a", Version::of_file(2), of(40)).expect("room");
        assert_eq!(follower.overrides.follow(&later), Some(vec![]));
        assert_eq!(
            (follower.does(), follower.limits()),
            (vec!["a".to_owned()], vec![("a", 40, (2, 4)), ("b", 30, (2, 0))])
        );
    }

    #[test]
    fn what_is_older_never_replaces_what_is_newer() {
        let mut follower = Follower::new(&config(1, &[("a", 10)]));
        let older = overrides(&[("a", 1, of(20))]);
        let newer = overrides(&[("a", 1, of(20)), ("a", 1, of(30))]);
        assert_eq!(follower.overrides.follow(&newer), Some(vec![]));
        for other in [&older, &LimitOverrides::default(), &newer] {
            assert_eq!(follower.overrides.follow(other), None);
        }
        follower.does();
        assert_eq!((follower.limits(), follower.overrides.newest().serial), (vec![("a", 30, (1, 2))], 2));
        // A store that lost the last one, and was told another since.
        let other = overrides(&[("a", 1, of(20)), ("a", 1, of(40))]);
        assert_eq!(follower.overrides.follow(&other), Some(vec![]));
        follower.does();
        assert_eq!(follower.limits(), [("a", 40, (1, 2))]);
    }

    #[test]
    fn what_cannot_be_used_leaves_the_limit_as_it_was_and_is_told_of_once() {
        let mut follower = Follower::new(&config(1, &[("a", 10), ("b", 10)]));
        let mut all = overrides(&[("a", 1, of(20)), ("b", 1, None)]);
        follower.overrides.follow(&all);
        follower.does();
        let bucket = json!({ "kind": "token_bucket", "capacity": 1, "refill": 9_000, "per": "1s", "warm_up": { "over": "1s" } });
        let unkept = json!({ "rules": [bucket] });
        for (name, put) in [("a", json!({ "rules": [], "later": 1 })), ("b", unkept), ("c", json!(1))] {
            all.decide(name, Version::of_file(1), Some(put)).expect("room");
        }
        let unusable = follower.overrides.follow(&all).expect("it is new");
        let names: Vec<&str> = unusable.iter().map(|unusable| unusable.limit.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert!(unusable[0].problem.contains("later") && unusable[1].problem.contains("warm_up"));
        assert_eq!(follower.does(), [""; 0]);
        assert_eq!(follower.limits(), [("a", 20, (1, 1))], "by what it was put as");
        all.decide("d", Version::of_file(1), of(1)).expect("room");
        assert_eq!(follower.overrides.follow(&all), Some(vec![]), "it was told of");
        assert_eq!(follower.does(), ["d"]);
    }
}
