//! Checks how a limit is shared: the reserve, the largest lease and its term, weights, priorities and guarantees.

use super::safe;
use super::vendor;
use super::{RawLimit, RawTerm};
use crate::Rule;
use crate::registry::{ByNode, check_pattern};
use crate::rule_text::{Count, Timespan, timespan};
use crate::share::{LEASE_MAX, Sharing};
use lessor_protocol::{PERMITS_MAX, TERM_MAX, TERM_MIN};
use std::collections::BTreeMap;
use std::time::Duration;

/// The largest weight. One node that counts for a million has everything already.
const WEIGHT_MAX: u64 = 1_000_000;

/// Most whole node names with a weight or a priority. The largest fleets name kinds of nodes by patterns.
const NAMES_MAX: usize = 10_000;

/// Most patterns of node names with a weight or a priority. They are gone through with each ask.
const PATTERNS_MAX: usize = 256;

/// Most entries of `guaranteed`. Each pool has a level for each of them.
const GUARANTEED_MAX: usize = 256;

/// Checks how many entries of nodes a limit has, and that no priority is too large.
pub(super) fn check_bounds(raw: &RawLimit) -> Result<(), String> {
    let guaranteed = raw.guaranteed.len();
    if guaranteed > GUARANTEED_MAX {
        return Err(format!("guaranteed has {guaranteed} entries: use at most {GUARANTEED_MAX}"));
    }
    for (name, entries) in
        [("weights", &raw.weights), ("priorities", &raw.priorities), ("guaranteed", &raw.guaranteed)]
    {
        let patterns = entries.keys().filter(|pattern| pattern.ends_with('*')).count();
        for (count, most, kind) in
            [(patterns, PATTERNS_MAX, "patterns"), (entries.len() - patterns, NAMES_MAX, "node names")]
        {
            if count > most {
                return Err(format!("{name} has {count} {kind}: use at most {most}"));
            }
        }
    }
    match raw.priorities.iter().find(|(_, Count(priority))| *priority > PERMITS_MAX) {
        Some((node, Count(priority))) => {
            Err(format!("priorities.{node:?} is {priority}: use a number from 0 to {PERMITS_MAX}"))
        }
        None => Ok(()),
    }
}

/// Checks how a limit with `rules` is shared. For some keys `others` hold instead.
pub(super) fn sharing<'a>(
    raw: &RawLimit,
    rules: &'a [Rule],
    others: impl Iterator<Item = &'a Vec<Rule>> + Clone,
    guaranteed: &ByNode,
) -> Result<Sharing, String> {
    let ceiling = |rules: &[Rule]| rules.iter().map(Rule::ceiling).min().unwrap_or(0);
    let ceiling = others.clone().map(|rules| ceiling(rules)).chain([ceiling(rules)]).min().unwrap_or(0);
    let reserve = match &raw.reserve {
        Some(Count(reserve)) if *reserve > 0 && *reserve >= ceiling => {
            let most = ceiling.saturating_sub(1);
            return Err(format!("reserve is {reserve}, all that the limit has: use at most {most}"));
        }
        reserve => reserve.map_or(0, |Count(reserve)| reserve),
    };
    let lease_max = match &raw.lease_max {
        Some(Count(most)) if !(1..=LEASE_MAX).contains(most) => {
            return Err(format!("lease_max is {most}: use a number from 1 to {LEASE_MAX}"));
        }
        most => most.map_or(LEASE_MAX, |Count(most)| most),
    };
    let sum = guaranteed.numbers().fold(0, u64::saturating_add);
    let most = ceiling - reserve;
    if sum > most {
        return Err(format!(
            "guaranteed adds up to {sum}, more than the limit without its reserve: use at most {most}"
        ));
    }
    let (term_min, term_max) = term(raw.term.as_ref())?;
    let (guaranteed, vendor) = (guaranteed.numbers().collect(), vendor::trust(raw.vendor.as_ref())?);
    let safe = safe::safe(raw, reserve, others.map(Vec::as_slice).chain([rules]))?;
    Ok(Sharing { reserve, lease_max, term_min, term_max, guaranteed, vendor, safe })
}

fn term(raw: Option<&RawTerm>) -> Result<(Duration, Duration), String> {
    let (least, most) = (TERM_MIN, TERM_MAX);
    let Some(raw) = raw else { return Ok((least, most)) };
    let said = |given: Option<Timespan>, default| given.map_or(default, |Timespan(given)| given);
    let (min, max) = (said(raw.min, least), said(raw.max, most));
    for (name, term) in [("min", min), ("max", max)] {
        if !(least..=most).contains(&term) {
            let (is, least, most) = (timespan(term), timespan(least), timespan(most));
            return Err(format!("term.{name} is {is}: use {least} to {most}"));
        }
    }
    if min > max {
        let (min, max) = (timespan(min), timespan(max));
        return Err(format!("term.min is {min}, longer than term.max: use at most {max}"));
    }
    Ok((min, max))
}

/// Checks the weights by node, for when permits are scarce.
pub(super) fn weights(raw: &RawLimit) -> Result<ByNode, String> {
    by_node("weights", &raw.weights, |weight| match weight {
        1..=WEIGHT_MAX => Ok(()),
        _ => Err(format!("is {weight}: use a weight from 1 to {WEIGHT_MAX}")),
    })
}

/// Checks the priorities by node.
pub(super) fn priorities(raw: &RawLimit) -> Result<ByNode, String> {
    by_node("priorities", &raw.priorities, |_| Ok(()))
}

/// Checks the guarantees by node.
pub(super) fn guaranteed(raw: &RawLimit) -> Result<ByNode, String> {
    by_node("guaranteed", &raw.guaranteed, |permits| match permits {
        0 => Err("is 0: use a number from 1 on, or leave it out".to_owned()),
        _ => Ok(()),
    })
}

fn by_node(
    name: &str,
    raw: &BTreeMap<String, Count>,
    check: impl Fn(u64) -> Result<(), String>,
) -> Result<ByNode, String> {
    let mut pairs = vec![];
    for (pattern, number) in raw {
        let Count(value) = *number;
        let checked = check_pattern(pattern).and_then(|()| check(value));
        checked.map_err(|problem| format!("{name}.{pattern:?} {problem}"))?;
        pairs.push((pattern.as_str(), value));
    }
    Ok(ByNode::new(&pairs))
}
