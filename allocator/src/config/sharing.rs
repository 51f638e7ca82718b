//! How a limit is shared, raw → checked: what is kept back, how large a lease may be and how long it may last, and who
//! comes first. The check of a limit calls it; problems begin with the key, which limit that is, the caller adds.

use super::by_node::{self, ByNode};
use super::raw::{Count, RawLimit, RawTerm, Timespan};
use super::safe;
use super::show::timespan;
use super::vendor;
use crate::pool::LEASE_MAX;
use crate::share::Sharing;
use lessor_protocol::{Rule, Terms};
use std::collections::BTreeMap;
use std::time::Duration;
use toml::Spanned;

/// The largest weight. One node that counts for a million has everything already.
const WEIGHT_MAX: u64 = 1_000_000;

/// What is wrong, and the offset at which it stands.
type Problem = (usize, String);

/// How a limit with `rules` is shared, where for some keys `others` hold.
pub(super) fn sharing<'a>(
    raw: &RawLimit,
    rules: &'a [Rule],
    others: impl Iterator<Item = &'a Vec<Rule>> + Clone,
    guaranteed: &ByNode,
) -> Result<Sharing, Problem> {
    let ceiling = |rules: &[Rule]| rules.iter().map(Rule::ceiling).min().unwrap_or(0);
    let ceiling = others.clone().map(|rules| ceiling(rules)).chain([ceiling(rules)]).min().unwrap_or(0);
    let reserve = match &raw.reserve {
        Some(reserve) if reserve.get_ref().0 > 0 && reserve.get_ref().0 >= ceiling => {
            let said = format!("reserve is {}, all that the limit has: ", reserve.get_ref().0);
            return Err(at(reserve, format!("{said}use at most {}", ceiling.saturating_sub(1))));
        }
        reserve => reserve.as_ref().map_or(0, |reserve| reserve.get_ref().0),
    };
    let lease_max = match &raw.lease_max {
        Some(most) if !(1..=LEASE_MAX).contains(&most.get_ref().0) => {
            return Err(at(
                most,
                format!("lease_max is {}: use a number from 1 to {LEASE_MAX}", most.get_ref().0),
            ));
        }
        most => most.as_ref().map_or(LEASE_MAX, |most| most.get_ref().0),
    };
    let sum = guaranteed.numbers().fold(0, u64::saturating_add);
    if let Some(first) = raw.guaranteed.values().next()
        && sum > ceiling - reserve
    {
        let problem = format!(
            "guaranteed adds up to {sum}, more than the limit without its reserve: use at most {}",
            ceiling - reserve
        );
        return Err(at(first, problem));
    }
    let (term_min, term_max) = term(raw.term.as_ref())?;
    let (guaranteed, vendor) = (guaranteed.numbers().collect(), vendor::trust(raw.vendor.as_ref())?);
    let safe = safe::safe(raw, reserve, others.map(Vec::as_slice).chain([rules]))?;
    Ok(Sharing { reserve, lease_max, term_min, term_max, guaranteed, vendor, safe })
}

fn term(raw: Option<&Spanned<RawTerm>>) -> Result<(Duration, Duration), Problem> {
    let (least, most) = (Terms::TERM_MIN, Terms::TERM_MAX);
    let Some(raw) = raw else { return Ok((least, most)) };
    let said = |given: Option<Timespan>, default| given.map_or(default, |Timespan(given)| given);
    let (min, max) = (said(raw.get_ref().min, least), said(raw.get_ref().max, most));
    for (name, term) in [("min", min), ("max", max)] {
        if !(least..=most).contains(&term) {
            let problem =
                format!("term.{name} is {}: use {} to {}", timespan(term), timespan(least), timespan(most));
            return Err(at(raw, problem));
        }
    }
    if min > max {
        let problem = format!("term.min is {}, longer than term.max ({})", timespan(min), timespan(max));
        return Err(at(raw, problem));
    }
    Ok((min, max))
}

/// Who counts how much when permits are scarce.
pub(super) fn weights(raw: &RawLimit) -> Result<ByNode, Problem> {
    by_node("weights", &raw.weights, |weight| match weight {
        1..=WEIGHT_MAX => Ok(()),
        _ => Err(format!("is {weight}: use a weight from 1 to {WEIGHT_MAX}")),
    })
}

/// Who comes first.
pub(super) fn priorities(raw: &RawLimit) -> Result<ByNode, Problem> {
    by_node("priorities", &raw.priorities, |_| Ok(()))
}

/// Who has a minimum.
pub(super) fn guaranteed(raw: &RawLimit) -> Result<ByNode, Problem> {
    by_node("guaranteed", &raw.guaranteed, |permits| match permits {
        0 => Err("is 0: use a number from 1 on, or leave it out".to_owned()),
        _ => Ok(()),
    })
}

fn by_node(
    name: &str,
    raw: &BTreeMap<String, Spanned<Count>>,
    check: impl Fn(u64) -> Result<(), String>,
) -> Result<ByNode, Problem> {
    let mut pairs = vec![];
    for (pattern, number) in raw {
        let Count(value) = *number.get_ref();
        let checked = by_node::check(pattern).and_then(|()| check(value));
        checked.map_err(|problem| at(number, format!("{name}.{pattern:?} {problem}")))?;
        pairs.push((pattern.as_str(), value));
    }
    Ok(ByNode::new(&pairs))
}

fn at<T>(place: &Spanned<T>, problem: String) -> Problem {
    (place.span().start, problem)
}
