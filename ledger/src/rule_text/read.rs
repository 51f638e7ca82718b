//! Checks one raw rule. Problems begin with the field; the caller adds the limit and the place of the rule.

use super::{AnchorDay, Count, RawRule, RawWarmUp, Timespan};
use crate::Rule;
use crate::rule::{
    Calendar, Concurrency, FixedWindow, LeakyBucket, RefillStyle, RuleError, SlidingWindow, TokenBucket,
    Unit, WarmUp, Windows, Zone,
};
use serde_json::Value;
use std::time::Duration;

/// The kinds of rules, for the message about an unknown kind.
const KINDS: &str = "\"sliding_window\", \"sliding_log\", \"fixed_window\", \"token_bucket\", \"leaky_bucket\" or \"concurrency\"";

/// Checks a rule, with `margin` if it takes one and says none. An error says what is wrong, beginning with the field.
pub fn rule(raw: &RawRule, margin: Duration) -> Result<Rule, String> {
    match raw.kind.as_str() {
        "sliding_window" => {
            let (limit, per, margin) = sliding(raw, margin)?;
            SlidingWindow::try_new(limit, per, margin).map(Rule::SlidingWindow).map_err(said)
        }
        "sliding_log" => {
            let (limit, per, margin) = sliding(raw, margin)?;
            SlidingWindow::try_new(limit, per, margin).map(Rule::SlidingLog).map_err(said)
        }
        "fixed_window" => {
            let windows = windows(raw)?;
            let rule = FixedWindow::of(count(raw, "limit", raw.limit)?, windows);
            rule.map(Rule::FixedWindow).map_err(said)
        }
        "token_bucket" => token_bucket(raw).map(Rule::TokenBucket),
        "leaky_bucket" => {
            only(raw, &["burst", "refill", "per"])?;
            let burst = raw.burst.map_or(LeakyBucket::BURST, |burst| burst.0);
            let rule = LeakyBucket::try_new(burst, count(raw, "refill", raw.refill)?, per(raw)?);
            rule.map(Rule::LeakyBucket).map_err(said)
        }
        "concurrency" => {
            only(raw, &["limit", "longest"])?;
            let rule = Concurrency::try_new(count(raw, "limit", raw.limit)?, longest(raw)?);
            rule.map(Rule::Concurrency).map_err(said)
        }
        other => Err(format!("kind is {other:?}: use {KINDS}")),
    }
}

fn said(error: RuleError) -> String {
    error.to_string()
}

/// Reads limit, length and margin of a sliding rule.
fn sliding(raw: &RawRule, margin: Duration) -> Result<(u64, Duration, Duration), String> {
    only(raw, &["limit", "per", "margin"])?;
    let per = per(raw)?;
    let margin = raw.margin.map_or(margin.min(per), |margin| margin.0);
    Ok((count(raw, "limit", raw.limit)?, per, margin))
}

/// Reads where fixed windows begin and end: by `calendar`, or every `per` from an `anchor` on.
fn windows(raw: &RawRule) -> Result<Windows, String> {
    let Some(calendar) = &raw.calendar else {
        only(raw, &["limit", "per", "anchor", "calendar"])?;
        return match raw.anchor.as_deref() {
            None | Some("epoch") => Ok(Windows::Epoch { per: per(raw)? }),
            Some("first_use") => Ok(Windows::FirstUse { per: per(raw)? }),
            Some(other) => Err(format!("anchor is {other:?}: use \"epoch\" or \"first_use\", or calendar")),
        };
    };
    for name in ["per", "anchor"] {
        if let Some(given) = given(raw, name) {
            return Err(format!("{name} is {given}, but calendar decides where windows begin: leave it out"));
        }
    }
    only(raw, &["limit", "calendar", "anchor_day", "zone"])?;
    let zone = raw.zone.as_deref().map_or(Ok(Zone::utc()), Zone::try_new).map_err(said)?;
    let unit = Unit::named(calendar).ok_or_else(|| {
        format!("calendar is {calendar:?}: use \"minute\", \"hour\", \"day\", \"week\" or \"month\"")
    });
    let calendar = Calendar::new(unit?, zone);
    let calendar = match &raw.anchor_day {
        None => Ok(calendar),
        Some(AnchorDay::Number(day)) => calendar.with_anchor_day(*day),
        Some(AnchorDay::Name(day)) => calendar.with_anchor_weekday(day),
    };
    calendar.map(Windows::Calendar).map_err(said)
}

fn token_bucket(raw: &RawRule) -> Result<TokenBucket, String> {
    only(raw, &["capacity", "refill", "per", "initial", "refill_style", "debt", "warm_up"])?;
    let capacity = count(raw, "capacity", raw.capacity)?;
    let initial = raw.initial.map_or(capacity, |initial| initial.0);
    let style = raw.refill_style.as_deref().map_or(Ok(RefillStyle::default()), RefillStyle::named);
    let debt = raw.debt.map_or(0, |debt| debt.0);
    let rule = TokenBucket::try_new(capacity, count(raw, "refill", raw.refill)?, per(raw)?, initial)
        .and_then(|rule| rule.with_refill_style(style?))
        .and_then(|rule| rule.with_debt(debt));
    let rule = match &raw.warm_up {
        None => rule,
        Some(raw) => rule.and_then(|rule| rule.with_warm_up(warm_up(raw)?)),
    };
    rule.map_err(said)
}

fn warm_up(raw: &RawWarmUp) -> Result<WarmUp, RuleError> {
    let default = Count(WarmUp::COLD_FACTOR.into());
    let cold_factor = raw.cold_factor.unwrap_or(default).0;
    WarmUp::try_new(raw.over.0, cold_factor)
}

/// Refuses fields that the rule's kind has no use for: readers would take them for promises.
fn only(raw: &RawRule, takes: &[&str]) -> Result<(), String> {
    let fields = serde_json::to_value(raw).expect("plain data");
    let mut fields = fields.as_object().into_iter().flatten();
    match fields.find(|(name, _)| *name != "kind" && !takes.contains(&name.as_str())) {
        Some((name, given)) => {
            let (given, takes) = (written(given), takes.join(", "));
            Err(format!("{name} is {given}, which means nothing to a {}: it takes {takes}", raw.kind))
        }
        None => Ok(()),
    }
}

/// Returns the value of the field called `name`, as it would be written.
fn given(raw: &RawRule, name: &str) -> Option<String> {
    let fields = serde_json::to_value(raw).expect("plain data");
    fields.get(name).map(written)
}

/// Writes `value` as TOML does, whose numbers and strings look as in JSON.
fn written(value: &Value) -> String {
    let Value::Object(fields) = value else { return value.to_string() };
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    format!("{{ {} }}", fields.join(", "))
}

fn count(raw: &RawRule, name: &str, value: Option<Count>) -> Result<u64, String> {
    let missing = || format!("{name} is missing: a {} needs it, for example {name} = 100", raw.kind);
    value.map(|count| count.0).ok_or_else(missing)
}

fn per(raw: &RawRule) -> Result<Duration, String> {
    let missing = || format!("per is missing: a {} needs it, for example per = \"30s\"", raw.kind);
    raw.per.map(|Timespan(per)| per).ok_or_else(missing)
}

fn longest(raw: &RawRule) -> Result<Duration, String> {
    let missing = || format!("longest is missing: a {} needs it, for example longest = \"2m\"", raw.kind);
    raw.longest.map(|Timespan(longest)| longest).ok_or_else(missing)
}
