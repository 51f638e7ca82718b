//! Limits that come, change and go while the allocator runs. Handlers and the reload of a file call it; what nodes hold
//! is never taken back, and a limit that goes is remembered for as long as what it lent matters.

use super::{Caller, Registry, keep};
use super::{DEPTH_MAX, LimitConfig, wrong_parent};
use crate::CarryOver;
use crate::named::LIMITS_MAX;
use crate::named::named_for;
use crate::pool::Past;
use crate::registry::limit::Limit;
use lessor_protocol::{Moment, Refusal};
use std::collections::BTreeMap;

/// There are as many limits as may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are {LIMITS_MAX} limits, as many as may be, those that went lately included")]
pub struct LimitsFull;

/// Why several changes at once are refused, all of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// There would be too many limits.
    #[error(transparent)]
    Full(#[from] LimitsFull),
    /// With what was put over the API, a limit would have no parent, or a wrong one.
    #[error("{0}")]
    Parent(String),
}

/// What became of a limit that was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// There was none of that name.
    Created,
    /// There was one, and it goes on.
    Changed,
    /// There was one of that name, and what it had lent still mattered: it goes on from there.
    Revived,
}

impl Registry {
    /// Makes a limit of `config`, or changes the one of that name. One that is new here may have been lent from as one of many
    /// that a pattern stands for, and waits as it would have at a start. Unless it is `fresh`, an earlier life may have lent
    /// from it, too.
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
            *limit.suspension() = Default::default();
            self.limits.insert(name.to_owned(), limit);
            Put::Revived
        } else {
            self.check_room()?;
            let past = self.past_of(now, name, if fresh { Past::None } else { self.past });
            let limit = Limit::new(config.clone(), self.clocks, past, now);
            self.limits.insert(name.to_owned(), limit);
            Put::Created
        };
        self.sessions.keep(keep(self.clocks, &self.limits));
        self.note_put(name);
        Ok(put)
    }

    /// The limit called `name` is no more: asks are told that there is none, also if its name falls to a pattern, for as
    /// long as what it lent matters. What is out ends by itself. Whether there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        let limit = self.limits.remove(name);
        let was_there = limit.is_some();
        self.note_removed(name);
        self.retired.extend(limit.map(|limit| (name.to_owned(), limit)));
        was_there
    }

    /// Limits that went and still matter.
    pub fn retired(&self) -> usize {
        self.retired.len()
    }

    /// The refusal that `caller` gets instead of a grant, where the limit that `name` stands for is suspended, or one above it.
    pub(super) fn refusal(&mut self, now: Moment, name: &str, caller: &Caller) -> Option<Refusal> {
        let mut limit = self.limit_for(name)?;
        for _ in 0..=DEPTH_MAX {
            if let Some(refusal) = limit.suspension().refusal(now, &caller.node) {
                return Some(refusal);
            }
            let parent = limit.config().parent.clone()?;
            limit = self.limits.get_mut(&parent)?;
        }
        None
    }

    /// A limit that is below the one called `name`.
    pub fn below(&self, name: &str) -> Option<&str> {
        let is_below = |limit: &&Limit| limit.config().parent.as_deref() == Some(name);
        self.limits.values().find(is_below).map(|limit| limit.config().name.as_str())
    }

    /// Whether those called `removed` may go and all of `put` may come, in this order.
    ///
    /// # Errors
    /// What would be wrong then.
    pub fn check(&self, removed: &[&str], put: &[&LimitConfig]) -> Result<(), Unfit> {
        let is_new = |config: &&&LimitConfig| {
            let name = config.name.as_str();
            !self.limits.contains_key(name) && !self.retired.contains_key(name)
        };
        // Those that go are remembered, and take room.
        if self.limits.len() + self.retired.len() + put.iter().filter(is_new).count() > LIMITS_MAX {
            return Err(LimitsFull.into());
        }
        self.wrong_family(removed, put).map_or(Ok(()), |problem| Err(Unfit::Parent(problem)))
    }

    fn wrong_family(&self, removed: &[&str], put: &[&LimitConfig]) -> Option<String> {
        let stays = |config: &&LimitConfig| {
            !removed.contains(&config.name.as_str()) && put.iter().all(|put| put.name != config.name)
        };
        let stay = self.limits.values().map(Limit::config).filter(stays);
        let all: Vec<LimitConfig> = stay.chain(put.iter().copied()).cloned().collect();
        wrong_parent(&all)
    }

    /// What may be out of a limit that is new here, where an `earlier` life left this. If a pattern stood for its name, or for
    /// names that fall to it now, or did lately, that lent from pools of its own, which this one knows nothing of.
    fn past_of(&self, now: Moment, name: &str, earlier: Past) -> Past {
        let before =
            [&self.limits, &self.retired].into_iter().flat_map(|limits| match name.strip_suffix('*') {
                None => lent_as(limits, name).into_iter().collect(),
                Some(prefix) => lent_below(limits, prefix),
            });
        let pasts = before.map(|limit| limit.past_of_others(now));
        pasts.max_by_key(|past| past.calls_end()).unwrap_or(earlier)
    }

    /// Whether asks for `name` went to a limit that is no more, though it still matters: who is asked for it now, for it is
    /// one of many to a pattern, knows nothing of what that lent.
    pub(super) fn went_lately(&self, name: &str) -> bool {
        // Most of the time none went: asks by names of a pattern are not to search for what cannot be there.
        !self.retired.is_empty() && !self.limits.contains_key(name) && lent_as(&self.retired, name).is_some()
    }

    /// Forgets, of the limits that went, those that cannot be told from new ones.
    pub(super) fn sweep_retired(&mut self, now: Moment, steps: usize) {
        self.retired.retain(|_, limit| {
            limit.sweep(now, steps);
            !limit.is_forgettable(now)
        });
    }

    fn check_room(&self) -> Result<(), LimitsFull> {
        if self.limits.len() + self.retired.len() < LIMITS_MAX { Ok(()) } else { Err(LimitsFull) }
    }
}

/// The one of `limits` that lent to callers that asked for `name`.
fn lent_as<'a>(limits: &'a BTreeMap<String, Limit>, name: &str) -> Option<&'a Limit> {
    let limit = limits.get(&named_for(limits, name)?)?;
    (limit.config().name.as_str() == name || limit.stands_for(name)).then_some(limit)
}

/// Those of `limits` whose patterns fit names that begin with `prefix`, and that lent by such names.
fn lent_below<'a>(limits: &'a BTreeMap<String, Limit>, prefix: &str) -> Vec<&'a Limit> {
    let prefixes = (0..prefix.len()).filter_map(|end| prefix.get(..end));
    let patterns = prefixes.filter_map(|shorter| limits.get(&format!("{shorter}*")));
    patterns.filter(|limit| limit.stands_below(prefix)).collect()
}
