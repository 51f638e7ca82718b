//! The limits in force, by name and by the limit above: for a new life after a panic, and for events, which concern the
//! limits below, too.

use super::Shared;
use crate::config::{LimitConfig, Upstream};
use crate::events::BY_NODES_MAX;
use lessor_ledger::roots::parents_of;
use lessor_ledger::share::Owner;
use lessor_protocol::lock_anyway::LockAnyway;
use lessor_protocol::push::{Event, Kind};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Deref;
use std::sync::MutexGuard;

/// The limits in force. It derefs to the limits by name.
#[derive(Debug, Default)]
pub(super) struct Known {
    limits: BTreeMap<String, LimitConfig>,
    /// The names of the limits right below each limit that has some.
    below: BTreeMap<String, BTreeSet<String>>,
    /// The number of limits that are leased from each upstream, and of those that are leased from none.
    leased: BTreeMap<Option<Upstream>, usize>,
}

impl Deref for Known {
    type Target = BTreeMap<String, LimitConfig>;

    fn deref(&self) -> &Self::Target {
        &self.limits
    }
}

impl FromIterator<LimitConfig> for Known {
    fn from_iter<T: IntoIterator<Item = LimitConfig>>(limits: T) -> Self {
        let mut known = Known::default();
        limits.into_iter().for_each(|limit| known.put(limit));
        known
    }
}

impl Known {
    fn put(&mut self, limit: LimitConfig) {
        let name = limit.name.to_string();
        self.remove(&name);
        if let Some(parent) = &limit.parent {
            self.below.entry(parent.clone()).or_default().insert(name.clone());
        }
        *self.leased.entry(limit.upstream.clone()).or_default() += 1;
        self.limits.insert(name, limit);
    }

    fn remove(&mut self, name: &str) {
        let Some(limit) = self.limits.remove(name) else { return };
        if let Some(count) = self.leased.get_mut(&limit.upstream) {
            *count -= 1;
        }
        self.leased.retain(|_, count| *count > 0);
        let Some(parent) = limit.parent else { return };
        if let Some(below) = self.below.get_mut(&parent) {
            below.remove(name);
            if below.is_empty() {
                self.below.remove(&parent);
            }
        }
    }

    /// Returns the names of up to `max` limits below the limit `name`, the closest ones first.
    fn all_below(&self, name: &str, max: usize) -> Vec<String> {
        // Decisions of several allocators may contradict, and lead in a circle.
        let (mut reached, mut next) = (BTreeSet::from([name]), VecDeque::from([name]));
        let mut found = vec![];
        while let Some(name) = next.pop_front() {
            for below in self.below.get(name).into_iter().flatten() {
                if found.len() < max && reached.insert(below) {
                    found.push(below.clone());
                    next.push_back(below);
                }
            }
        }
        found
    }
}

impl Shared {
    /// Returns why no limit lends, if each is leased from an upstream allocator that does not answer. A limit of its own
    /// is reason enough to send nodes here.
    pub(crate) fn upstreams_fail(&self) -> Option<String> {
        let silent = self.silent_upstreams().all();
        let limits = self.limits();
        let waits = |of: &Option<Upstream>| of.as_ref().is_some_and(|of| silent.contains(of));
        if limits.leased.is_empty() || !limits.leased.keys().all(waits) {
            return None;
        }
        let names: Vec<&str> = silent.iter().map(Upstream::as_str).collect();
        Some(format!("every limit is leased from an allocator that does not answer: {}", names.join(", ")))
    }

    /// Publishes `event`, and an event for each limit below its limit: a caller that waits for one of those waits for
    /// this limit, too.
    pub(crate) fn tell(&self, event: &Event) {
        let now = self.now();
        self.events.tell(now, event);
        for limit in self.all_below(event, usize::MAX) {
            self.events.tell(now, &event_below(event, limit));
        }
    }

    /// Publishes `event` as [`Shared::tell`] does, as far as a node of `owner` may cause events. Returns the number of
    /// events that were omitted since the last one that was published; `None` if this one is omitted, too.
    pub(crate) fn tell_by_node(&self, event: &Event, owner: Owner) -> Option<u64> {
        let now = self.now();
        let mut omitted = self.events.admits(now, owner)?;
        self.events.tell(now, event);
        // Nodes of other limits below hear of it at their next ask.
        for limit in self.all_below(event, BY_NODES_MAX as usize) {
            if let Some(others) = self.events.admits(now, owner) {
                omitted = omitted.saturating_add(others);
                self.events.tell(now, &event_below(event, limit));
            }
        }
        Some(omitted)
    }

    fn all_below(&self, event: &Event, max: usize) -> Vec<String> {
        event.limit.as_ref().map_or(vec![], |limit| self.limits().all_below(limit, max))
    }

    /// Records that a limit is now `config`, for a new life.
    pub(crate) fn limit_was_put(&self, config: &LimitConfig) {
        self.limits().put(config.clone());
    }

    /// Records that the limit `name` is removed, for a new life.
    pub(crate) fn limit_was_removed(&self, name: &str) {
        self.limits().remove(name);
    }

    pub(super) fn limits(&self) -> MutexGuard<'_, Known> {
        self.limits.lock_anyway()
    }

    /// Returns the limits that are below others, each with its parent, see [`parents_of`].
    pub(crate) fn parents(&self) -> BTreeMap<String, String> {
        let limits = self.limits();
        parents_of(limits.iter().map(|(name, limit)| (name.as_str(), limit.parent.as_deref())))
    }
}

/// Returns the event for a `limit` below the limit of `event`. Limits below have keys of their own. If a single key
/// above is paused, the nodes find out by an ask which of their keys are: to stop all of them would be too much.
fn event_below(event: &Event, limit: String) -> Event {
    let is_of_one_key = event.kind == Kind::Paused && event.key.is_some();
    let kind = if is_of_one_key { Kind::Changed } else { event.kind };
    Event { kind, limit: Some(limit), key: None, became: None, ..event.clone() }
}
