//! The rows that are written down: for each limit the rules of its pools and the decisions of operators, for each pool
//! a checkpoint. One batch holds what changed.

use crate::overrides::SavedSuspension;
use crate::pool::{Checkpoint, HighWater, Past, SavedPast, SavedShares};
use crate::registry::LimitConfig;
use crate::registry::limit::{PoolId, TopUp};
use crate::rule::Gap;
use lessor_protocol::{ClockBounds, Key, LimitName, Moment};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// A pool, by its limit and its identifier.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PoolPlace {
    /// The name or pattern of the limit, as it is configured.
    pub limit: String,
    /// Its pool.
    pub id: PoolId,
}

impl PoolPlace {
    /// Returns its name in a store: a list in JSON, so that all pools of a limit stand beside each other.
    pub fn text(&self) -> String {
        let PoolId { name, key } = &self.id;
        let parts = (&self.limit, name.as_ref().map(LimitName::as_str), key.as_ref().map(Key::as_str));
        serde_json::to_string(&parts).expect("strings can be written")
    }

    /// Returns its key.
    pub fn key(&self) -> Option<&str> {
        self.id.key.as_ref().map(Key::as_str)
    }

    /// Returns how the names of all pools of `limit` begin.
    pub fn prefix(limit: &str) -> String {
        format!("[{},", serde_json::to_string(limit).expect("strings can be written"))
    }

    /// Parses the name `text` of a store.
    pub fn parse(text: &str) -> Option<Self> {
        let (limit, name, key): (String, Option<String>, Option<String>) = serde_json::from_str(text).ok()?;
        let name = name.map(|name| LimitName::try_new(&name)).transpose().ok()?;
        let key = key.map(|key| Key::try_new(&key)).transpose().ok()?;
        Some(PoolPlace { limit, id: PoolId { name, key } })
    }
}

/// The row of a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitRow {
    /// Version of its pools' rules. A checkpoint of another version is of other rules.
    pub version: u64,
    /// What its checkpoints depend on. Checkpoints of another basis are of no use. Empty if the limit was not
    /// configured in the run that wrote the row, and had no checkpoints.
    #[serde(rename = "terms")]
    pub basis: String,
    /// The past that new pools have to wait for.
    pub past: SavedPast,
    /// Safe shares that nodes may still spend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shares: Option<SavedShares>,
    /// The longest that a call may take, if calls are counted. In the row of a limit that was not configured: how long
    /// what it lent counts after its past.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest: Option<Duration>,
}

impl LimitRow {
    /// Whether the row is of a limit with the rules of `limit`, and with keys if it has.
    pub(super) fn has_promises_of(&self, limit: &LimitConfig, clocks: ClockBounds) -> bool {
        let basis: Value = serde_json::from_str(&self.basis).unwrap_or_default();
        let is = limit.basis(clocks);
        ["keyed", "rules"].iter().all(|part| basis["limit"][part] == is[part])
    }

    /// Whether the run that wrote the row knew only what an earlier run had left of the limit.
    pub(super) fn is_of_departed(&self) -> bool {
        self.basis.is_empty()
    }

    /// Returns what another limit of this name has to wait for, if it begins at `now` and cannot go on with these
    /// pools.
    pub(super) fn lost(&self, gap: Gap, clocks: ClockBounds, now: Moment) -> Past {
        let longest = self.longest.filter(|_| !self.is_of_departed());
        self.past.read(gap, clocks, now).after(longest, clocks, now)
    }
}

/// The row of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolRow {
    /// See [`LimitRow::version`].
    pub version: u64,
    /// The checkpoint of the pool.
    #[serde(rename = "record")]
    pub checkpoint: Checkpoint,
    /// The identity that the pool was made for, if that is known. The bound on its keys holds also after a restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<u64>,
}

/// The decisions of operators about a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecisionRow {
    /// Nodes to which the limit lends nothing.
    #[serde(rename = "gate", default, skip_serializing_if = "SavedSuspension::is_empty")]
    pub suspension: SavedSuspension,
    /// The names of the last top-ups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topped_up: Vec<String>,
    /// The permits of each of these top-ups, in the same order; 0 if they are not known. Empty in stores of earlier
    /// versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topped_up_by: Vec<u64>,
    /// The pool of each of these top-ups, in the same order: its name and its key. `None` where it is not known. Empty
    /// if all were top-ups of a limit with only one pool, and in stores of earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topped_up_in: Vec<Option<(Option<String>, Option<String>)>>,
    /// The limit, if it is not as the file says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub put: Option<PutRow>,
}

impl DecisionRow {
    /// Returns the last top-ups.
    pub(super) fn top_ups(&self) -> impl Iterator<Item = TopUp> {
        let permits = self.topped_up_by.iter().map(|&permits| (permits > 0).then_some(permits));
        let pools = self.topped_up_in.iter().map(|pool| pool_id(pool.as_ref()?));
        let permits = permits.chain(std::iter::repeat(None));
        let known = permits.zip(pools.chain(std::iter::repeat(None)));
        let all = self.topped_up.iter().cloned().zip(known);
        all.map(|(name, (permits, pool))| TopUp { name, permits, pool })
    }

    /// Adds `top_ups`, the oldest first.
    pub(super) fn say_top_ups<'a>(&mut self, top_ups: impl Iterator<Item = &'a TopUp>) {
        let mut has_many = false;
        for TopUp { name, permits, pool } in top_ups {
            has_many |= pool.as_ref().is_some_and(|pool| *pool != PoolId::default());
            self.topped_up.push(name.clone());
            self.topped_up_by.push(permits.unwrap_or(0));
            let text = |pool: &PoolId| {
                let (name, key) = (pool.name.as_ref(), pool.key.as_ref());
                (name.map(|name| name.as_str().to_owned()), key.map(|key| key.as_str().to_owned()))
            };
            self.topped_up_in.push(pool.as_ref().map(text));
        }
        if !has_many {
            self.topped_up_in.clear();
        }
    }
}

/// Reads the name and the key of a pool. `None` if they are none.
fn pool_id((name, key): &(Option<String>, Option<String>)) -> Option<PoolId> {
    let name = name.as_deref().map(LimitName::try_new).transpose().ok()?;
    let key = key.as_deref().map(Key::try_new).transpose().ok()?;
    Some(PoolId { name, key })
}

/// A limit that was put or removed over the API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PutRow {
    /// The limit as in a file; `None` if it was removed.
    pub limit: Option<Value>,
    /// The limit as the file said it then; `None` if the file had none of that name.
    pub file: Option<Value>,
}

/// Rows that become durable together.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Number of the batch.
    pub number: u64,
    /// Whether the batch replaces everything that was written before.
    pub is_first: bool,
    /// Whether rows are left out that answers wait for, because a limit was changed, or a pool topped up, while pools were
    /// copied. The next batch has them. Until that is durable no answer may leave that waits for this one, and a first batch is not
    /// to be written.
    pub is_partial: bool,
    /// Limits. `None` drops a limit and its pools. A row of another version than the one in the store drops the pools
    /// there.
    pub limits: BTreeMap<String, Option<LimitRow>>,
    /// Pools. `None` drops a pool.
    pub pools: BTreeMap<PoolPlace, Option<PoolRow>>,
    /// Decisions, by the limit. `None` drops them.
    pub decisions: BTreeMap<String, Option<DecisionRow>>,
    /// High-water marks that hold as soon as the batch is durable.
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
    /// Decisions, by the limit.
    pub decisions: BTreeMap<String, DecisionRow>,
}

impl Written {
    /// Applies `batch`, which is durable.
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

/// Applies `rows` to `all`; `None` removes a row.
fn put<K: Ord + Clone, V: Clone>(all: &mut BTreeMap<K, V>, rows: &BTreeMap<K, Option<V>>) {
    for (key, row) in rows {
        match row {
            Some(row) => drop(all.insert(key.clone(), row.clone())),
            None => drop(all.remove(key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn top_ups_are_read_as_they_were_written() {
        let top_up = |name: &str, permits, pool: Option<&str>| {
            let key = |key: &str| PoolId::from(Key::try_new(key).ok().filter(|_| !key.is_empty()));
            TopUp { name: name.to_owned(), permits, pool: pool.map(key) }
        };
        let text = |all: &[TopUp]| {
            let mut row = DecisionRow::default();
            row.say_top_ups(all.iter());
            serde_json::to_string(&row).expect("plain data")
        };
        let read = |text: &str| {
            let row: DecisionRow = serde_json::from_str(text).expect("a row");
            row.top_ups().collect::<Vec<_>>()
        };
        let all = [top_up("x", Some(5), Some("a")), top_up("y", None, None), top_up("z", Some(6), Some(""))];
        let written = text(&all);
        assert!(written.ends_with(r#""topped_up_in":[[null,"a"],null,[null,null]]}"#), "{written}");
        assert_eq!(read(&written), all);
        // With one pool only, and in earlier versions, no pool is written down.
        assert_eq!(text(&all[2..]), r#"{"topped_up":["z"],"topped_up_by":[6]}"#);
        assert_eq!(read(r#"{"topped_up":["z"],"topped_up_by":[6]}"#), [top_up("z", Some(6), None)]);
        assert_eq!(read(r#"{"topped_up":["z"]}"#), [top_up("z", None, None)]);
    }
}
