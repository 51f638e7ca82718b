//! A limit as it is written: a `[[limit]]` of a configuration, or the body of a change. It is checked into a
//! [`LimitConfig`](crate::registry::LimitConfig) and written back. Every problem begins with the key, and says what
//! would be right. No file and no format is known here: serde reads and writes these.

mod check;
mod safe;
mod sharing;
mod show;
mod vendor;

pub use check::{Address, at_least_one, decided_limit, limit};

use crate::rule_text::{Count, RawRule, Timespan};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An example of rules, for messages.
pub const RULES_EXAMPLE: &str = "[{ kind = \"sliding_window\", limit = 100, per = \"30s\" }]";

/// One limit, as it is written.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RawLimit {
    /// The name or pattern.
    pub name: String,
    /// The limit above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The allocator that the limit is leased from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// Whether there is a pool for each key.
    #[serde(default)]
    pub keyed: bool,
    /// Whether nodes refuse nothing, and count what they would have refused.
    #[serde(default)]
    pub shadow: bool,
    /// Whether the limit lends more slowly below its low-water mark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ease_off: Option<bool>,
    /// The behaviour of nodes while no allocator answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
    /// Most keys at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys_max: Option<Count>,
    /// Most names of a pattern at once.
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
    /// Guaranteed permits by node.
    #[serde(default)]
    pub guaranteed: BTreeMap<String, Count>,
    /// Permits that are never lent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserve: Option<Count>,
    /// The processes that share the reserve while no allocator answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub safe: Option<RawSafe>,
    /// Permits of the largest lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_max: Option<Count>,
    /// The bounds of the terms of leases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub term: Option<RawTerm>,
    /// How far to trust the vendor's own count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor: Option<RawVendor>,
    /// The rules, which all hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules: Option<Vec<RawRule>>,
    /// Rules of single keys, which hold instead.
    #[serde(default, rename = "override", skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<RawOverride>,
}

impl RawLimit {
    /// Returns what the limit promises, as JSON: its rules, and the rules of single keys.
    pub(crate) fn promises(&self) -> serde_json::Value {
        serde_json::json!({ "rules": self.rules, "override": self.overrides })
    }
}

/// The bounds of the terms of leases.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RawTerm {
    /// The shortest term.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<Timespan>,
    /// The longest term.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<Timespan>,
}

/// How processes share the reserve while no allocator answers.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RawSafe {
    /// Processes that share the reserve.
    pub nodes: Count,
    /// Time after the last answer of an allocator for which they may go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lasts: Option<Timespan>,
}

/// How far the vendor's own count is believed.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RawVendor {
    /// Which of the vendor's words are believed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub believe: Option<String>,
    /// The longest pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest: Option<Timespan>,
    /// The part of the limit that is lent all the same, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_percent: Option<Count>,
    /// Time after a pause in which lending is slow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ease: Option<Timespan>,
}

/// Other rules for one key.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RawOverride {
    /// The key.
    pub key: String,
    /// The rules of that key.
    pub rules: Vec<RawRule>,
}
