//! What a registry writes down, and how it goes on with what an earlier life wrote. A journal takes batches and says when they
//! are durable. An answer that lends beyond the last batch waits for the next one.

use super::limits::Limits;
use super::{LimitConfig, Registry};
use crate::pool::{EarlierShares, Past};
use crate::registry::limit::Limit;
use crate::registry::rows::{Batch, LimitRow, Written};
use crate::rule::Gap;
use lessor_protocol::{ClockBounds, Moment};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// What is written down, as far as the registry knows.
#[derive(Debug, Default)]
pub(super) struct Journaled {
    is_on: bool,
    /// Batches that were made.
    pub(super) batches: u64,
    /// The highest version of a limit.
    pub(super) versions: u64,
    /// Whether nothing of what is written is of any use.
    pub(super) is_first: bool,
    /// Limits of which nothing that is written counts any more.
    pub(super) gone: Vec<String>,
    /// Whether something is to be written.
    is_unwritten: AtomicBool,
}

impl Journaled {
    /// Whether anything is written.
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// There is something to write.
    pub(super) fn has_more(&self) {
        self.is_unwritten.store(true, Relaxed);
    }

    /// All that there is to write goes into the batch that is made now.
    pub(super) fn has_no_more(&self) {
        self.is_unwritten.store(false, Relaxed);
    }

    /// `limit` was used. Returns whether an answer was given since the last question that may not be known before it is written.
    pub(super) fn sees(&self, limit: &mut Limit) -> bool {
        if limit.is_unwritten() {
            self.has_more();
        }
        limit.take_uncovered()
    }

    /// The batch that has what is to be written now.
    pub(super) fn next(&self) -> u64 {
        self.batches + 1
    }
}

impl Registry {
    /// A registry that goes on with what an earlier life has `written`. A limit begins as after a loss if none of its rows fits.
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
            if let Some(heir) = heir(&registry.limits, name) {
                heirs.entry(heir.clone()).or_default().push(row);
                registry.heirs.insert(name.clone(), (heir, now));
            }
            let shares = row.shares.map(|shares| shares.read(now, clocks));
            let departed = Departed { past: row.lost(gap, clocks, now), shares };
            registry.departed.insert(name.clone(), departed);
        }
        let others = other_lenders(&registry.limits, written);
        for limit in configured {
            let name = limit.name.to_string();
            let (own, inherited) = (written.limits.get(&name), heirs.get(&name));
            let rows = || own.into_iter().chain(inherited.into_iter().flatten().copied());
            let shares = rows().filter_map(|row| row.shares).map(|shares| shares.read(now, clocks));
            let shares = shares.reduce(EarlierShares::and);
            // Where the life before knew of a limit that had departed, so did its heir of then.
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
            let lost = rows().map(|row| row.lost(gap, clocks, now)).max_by_key(|past| past.calls_end());
            // Of what is leased the allocator that lends it counts what is out.
            if let Some(past) = lost.filter(|_| limit.upstream.is_none()) {
                let mut made = Limit::new(limit.clone(), clocks, past, now);
                made.learn_shares(shares);
                registry.limits.insert(name, made);
            }
        }
        let limits = &registry.limits;
        registry.heirs.values_mut().for_each(|(heir, until)| {
            *until = limits.lock(heir).map_or(now, |heir| now + heir.quarantine(now));
        });
        // No version that there was.
        registry.journaled.versions = written.limits.values().map(|row| row.version).max().unwrap_or(0);
        registry
    }

    /// From now on what it lends is written down. The first batch, after so many `before` it, holds all that there is.
    pub fn begin_writing(&mut self, before: u64) {
        self.limits.values_mut().for_each(Limit::begin_writing);
        let journaled = Journaled { is_on: true, is_first: true, ..Journaled::default() };
        self.journaled = Journaled { batches: before, versions: self.journaled.versions, ..journaled };
        self.journaled.has_more();
        self.write_decisions();
    }

    /// Batches that were made.
    pub fn batches(&self) -> u64 {
        self.journaled.batches
    }

    /// The number of the batch with which all that was decided until now is durable; `None` where nothing is written.
    pub fn next_batch(&self) -> Option<u64> {
        self.journaled.is_on.then(|| self.journaled.next())
    }

    /// Whether there is something to write.
    pub fn is_unwritten(&self) -> bool {
        self.journaled.is_unwritten.load(Relaxed)
    }

    /// What may be lent, now that the batch is durable that it came with.
    pub fn raise_high_water(&self, batch: &Batch) {
        for (place, mark) in &batch.marks {
            let limit = self.limits.lock(&place.limit).or_else(|| self.retired.lock(&place.limit));
            if let Some(mut limit) = limit {
                limit.raise_high_water(&place.id, *mark);
            }
        }
    }

    /// The limit called `name` is another one, or new.
    pub(super) fn note_put(&mut self, name: &str) {
        self.note_decision(name);
        if !self.journaled.is_on {
            return;
        }
        self.limits.get_mut(name).into_iter().for_each(Limit::begin_writing);
        self.write_rows_soon();
    }

    /// The basis of a limit names the limits above and below it, of which there are others now.
    fn write_rows_soon(&mut self) {
        self.limits.values_mut().for_each(Limit::write_row_soon);
        self.journaled.has_more();
    }

    /// The limit called `name` was removed. What is written of it stays as long as what it lent counts: whatever its name falls to after
    /// another start has to wait for that.
    pub(super) fn note_removed(&mut self, name: &str) {
        self.note_decision(name);
        if self.journaled.is_on {
            self.write_rows_soon();
        }
    }

    /// What is written of the limit called `name` is of no use any more.
    pub(super) fn note_forgotten(&mut self, name: &str) {
        if self.journaled.is_on {
            self.journaled.gone.push(name.to_owned());
            self.journaled.has_more();
        }
    }
}

/// What an earlier life has left of a limit that is not configured, in case it is again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Departed {
    /// What it has to wait for then.
    pub(super) past: Past,
    /// What nodes may go on with by themselves.
    pub(super) shares: Option<EarlierShares>,
}

impl Departed {
    /// The same limit, or its heir, has to wait for `other`, too.
    pub(super) fn join(&mut self, other: Departed) {
        self.past = self.past.and(other.past);
        self.shares = self.shares.into_iter().chain(other.shares).reduce(EarlierShares::and);
    }

    /// Whether a limit that comes in its place at `now` has more to wait for than any that is new.
    pub(super) fn counts(&self, now: Moment) -> bool {
        self.past.calls_end() > now || self.shares.is_some_and(|shares| shares.are_out(now))
    }

    /// As it is written down, in a row of this `version`.
    pub(super) fn row(&self, version: u64) -> LimitRow {
        let (past, shares) = (self.past.save(), self.shares.map(EarlierShares::save));
        LimitRow { version, basis: String::new(), past, shares, longest: None }
    }
}

/// The pattern to which the names fall that a limit called `name` was for, now that it is no more.
pub(super) fn heir(limits: &Limits, name: &str) -> Option<String> {
    // Of a pattern any name, as long as nothing else is called that.
    limits.named_for(&name.replace('*', "\u{0}"))
}

/// Of each pattern among `limits`, the rows of others whose pools are `written` of names that fall to it now. It was removed for a while,
/// and they to a shorter one, or it came when that one had lent by them.
fn other_lenders<'a>(limits: &Limits, written: &'a Written) -> BTreeMap<String, Vec<&'a LimitRow>> {
    let mut others: BTreeMap<String, BTreeMap<&str, &LimitRow>> = BTreeMap::new();
    let mut last = None;
    for place in written.pools.keys() {
        // All keys of a name are beside each other.
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

/// The basis of the checkpoints of `limit`, one of `all`: they are of no use to pools of another basis.
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
