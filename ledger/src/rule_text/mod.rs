//! A rule as text: the fields that an operator writes and that a store keeps. Reading refuses what a rule cannot be,
//! and names the field. Writing says every default.

mod read;
mod show;
mod values;

pub use read::rule;
pub use show::{raw_rules, timespan};
pub use values::{AnchorDay, Count, Timespan};

use crate::Rule;
use crate::rule::SlidingWindow;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// One rule as it is written. Its kind decides which of the fields it may have.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RawRule {
    /// The kind of the rule.
    pub kind: String,
    /// Permits in a window, or calls in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Count>,
    /// Permits that a bucket holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Count>,
    /// Permits that come back in each `per`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refill: Option<Count>,
    /// The span of a window or of a refill.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per: Option<Timespan>,
    /// Permits in a new bucket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial: Option<Count>,
    /// Permits that may be spent at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<Count>,
    /// Time by which a charge outlasts `per`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub margin: Option<Timespan>,
    /// Where windows begin: `epoch` or `first_use`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anchor: Option<String>,
    /// The calendar unit that is a window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calendar: Option<String>,
    /// The day on which a window of the calendar begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anchor_day: Option<AnchorDay>,
    /// The time zone of the calendar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Whether permits come back one by one or at intervals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refill_style: Option<String>,
    /// Permits that a bucket may go below zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub debt: Option<Count>,
    /// The warm-up of a bucket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<RawWarmUp>,
    /// The longest that a call may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest: Option<Timespan>,
}

/// The warm-up of a bucket, as it is written.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RawWarmUp {
    /// Time that warming up takes.
    pub over: Timespan,
    /// Factor by which a cold bucket refills more slowly.
    pub cold_factor: Option<Count>,
}

/// Serialises `rules` for another allocator.
pub fn write(rules: &[Rule]) -> Box<RawValue> {
    // By way of a JSON value, which always has its keys in the same order.
    let rules = serde_json::json!(raw_rules(rules));
    serde_json::value::to_raw_value(&rules).expect("numbers and text")
}

/// Reads rules that another allocator wrote; `None` if this version does not know such rules.
pub fn read(written: &RawValue) -> Option<Vec<Rule>> {
    let raw: Vec<RawRule> = serde_json::from_str(written.get()).ok()?;
    let rules: Option<Vec<Rule>> = raw.iter().map(|raw| rule(raw, SlidingWindow::MARGIN).ok()).collect();
    rules.filter(|rules| !rules.is_empty())
}
