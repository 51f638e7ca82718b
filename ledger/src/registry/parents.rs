//! Checks which limit is above which: each parent exists, no limit is above itself, and the key of a parent follows
//! from the key below. The check of a configuration calls this once all limits are known.

use super::{Keyed, LimitConfig, Upstream};
use crate::Rule;
use crate::named::Names;
use crate::roots::BELOW_MAX;
use crate::rule::LeakyBucket;
use lessor_protocol::Key;
use std::collections::BTreeMap;
use std::time::Duration;

/// Most limits above each other. Each more is another pool that every exchange looks at and charges.
pub const DEPTH_MAX: usize = 4;

/// Returns what is wrong with the parents of `limits`, in words.
pub fn wrong_parent(limits: &[LimitConfig]) -> Option<String> {
    let (index, problem) = check_parents(limits).err()?;
    Some(of_limit(&limits[index], &problem))
}

/// Returns `problem` with the name of the limit that has it.
pub(super) fn of_limit(limit: &LimitConfig, problem: &str) -> String {
    format!("limit {:?}: {problem}", limit.name.as_str())
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
    let in_store = limits.iter().filter(|limit| is_below_in_store(limit)).count();
    if let Err(problem) = check_below_in_store(in_store) {
        let last = limits.iter().rposition(is_below_in_store).unwrap_or_default();
        return Err((last, problem));
    }
    let tree = Tree::of(limits);
    for (index, limit) in limits.iter().enumerate() {
        check_parent(&tree, limit).map_err(|problem| (index, problem))?;
    }
    Ok(())
}

/// Whether a shared store keeps the limit above `limit`.
pub(super) fn is_below_in_store(limit: &LimitConfig) -> bool {
    limit.parent.is_some() && limit.upstream.as_ref().is_some_and(Upstream::is_store)
}

/// Checks that a shared store keeps the parents of `count` limits.
pub(super) fn check_below_in_store(count: usize) -> Result<(), String> {
    if count > BELOW_MAX {
        return Err(format!(
            "parent is set on more than {BELOW_MAX} limits: a shared store keeps no more of them, use keyed = true"
        ));
    }
    Ok(())
}

/// Limits by name, each with the [`Facts`] that a look at a limit below it needs. A search for each parent in a list,
/// and a look at all rules above, would take minutes for thousands of limits below a large one.
pub(super) struct Tree<'a>(BTreeMap<&'a str, (&'a LimitConfig, Facts)>);

impl<'a> Tree<'a> {
    pub(super) fn of(limits: impl IntoIterator<Item = &'a LimitConfig>) -> Self {
        let limits = limits.into_iter();
        Tree(limits.map(|limit| (limit.name.as_str(), (limit, Facts::of(limit)))).collect())
    }

    fn find(&self, name: &str) -> Option<&'a LimitConfig> {
        self.0.get(name).map(|(limit, _)| *limit)
    }

    fn facts(&self, name: &str) -> Facts {
        self.0.get(name).map_or_else(Facts::default, |(_, facts)| *facts)
    }
}

/// What the checks ask of all rules of a limit, the rules of single keys included.
#[derive(Clone, Copy, Debug, Default)]
struct Facts {
    /// The longest call of the cap on calls in flight that allows the longest.
    longest: Option<Duration>,
    /// The longest call of the cap that allows the shortest.
    shortest: Option<Duration>,
    /// The first steady flow.
    flow: Option<LeakyBucket>,
    /// The shortest fixed window.
    window: Option<Duration>,
}

impl Facts {
    fn of(limit: &LimitConfig) -> Self {
        let rules = || limit.rules.iter().chain(limit.overrides.values().flatten());
        let longest = || rules().filter_map(Rule::longest);
        let windows = rules().filter_map(fixed_window);
        Facts {
            longest: longest().max(),
            shortest: longest().min(),
            flow: rules().find_map(Rule::flow).copied(),
            window: windows.min(),
        }
    }

    /// Whether a limit `above` may take a call of this limit for ended while the call goes on.
    fn outlasts(&self, above: &Facts) -> bool {
        self.longest.zip(above.shortest).is_some_and(|(longest, shortest)| longest > shortest)
    }

    /// Whether the limits of `chain` have two steady flows, or a window that is too short for their flow.
    fn clash(chain: &[Facts]) -> bool {
        let flows: Vec<&LeakyBucket> = chain.iter().filter_map(|facts| facts.flow.as_ref()).collect();
        let least = flows.first().and_then(|flow| least_window(flow));
        let windows = || chain.iter().filter_map(|facts| facts.window);
        flows.len() > 1 || least.is_some_and(|least| windows().any(|window| window < least))
    }
}

/// Checks the parent of `limit`, and all limits above it, which are in `limits`. An error is the problem in words.
pub(super) fn check_parent(limits: &Tree<'_>, limit: &LimitConfig) -> Result<(), String> {
    let Some(name) = limit.parent.as_deref() else { return Ok(()) };
    let Some(parent) = limits.find(name) else {
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
        if limits.facts(limit.name.as_str()).outlasts(&limits.facts(higher)) {
            check_calls(limit, limits.find(higher))?;
        }
        if above.len() > DEPTH_MAX {
            return Err(format!(
                "parent is {name:?}, which puts more than {DEPTH_MAX} limits above each other: use at most {DEPTH_MAX}"
            ));
        }
        next = limits.find(higher).and_then(|limit| limit.parent.as_deref());
    }
    let facts: Vec<Facts> = above.iter().map(|name| limits.facts(name)).collect();
    if !Facts::clash(&facts) {
        return Ok(());
    }
    let chain: Vec<&LimitConfig> = above.iter().filter_map(|name| limits.find(name)).collect();
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
    rules(limit).into_iter().filter_map(|(place, rule)| Some((place, rule.longest()?)))
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

/// Finds a fixed window that is too short beside a leaky bucket. It ends every lease at its boundary, and what buckets
/// have saved up is lost with the leases, so with short windows little would flow.
pub(crate) fn too_short_for_flow(rules: &[Rule]) -> Option<(usize, String)> {
    let least = least_window(rules.iter().find_map(Rule::flow)?)?;
    rules.iter().enumerate().find_map(|(index, rule)| {
        let Rule::FixedWindow(rule) = rule else { return None };
        let problem = format!("is {:?}, too short beside a leaky_bucket: use at least {least:?}", rule.per());
        (rule.per() < least).then_some((index, problem))
    })
}

/// Returns the least that a fixed window beside `flow` has to last.
fn least_window(flow: &LeakyBucket) -> Option<Duration> {
    /// A window lasts at least this many intervals of the flow, and at least `LEAST`.
    const INTERVALS: u32 = 10;
    const LEAST: Duration = Duration::from_secs(10);
    Some(flow.interval()?.saturating_mul(INTERVALS).max(LEAST))
}

fn fixed_window(rule: &Rule) -> Option<Duration> {
    if let Rule::FixedWindow(rule) = rule { Some(rule.per()) } else { None }
}
