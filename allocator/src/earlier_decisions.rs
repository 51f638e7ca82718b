//! The limits of an allocator that resumes the decisions of an earlier life: the limits of its file, with those put or
//! removed over the API since, as far as they still fit. The start of a server calls this; the
//! [`Registry`](lessor_ledger::registry) keeps the limits.

use crate::config::{LimitConfig, limit_from_decision};
use crate::store::{DecisionRow, PutRow};
use lessor_ledger::named::LIMITS_MAX;
use lessor_ledger::registry::{by_name, wrong_parent};
use serde_json::Value;
use std::collections::BTreeMap;
use std::slice::from_ref;

/// Most decisions that are tried one by one if they do not fit the file together. Each is checked with all other
/// limits.
const TRIED_MAX: usize = 100;

/// A decision about a limit that is dropped, so that the file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// Name of the limit.
    pub(crate) limit: String,
    /// Why the decision was dropped.
    pub(crate) problem: String,
}

/// A limit that was put, or `None` if it was removed.
type Putting = (String, Option<LimitConfig>);

/// Returns the limits that follow from `file` and the `decisions` of the store, and the decisions that are dropped.
pub(crate) fn limits_with_overrides(
    file: &[LimitConfig],
    decisions: &BTreeMap<String, DecisionRow>,
) -> (Vec<LimitConfig>, Vec<Dropped>) {
    let mut limits = by_name(file);
    let (mut pending, mut dropped) = (vec![], vec![]);
    for (name, row) in decisions {
        let Some(put) = &row.put else { continue };
        match understood(name, put, limits.get(name)) {
            Ok(limit) => pending.push((name.clone(), limit)),
            Err(problem) => dropped.push(Dropped { limit: name.clone(), problem }),
        }
    }
    if let Ok(all) = with(&limits, &pending) {
        return (all.into_values().collect(), dropped);
    }
    let mut left = pending.split_off(pending.len().min(TRIED_MAX));
    // Goes on as long as a round adds anything: one decision may be in the way of another.
    while !pending.is_empty() {
        let before = pending.len();
        pending.retain(|putting| match with(&limits, from_ref(putting)) {
            Ok(all) => {
                limits = all;
                false
            }
            Err(_) => true,
        });
        if pending.len() == before {
            break;
        }
    }
    left.append(&mut pending);
    dropped.extend(left.into_iter().map(|putting| {
        let problem = with(&limits, from_ref(&putting)).err();
        let problem = problem.unwrap_or_else(|| {
            "it does not fit the file together with other limits put over the API".to_owned()
        });
        Dropped { limit: putting.0, problem }
    }));
    (limits.into_values().collect(), dropped)
}

/// Returns the decided limit, if the file still says the same of it as at the time of the decision.
fn understood(name: &str, put: &PutRow, file: Option<&LimitConfig>) -> Result<Option<LimitConfig>, String> {
    let read = |value: &Value| limit_from_decision(name, value).map_err(|error| error.problem().to_owned());
    if put.file.as_ref().map(read).transpose()?.as_ref() != file {
        return Err("the file has changed this limit since".to_owned());
    }
    put.limit.as_ref().map(read).transpose()
}

fn with(
    limits: &BTreeMap<String, LimitConfig>,
    putting: &[Putting],
) -> Result<BTreeMap<String, LimitConfig>, String> {
    let mut all = limits.clone();
    for (name, limit) in putting {
        match limit {
            Some(limit) => _ = all.insert(name.clone(), limit.clone()),
            None => _ = all.remove(name),
        }
    }
    if all.len() > LIMITS_MAX.max(limits.len()) {
        return Err(format!("there are {LIMITS_MAX} limits, the maximum"));
    }
    let list: Vec<LimitConfig> = all.values().cloned().collect();
    wrong_parent(&list).map_or(Ok(all), Err)
}

#[cfg(test)]
mod tests;
