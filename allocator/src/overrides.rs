//! The limits of the file merged with the overrides of a shared store.

use crate::config::{Config, LimitConfig, StoreConfig, limit_from_decision};
use lessor_ledger::overrides::{EffectiveLimits, ReadLimit};
use serde_json::Value;

/// The limits in force here.
pub(crate) type Overrides = EffectiveLimits<StoreConfig>;

/// Begins with the limits of the file `config`.
pub(crate) fn begin(config: &Config) -> Overrides {
    EffectiveLimits::new(config.server.store.clone(), config.server.store.version(), &config.limits)
}

impl ReadLimit for StoreConfig {
    fn read(&self, name: &str, put: &Value) -> Result<LimitConfig, String> {
        let mut limit = limit_from_decision(name, put).map_err(|error| error.problem().to_owned())?;
        self.lends(&mut limit)?;
        Ok(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::samples::{self, STORE};
    use lessor_ledger::overrides::{Changes, LimitOverrides, Version};
    use lessor_ledger::registry::by_name;
    use serde_json::json;
    use std::collections::BTreeMap;

    fn config(version: u64, limits: &[(&str, u64)]) -> Config {
        samples::config(&format!("{STORE}version = {version}\n{}", samples::limits(limits)))
    }

    fn of(limit: u64) -> Option<Value> {
        Some(json!({ "rules": [{ "kind": "sliding_window", "limit": limit, "per": "1s" }] }))
    }

    /// An allocator that applies all changes.
    struct Follower {
        overrides: Overrides,
        limits: BTreeMap<String, LimitConfig>,
    }

    impl Follower {
        fn new(config: &Config) -> Self {
            Follower { overrides: begin(config), limits: by_name(&config.limits) }
        }

        fn file_is(&mut self, config: &Config) {
            self.overrides.file_is(config.server.store.version(), &config.limits);
        }

        /// Applies the pending changes, and returns their names.
        fn does(&mut self) -> Vec<String> {
            let changes = self.overrides.changes(&self.limits);
            changes.gone.iter().for_each(|name| _ = self.limits.remove(name));
            let put: Vec<String> = changes.put.iter().map(|limit| limit.name.to_string()).collect();
            self.limits.extend(by_name(&changes.put));
            assert_eq!(self.overrides.changes(&self.limits), Changes::default(), "that is all");
            changes.gone.into_iter().map(|name| format!("-{name}")).chain(put).collect()
        }

        /// Returns the ceiling of each limit, and the version it goes by.
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
        // The file changes without a higher version: the overrides stay in force.
        follower.file_is(&config(1, &[("a", 30), ("b", 30), ("c", 30)]));
        assert_eq!(follower.does(), ["c"]);
        follower.file_is(&config(2, &[("a", 30), ("b", 30)]));
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
        // A store that lost the last override, and took another one since.
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
