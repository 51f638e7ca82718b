//! What a registry writes down, and how it goes on from what an earlier run wrote. A journal takes batches and says
//! when they are durable. An answer that lends beyond the last batch waits for the next one.

use super::departed::{Departed, GONE, bound, sum_up};
use super::limits::Limits;
use super::{LimitConfig, Registry};
use crate::cells::COUNT_MAX;
use crate::pool::{EarlierShares, Past};
use crate::registry::limit::Limit;
use crate::registry::rows::{Batch, LimitRow, Written};
use crate::rule::Gap;
use lessor_protocol::{ClockBounds, Moment};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// The state of what is written down, as far as the registry knows.
#[derive(Debug, Default)]
pub(super) struct Journaled {
    is_on: bool,
    /// Number of batches that were made.
    pub(super) batches: u64,
    /// The highest version of a limit.
    pub(super) versions: u64,
    /// Whether the next batch replaces everything that was written before.
    pub(super) is_first: bool,
    /// Limits whose rows are to be dropped.
    pub(super) gone: Vec<String>,
    /// Whether something is to be written.
    is_unwritten: AtomicBool,
}

impl Journaled {
    /// Whether anything is written.
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Notes that there is something to write.
    pub(super) fn has_more(&self) {
        self.is_unwritten.store(true, Relaxed);
    }

    /// Notes that everything to write goes into the batch that is made now.
    pub(super) fn has_no_more(&self) {
        self.is_unwritten.store(false, Relaxed);
    }

    /// Notes that `limit` was used. Returns whether an answer was given, since the last call, that may not leave before
    /// its permits are written down.
    pub(super) fn sees(&self, limit: &mut Limit) -> bool {
        if limit.is_unwritten() {
            self.has_more();
        }
        limit.take_uncovered()
    }

    /// Returns the number of the batch that will have what is to be written now.
    pub(super) fn next(&self) -> u64 {
        self.batches + 1
    }
}

impl Registry {
    /// Makes a registry that goes on from what an earlier run has `written`. A limit without a fitting row begins as
    /// after a loss.
    pub fn restored(
        configured: &[LimitConfig],
        clocks: ClockBounds,
        written: &Written,
        gap: Gap,
        now: Moment,
        epoch: u64,
    ) -> Self {
        let mut registry = Registry::new(configured, clocks, Past::Lost(now), now, epoch);
        let all: Vec<&LimitConfig> = configured.iter().collect();
        // Names of removed limits fall to these patterns, which know nothing of what those limits lent.
        let mut heirs: BTreeMap<String, Vec<&LimitRow>> = BTreeMap::new();
        for (name, row) in &written.limits {
            if registry.limits.contains(name) {
                continue;
            }
            if let Some(heir) = heir(&registry.limits, name).filter(|_| name != GONE) {
                heirs.entry(heir.clone()).or_default().push(row);
                registry.heirs.insert(name.clone(), (heir, now));
            }
            registry.departed.insert(name.clone(), Departed::read(row, gap, clocks, now));
        }
        let mut renamed_until = Moment::ORIGIN;
        let others = other_lenders(&registry.limits, written);
        for limit in configured {
            let name = limit.name.to_string();
            let (own, inherited) = (written.limits.get(&name), heirs.get(&name));
            let rows = || own.into_iter().chain(inherited.into_iter().flatten().copied());
            let shares = rows().filter_map(|row| row.shares).map(|shares| shares.read(now, clocks));
            let shares = shares.reduce(EarlierShares::and);
            // If the run before knew of a departed limit, so did its heir of that run.
            let knows = |row: &LimitRow| own.is_some() && row.is_of_departed();
            let knows_all = inherited.is_none_or(|rows| rows.iter().all(|row| knows(row)));
            let is_same = |row: &&LimitRow| row.basis == basis_of(&all, limit, clocks) && knows_all;
            if let Some(row) = own.filter(is_same) {
                let past = row.past.read(gap, clocks, now);
                let mut made = Limit::new(limit.clone(), clocks, past, now);
                if made.has_checkpoints() {
                    made.resume(now);
                    made.learn_shares(shares);
                    made.restore_all(written, row.version, gap, now);
                    for row in others.get(&name).into_iter().flatten() {
                        let shares = row.shares.map(|shares| shares.read(now, clocks));
                        made.waits_for(row.lost(gap, clocks, now), shares, now);
                    }
                    registry.limits.insert(name, made);
                    continue;
                }
            }
            // Earlier rules of the limit may be those of another one now.
            if let Some(row) = own.filter(|row| !row.has_promises_of(limit, clocks)) {
                renamed_until = renamed_until.max(Departed::read(row, gap, clocks, now).counts_until());
            }
            let lost = rows().map(|row| row.lost(gap, clocks, now)).reduce(Past::and);
            // The allocator that lends a leased limit counts what is out of it.
            if let Some(past) = lost.filter(|_| limit.upstream.is_none()) {
                let mut made = Limit::new(limit.clone(), clocks, past, now);
                made.learn_shares(shares);
                registry.limits.insert(name, made);
            }
        }
        sum_up(&mut registry.departed, renamed_until, now);
        bound(&mut registry.departed, now);
        let limits = &registry.limits;
        registry.heirs.values_mut().for_each(|(heir, until)| {
            *until = limits.lock(heir).map_or(now, |heir| now + heir.quarantine(now));
        });
        // New rows get versions that were never used.
        let last = written.limits.values().map(|row| row.version).max();
        registry.journaled.versions = last.unwrap_or(0).min(COUNT_MAX);
        registry
    }

    /// Begins the limits among `configured` of which the earlier run that has `written` can have lent nothing as if no
    /// permit of them was ever lent, and returns their names. A limit that lent has a row, which was durable before its
    /// answer left. While permits may count that were lent by a limit that is configured no more, or by rules that a
    /// limit has no more, none begins afresh: these may have another name now.
    pub fn begin_unknown_afresh(
        &mut self,
        configured: &[LimitConfig],
        clocks: ClockBounds,
        written: &Written,
        now: Moment,
    ) -> Vec<String> {
        if self.departed.values().any(|departed| departed.counts(now)) {
            return vec![];
        }
        // The upstream of a limit knows what is out of it.
        let is_own = |limit: &&LimitConfig| limit.upstream.is_none();
        let unknown = |limit: &&LimitConfig| is_unknown(limit, configured, written);
        let begin = |limit: &LimitConfig| {
            let made = Limit::new(limit.clone(), clocks, Past::None, now);
            self.limits.insert(limit.name.to_string(), made);
            limit.name.to_string()
        };
        configured.iter().filter(is_own).filter(unknown).map(begin).collect()
    }

    /// Begins to write down what the registry lends. The first batch holds everything; there were `before` batches
    /// before it.
    pub fn begin_writing(&mut self, before: u64) {
        self.limits.values_mut().for_each(Limit::begin_writing);
        let journaled = Journaled { is_on: true, is_first: true, ..Journaled::default() };
        self.journaled = Journaled { batches: before, versions: self.journaled.versions, ..journaled };
        self.journaled.has_more();
        self.write_decisions();
    }

    /// Returns the number of batches that were made.
    pub fn batches(&self) -> u64 {
        self.journaled.batches
    }

    /// Returns the number of the batch with which everything decided until now becomes durable; `None` if nothing is
    /// written down.
    pub fn next_batch(&self) -> Option<u64> {
        self.journaled.is_on.then(|| self.journaled.next())
    }

    /// Whether there is something to write.
    pub fn is_unwritten(&self) -> bool {
        self.journaled.is_unwritten.load(Relaxed)
    }

    /// Raises the high-water marks of `batch`, which is durable.
    pub fn raise_high_water(&self, batch: &Batch) {
        for (place, mark) in &batch.marks {
            let limit = self.limits.lock(&place.limit).or_else(|| self.retired.lock(&place.limit));
            if let Some(mut limit) = limit {
                limit.raise_high_water(&place.id, *mark);
            }
        }
    }

    /// Notes that the limit called `name` is new, or was changed.
    pub(super) fn note_put(&mut self, name: &str) {
        self.note_decision(name);
        if !self.journaled.is_on {
            return;
        }
        self.limits.get_mut(name).into_iter().for_each(Limit::begin_writing);
        self.write_rows_soon();
    }

    /// Has the rows of all limits written. The basis of a limit names the limits above and below it, and these have
    /// changed.
    fn write_rows_soon(&mut self) {
        self.limits.values_mut().for_each(Limit::queue_row);
        self.journaled.has_more();
    }

    /// Notes that the limit called `name` was removed. Its rows stay as long as what it lent counts: a pattern that its
    /// name falls to after a restart has to wait for that.
    pub(super) fn note_removed(&mut self, name: &str) {
        self.note_decision(name);
        if self.journaled.is_on {
            self.write_rows_soon();
        }
    }

    /// Notes that the rows of the limit called `name` are of no use any more.
    pub(super) fn note_forgotten(&mut self, name: &str) {
        if self.journaled.is_on {
            self.journaled.gone.push(name.to_owned());
            self.journaled.has_more();
        }
    }
}

/// Returns the pattern to which the names of a limit called `name` fall, now that the limit is gone.
pub(super) fn heir(limits: &Limits, name: &str) -> Option<String> {
    // For a pattern: a name that fits it, and that no limit has.
    limits.named_for(&name.replace('*', "\u{0}"))
}

/// Returns for each pattern among `limits` the rows of other limits that lent by names that fall to it now, as their
/// `written` pools show. Either the pattern was removed for a while, and the names fell to a shorter one, or it is
/// newer than what the shorter one lent.
fn other_lenders<'a>(limits: &Limits, written: &'a Written) -> BTreeMap<String, Vec<&'a LimitRow>> {
    let mut others: BTreeMap<String, BTreeMap<&str, &LimitRow>> = BTreeMap::new();
    let mut last = None;
    for place in written.pools.keys() {
        // All keys of a name stand beside each other.
        let Some(name) = &place.id.name else { continue };
        if last.replace((&place.limit, name)) == Some((&place.limit, name)) {
            continue;
        }
        let lender = limits.named_for(name.as_str()).filter(|lender| lender.ends_with('*'));
        if let (Some(lender), Some(row)) = (lender, written.limits.get(&place.limit))
            && lender != place.limit
        {
            others.entry(lender).or_default().insert(&place.limit, row);
        }
    }
    others.into_iter().map(|(lender, rows)| (lender, rows.into_values().collect())).collect()
}

/// Whether no limit of which anything is `written` can have lent by a name of `limit`, or below it.
fn is_unknown(limit: &LimitConfig, configured: &[LimitConfig], written: &Written) -> bool {
    let name = limit.name.as_str();
    let covers = |pattern: &str, other: &str| match pattern.strip_suffix('*') {
        Some(stem) => other.starts_with(stem),
        None => pattern == other,
    };
    let lent = |other: &String| covers(other, name) || covers(name, other);
    let mut below = configured.iter().filter(|other| other.parent.as_deref() == Some(name));
    !written.limits.keys().any(lent) && below.all(|child| is_unknown(child, configured, written))
}

/// Returns the basis of the checkpoints of `limit`, one of `all`. Pools of another basis have no use for them.
pub(super) fn basis_of(all: &[&LimitConfig], limit: &LimitConfig, clocks: ClockBounds) -> String {
    let mut below: BTreeMap<&str, Value> = BTreeMap::new();
    add_below(all, limit, clocks, &mut below);
    let mut basis = json!({ "limit": limit.basis(clocks), "below": below });
    if limit.counts_calls() {
        // Earlier versions wrote a row for such a limit, and no pools.
        basis["counts_calls"] = Value::Bool(true);
    }
    basis.to_string()
}

fn add_below<'a>(
    all: &[&'a LimitConfig],
    limit: &LimitConfig,
    clocks: ClockBounds,
    below: &mut BTreeMap<&'a str, Value>,
) {
    for child in all.iter().filter(|child| child.parent.as_deref() == Some(limit.name.as_str())) {
        below.insert(child.name.as_str(), child.basis(clocks));
        add_below(all, child, clocks, below);
    }
}
