//! Puts, changes and removes limits while the allocator runs. No lease is taken back. A removed limit is remembered for
//! as long as what it lent counts.

use super::departed::Departed;
use super::limits::Limits;
use super::parents::{Tree, check_below_in_store, check_parent, is_below_in_store, of_limit};
use super::{DEPTH_MAX, Keyed, LimitConfig, Registry, Upstream, keep};
use crate::CarryOver;
use crate::named::LIMITS_MAX;
use crate::overrides::Changes;
use crate::pool::{EarlierShares, Past};
use crate::registry::limit::Limit;
use lessor_protocol::Moment;
use std::collections::BTreeSet;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

/// The error that there is no room for another limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are {LIMITS_MAX} limits, the maximum, limits removed lately included")]
pub struct LimitsFull;

/// The reason why a set of changes is refused as a whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// There would be too many limits.
    #[error(transparent)]
    Full(#[from] LimitsFull),
    /// A limit would have no parent, or a wrong one.
    #[error("{0}")]
    Parent(String),
    /// A limit of a shared store would be counted by key, or no more, while what it lent counts.
    #[error(
        "limit {0:?}: keyed differs from before, which a limit in a store that several allocators share cannot \
         change: put it under another name"
    )]
    Keyed(String),
}

/// The outcome of putting a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// There was no limit of that name.
    Created,
    /// There was a limit of that name, which goes on.
    Changed,
    /// A removed limit of that name goes on, because what it lent still counts.
    Revived,
}

/// The limits on which it depends whether a change fits, beside the limits that are put.
#[derive(Debug)]
struct Relatives {
    /// Limits that do not change, below limits that do.
    below: Vec<Arc<LimitConfig>>,
    /// Limits that do not change, above those that are put or in `below`.
    above: Vec<Arc<LimitConfig>>,
    /// The number of limits that do not change and whose parents a shared store keeps.
    in_store: usize,
}

impl Registry {
    /// Makes a limit of `config`, or changes the one of that name. A new limit begins in quarantine if a pattern may
    /// have lent by its name, and, unless it is `fresh`, also if an earlier run may have. `fresh` does
    /// not end the quarantine of a limit that is there.
    ///
    /// # Errors
    /// If there are as many limits as may be.
    pub fn put(
        &mut self,
        now: Moment,
        config: &LimitConfig,
        carry_over: CarryOver,
        fresh: bool,
    ) -> Result<Put, LimitsFull> {
        let name = config.name.as_str();
        let put = if let Some(limit) = self.limits.get_mut(name) {
            limit.change(config.clone(), carry_over, now);
            Put::Changed
        } else if let Some(mut limit) = self.retired.remove(name) {
            limit.change(config.clone(), carry_over, now);
            // Names that fall to this pattern may have fallen to shorter ones meanwhile.
            if name.ends_with('*') {
                limit.waits_for(self.past_of(now, name, Past::None), self.shares_of(now, name), now);
            }
            *limit.suspension() = Default::default();
            self.limits.insert(name.to_owned(), limit);
            // Its old rows are dropped, and all of it is written anew.
            self.note_forgotten(name);
            Put::Revived
        } else {
            self.check_room()?;
            let limit = self.created(now, config, fresh);
            self.limits.insert(name.to_owned(), limit);
            Put::Created
        };
        self.hand_over(now, config);
        self.sessions.keep(keep(self.clocks, &mut self.limits));
        self.note_put(name);
        Ok(put)
    }

    fn created(&self, now: Moment, config: &LimitConfig, fresh: bool) -> Limit {
        let name = config.name.as_str();
        // The allocator that lends a leased limit counts what is out of it.
        let departed = if config.upstream.is_none() { self.departed_of(name) } else { vec![] };
        let earlier = departed.iter().map(|departed| departed.past).fold(self.past, Past::and);
        let past = self.past_of(now, name, if fresh { Past::None } else { earlier });
        let shares = self.shares_of(now, name).into_iter();
        let shares = shares.chain(departed.into_iter().filter_map(|departed| departed.shares));
        let mut limit = Limit::new(config.clone(), self.clocks, past, now);
        limit.learn_shares(shares.reduce(EarlierShares::and));
        limit
    }

    /// Returns for how long [`Registry::put`] would have a new limit of `config` lend nothing, or names that fall to a
    /// pattern again which was removed and still counts. `None` for another limit that is there, or still counts.
    pub fn quarantine_if_new(&self, now: Moment, config: &LimitConfig, fresh: bool) -> Option<Duration> {
        let name = config.name.as_str();
        let is_back = self.retired.contains(name);
        let is_new = !self.limits.contains(name) && (!is_back || name.ends_with('*'));
        is_new.then(|| self.created(now, config, fresh || is_back).quarantine(now))
    }

    /// Removes the limit called `name`, and returns whether there was one. As long as what it lent counts, asks for it
    /// are rejected, even if a pattern fits its name.
    pub fn remove(&mut self, name: &str) -> bool {
        let limit = self.limits.remove(name);
        let was_there = limit.is_some();
        self.note_removed(name);
        let heirs = std::mem::take(&mut self.heirs);
        for (departed, (heir, until)) in heirs {
            let heirs = if heir == name { &mut self.lost_heirs } else { &mut self.heirs };
            heirs.insert(departed, (heir, until));
        }
        if let Some(limit) = limit {
            self.retired.insert(name.to_owned(), limit);
        }
        was_there
    }

    /// Returns the number of removed limits that still count.
    pub fn retired(&self) -> usize {
        self.retired.len()
    }

    /// Returns the names of removed limits that still count.
    pub fn retired_names(&self) -> impl Iterator<Item = &str> {
        self.retired.names().map(String::as_str)
    }

    /// Returns a limit that is below the one called `name`, if there is one.
    pub fn below(&self, name: &str) -> Option<&str> {
        let mut limits = self.limits.locked();
        limits.find(|(_, limit)| limit.config().parent.as_deref() == Some(name)).map(|(below, _)| below)
    }

    /// Removes, puts and changes limits as the file of this allocator and the overrides of its store say.
    ///
    /// # Errors
    /// If there is no room for all new limits, as [`Registry::check`] would have said. The other changes are made.
    pub fn go_by(&mut self, now: Moment, changes: &Changes) -> Result<(), LimitsFull> {
        changes.gone.iter().for_each(|name| _ = self.remove(name));
        let put = changes.put.iter().map(|limit| self.put(now, limit, CarryOver::AsIs, false).map(drop));
        put.filter(Result::is_err).last().unwrap_or(Ok(()))
    }

    /// Checks that the limits called `removed` may go and all of `put` may come, in this order.
    ///
    /// # Errors
    /// If there would be too many limits, or a limit would have a wrong parent.
    pub fn check(&self, removed: &[&str], put: &[&LimitConfig]) -> Result<(), Unfit> {
        let is_new = |config: &&&LimitConfig| {
            let name = config.name.as_str();
            !self.limits.contains(name) && !self.retired.contains(name)
        };
        let new = put.iter().filter(is_new).count();
        // Removed limits are remembered, and take room. A change that adds no limit takes none.
        if new > 0 && self.limits.len() + self.retired.len() + new > LIMITS_MAX {
            return Err(LimitsFull.into());
        }
        self.wrong_family(removed, put).map_or(Ok(()), |problem| Err(Unfit::Parent(problem)))
    }

    /// Checks that each of `put` that is in a shared store is counted by key if the limit of its name is, or was before
    /// it was removed. Its permits are lent by other roots otherwise, which know nothing of what it lent.
    ///
    /// # Errors
    /// If a limit differs.
    pub fn check_keys(&self, put: &[&LimitConfig]) -> Result<(), Unfit> {
        let is_in_store = |config: &LimitConfig| config.upstream.as_ref().is_some_and(Upstream::is_store);
        let is_keyed = |config: &LimitConfig| config.keyed != Keyed::No;
        let differs = |put: &&&LimitConfig| {
            let name = put.name.as_str();
            let before = self.limits.lock(name).or_else(|| self.retired.lock(name));
            before.is_some_and(|before| {
                let before = before.config();
                is_in_store(before) && is_in_store(put) && is_keyed(before) != is_keyed(put)
            })
        };
        let other = put.iter().find(differs);
        other.map_or(Ok(()), |put| Err(Unfit::Keyed(put.name.to_string())))
    }

    fn wrong_family(&self, removed: &[&str], put: &[&LimitConfig]) -> Option<String> {
        let Relatives { below, above, in_store } = self.relatives(removed, put);
        if let Some(last) = put.iter().rfind(|limit| is_below_in_store(limit)) {
            let in_store = in_store + put.iter().filter(|limit| is_below_in_store(limit)).count();
            if let Err(problem) = check_below_in_store(in_store) {
                return Some(of_limit(last, &problem));
            }
        }
        let to_check = || put.iter().copied().chain(below.iter().map(|limit| &**limit));
        let tree = Tree::of(to_check().chain(above.iter().map(|limit| &**limit)));
        to_check().find_map(|limit| Some(of_limit(limit, &check_parent(&tree, limit).err()?)))
    }

    /// Returns the limits on which it depends whether a change fits. The change is made while no exchange goes on, so
    /// it copies no configuration and looks at no other limit twice.
    fn relatives(&self, removed: &[&str], put: &[&LimitConfig]) -> Relatives {
        let names = put.iter().map(|limit| limit.name.as_str());
        let changed: BTreeSet<&str> = removed.iter().copied().chain(names).collect();
        let others = self.limits.locked().filter(|(name, _)| !changed.contains(name));
        let others = others.filter(|(_, limit)| limit.config().parent.is_some());
        let mut left: Vec<Arc<LimitConfig>> = others.map(|(_, limit)| limit.shared_config()).collect();
        let in_store = left.iter().filter(|limit| is_below_in_store(limit)).count();
        let mut reached: BTreeSet<String> = changed.iter().map(|name| (*name).to_owned()).collect();
        let mut below = vec![];
        // Limits farther below have too many limits above them in any case.
        for _ in 0..DEPTH_MAX {
            let is_below = |limit: &Arc<LimitConfig>| {
                limit.parent.as_ref().is_some_and(|parent| reached.contains(parent))
            };
            let (next, others): (Vec<_>, Vec<_>) = left.into_iter().partition(is_below);
            reached = next.iter().map(|limit| limit.name.to_string()).collect();
            below.extend(next);
            left = others;
        }
        let parents = put.iter().filter_map(|limit| limit.parent.as_ref());
        let parents = parents.chain(below.iter().filter_map(|limit| limit.parent.as_ref()));
        let mut next: BTreeSet<String> = parents.cloned().collect();
        let mut seen: BTreeSet<String> = below.iter().map(|limit| limit.name.to_string()).collect();
        let mut above = vec![];
        while let Some(name) = next.pop_first() {
            if changed.contains(name.as_str()) || !seen.insert(name.clone()) {
                continue;
            }
            if let Some(limit) = self.limits.lock(&name) {
                next.extend(limit.config().parent.clone());
                above.push(limit.shared_config());
            }
        }
        Relatives { below, above, in_store }
    }

    /// Returns what a new limit has to wait for, where `earlier` is what an earlier run left. Patterns that stood for
    /// its name, or for names that fall to it now, lent from pools of their own.
    fn past_of(&self, now: Moment, name: &str, earlier: Past) -> Past {
        let pasts = self.of_those_that_lent(name, |limit| limit.past_of_others(now));
        pasts.into_iter().fold(earlier, Past::and)
    }

    /// Returns the safe shares of such patterns that nodes may still spend.
    fn shares_of(&self, now: Moment, name: &str) -> Option<EarlierShares> {
        let shares = self.of_those_that_lent(name, |limit| limit.shares_out(now));
        shares.into_iter().flatten().reduce(EarlierShares::and)
    }

    /// Returns what an earlier run left of limits that lent by `name`, or by names that fall to it.
    fn departed_of(&self, name: &str) -> Vec<Departed> {
        let lent =
            |(other, _): &(&String, &Departed)| *other == name || fits(other, name) || fits(name, other);
        self.departed.iter().filter(lent).map(|(_, departed)| *departed).collect()
    }

    /// Returns what `say` says of each limit that lent by `name`, or by names that fit it if it is a pattern.
    fn of_those_that_lent<T>(&self, name: &str, say: impl Fn(&Limit) -> T) -> Vec<T> {
        let limits = [&self.limits, &self.retired].into_iter();
        let said = limits.flat_map(|limits| -> Vec<T> {
            match name.strip_suffix('*') {
                None => lent_as(limits, name).map(|limit| say(&limit)).collect(),
                Some(prefix) => lent_below(limits, prefix).map(|limit| say(&limit)).collect(),
            }
        });
        said.collect()
    }

    /// Locks the removed limit that lent to callers that asked for `name`, if it still counts. The pattern to which the
    /// name falls now knows nothing of what that limit lent.
    pub(super) fn went_lately(&self, name: &str) -> Option<MutexGuard<'_, Limit>> {
        // Most of the time no limit was removed, and no ask pays for a search.
        if self.retired.is_empty() || self.limits.contains(name) {
            return None;
        }
        lent_as(&self.retired, name).next()
    }

    /// Whether `name` fell to a pattern that waits for what an earlier run lent by it, and that was removed since. The
    /// shorter pattern to which the name falls now knows nothing of that.
    pub(super) fn has_lost_heir(&self, now: Moment, name: &str) -> bool {
        if self.lost_heirs.is_empty() {
            return false;
        }
        let asked = self.limits.named_for(name).filter(|asked| asked.ends_with('*'));
        asked.is_some_and(|asked| {
            let fell = |(departed, (heir, until)): (&String, &(String, Moment))| {
                now < *until && asked.len() < heir.len() && (departed == name || fits(name, departed))
            };
            self.lost_heirs.iter().any(fell)
        })
    }

    /// Forgets removed limits once nothing that they lent matters any more.
    pub fn sweep_retired(&mut self, now: Moment, steps: usize) {
        let (mut loses_loans, mut forgotten) = (false, vec![]);
        self.retired.retain(|limit| {
            limit.sweep_removed(now, steps);
            let is_forgotten = limit.is_forgettable(now);
            if is_forgotten {
                loses_loans |= limit.loses_loans();
                forgotten.push(limit.config().name.to_string());
            }
            !is_forgotten
        });
        forgotten.iter().for_each(|name| self.note_forgotten(name));
        if loses_loans {
            self.begin_session_above(now);
        }
        self.forget_departed(now);
        self.heirs.retain(|_, (_, until)| now < *until);
        self.lost_heirs.retain(|_, (_, until)| now < *until);
    }

    /// Forgets what an earlier run left of limits, once none of it counts.
    fn forget_departed(&mut self, now: Moment) {
        // There may be thousands, and exchanges wait meanwhile.
        if now < self.departed_count_until {
            return;
        }
        let (limits, retired) = (&self.limits, &self.retired);
        let mut gone = vec![];
        self.departed.retain(|name, departed| {
            let counts = departed.counts(now);
            if !counts && !limits.contains(name) && !retired.contains(name) {
                gone.push(name.clone());
            }
            counts
        });
        let ends = self.departed.values().map(Departed::counts_until);
        self.departed_count_until = ends.min().unwrap_or(Moment::NEVER);
        gone.iter().for_each(|name| self.note_forgotten(name));
    }

    fn check_room(&self) -> Result<(), LimitsFull> {
        if self.limits.len() + self.retired.len() < LIMITS_MAX { Ok(()) } else { Err(LimitsFull) }
    }
}

/// Whether `name` fits `pattern`. If `name` is a pattern itself: whether all its names do.
fn fits(name: &str, pattern: &str) -> bool {
    pattern.strip_suffix('*').is_some_and(|prefix| name.starts_with(prefix))
}

/// Locks the limits that lent to callers that asked for `name`: the limit of that name, and patterns. A shorter pattern
/// may have lent before there was a longer one.
fn lent_as<'a>(limits: &'a Limits, name: &str) -> impl Iterator<Item = MutexGuard<'a, Limit>> {
    let all = limits.all_named_for(name).filter_map(|named| limits.lock(&named));
    all.filter(move |limit| limit.config().name.as_str() == name || limit.stands_for(name))
}

/// Locks the shorter patterns among `limits` that lent by names that begin with `prefix`.
fn lent_below<'a>(limits: &'a Limits, prefix: &'a str) -> impl Iterator<Item = MutexGuard<'a, Limit>> {
    let prefixes = (0..prefix.len()).filter_map(|end| prefix.get(..end));
    let patterns = prefixes.filter_map(|shorter| limits.lock(&format!("{shorter}*")));
    patterns.filter(move |limit| limit.stands_below(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::fixtures::Config;

    const RULES: &str = "rules = [{ kind = \"fixed_window\", limit = 10, per = \"1m\" }]";

    fn limits(text: &str) -> Vec<LimitConfig> {
        Config::parse(text).expect("valid").limits
    }

    /// The bug: each change copied all configurations and searched each parent in a list of them, while no exchange
    /// went on. With 5,000 limits below one parent, leases of a second ran out meanwhile.
    #[test]
    fn a_change_looks_at_the_limits_above_and_below_and_copies_none() {
        let child = |child: usize| format!("[[limit]]\nname = \"c{child}\"\nparent = \"p\"\n{RULES}\n");
        let children: String = (0..5_000).map(child).collect();
        let text = format!("[[limit]]\nname = \"p\"\n{RULES}\n{children}[[limit]]\nname = \"o\"\n{RULES}\n");
        let now = Moment::from_nanos(1);
        let registry = Registry::new(&limits(&text), Default::default(), Past::None, now, 7);
        let looked_at = |removed: &[&str], put: &[&LimitConfig]| {
            let found = registry.relatives(removed, put);
            for limit in found.below.iter().chain(&found.above) {
                let own = registry.limits.lock(limit.name.as_str()).expect("it is there").shared_config();
                assert!(Arc::ptr_eq(&own, limit), "a copy of {:?}", limit.name);
            }
            (found.below.len(), found.above.len())
        };
        let changed = limits(&text);
        let [parent, child, .., other] = &changed[..] else { panic!("they are there") };
        assert_eq!(looked_at(&[], &[other]), (0, 0));
        assert_eq!(looked_at(&[], &[child]), (0, 1));
        assert_eq!(looked_at(&["c7"], &[child, other]), (0, 1));
        assert_eq!(looked_at(&[], &[parent]), (5_000, 0));
        assert_eq!(looked_at(&["p"], &[child]), (4_999, 0));
        let wrong = |removed: &[&str], put: &[&LimitConfig]| registry.check(removed, put).err();
        assert_eq!(wrong(&["c7"], &[parent, child, other]), None);
        assert!(matches!(wrong(&["p"], &[]), Some(Unfit::Parent(problem)) if problem.contains("\"c0\"")));
        let below = LimitConfig { parent: Some("c0".to_owned()), ..parent.clone() };
        assert!(matches!(wrong(&[], &[&below]), Some(Unfit::Parent(problem)) if problem.contains("itself")));
    }

    /// The bug: a file had more limits than there may be. From then on no limit could be changed or removed.
    #[test]
    fn a_change_that_adds_no_limit_needs_no_room() {
        let limit = |limit: usize| format!("[[limit]]\nname = \"l{limit}\"\n{RULES}\n");
        let all = limits(&(0..LIMITS_MAX + 2).map(limit).collect::<String>());
        let (new, known) = all.split_last().expect("they are there");
        let registry = Registry::new(known, Default::default(), Past::None, Moment::from_nanos(1), 7);
        assert_eq!(registry.check(&["l0", "l1"], &[&known[2]]), Ok(()));
        assert_eq!(
            registry.check(&["l0", "l1"], &[new]),
            Err(Unfit::Full(LimitsFull)),
            "what they lent counts"
        );
    }

    /// Decisions of several allocators may contradict. They are in force, so they keep no other limit from a change.
    #[test]
    fn a_limit_without_its_parent_keeps_no_other_one_from_a_change() {
        let text = format!(
            "[[limit]]\nname = \"a\"\nparent = \"gone\"\n{RULES}\n[[limit]]\nname = \"b\"\n{RULES}\n"
        );
        let limits = limits(&text);
        let registry = Registry::new(&limits, Default::default(), Past::None, Moment::from_nanos(1), 7);
        assert_eq!(registry.check(&[], &[&limits[1]]), Ok(()));
        assert!(registry.check(&[], &[&limits[0]]).is_err());
    }
}
