//! One raw rule → one checked rule. Problems begin with the field; which limit and rule that is, the caller adds.

use super::raw::{Count, RawRule, Timespan};
use lessor_protocol::Rule;
use lessor_protocol::rule::{Concurrency, FixedWindow, LeakyBucket, RuleError, SlidingWindow, TokenBucket};
use std::time::Duration;

/// Kinds of rules that the design has and this version has not.
const KINDS_LATER: [&str; 1] = ["sliding_log"];

/// The rule, with `margin` where it takes one and says none; or what is wrong with it, beginning with the field.
pub(super) fn rule(raw: &RawRule, margin: Duration) -> Result<Rule, String> {
    let said = |error: RuleError| error.to_string();
    match raw.kind.as_str() {
        "sliding_window" => {
            only(raw, &["limit", "per", "margin"])?;
            let margin = raw.margin.map_or(margin.min(per(raw)?), |margin| margin.0);
            let rule = SlidingWindow::try_new(count(raw, "limit", raw.limit)?, per(raw)?, margin);
            rule.map(Rule::SlidingWindow).map_err(said)
        }
        "fixed_window" => {
            only(raw, &["limit", "per", "anchor"])?;
            check_anchor(raw.anchor.as_deref())?;
            let rule = FixedWindow::try_new(count(raw, "limit", raw.limit)?, per(raw)?);
            rule.map(Rule::FixedWindow).map_err(said)
        }
        "token_bucket" => {
            only(raw, &["capacity", "refill", "per", "initial"])?;
            let capacity = count(raw, "capacity", raw.capacity)?;
            let initial = raw.initial.map_or(capacity, |initial| initial.0);
            let rule = TokenBucket::try_new(capacity, count(raw, "refill", raw.refill)?, per(raw)?, initial);
            rule.map(Rule::TokenBucket).map_err(said)
        }
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
        other => {
            let later =
                if KINDS_LATER.contains(&other) { ", which is not available in this version" } else { "" };
            let kinds =
                "\"sliding_window\", \"fixed_window\", \"token_bucket\", \"leaky_bucket\" or \"concurrency\"";
            Err(format!("kind is {other:?}{later}: use {kinds}"))
        }
    }
}

fn check_anchor(anchor: Option<&str>) -> Result<(), String> {
    match anchor {
        None | Some("epoch") => Ok(()),
        Some(later @ ("first_use" | "calendar")) => {
            Err(format!("anchor is {later:?}, which is not available in this version: use \"epoch\""))
        }
        Some(other) => Err(format!("anchor is {other:?}: use \"epoch\"")),
    }
}

/// Refuses fields that the rule's kind has no use for: they would be read as promises.
fn only(raw: &RawRule, takes: &[&str]) -> Result<(), String> {
    let given = [
        ("limit", raw.limit.is_some()),
        ("per", raw.per.is_some()),
        ("margin", raw.margin.is_some()),
        ("anchor", raw.anchor.is_some()),
        ("capacity", raw.capacity.is_some()),
        ("refill", raw.refill.is_some()),
        ("initial", raw.initial.is_some()),
        ("burst", raw.burst.is_some()),
        ("longest", raw.longest.is_some()),
    ];
    let stray = given.iter().find(|(name, given)| *given && !takes.contains(name));
    match stray {
        Some((name, _)) => {
            Err(format!("{name} means nothing to a {}: it takes {}", raw.kind, takes.join(", ")))
        }
        None => Ok(()),
    }
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
