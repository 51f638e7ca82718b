//! Checked → raw, every default included: what `lessor check` prints and `GET /v1/limits` shows. What it prints
//! can be read again and means the same.

use super::raw::{AnchorDay, Count, RawLimit, RawOverride, RawRule, RawTerm, RawWarmUp, Timespan};
use super::{ByNode, Config, Keyed, LimitConfig, Names, SharedStore, StoreConfig, Upstream, safe, vendor};
use lessor_protocol::rule::{FixedWindow, TokenBucket, Windows};
use lessor_protocol::{Key, Rule};
use serde::Serialize;
use std::fmt;
use std::time::Duration;

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(f, "clock_drift_ppm", &self.terms.drift_ppm())?;
        writeln!(f, "\n[server]")?;
        line(f, "listen", &self.server.listen.to_string())?;
        line(f, "connections_max", &self.server.connections_max)?;
        if let Some(node) = &self.server.node {
            line(f, "node", &node.as_str())?;
        }
        line(f, "hosts", &self.server.hosts)?;
        let upstreams: Vec<&str> = self.server.upstreams.iter().map(Upstream::as_str).collect();
        line(f, "upstreams", &upstreams)?;
        writeln!(f, "\n[store]")?;
        line(f, "kind", &self.server.store.kind())?;
        match &self.server.store {
            StoreConfig::Embedded { path: Some(path) } => line(f, "path", path)?,
            StoreConfig::Embedded { path: None } | StoreConfig::Memory => {}
            StoreConfig::Shared(shared) => shared_store(f, shared)?,
        }
        for limit in &self.limits {
            writeln!(f, "\n[[limit]]")?;
            raw_limit(f, &limit.raw())?;
        }
        Ok(())
    }
}

/// All but a password that may be in its URL.
fn shared_store(f: &mut fmt::Formatter<'_>, shared: &SharedStore) -> fmt::Result {
    line(f, "url", &shared.cells.url.to_string())?;
    line(f, "prefix", &shared.cells.prefix)?;
    line(f, "replicas", &shared.cells.replicas)?;
    line(f, "synced", &shared.cells.synced)?;
    line(f, "timeout", &Timespan(shared.cells.timeout))?;
    line(f, "version", &shared.version)
}

fn raw_limit(f: &mut fmt::Formatter<'_>, limit: &RawLimit) -> fmt::Result {
    line(f, "name", &limit.name)?;
    if let Some(upstream) = &limit.upstream {
        line(f, "upstream", upstream)?;
    }
    if let Some(of_limit) = &limit.rules {
        rules(f, of_limit)?;
    }
    if let Some(parent) = &limit.parent {
        line(f, "parent", parent)?;
    }
    line(f, "keyed", &limit.keyed)?;
    if let Some(keys_max) = &limit.keys_max {
        line(f, "keys_max", keys_max)?;
    }
    if let Some(names_max) = &limit.names_max {
        line(f, "names_max", names_max)?;
    }
    line(f, "lessees_max", &limit.lessees_max)?;
    line(f, "weights", &limit.weights)?;
    line(f, "priorities", &limit.priorities)?;
    line(f, "guaranteed", &limit.guaranteed)?;
    line(f, "reserve", &limit.reserve)?;
    if let Some(safe) = &limit.safe {
        line(f, "safe", safe)?;
    }
    line(f, "lease_max", &limit.lease_max)?;
    line(f, "term", &limit.term)?;
    line(f, "vendor", &limit.vendor)?;
    line(f, "ease_off", &limit.ease_off)?;
    line(f, "shadow", &limit.shadow)?;
    line(f, "fallback", &limit.fallback)?;
    for of_key in &limit.overrides {
        writeln!(f, "\n[[limit.override]]")?;
        line(f, "key", &of_key.key)?;
        rules(f, &of_key.rules)?;
    }
    Ok(())
}

fn rules(f: &mut fmt::Formatter<'_>, rules: &[RawRule]) -> fmt::Result {
    writeln!(f, "rules = [")?;
    for rule in rules {
        writeln!(f, "    {},", inline(rule)?)?;
    }
    writeln!(f, "]")
}

/// `name = value`, in one line whatever the value is.
fn line(f: &mut fmt::Formatter<'_>, name: &str, value: &impl Serialize) -> fmt::Result {
    writeln!(f, "{name} = {}", inline(value)?)
}

fn inline(value: &impl Serialize) -> Result<String, fmt::Error> {
    let mut text = String::new();
    value.serialize(toml::ser::ValueSerializer::new(&mut text)).map_err(|_| fmt::Error)?;
    Ok(text)
}

impl LimitConfig {
    /// As it would be written, every default included.
    pub(crate) fn raw(&self) -> RawLimit {
        let keys_max = match self.keyed {
            Keyed::No => None,
            Keyed::Yes { keys_max } => Some(Count(keys_max as u64)),
        };
        let names_max = match self.name.names() {
            Names::One => None,
            Names::Many { names_max } => Some(Count(names_max as u64)),
        };
        let by_node =
            |numbers: &ByNode| numbers.pairs().map(|(pattern, number)| (pattern, Count(number))).collect();
        let sharing = &self.sharing;
        RawLimit {
            name: self.name.to_string(),
            keyed: keys_max.is_some(),
            ease_off: Some(self.ease_off),
            shadow: self.shadow,
            parent: self.parent.clone(),
            fallback: Some(self.fallback.name().to_owned()),
            keys_max,
            names_max,
            lessees_max: Some(Count(self.lessees_max as u64)),
            weights: by_node(&self.weights),
            priorities: by_node(&self.priorities),
            guaranteed: by_node(&self.guaranteed),
            reserve: Some(Count(sharing.reserve)),
            safe: sharing.safe.map(safe::raw),
            lease_max: Some(Count(sharing.lease_max)),
            term: Some(RawTerm {
                min: Some(Timespan(sharing.term_min)),
                max: Some(Timespan(sharing.term_max)),
            }),
            vendor: Some(vendor::raw(&sharing.vendor)),
            upstream: self.leased_from().map(str::to_owned),
            rules: self.leased_from().is_none().then(|| raw_rules(&self.rules)),
            overrides: self.overrides.iter().map(raw_override).collect(),
        }
    }
}

fn raw_override((key, rules): (&Key, &Vec<Rule>)) -> RawOverride {
    RawOverride { key: key.to_string(), rules: raw_rules(rules) }
}

pub(super) fn raw_rules(rules: &[Rule]) -> Vec<RawRule> {
    rules.iter().map(raw_rule).collect()
}

fn raw_rule(rule: &Rule) -> RawRule {
    let kind = rule.kind().to_owned();
    match rule {
        Rule::SlidingWindow(rule) => RawRule {
            kind,
            limit: Some(Count(rule.limit())),
            per: Some(Timespan(rule.per())),
            margin: Some(Timespan(rule.margin())),
            ..RawRule::default()
        },
        Rule::SlidingLog(rule) => RawRule {
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

/// `span` in the largest unit that keeps it whole.
pub(super) fn timespan(span: Duration) -> String {
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
