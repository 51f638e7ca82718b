//! Checks which limit is above which: each parent exists, no limit is above itself, and the key of a parent follows
//! from the key below. The check of a configuration calls this once all limits are known.

use super::{Keyed, LimitConfig, Upstream};
use crate::Rule;
use crate::named::Names;
use crate::roots::BELOW_MAX;
use lessor_protocol::Key;
use std::time::Duration;

/// Most limits above each other. Each more is another pool that every exchange looks at and charges.
pub const DEPTH_MAX: usize = 4;

/// Returns what is wrong with the parents of `limits`, in words.
pub fn wrong_parent(limits: &[LimitConfig]) -> Option<String> {
    let (index, problem) = check_parents(limits).err()?;
    Some(format!("limit {:?}: {problem}", limits[index].name.as_str()))
}

/// Returns the key of the pool of `parent`, a keyed limit, that is above the pool of `key` of `limit`.
///
/// # Errors
/// If there is no such key. The error says in words what is wrong.
pub fn key_above(limit: &str, key: Option<&Key>, parent: &str) -> Result<Key, String> {
    let text = key.map(Key::as_str).unwrap_or_default();
    let above = text.rsplit_once('/').map_or("", |(above, _)| above);
    Key::try_new(above).map_err(|error| {
        format!("the part of a key of {limit:?} before the last / is the key of {parent:?}, and {error}")
    })
}

/// Checks the parents of `limits`. An error names the limit by its index, and the problem in words.
pub fn check_parents(limits: &[LimitConfig]) -> Result<(), (usize, String)> {
    let in_store = |limit: &&LimitConfig| {
        limit.parent.is_some() && limit.upstream.as_ref().is_some_and(Upstream::is_store)
    };
    if limits.iter().filter(in_store).count() > BELOW_MAX {
        let last = limits.iter().rposition(|limit| in_store(&limit)).unwrap_or_default();
        let problem = format!(
            "parent is set on more than {BELOW_MAX} limits: a shared store keeps no more of them, use keyed = true"
        );
        return Err((last, problem));
    }
    for (index, limit) in limits.iter().enumerate() {
        check_parent(limits, limit).map_err(|problem| (index, problem))?;
    }
    Ok(())
}

fn check_parent(limits: &[LimitConfig], limit: &LimitConfig) -> Result<(), String> {
    let Some(name) = limit.parent.as_deref() else { return Ok(()) };
    let Some(parent) = find(limits, name) else {
        return Err(format!("parent is {name:?}, which is no limit here: use the name of another limit"));
    };
    if parent.name.names() != Names::One {
        return Err(format!("parent is {name:?}, which is a pattern: use the name of a single limit"));
    }
    // In a shared store both limits are leased, each from a root of its own.
    if let Some(upstream @ Upstream::Address(_)) = &parent.upstream {
        return Err(format!(
            "parent is {name:?}, which is leased from {upstream}: put this limit below it there, and lease it too"
        ));
    }
    if parent.shadow {
        return Err(format!(
            "parent is {name:?}, which is in shadow mode: a parent must be able to refuse, use shadow = false there"
        ));
    }
    if parent.keyed != Keyed::No && limit.keyed == Keyed::No {
        return Err(format!(
            "parent is {name:?}, which is counted by key: this limit needs keyed = true too"
        ));
    }
    if parent.keyed != Keyed::No
        && let Some(key) = limit.overrides.keys().find(|key| !key.as_str().contains('/'))
    {
        let key = key.as_str();
        return Err(format!(
            "override.{key:?}.key has no /: the part before the last / is the key of {name:?}, use a key with a /"
        ));
    }
    let (mut above, mut next) = (vec![limit.name.as_str()], Some(name));
    while let Some(higher) = next {
        if above.contains(&higher) {
            return Err(format!(
                "parent is {name:?}, and from there parents lead back to {higher:?}: no limit may be above itself"
            ));
        }
        above.push(higher);
        check_calls(limit, find(limits, higher))?;
        if above.len() > DEPTH_MAX {
            return Err(format!(
                "parent is {name:?}, which puts more than {DEPTH_MAX} limits above each other: use at most {DEPTH_MAX}"
            ));
        }
        next = find(limits, higher).and_then(|limit| limit.parent.as_deref());
    }
    let chain: Vec<&LimitConfig> = above.iter().filter_map(|name| find(limits, name)).collect();
    check_flow(&chain)
}

/// Checks that at most one of a limit and the limits above it has a steady flow, since calls keep one pace, and that no
/// window is too short for that flow.
fn check_flow(chain: &[&LimitConfig]) -> Result<(), String> {
    let own = chain.first().map_or(vec![], |limit| rules(limit));
    let has_flow = |limit: &&&LimitConfig| rules(limit).iter().any(|(_, rule)| rule.flow().is_some());
    let mut flows = chain.iter().filter(has_flow).map(|limit| limit.name.as_str());
    if let (Some(_), Some(second)) = (flows.next(), flows.next()) {
        let place = own.iter().find(|(_, rule)| rule.flow().is_some());
        let problem = match place {
            Some((place, _)) => {
                format!("{place}.kind is \"leaky_bucket\", and {second:?} above has one, too")
            }
            None => format!("parent is {:?}, and two leaky_buckets are above", parent(chain)),
        };
        return Err(format!(
            "{problem}: only one leaky_bucket can pace calls, use a token_bucket for the other rate"
        ));
    }
    let all: Vec<Rule> = chain.iter().flat_map(|limit| rules(limit)).map(|(_, rule)| rule).collect();
    match too_short_for_flow(&all) {
        Some((index, problem)) => Err(match own.get(index) {
            Some((place, _)) => format!("{place}.per {problem}"),
            None => format!("parent is {:?}, and the per of a fixed_window above {problem}", parent(chain)),
        }),
        None => Ok(()),
    }
}

fn parent<'a>(chain: &'a [&LimitConfig]) -> &'a str {
    chain.first().and_then(|limit| limit.parent.as_deref()).unwrap_or_default()
}

/// Checks that a limit above does not take a call for ended while it goes on: a call counts in every limit above, too.
fn check_calls(limit: &LimitConfig, above: Option<&LimitConfig>) -> Result<(), String> {
    let Some((above, shortest)) =
        above.and_then(|above| Some((above, calls(above).map(|(_, longest)| longest).min()?)))
    else {
        return Ok(());
    };
    match calls(limit).find(|(_, longest)| *longest > shortest) {
        None => Ok(()),
        Some((place, longest)) => Err(format!(
            "{place}.longest is {}, but {:?}, which is above it, counts calls as ended after {}: use the same or \
             less",
            humantime::format_duration(longest),
            above.name.as_str(),
            humantime::format_duration(shortest),
        )),
    }
}

/// Returns the longest call by each rule of `limit` that caps calls in flight, and the place of the rule.
fn calls(limit: &LimitConfig) -> impl Iterator<Item = (String, Duration)> {
    rules(limit).into_iter().filter_map(|(place, rule)| match rule {
        Rule::Concurrency(rule) => Some((place, rule.longest())),
        Rule::SlidingWindow(_)
        | Rule::SlidingLog(_)
        | Rule::FixedWindow(_)
        | Rule::TokenBucket(_)
        | Rule::LeakyBucket(_) => None,
    })
}

/// Returns all rules of `limit`, including the rules of single keys, and the place of each.
fn rules(limit: &LimitConfig) -> Vec<(String, Rule)> {
    let of = |list: String, rules: &[Rule]| -> Vec<(String, Rule)> {
        rules.iter().enumerate().map(|(index, rule)| (format!("{list}[{index}]"), *rule)).collect()
    };
    let of_keys = limit
        .overrides
        .iter()
        .flat_map(|(key, rules)| of(format!("override.{:?}.rules", key.as_str()), rules));
    of("rules".to_owned(), &limit.rules).into_iter().chain(of_keys).collect()
}

fn find<'a>(limits: &'a [LimitConfig], name: &str) -> Option<&'a LimitConfig> {
    limits.iter().find(|limit| limit.name.as_str() == name)
}

/// Finds a fixed window that is too short beside a leaky bucket. It ends every lease at its boundary, and what buckets
/// have saved up is lost with the leases, so with short windows little would flow.
pub(crate) fn too_short_for_flow(rules: &[Rule]) -> Option<(usize, String)> {
    /// A window lasts at least this many intervals of the flow, and at least `LEAST`.
    const INTERVALS: u32 = 10;
    const LEAST: Duration = Duration::from_secs(10);
    let interval = rules.iter().find_map(Rule::flow)?.interval()?;
    let least = interval.saturating_mul(INTERVALS).max(LEAST);
    rules.iter().enumerate().find_map(|(index, rule)| {
        let Rule::FixedWindow(rule) = rule else { return None };
        let problem = format!("is {:?}, too short beside a leaky_bucket: use at least {least:?}", rule.per());
        (rule.per() < least).then_some((index, problem))
    })
}
