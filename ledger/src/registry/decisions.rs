//! The decisions of operators at an allocator with limits of its own. They are written down with what is lent, and hold
//! in the next run. A limit that was put or removed stays so as long as the file says the same of it.

use super::departed::{Departed, bound, sum_up};
use super::rows::{DecisionRow, PutRow, Written};
use super::written::heir;
use super::{LimitConfig, Registry};
use crate::overrides::{BLOCKED_MAX, Decision};
use crate::registry::limit::Limit;
use crate::rule::Gap;
use lessor_protocol::Moment;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The limits of the file, and the decisions that are to be written down.
#[derive(Debug)]
pub(super) struct LocalOverrides {
    file: BTreeMap<String, LimitConfig>,
    /// Limits with decisions that may not be written down yet.
    unwritten: BTreeSet<String>,
}

/// The error that as many nodes are blocked as may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{BLOCKED_MAX} nodes are blocked, the maximum: unblock one first")]
pub struct BlockedFull;

/// Returns a map of `limits` by their names or patterns.
pub fn by_name(limits: &[LimitConfig]) -> BTreeMap<String, LimitConfig> {
    limits.iter().map(|limit| (limit.name.to_string(), limit.clone())).collect()
}

fn as_written(limit: Option<&LimitConfig>) -> Option<Value> {
    limit.map(|limit| serde_json::to_value(limit.raw()).expect("a configuration is plain data"))
}

impl LocalOverrides {
    /// Begins without decisions, with a file that says `limits`.
    pub(super) fn new(limits: &[LimitConfig]) -> Self {
        LocalOverrides { file: by_name(limits), unwritten: BTreeSet::new() }
    }
}

impl Registry {
    /// Decides about the limit called `name`. Returns whether the pause or block was there before; `None` if there is no such
    /// limit.
    ///
    /// # Errors
    /// If [`BLOCKED_MAX`] nodes are blocked. Nothing changes then.
    pub fn decide(
        &mut self,
        now: Moment,
        name: &str,
        decision: &Decision,
    ) -> Option<Result<bool, BlockedFull>> {
        let suspension = self.limit(name)?.suspension();
        let was_so = match decision {
            Decision::Pause(span) => {
                let was_paused = suspension.paused_until(now).is_some();
                suspension.pause(span.map_or(Moment::NEVER, |span| now + span));
                was_paused
            }
            Decision::Resume => suspension.resume(now),
            Decision::Block(node) => {
                let was_blocked = suspension.blocked().contains(node);
                if !suspension.block(node.clone()) {
                    return Some(Err(BlockedFull));
                }
                was_blocked
            }
            Decision::Unblock(node) => suspension.unblock(node),
        };
        self.note_decision(name);
        Some(Ok(was_so))
    }

    /// Returns the limits of the file.
    pub fn of_file(&self) -> impl Iterator<Item = &LimitConfig> {
        self.overrides.file.values()
    }

    /// Notes that the file says `limits` from now on.
    pub fn file_says(&mut self, limits: &[LimitConfig]) {
        let before = std::mem::replace(&mut self.overrides.file, by_name(limits));
        let names: BTreeSet<&String> = before.keys().chain(self.overrides.file.keys()).collect();
        let is_other = |name: &&&String| before.get(name.as_str()) != self.overrides.file.get(name.as_str());
        let others: Vec<String> = names.iter().filter(is_other).map(|name| name.to_string()).collect();
        others.iter().for_each(|name| self.note_decision(name));
    }

    /// Has the decisions about the limit called `name` written.
    pub fn note_decision(&mut self, name: &str) {
        if self.journaled.is_on() {
            self.overrides.unwritten.insert(name.to_owned());
            self.journaled.has_more();
        }
    }

    /// Has all decisions written.
    pub(super) fn write_decisions(&mut self) {
        self.overrides.unwritten = self.limits.names().chain(self.overrides.file.keys()).cloned().collect();
    }

    /// Returns the rows that are to be written `now`.
    pub(super) fn decision_rows(&mut self, now: Moment) -> BTreeMap<String, Option<DecisionRow>> {
        let names = std::mem::take(&mut self.overrides.unwritten).into_iter();
        let rows = names.map(|name| {
            let (limit, file) = (self.limits.get_mut(&name), self.overrides.file.get(&name));
            let is_other = limit.as_deref().map(|limit| limit.config()) != file;
            let put = is_other.then(|| PutRow {
                limit: as_written(limit.as_deref().map(|limit| limit.config())),
                file: as_written(file),
            });
            let mut row = DecisionRow { put, ..DecisionRow::default() };
            if let Some(limit) = limit {
                row.suspension = limit.suspension().save(now);
                row.say_top_ups(limit.topped_up());
            }
            (name, (row != DecisionRow::default()).then_some(row))
        });
        rows.collect()
    }

    /// Takes over the decisions of an earlier run, with a file that says `limits`.
    pub fn take_decisions(&mut self, limits: &[LimitConfig], written: &Written, gap: Gap, now: Moment) {
        self.file_says(limits);
        let clocks = self.clocks;
        for (name, row) in &written.decisions {
            if let Some(limit) = self.limits.get_mut(name) {
                *limit.suspension() = row.suspension.read(gap, now, clocks);
                limit.was_topped_up(row.top_ups());
            }
        }
    }

    /// Takes over the decisions of a registry whose books are `broken`. Decisions are no part of the books. Neither are
    /// the longest calls and the safe shares that nodes may still spend, so the new limits wait for these.
    pub fn keep_decisions_of(&mut self, broken: &mut Registry, now: Moment) {
        std::mem::swap(&mut self.overrides.file, &mut broken.overrides.file);
        self.departed.append(&mut broken.departed);
        for (name, limit) in broken.retired.iter_mut() {
            let (past, shares) = (limit.past_of_others(now), limit.shares_out(now));
            let departed = Departed::of(limit.config(), past, shares, self.clocks, now);
            // An earlier run may have left more of a limit of that name.
            self.departed.entry(name.clone()).or_default().join(departed);
        }
        sum_up(&mut self.departed, Moment::ORIGIN, now);
        bound(&mut self.departed, now);
        self.departed_count_until = Moment::ORIGIN;
        // As at a start: names of departed limits fall to patterns that know nothing of what those limits lent.
        let mut heirs: BTreeMap<String, Departed> = BTreeMap::new();
        for (name, departed) in &self.departed {
            let heir = heir(&self.limits, name);
            heir.into_iter().for_each(|heir| heirs.entry(heir).or_default().join(*departed));
        }
        for (name, limit) in self.limits.iter_mut() {
            if let Some(before) = broken.limits.get_mut(name) {
                if limit.upstream().is_none() {
                    let mut left = heirs.remove(name).unwrap_or_default();
                    let (past, shares) = (before.past_of_others(now), before.shares_out(now));
                    left.join(Departed::of(limit.config(), past, shares, self.clocks, now));
                    *limit = Limit::new(limit.config().clone(), self.clocks, left.past, now);
                    limit.learn_shares(left.shares);
                }
                *limit.suspension() = before.suspension().clone();
                limit.was_topped_up(before.topped_up().cloned());
            }
        }
    }
}
