//! A store as JSON, complete, for people and for another machine.

use crate::config::one_line;
use lessor_ledger::registry::{Batch, DecisionRow, LimitRow, PoolPlace, PoolRow, Written};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the format. Text of another version is refused.
const FORMAT: u32 = 1;

/// Everything in a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dump {
    format: u32,
    /// The origin of the clock of all its moments, in nanoseconds.
    pub origin: u64,
    limits: BTreeMap<String, LimitRow>,
    pools: Vec<Pool>,
    /// Decisions of operators. Text of earlier versions has none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    decisions: BTreeMap<String, DecisionRow>,
}

/// A pool with its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pool {
    /// A list of the limit, the name and the key, as text.
    place: String,
    row: PoolRow,
}

impl Dump {
    /// Makes a dump of `written`, on a clock with that `origin`.
    pub(super) fn of(written: Written, origin: u64) -> Self {
        let pools = written.pools.into_iter().map(|(place, row)| Pool { place: place.text(), row });
        let (limits, decisions) = (written.limits, written.decisions);
        Dump { format: FORMAT, origin, limits, pools: pools.collect(), decisions }
    }

    /// Parses a dump in JSON.
    ///
    /// # Errors
    /// If `text` is wrong. The error is one line of bounded length.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::read(text).map_err(|problem| one_line(&problem))
    }

    fn read(text: &str) -> Result<Self, String> {
        let dump: Dump = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if dump.format != FORMAT {
            return Err(format!("format is {}, this version reads {FORMAT}", dump.format));
        }
        dump.batch().map(|_| dump.clone())
    }

    /// Returns the numbers of limits, of pools, and of limits with decisions.
    pub fn counts(&self) -> [usize; 3] {
        [self.limits.len(), self.pools.len(), self.decisions.len()]
    }

    /// Returns all of it as the first batch of a store.
    pub(super) fn batch(&self) -> Result<Batch, String> {
        let mut batch = Batch { number: 1, is_first: true, ..Batch::default() };
        batch.limits = self.limits.iter().map(|(name, row)| (name.clone(), Some(row.clone()))).collect();
        batch.decisions =
            self.decisions.iter().map(|(name, row)| (name.clone(), Some(row.clone()))).collect();
        for Pool { place, row } in &self.pools {
            let at =
                PoolPlace::parse(place).ok_or_else(|| format!("place is {place:?}, which is no pool"))?;
            batch.pools.insert(at, Some(row.clone()));
        }
        Ok(batch)
    }
}
