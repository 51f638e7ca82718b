//! What is written down: of each limit by which rules its pools are and what operators have decided about it, of each pool a
//! checkpoint. One batch holds what changed.

use crate::overrides::SavedSuspension;
use crate::pool::{Checkpoint, HighWater, Past, SavedPast, SavedShares};
use crate::registry::limit::PoolId;
use crate::rule::Gap;
use lessor_protocol::{ClockBounds, Key, LimitName, Moment};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// Which pool of which limit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PoolPlace {
    /// The limit, as it is configured.
    pub limit: String,
    /// Its pool.
    pub id: PoolId,
}

impl PoolPlace {
    /// Its name in a store: a list in JSON, so that all pools of a limit stand beside each other.
    pub fn text(&self) -> String {
        let PoolId { name, key } = &self.id;
        let parts = (&self.limit, name.as_ref().map(LimitName::as_str), key.as_ref().map(Key::as_str));
        serde_json::to_string(&parts).expect("strings can be written")
    }

    /// Its key.
    pub fn key(&self) -> Option<&str> {
        self.id.key.as_ref().map(Key::as_str)
    }

    /// What the names of all pools of `limit` begin with.
    pub fn prefix(limit: &str) -> String {
        format!("[{},", serde_json::to_string(limit).expect("strings can be written"))
    }

    /// The place that is called `text`.
    pub fn parse(text: &str) -> Option<Self> {
        let (limit, name, key): (String, Option<String>, Option<String>) = serde_json::from_str(text).ok()?;
        let name = name.map(|name| LimitName::try_new(&name)).transpose().ok()?;
        let key = key.map(|key| Key::try_new(&key)).transpose().ok()?;
        Some(PoolPlace { limit, id: PoolId { name, key } })
    }
}

/// What is written down of a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitRow {
    /// Counts what its pools went by: a checkpoint of another version is of other rules.
    pub version: u64,
    /// All that makes its checkpoints what they are. Checkpoints of another basis are of no use. Empty for a limit that was not
    /// configured in the life that wrote it, and had none.
    #[serde(rename = "terms")]
    pub basis: String,
    /// What pools that are made anew have to wait for.
    pub past: SavedPast,
    /// What nodes may go on with by themselves, if they may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shares: Option<SavedShares>,
    /// The longest that a call may take, where calls are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest: Option<Duration>,
}

impl LimitRow {
    /// Whether the life that wrote it knew no more of the limit than what an earlier life had left of it.
    pub(super) fn is_of_departed(&self) -> bool {
        self.basis.is_empty()
    }

    /// What another limit of its name has to wait for that begins at `now`, and cannot go on with its pools.
    pub(super) fn lost(&self, gap: Gap, clocks: ClockBounds, now: Moment) -> Past {
        self.past.read(gap, clocks, now).after(self.longest, clocks, now)
    }
}

/// What is written down of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolRow {
    /// See [`LimitRow::version`].
    pub version: u64,
    /// The pool.
    #[serde(rename = "record")]
    pub checkpoint: Checkpoint,
    /// The identity that it was made for, if that is known: it has only so many keys, also after a restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<u64>,
}

/// The decisions of operators about a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecisionRow {
    /// To which nodes it lends nothing.
    #[serde(rename = "gate", default, skip_serializing_if = "SavedSuspension::is_empty")]
    pub suspension: SavedSuspension,
    /// The names of the last top-ups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topped_up: Vec<String>,
    /// The permits of each of them, in the same order; 0 where they are not known. Stores of before they were written down have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topped_up_by: Vec<u64>,
    /// What it is, if that is something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub put: Option<PutRow>,
}

impl DecisionRow {
    /// The last top-ups, each with its name and, where they are known, its permits.
    pub(super) fn top_ups(&self) -> impl Iterator<Item = (String, Option<u64>)> {
        let permits = self.topped_up_by.iter().map(|&permits| (permits > 0).then_some(permits));
        self.topped_up.iter().cloned().zip(permits.chain(std::iter::repeat(None)))
    }
}

/// A limit that was put or removed over the API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PutRow {
    /// What it is, as in a file; `None` if there is none.
    pub limit: Option<Value>,
    /// What the file said of it then; `None` if nothing.
    pub file: Option<Value>,
}

/// What is to be durable together.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Counts them.
    pub number: u64,
    /// Whether nothing of what was written before is of any use.
    pub is_first: bool,
    /// Limits; with `None` all that is known of one is dropped, its pools too. So are the pools of one whose version is
    /// another one than that which is there.
    pub limits: BTreeMap<String, Option<LimitRow>>,
    /// Pools; with `None` one is dropped.
    pub pools: BTreeMap<PoolPlace, Option<PoolRow>>,
    /// What was decided, by the limit; with `None` nothing.
    pub decisions: BTreeMap<String, Option<DecisionRow>>,
    /// What may be lent as soon as it is.
    pub marks: Vec<(PoolPlace, HighWater)>,
}

impl Batch {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        !self.is_first && self.limits.is_empty() && self.pools.is_empty() && self.decisions.is_empty()
    }
}

/// All that is written down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Limits.
    pub limits: BTreeMap<String, LimitRow>,
    /// Pools.
    pub pools: BTreeMap<PoolPlace, PoolRow>,
    /// What was decided, by the limit.
    pub decisions: BTreeMap<String, DecisionRow>,
}

impl Written {
    /// Takes in `batch`, which is durable.
    pub fn apply(&mut self, batch: &Batch) {
        if batch.is_first {
            *self = Written::default();
        }
        for (name, row) in &batch.limits {
            let old = match row {
                Some(row) => self.limits.insert(name.clone(), row.clone()),
                None => self.limits.remove(name),
            };
            if row.as_ref().map(|row| row.version) != old.map(|old| old.version) {
                self.pools.retain(|place, _| place.limit != *name);
            }
        }
        put(&mut self.pools, &batch.pools);
        put(&mut self.decisions, &batch.decisions);
    }
}

/// Puts each of `rows`; `None` takes one away.
fn put<K: Ord + Clone, V: Clone>(all: &mut BTreeMap<K, V>, rows: &BTreeMap<K, Option<V>>) {
    for (key, row) in rows {
        match row {
            Some(row) => drop(all.insert(key.clone(), row.clone())),
            None => drop(all.remove(key)),
        }
    }
}
