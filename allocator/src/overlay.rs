//! Which limits hold at one allocator of a store that several share: those of its file, but for what operators have put and
//! removed since at any of them. `shared` asks it what to change; it knows no pool.

use crate::config::{Config, LimitConfig, StoreConfig};
use lessor_ledger::overrides::{LimitOverride, LimitOverrides, Version};
use std::collections::{BTreeMap, BTreeSet};

/// The file, and what was decided beside it.
#[derive(Clone, Debug)]
pub(crate) struct Overlay {
    store: StoreConfig,
    /// The version of the file, and its limits.
    file: u64,
    limits: BTreeMap<String, LimitConfig>,
    decided: LimitOverrides,
    /// What of that holds here.
    holds: BTreeMap<String, Held>,
    /// What would, if this allocator could make anything of it: such a limit stays what it was.
    unusable: BTreeMap<String, LimitOverride>,
}

/// What was decided about one limit.
#[derive(Clone, Debug)]
struct Held {
    entry: LimitOverride,
    /// What the limit is; `None` if there is none.
    limit: Option<LimitConfig>,
}

/// What is to be done for an overlay to hold.
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

impl Overlay {
    /// What `config` says, and nothing beside it.
    pub(crate) fn new(config: &Config) -> Self {
        Overlay {
            store: config.server.store.clone(),
            file: config.server.store.version(),
            limits: by_name(&config.limits),
            decided: LimitOverrides::default(),
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

    /// What was decided, as far as is known.
    pub(crate) fn decided(&self) -> &LimitOverrides {
        &self.decided
    }

    /// The newest file and decision that are known here.
    pub(crate) fn newest(&self) -> Version {
        Version { file: self.file, serial: self.decided.serial() }
    }

    /// By which configuration the limit called `name` goes, if there is one.
    pub(crate) fn version_of(&self, name: &str) -> Version {
        self.holds.get(name).map_or(Version::of_file(self.file), |held| held.entry.version)
    }

    /// The file says this by now.
    pub(crate) fn file_is(&mut self, config: &Config) {
        (self.file, self.limits) = (config.server.store.version(), by_name(&config.limits));
        // Nothing of it is new, but what held no more and does again because this version is lower: that was told of before.
        self.take_over(self.decided.clone());
    }

    /// The store says this. `None` if all of it was known already; else what cannot be used of what is new.
    pub(crate) fn follow(&mut self, decided: &LimitOverrides) -> Option<Vec<Unusable>> {
        let mut known = self.decided.clone();
        known.merge(decided);
        (known != self.decided).then(|| self.take_over(known))
    }

    /// What is to be done where the limits are `current`, for it to hold.
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

    fn take_over(&mut self, decided: LimitOverrides) -> Vec<Unusable> {
        let (mut holds, mut unusable, mut news) = (BTreeMap::new(), BTreeMap::new(), vec![]);
        for (name, entry) in decided.holding(self.file) {
            let before = self.holds.get(name).filter(|held| held.entry.version.file >= self.file);
            // To read thousands of limits takes its time: only those that are new are.
            let known = before.filter(|held| held.entry == *entry);
            let is_unusable = self.unusable.get(name) == Some(entry);
            let held = match known.cloned().map_or_else(|| self.understood(name, entry), Ok) {
                Ok(held) => Some(held),
                Err(problem) => {
                    if !is_unusable {
                        news.push(Unusable { limit: name.to_owned(), problem });
                    }
                    unusable.insert(name.to_owned(), entry.clone());
                    before.cloned()
                }
            };
            holds.extend(held.map(|held| (name.to_owned(), held)));
        }
        (self.decided, self.holds, self.unusable) = (decided, holds, unusable);
        news
    }

    fn understood(&self, name: &str, entry: &LimitOverride) -> Result<Held, String> {
        let Some(put) = &entry.put else { return Ok(Held { entry: entry.clone(), limit: None }) };
        let mut limit = LimitConfig::from_json(name, put).map_err(|error| error.problem().to_owned())?;
        self.store.lends(&mut limit)?;
        Ok(Held { entry: entry.clone(), limit: Some(limit) })
    }
}

fn by_name(limits: &[LimitConfig]) -> BTreeMap<String, LimitConfig> {
    limits.iter().map(|limit| (limit.name.to_string(), limit.clone())).collect()
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
    struct Told {
        overlay: Overlay,
        limits: BTreeMap<String, LimitConfig>,
    }

    impl Told {
        fn new(config: &Config) -> Self {
            Told { overlay: Overlay::new(config), limits: by_name(&config.limits) }
        }

        /// What it does for all to hold, by name.
        fn does(&mut self) -> Vec<String> {
            let changes = self.overlay.changes(&self.limits);
            changes.gone.iter().for_each(|name| _ = self.limits.remove(name));
            let put: Vec<String> = changes.put.iter().map(|limit| limit.name.to_string()).collect();
            self.limits.extend(by_name(&changes.put));
            assert_eq!(self.overlay.changes(&self.limits), Changes::default(), "that is all");
            changes.gone.into_iter().map(|name| format!("-{name}")).chain(put).collect()
        }

        /// The limits of each, and by which configuration.
        fn limits(&self) -> Vec<(&str, u64, (u64, u64))> {
            let limits = self.limits.iter().map(|(name, limit)| {
                let version = self.overlay.version_of(name);
                (name.as_str(), limit.rules[0].ceiling(), (version.file, version.serial))
            });
            limits.collect()
        }
    }

    fn decided(all: &[(&str, u64, Option<Value>)]) -> LimitOverrides {
        let mut decided = LimitOverrides::default();
        for (name, file, put) in all {
            decided.decide(name, Version::of_file(*file), put.clone()).expect("room");
        }
        decided
    }

    #[test]
    fn what_was_put_and_removed_holds_beside_the_file_and_a_newer_file_over_it() {
        let mut told = Told::new(&config(1, &[("a", 10), ("b", 10), ("c", 10)]));
        let all = decided(&[("a", 1, of(20)), ("b", 1, None), ("d", 1, of(20))]);
        assert_eq!(told.overlay.follow(&all), Some(vec![]));
        assert_eq!(told.does(), ["-b", "a", "d"]);
        assert_eq!(told.limits(), [("a", 20, (1, 1)), ("c", 10, (1, 0)), ("d", 20, (1, 3))]);
        // The file changes, and says no higher version: of what was decided it has nothing to say.
        told.overlay.file_is(&config(1, &[("a", 30), ("b", 30), ("c", 30)]));
        assert_eq!(told.does(), ["c"]);
        told.overlay.file_is(&config(2, &[("a", 30), ("b", 30)]));
        assert_eq!(told.does(), ["-c", "-d", "a", "b"]);
        assert_eq!(told.limits(), [("a", 30, (2, 0)), ("b", 30, (2, 0))]);
        let mut later = all.clone();
        later.decide("a", Version::of_file(2), of(40)).expect("room");
        assert_eq!(told.overlay.follow(&later), Some(vec![]));
        assert_eq!(
            (told.does(), told.limits()),
            (vec!["a".to_owned()], vec![("a", 40, (2, 4)), ("b", 30, (2, 0))])
        );
    }

    #[test]
    fn what_is_older_never_replaces_what_is_newer() {
        let mut told = Told::new(&config(1, &[("a", 10)]));
        let older = decided(&[("a", 1, of(20))]);
        let newer = decided(&[("a", 1, of(20)), ("a", 1, of(30))]);
        assert_eq!(told.overlay.follow(&newer), Some(vec![]));
        for other in [&older, &LimitOverrides::default(), &newer] {
            assert_eq!(told.overlay.follow(other), None);
        }
        told.does();
        assert_eq!((told.limits(), told.overlay.newest().serial), (vec![("a", 30, (1, 2))], 2));
        // A store that lost the last one, and was told another since.
        let other = decided(&[("a", 1, of(20)), ("a", 1, of(40))]);
        assert_eq!(told.overlay.follow(&other), Some(vec![]));
        told.does();
        assert_eq!(told.limits(), [("a", 40, (1, 2))]);
    }

    #[test]
    fn what_cannot_be_used_leaves_the_limit_as_it_was_and_is_told_of_once() {
        let mut told = Told::new(&config(1, &[("a", 10), ("b", 10)]));
        let mut all = decided(&[("a", 1, of(20)), ("b", 1, None)]);
        told.overlay.follow(&all);
        told.does();
        let rules = json!([{ "kind": "sliding_window", "limit": 5, "per": "1s" }]);
        let unkept = json!({ "rules": rules, "guaranteed": { "x": 1 } });
        for (name, put) in [("a", json!({ "rules": [], "later": 1 })), ("b", unkept), ("c", json!(1))] {
            all.decide(name, Version::of_file(1), Some(put)).expect("room");
        }
        let unusable = told.overlay.follow(&all).expect("it is new");
        let names: Vec<&str> = unusable.iter().map(|unusable| unusable.limit.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert!(unusable[0].problem.contains("later") && unusable[1].problem.contains("guaranteed"));
        assert_eq!(told.does(), [""; 0]);
        assert_eq!(told.limits(), [("a", 20, (1, 1))], "by what it was put as");
        all.decide("d", Version::of_file(1), of(1)).expect("room");
        assert_eq!(told.overlay.follow(&all), Some(vec![]), "it was told of");
        assert_eq!(told.does(), ["d"]);
    }
}
