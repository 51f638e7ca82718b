//! Changes limits by the file and by the overrides of a shared store. Tasks that read either call this in any order.

use super::Shared;
use crate::config::{Config, LimitConfig, StoreConfig, Upstream};
use lessor_ledger::overrides::{Changes, LimitOverrides};
use lessor_ledger::registry::{Registry, Unfit};
use lessor_protocol::push::{Became, Event, Kind};
use std::collections::BTreeSet;

impl Shared {
    /// Whether several allocators share the store of the limits.
    pub(crate) fn is_sharing(&self) -> bool {
        matches!(self.config.server.store, StoreConfig::Shared(_))
    }

    /// Whether all limits are known.
    pub(crate) fn knows_limits(&self) -> bool {
        !self.is_sharing() || self.shared_store_status.has_limits()
    }

    /// Whether the file allows a limit that is put over the API to lease from `upstream`.
    pub(crate) fn allows(&self, upstream: &Upstream) -> bool {
        let is_it = |limit: &LimitConfig| limit.upstream.as_ref() == Some(upstream);
        let in_file = || match self.is_sharing() {
            true => self.shared_store_status.overrides().of_file().any(is_it),
            false => self.with(|registry, _| registry.of_file().any(is_it)),
        };
        self.config.server.upstreams.contains(upstream) || in_file()
    }

    /// Applies overrides of the store, unless the file or a known override is newer. Limits for which there was no room
    /// are put once there is.
    pub(crate) fn follow_overrides(&self, there: &LimitOverrides) {
        let mut overrides = self.shared_store_status.overrides();
        let unusable = overrides.follow(there);
        let (is_new, lacked_room) = (unusable.is_some(), self.shared_store_status.lacks_room());
        if !is_new && !lacked_room {
            return self.shared_store_status.limits_are_known();
        }
        for unusable in unusable.into_iter().flatten() {
            let (limit, problem) = (unusable.limit, unusable.problem);
            tracing::warn!(%limit, %problem, "a limit put at another allocator cannot be used here: it is unchanged");
        }
        let mut changes = overrides.changes(&self.limits());
        let unfit = self.with(|registry, _| {
            let (gone, put): (Vec<_>, Vec<_>) =
                (changes.gone.iter().map(String::as_str).collect(), changes.put.iter().collect());
            registry.check(&gone, &put).err()
        });
        if let Some(Unfit::Parent(problem)) = unfit.filter(|_| is_new) {
            tracing::warn!(
                %problem,
                "limits put at other allocators do not fit this file: a limit without its parent lends nothing"
            );
        }
        let (done, new) = self.with(|registry, now| {
            let new = new(registry, &changes);
            let done = registry.go_by(now, &changes);
            // A change that was not made is due at the next look.
            changes.put.retain(|limit| registry.limit(limit.name.as_str()).is_some());
            self.have_changed(&changes);
            (done, new)
        });
        self.shared_store_status.room_was_lacking(done.is_err());
        if let Err(error) = done
            && (is_new || !lacked_room)
        {
            tracing::warn!(%error, "not all limits put at other allocators can be used here");
        }
        self.shared_store_status.limits_are_known();
        drop(overrides);
        self.tell_of(&changes, &new);
    }

    /// Applies the file `config`. The limits `kept` stay, though the file does not have them. Overrides stay in force,
    /// unless the version of the file is higher than theirs.
    ///
    /// # Errors
    /// If both do not fit together. Then nothing changes.
    pub(crate) fn file_is(&self, config: &Config, kept: &[LimitConfig]) -> Result<Changes, Unfit> {
        let mut overrides = self.shared_store_status.overrides();
        let mut next = overrides.clone();
        next.file_is_but_keeps(config.server.store.version(), &config.limits, kept);
        let changes = next.changes(&self.limits());
        let put: Vec<_> = changes.put.iter().collect();
        self.with(|registry, _| registry.check_keys(&put))?;
        let new = self.apply(&changes)?;
        *overrides = next;
        drop(overrides);
        self.tell_of(&changes, &new);
        Ok(changes)
    }

    /// Returns the limits in force that would go with the file `config`. `last` are the limits of the file before.
    pub(crate) fn missing_in(&self, config: &Config, last: &[LimitConfig]) -> Vec<LimitConfig> {
        if self.is_sharing() {
            let overrides = self.shared_store_status.overrides();
            return overrides.missing_in((config.server.store.version(), &config.limits), &self.limits());
        }
        let named: BTreeSet<&str> = config.limits.iter().map(|limit| limit.name.as_str()).collect();
        let limits = self.limits();
        let is_missing = |limit: &&LimitConfig| {
            !named.contains(limit.name.as_str()) && limits.contains_key(limit.name.as_str())
        };
        last.iter().filter(is_missing).cloned().collect()
    }

    /// Applies all changes in one step, or none. Returns the names of limits that are new.
    ///
    /// # Errors
    /// If they do not fit the other limits.
    pub(crate) fn apply(&self, changes: &Changes) -> Result<BTreeSet<String>, Unfit> {
        let gone: Vec<&str> = changes.gone.iter().map(String::as_str).collect();
        let put: Vec<_> = changes.put.iter().collect();
        self.with(|registry, now| {
            registry.check(&gone, &put)?;
            let new = new(registry, changes);
            registry.go_by(now, changes)?;
            self.have_changed(changes);
            Ok(new)
        })
    }

    /// Records the changes for a new life. The caller still holds the lock under which the limits changed, so the next
    /// change comes after.
    fn have_changed(&self, changes: &Changes) {
        changes.gone.iter().for_each(|name| self.limit_was_removed(name));
        changes.put.iter().for_each(|limit| self.limit_was_put(limit));
    }

    /// Publishes each change. `new` are the limits that did not exist before.
    pub(crate) fn tell_of(&self, changes: &Changes, new: &BTreeSet<String>) {
        let gone = changes.gone.iter().map(|name| (name.as_str(), Some(Became::Gone)));
        let put = changes.put.iter().map(|limit| limit.name.as_str());
        let put = put.map(|name| (name, new.contains(name).then_some(Became::New)));
        for (name, became) in gone.chain(put) {
            self.tell(&Event { became, ..Event::of(Kind::Changed, name) });
        }
    }
}

/// Returns the names of limits that `changes` put, and that do not exist yet.
fn new(registry: &mut Registry, changes: &Changes) -> BTreeSet<String> {
    let names = changes.put.iter().map(|limit| limit.name.as_str());
    names.filter(|name| registry.limit(name).is_none()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reload::{Reloads, Removals};
    use crate::samples::{self, LIMIT, STORE};
    use lessor_ledger::named::LIMITS_MAX;
    use lessor_ledger::overrides::Version;
    use lessor_ledger::registry::{Caller, Entry};
    use lessor_ledger::share::Owner;
    use lessor_protocol::wire::AskBody;
    use lessor_protocol::{Ask, NodeName};
    use serde_json::json;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::time::Duration;

    fn config(store: &str, limits: &[(&str, u64)]) -> Config {
        samples::config(&[store, &samples::limits(limits)].concat())
    }

    fn names(shared: &Shared) -> Vec<String> {
        shared.with(|registry, now| {
            registry.limits(now).iter().map(|(limit, _)| limit.name.to_string()).collect()
        })
    }

    #[tokio::test]
    async fn what_was_decided_elsewhere_holds_here_and_in_a_new_life() {
        let shared = Shared::new(config(STORE, &[("a", 1), ("b", 1)]), true);
        let mut listener = shared.events().listen(None, Owner::NONE).expect("there is room");
        let mut overrides = LimitOverrides::default();
        let put = json!({ "rules": [{ "kind": "fixed_window", "limit": 2, "per": "1s" }] });
        overrides.decide("b", Version::of_file(1), None).expect("room");
        let before = overrides.clone();
        overrides.decide("c", Version::of_file(1), Some(put)).expect("room");
        shared.follow_overrides(&overrides);
        for (name, became) in [("b", Some(Became::Gone)), ("c", Some(Became::New))] {
            assert_eq!(listener.next().await, Some(Event { became, ..Event::of(Kind::Changed, name) }));
        }
        // A task that read the store earlier comes late.
        shared.follow_overrides(&before);
        assert_eq!(names(&shared), ["a", "c"]);
        let bug = catch_unwind(AssertUnwindSafe(|| shared.with(|_, _| panic!("a bug, for the test"))));
        assert!(bug.is_err());
        assert_eq!(names(&shared), ["a", "c"]);
        let version = |name| shared.shared_store_status().overrides().version_of(name);
        assert_eq!((version("a"), version("c")), (Version::of_file(1), Version { file: 1, serial: 2 }));
    }

    /// Two operators who could not know of each other: the store had lost the limit of the first one.
    #[tokio::test]
    async fn what_leads_in_a_circle_lends_nothing_and_keeps_no_caller_waiting() {
        let shared = Shared::new(config(STORE, &[("a", 1), ("b", 1), ("c", 1)]), true);
        let mut overrides = LimitOverrides::default();
        for (name, parent) in [("a", "b"), ("b", "a"), ("c", "b")] {
            let rules = json!([{ "kind": "fixed_window", "limit": 2, "per": "1s" }]);
            let put = json!({ "parent": parent, "rules": rules });
            overrides.decide(name, Version::of_file(1), Some(put)).expect("room");
        }
        shared.follow_overrides(&overrides);
        let asks = ["a", "b", "c"].map(|limit| Entry::Ask(AskBody { want: 1, ..ask(limit) }));
        let node = NodeName::try_new("n").expect("valid");
        let caller =
            Caller { node, session: 1, epoch: 0, seq: 1, rtt: Duration::ZERO, owner: Default::default() };
        let exchanged = shared.beside(|registry, now| registry.leases(now, &caller, &asks));
        for grant in exchanged.grants {
            let error = grant.error.expect("nothing is lent");
            assert_eq!(error.code, "invalid");
            assert!(error.detail.contains("in a circle"), "{}", error.detail);
        }
        shared.tell(&Event::of(Kind::Paused, "a"));
        assert_eq!(shared.parents().len(), 3);
    }

    fn ask(limit: &str) -> AskBody {
        AskBody::of(limit, None, Ask::default())
    }

    /// A file with a higher version drops earlier limits of the API. That, too, only happens if an operator asks.
    #[test]
    fn what_a_shared_file_no_longer_has_stays_until_an_operator_asks() {
        let shared = Arc::new(Shared::new(config(STORE, &[("a", 1), ("b", 1)]), true));
        let mut overrides = LimitOverrides::default();
        let put = json!({ "rules": [{ "kind": "fixed_window", "limit": 2, "per": "1s" }] });
        overrides.decide("c", Version::of_file(1), Some(put)).expect("room");
        shared.follow_overrides(&overrides);
        assert_eq!(names(&shared), ["a", "b", "c"]);
        let reloads = Reloads::new(shared.clone());
        let newer = config(&format!("{STORE}version = 2\n"), &[("a", 5)]);
        let version = |name| shared.shared_store_status().overrides().version_of(name);
        let expected = ["b", "c"].map(str::to_owned).to_vec();
        for put in [vec!["a".to_owned()], vec![]] {
            let done = reloads.reload(&newer, Removals::Keep).expect("it fits");
            assert_eq!((done.put, done.removed, done.kept), (put, vec![], expected.clone()));
            assert_eq!(
                (names(&shared), shared.kept_limits()),
                (vec!["a".into(), "b".into(), "c".into()], expected.clone())
            );
            // The new file says nothing of the rules of the others.
            assert_eq!((version("a"), version("b")), (Version::of_file(2), Version::of_file(1)));
            assert_eq!(version("c"), Version { file: 1, serial: 1 });
        }
        let done = reloads.reload(&newer, Removals::Apply).expect("it fits");
        assert_eq!((done.removed, names(&shared)), (expected, vec!["a".to_owned()]));
        assert!(shared.kept_limits().is_empty());
    }

    /// The bug: a limit for which there was no room counted as put. It was put neither when there was room, nor in a new
    /// life.
    #[tokio::test]
    async fn a_limit_for_which_there_was_no_room_is_put_once_there_is() {
        let many: Vec<String> = (0..LIMITS_MAX).map(|n| format!("n{n}")).collect();
        let limits: Vec<(&str, u64)> = many.iter().map(|name| (name.as_str(), 1)).collect();
        let shared = Shared::new(config(STORE, &limits), true);
        let mut listener = shared.events().listen(None, Owner::NONE).expect("there is room");
        let mut overrides = LimitOverrides::default();
        let put = json!({ "rules": [{ "kind": "fixed_window", "limit": 2, "per": "1s" }] });
        overrides.decide("c", Version::of_file(1), Some(put)).expect("room");
        for _ in 0..2 {
            shared.follow_overrides(&overrides);
            assert_eq!((names(&shared).len(), shared.limits().contains_key("c")), (LIMITS_MAX, false));
        }
        // A removed limit takes room for as long as it counts.
        overrides.decide("n0", Version::of_file(1), None).expect("room");
        shared.follow_overrides(&overrides);
        assert!(!shared.limits().contains_key("c"));
        shared.with(|registry, now| registry.sweep_retired(now, usize::MAX));
        shared.follow_overrides(&overrides);
        assert!(names(&shared).contains(&"c".to_owned()) && shared.limits().contains_key("c"));
        for (name, became) in [("n0", Became::Gone), ("c", Became::New)] {
            let event = Event { became: Some(became), ..Event::of(Kind::Changed, name) };
            assert_eq!(listener.next().await, Some(event));
        }
    }

    /// The bug: the keys of the limit were lent by roots that know nothing of what the limit had lent.
    #[test]
    fn a_file_makes_no_limit_of_the_store_keyed_or_not_keyed_any_more() {
        let file = |version: u64, keyed: bool| {
            samples::config(&format!("{STORE}version = {version}\n{LIMIT}keyed = {keyed}\n"))
        };
        for was in [false, true] {
            let shared = Arc::new(Shared::new(file(1, was), true));
            let reloads = Reloads::new(shared.clone());
            let refused = || reloads.reload(&file(3, !was), Removals::Apply).expect_err("it differs").unfit;
            assert_eq!(refused(), Unfit::Keyed("a".to_owned()));
            // The limit was removed, and what it lent still counts.
            let gone = config(&format!("{STORE}version = 2\n"), &[("b", 1)]);
            reloads.reload(&gone, Removals::Apply).expect("it fits");
            assert_eq!((refused(), names(&shared)), (Unfit::Keyed("a".to_owned()), vec!["b".to_owned()]));
            reloads.reload(&file(3, was), Removals::Apply).expect("it is as before");
            assert_eq!(names(&shared), ["a"]);
        }
    }

    /// A limit of the store that became one of this allocator alone would be lent twice.
    #[test]
    fn a_file_that_names_no_shared_store_any_more_changes_no_limit() {
        let shared = Arc::new(Shared::new(config(STORE, &[("a", 1)]), true));
        let done = Reloads::new(shared.clone())
            .reload(&config("", &[("a", 1), ("b", 1)]), Removals::Apply)
            .expect("it fits");
        assert!(!done.needs_restart.is_empty() && done.put.is_empty());
        assert_eq!(names(&shared), ["a"]);
    }
}
