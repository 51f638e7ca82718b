//! Writes checked rules back as raw rules, with every default.

use super::{AnchorDay, Count, RawRule, RawWarmUp, Timespan};
use crate::Rule;
use crate::rule::{FixedWindow, TokenBucket, Windows};
use std::time::Duration;

/// Returns `rules` as they would be written.
pub fn raw_rules(rules: &[Rule]) -> Vec<RawRule> {
    rules.iter().map(raw_rule).collect()
}

fn raw_rule(rule: &Rule) -> RawRule {
    let kind = rule.kind().to_owned();
    match rule {
        Rule::SlidingWindow(rule) | Rule::SlidingLog(rule) => RawRule {
            kind,
            limit: Some(Count(rule.limit())),
            per: Some(Timespan(rule.per())),
            margin: Some(Timespan(rule.margin())),
            ..RawRule::default()
        },
        Rule::FixedWindow(rule) => fixed_window(kind, rule),
        Rule::TokenBucket(rule) => token_bucket(kind, rule),
        Rule::LeakyBucket(rule) => RawRule {
            kind,
            burst: Some(Count(rule.burst())),
            refill: Some(Count(rule.refill())),
            per: Some(Timespan(rule.per())),
            ..RawRule::default()
        },
        Rule::Concurrency(rule) => RawRule {
            kind,
            limit: Some(Count(rule.limit())),
            longest: Some(Timespan(rule.longest())),
            ..RawRule::default()
        },
    }
}

fn fixed_window(kind: String, rule: &FixedWindow) -> RawRule {
    let windows = rule.windows();
    let raw = RawRule { kind, limit: Some(Count(rule.limit())), ..RawRule::default() };
    match windows {
        Windows::Epoch { per } | Windows::FirstUse { per } => {
            RawRule { per: Some(Timespan(per)), anchor: windows.anchor().map(str::to_owned), ..raw }
        }
        Windows::Calendar(calendar) => {
            let weekday = calendar.anchor_weekday().map(|name| AnchorDay::Name(name.to_owned()));
            RawRule {
                calendar: Some(calendar.unit().name().to_owned()),
                anchor_day: calendar.anchor_day().map(AnchorDay::Number).or(weekday),
                zone: Some(calendar.zone().name().to_owned()),
                ..raw
            }
        }
    }
}

fn token_bucket(kind: String, rule: &TokenBucket) -> RawRule {
    let warm_up = rule.warm_up().map(|warm_up| RawWarmUp {
        over: Timespan(warm_up.over()),
        cold_factor: Some(Count(warm_up.cold_factor().into())),
    });
    RawRule {
        kind,
        capacity: Some(Count(rule.capacity())),
        refill: Some(Count(rule.refill())),
        per: Some(Timespan(rule.per())),
        initial: Some(Count(rule.initial())),
        refill_style: Some(rule.refill_style().name().to_owned()),
        debt: Some(Count(rule.debt())),
        warm_up,
        ..RawRule::default()
    }
}

/// Writes `span` in the largest unit that keeps it whole.
pub fn timespan(span: Duration) -> String {
    const UNITS: [(&str, u128); 7] = [
        ("d", 86_400_000_000_000),
        ("h", 3_600_000_000_000),
        ("m", 60_000_000_000),
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("us", 1_000),
        ("ns", 1),
    ];
    let nanos = span.as_nanos();
    let whole = UNITS.iter().find(|(_, unit)| nanos > 0 && nanos.is_multiple_of(*unit));
    whole.map_or("0s".to_owned(), |(name, unit)| format!("{}{name}", nanos / unit))
}
