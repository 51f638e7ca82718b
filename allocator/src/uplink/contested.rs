//! Limits on which the allocators of one store disagree, where none of them can tell which one is right.

use lessor_ledger::roots::RootError;
use std::collections::BTreeSet;

/// Limits that were reported once, for each version of the configuration, as they are configured: the names of a pattern
/// come without end. `limits` go by other rules in the store under
/// the same version. From `unleased` nothing is leased: they are below another limit there, which this configuration does
/// not say, or cannot be read.
#[derive(Debug, Default)]
pub(super) struct Contested {
    version: u64,
    limits: BTreeSet<String>,
    unleased: BTreeSet<String>,
    /// Version of the newest file that was reported, if it is newer than this one.
    newest: u64,
}

impl Contested {
    /// Reports that a root of `limit` goes by other rules, while the configuration here has this `version`.
    pub(super) fn tell(&mut self, limit: &str, version: u64) {
        self.reset_for(version);
        if self.limits.contains(limit) {
            return;
        }
        tracing::warn!(
            limit,
            version,
            "the store has other rules for this limit under the same version, which hold: raise store.version to \
             change them"
        );
        self.limits.insert(limit.to_owned());
    }

    /// Reports that nothing is leased from `limit` because of `why`, while the configuration here has this `version`.
    /// Returns whether that is news: each key of the limit fails, with each ask.
    pub(super) fn tell_of_unleased(&mut self, limit: &str, version: u64, why: &RootError) -> bool {
        self.reset_for(version);
        let is_news = !self.unleased.contains(limit) && self.unleased.insert(limit.to_owned());
        if is_news {
            tracing::warn!(limit, version, %why, "nothing is leased from the store");
        }
        is_news
    }

    /// Reports that an allocator of the store has, or had, the file `newest`, while the configuration here has this `version`.
    /// Returns whether that is news.
    pub(super) fn tell_of_newer(&mut self, version: u64, newest: u64) -> bool {
        self.reset_for(version);
        let is_news = newest > version.max(self.newest);
        if is_news {
            self.newest = newest;
            tracing::warn!(
                version,
                newest,
                "the store goes by a newer file: its rules hold for all limits and keys in use, and those of this file \
                 only for keys that no allocator with the newer file asks for yet. To go back to earlier rules, raise \
                 store.version above that of the newer file"
            );
        }
        is_news
    }

    fn reset_for(&mut self, version: u64) {
        if self.version != version {
            *self = Contested { version, ..Contested::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{STORE, config, limits};
    use lessor_ledger::pool::Past;
    use lessor_ledger::registry::{Caller, Entry, Registry};
    use lessor_ledger::share::Owner;
    use lessor_protocol::wire::AskBody;
    use lessor_protocol::{Moment, NodeName};
    use std::time::Duration;

    /// The bug: a limit that a newer version wrote was reported with each ask of each of its keys.
    #[test]
    fn a_limit_that_cannot_be_leased_is_told_of_once() {
        let mut contested = Contested::default();
        let mut told = |limit, version| contested.tell_of_unleased(limit, version, &RootError::Format);
        assert_eq!((0..1_000).filter(|_| told("a", 1)).count(), 1);
        assert_eq!([told("b", 1), told("a", 2), told("a", 2)], [true, true, false]);
    }

    /// The bug: each name of a pattern was reported, and remembered.
    #[test]
    fn a_pattern_is_told_of_once_whatever_its_names() {
        let config = config(&[STORE, &limits(&[("api/*", 10)])].concat());
        let now = Moment::from_nanos(1_000_000_000_000);
        let mut registry = Registry::new(&config.limits, config.clocks, Past::None, now, 7);
        let (node, owner) = (NodeName::try_new("n").expect("valid"), Owner::NONE);
        let caller = Caller { node, session: 1, epoch: 0, seq: 1, rtt: Duration::ZERO, owner };
        let ask =
            |name: usize| AskBody { limit: format!("api/{name}"), want: 1, waiting: 1, ..AskBody::default() };
        let asks: Vec<Entry> = (0..1_000).map(|name| Entry::Ask(ask(name))).collect();
        registry.leases(now, &caller, &asks);
        let upstream = registry.upstreams().pop_first().expect("the store");
        let due = registry.asks_above(now, &upstream, Duration::ZERO);
        assert_eq!(due.asks.len(), 1_000);
        let mut contested = Contested::default();
        let mut told = 0;
        for (asker, ask) in due.askers.iter().zip(&due.asks) {
            told += usize::from(contested.tell_of_unleased(asker.limit(), 1, &RootError::Format));
            let limit = registry.configured_for(&ask.limit).expect("a pattern");
            contested.tell(&limit, 1);
        }
        assert_eq!((told, contested.unleased.len(), contested.limits.len()), (1, 1, 1));
    }

    #[test]
    fn a_newer_file_is_told_of_once() {
        let mut contested = Contested::default();
        let told = [(1, 1), (1, 2), (1, 2), (1, 3), (1, 2), (3, 3), (2, 3), (2, 3)];
        let told = told.map(|(version, newest)| contested.tell_of_newer(version, newest));
        assert_eq!(told, [false, true, false, true, false, false, true, false]);
    }
}
