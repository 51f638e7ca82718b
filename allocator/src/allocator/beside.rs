//! What operators have decided over the API beside what the file says. It is written down with what is lent, and holds in the
//! next life too; a limit that was put or removed is what it was then for as long as the file says the same of it.

use super::{Allocator, LIMITS_MAX};
use crate::config::{LimitConfig, wrong_parent};
use crate::store::{DecisionRow, PutRow, Written};
use lessor_ledger::overrides::{BLOCKED_MAX, Decision};
use lessor_ledger::rule::Gap;
use lessor_protocol::Moment;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::slice::from_ref;

/// Limits that are tried one by one, where not all fit what the file says. Each is looked at beside all others.
const TRIED_MAX: usize = 100;

/// What the file says, and what is to be written down beside it.
#[derive(Debug)]
pub(super) struct Beside {
    file: BTreeMap<String, LimitConfig>,
    /// Limits about which something may have been decided that is not written down.
    unwritten: BTreeSet<String>,
}

/// As many nodes are blocked as may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{BLOCKED_MAX} nodes are blocked, as many as may be: lift one first")]
pub struct BlockedFull;

/// A limit that was put or removed over the API, and is what the file says all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Which.
    pub limit: String,
    /// Why.
    pub problem: String,
}

/// A limit that was put, or `None` of one that was removed.
type Putting = (String, Option<LimitConfig>);

/// Which limits there are where the `file` says those and `decisions` were written down, and what of these is dropped.
pub fn limits_beside(
    file: &[LimitConfig],
    decisions: &BTreeMap<String, DecisionRow>,
) -> (Vec<LimitConfig>, Vec<Dropped>) {
    let mut limits = by_name(file);
    let (mut pending, mut dropped) = (vec![], vec![]);
    for (name, row) in decisions {
        let Some(put) = &row.put else { continue };
        match understood(name, put, limits.get(name)) {
            Ok(limit) => pending.push((name.clone(), limit)),
            Err(problem) => dropped.push(Dropped { limit: name.clone(), problem }),
        }
    }
    if let Ok(all) = with(&limits, &pending) {
        return (all.into_values().collect(), dropped);
    }
    let mut left = pending.split_off(pending.len().min(TRIED_MAX));
    // As long as that brings any further: one may be in the way of another.
    while !pending.is_empty() {
        let before = pending.len();
        pending.retain(|putting| match with(&limits, from_ref(putting)) {
            Ok(all) => {
                limits = all;
                false
            }
            Err(_) => true,
        });
        if pending.len() == before {
            break;
        }
    }
    left.append(&mut pending);
    dropped.extend(left.into_iter().map(|putting| {
        let problem = with(&limits, from_ref(&putting)).err();
        let problem = problem.unwrap_or_else(|| "it does not fit the file together with others".to_owned());
        Dropped { limit: putting.0, problem }
    }));
    (limits.into_values().collect(), dropped)
}

/// What a limit was put as, if the file says of it what it said then.
fn understood(name: &str, put: &PutRow, file: Option<&LimitConfig>) -> Result<Option<LimitConfig>, String> {
    let read =
        |value: &Value| LimitConfig::from_json(name, value).map_err(|error| error.problem().to_owned());
    if put.file.as_ref().map(read).transpose()?.as_ref() != file {
        return Err("the file says something else of it by now".to_owned());
    }
    put.limit.as_ref().map(read).transpose()
}

fn with(
    limits: &BTreeMap<String, LimitConfig>,
    putting: &[Putting],
) -> Result<BTreeMap<String, LimitConfig>, String> {
    let mut all = limits.clone();
    for (name, limit) in putting {
        match limit {
            Some(limit) => _ = all.insert(name.clone(), limit.clone()),
            None => _ = all.remove(name),
        }
    }
    if all.len() > LIMITS_MAX.max(limits.len()) {
        return Err(format!("there are {LIMITS_MAX} limits, as many as may be"));
    }
    let list: Vec<LimitConfig> = all.values().cloned().collect();
    wrong_parent(&list).map_or(Ok(all), Err)
}

fn by_name(limits: &[LimitConfig]) -> BTreeMap<String, LimitConfig> {
    limits.iter().map(|limit| (limit.name.to_string(), limit.clone())).collect()
}

fn as_written(limit: Option<&LimitConfig>) -> Option<Value> {
    limit.map(|limit| serde_json::to_value(limit.raw()).expect("a configuration is plain data"))
}

impl Beside {
    /// Nothing, beside a file that says `limits`.
    pub(super) fn new(limits: &[LimitConfig]) -> Self {
        Beside { file: by_name(limits), unwritten: BTreeSet::new() }
    }
}

impl Allocator {
    /// Something is decided about the limit called `name`: whether that was so of a pause or a block that is lifted, or made;
    /// `None` if there is no such limit.
    ///
    /// # Errors
    /// If as many nodes are blocked as may be. Nothing changes then.
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
        self.note_decided(name);
        Some(Ok(was_so))
    }

    /// The limits of the file.
    pub(crate) fn of_file(&self) -> impl Iterator<Item = &LimitConfig> {
        self.beside.file.values()
    }

    /// The file says `limits` by now.
    pub fn file_says(&mut self, limits: &[LimitConfig]) {
        let before = std::mem::replace(&mut self.beside.file, by_name(limits));
        let names: BTreeSet<&String> = before.keys().chain(self.beside.file.keys()).collect();
        let is_other = |name: &&&String| before.get(name.as_str()) != self.beside.file.get(name.as_str());
        let others: Vec<String> = names.iter().filter(is_other).map(|name| name.to_string()).collect();
        others.iter().for_each(|name| self.note_decided(name));
    }

    /// Something was decided about the limit called `name`.
    pub(crate) fn note_decided(&mut self, name: &str) {
        if self.journaled.is_on() {
            self.beside.unwritten.insert(name.to_owned());
            self.journaled.has_more();
        }
    }

    /// All of it is to be written.
    pub(super) fn write_decisions(&mut self) {
        self.beside.unwritten = self.limits.keys().chain(self.beside.file.keys()).cloned().collect();
    }

    /// What is to be written of it `now`.
    pub(super) fn decision_rows(&mut self, now: Moment) -> BTreeMap<String, Option<DecisionRow>> {
        let names = std::mem::take(&mut self.beside.unwritten).into_iter();
        let rows = names.map(|name| {
            let (limit, file) = (self.limits.get_mut(&name), self.beside.file.get(&name));
            let is_other = limit.as_deref().map(|limit| limit.config()) != file;
            let put = is_other.then(|| PutRow {
                limit: as_written(limit.as_deref().map(|limit| limit.config())),
                file: as_written(file),
            });
            let (suspension, topped_up) = limit.map_or_else(Default::default, |limit| {
                let names = limit.topped_up().map(str::to_owned).collect();
                (limit.suspension().save(now), names)
            });
            let row = DecisionRow { suspension, topped_up, put };
            (name, (row != DecisionRow::default()).then_some(row))
        });
        rows.collect()
    }

    /// What an earlier life was told holds still, beside a file that says `limits`.
    pub fn take_decisions(&mut self, limits: &[LimitConfig], written: &Written, gap: Gap, now: Moment) {
        self.file_says(limits);
        let clocks = self.clocks;
        for (name, row) in &written.decisions {
            if let Some(limit) = self.limits.get_mut(name) {
                *limit.suspension() = row.suspension.read(gap, now, clocks);
                limit.was_topped_up(&row.topped_up);
            }
        }
    }

    /// So does what this one was told, whose books are broken: they are no part of those.
    pub(crate) fn decided_by(&mut self, broken: &mut Allocator) {
        std::mem::swap(&mut self.beside.file, &mut broken.beside.file);
        for (name, limit) in &mut self.limits {
            if let Some(before) = broken.limits.get_mut(name) {
                *limit.suspension() = before.suspension().clone();
                let names: Vec<String> = before.topped_up().map(str::to_owned).collect();
                limit.was_topped_up(&names);
            }
        }
    }
}

#[cfg(test)]
mod tests;
