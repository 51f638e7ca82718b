//! A limit as it is written, before it is checked, and back: what a `[[limit]]` of a configuration and the body of a change
//! hold. Both ways every problem begins with the key, and says what would be right. It knows no file and no format: serde
//! reads.

mod check;
mod safe;
mod sharing;
mod show;
mod vendor;

pub use check::{Address, at_least_one, limit};

use crate::rule_text::{Count, RawRule, Timespan};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a limit promises, for example.
pub const RULES_EXAMPLE: &str = "[{ kind = \"sliding_window\", limit = 100, per = \"30s\" }]";

/// One limit, as it is written.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RawLimit {
    /// Its name or pattern.
    pub name: String,
    /// The limit above it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The allocator that it is leased from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// Whether it has a pool for each key.
    #[serde(default)]
    pub keyed: bool,
    /// Whether nothing is refused.
    #[serde(default)]
    pub shadow: bool,
    /// Whether it lends more slowly below its low-water mark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ease_off: Option<bool>,
    /// What nodes do while no allocator answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
    /// Keys at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys_max: Option<Count>,
    /// Names at once, of a pattern.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names_max: Option<Count>,
    /// Sessions that each pool remembers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lessees_max: Option<Count>,
    /// Weights by node.
    #[serde(default)]
    pub weights: BTreeMap<String, Count>,
    /// Priorities by node.
    #[serde(default)]
    pub priorities: BTreeMap<String, Count>,
    /// Minima by node.
    #[serde(default)]
    pub guaranteed: BTreeMap<String, Count>,
    /// Permits that are not lent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserve: Option<Count>,
    /// Which processes go on with the reserve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub safe: Option<RawSafe>,
    /// The largest lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_max: Option<Count>,
    /// How long leases last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub term: Option<RawTerm>,
    /// How far the vendor's own count is believed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor: Option<RawVendor>,
    /// What must hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules: Option<Vec<RawRule>>,
    /// What must hold for single keys instead.
    #[serde(default, rename = "override", skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<RawOverride>,
}

impl RawLimit {
    /// What it promises, as JSON: its rules, and those of keys that have their own.
    pub(crate) fn promises(&self) -> serde_json::Value {
        serde_json::json!({ "rules": self.rules, "override": self.overrides })
    }
}

/// How long leases may last.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RawTerm {
    /// The shortest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<Timespan>,
    /// The longest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<Timespan>,
}

/// How processes go on with the reserve while no allocator answers.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RawSafe {
    /// Processes that share the reserve.
    pub nodes: Count,
    /// For how long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lasts: Option<Timespan>,
}

/// How far the vendor's own count is believed.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RawVendor {
    /// Which of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub believe: Option<String>,
    /// The longest pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest: Option<Timespan>,
    /// The part that is lent all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_percent: Option<Count>,
    /// How long after a pause lending is slow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ease: Option<Timespan>,
}

/// Other rules for one key.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RawOverride {
    /// The key.
    pub key: String,
    /// What must hold.
    pub rules: Vec<RawRule>,
}
