//! Checks how nodes go on without an allocator: how many processes share the reserve then, and for how long.

use super::{RawLimit, RawSafe};
use crate::Rule;
use crate::pool::safe_span;
use crate::rule_text::{Count, Timespan, timespan};
use crate::share::Safe;
use lessor_protocol::{Fallback, SafeShare};
use std::time::Duration;

/// Most processes that share a reserve. An operator with more should divide them by limit or by region.
const NODES_MAX: u64 = 10_000;

/// The shortest span. Leases bridge shorter outages.
const LASTS_MIN: Duration = Duration::from_secs(1);

/// Checks which processes may spend of the `reserve`. Each of `rules` is the list of the limit or of a single key.
pub(super) fn safe<'a>(
    raw: &RawLimit,
    reserve: u64,
    mut rules: impl Iterator<Item = &'a [Rule]>,
) -> Result<Option<Safe>, String> {
    let name = Fallback::SafeShare.name();
    let is_safe = raw.fallback.as_deref() == Some(name);
    let safe = match &raw.safe {
        Some(safe) if is_safe => safe,
        None if !is_safe => return Ok(None),
        Some(_) => {
            return Err(format!(
                "safe needs fallback = {name:?}: without it no node spends from the reserve"
            ));
        }
        None => {
            return Err(format!(
                "fallback is {name:?} and safe is missing: set how many processes share the reserve, \
                 for example safe = {{ nodes = 20 }}"
            ));
        }
    };
    if let Some(parent) = &raw.parent {
        return Err(format!(
            "fallback is {name:?} and parent is {parent:?}: spends on a safe share would not be charged to the \
             parent, use \"closed\""
        ));
    }
    if !rules.all(|rules| safe_span(rules).is_some()) {
        return Err(format!(
            "fallback is {name:?}, which needs rules that count in windows: use sliding_window, sliding_log or \
             fixed_window without anchor = \"first_use\", or \"closed\""
        ));
    }
    let RawSafe { nodes: Count(nodes), lasts } = safe;
    if !(1..=NODES_MAX).contains(nodes) {
        return Err(format!("safe.nodes is {nodes}: use a number from 1 to {NODES_MAX}"));
    }
    if reserve < *nodes {
        return Err(format!(
            "safe.nodes is {nodes}, and reserve is {reserve}: each node needs a permit, use a reserve of at least \
             {nodes}"
        ));
    }
    let lasts = lasts.map_or(SafeShare::LASTS_MAX, |Timespan(lasts)| lasts);
    if !(LASTS_MIN..=SafeShare::LASTS_MAX).contains(&lasts) {
        let (least, most) = (timespan(LASTS_MIN), timespan(SafeShare::LASTS_MAX));
        return Err(format!("safe.lasts is {}: use {least} to {most}", timespan(lasts)));
    }
    Ok(Some(Safe { nodes: *nodes, lasts }))
}

/// Returns `safe` as it would be written.
pub(super) fn raw(safe: Safe) -> RawSafe {
    RawSafe { nodes: Count(safe.nodes), lasts: Some(Timespan(safe.lasts)) }
}
