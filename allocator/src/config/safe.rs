//! What is let go on without an allocator, raw → checked: how many processes share the reserve then, and for how long. The
//! check of how a limit is shared calls it; problems begin with the key.

use super::raw::{RawLimit, RawSafe};
use lessor_ledger::Rule;
use lessor_ledger::pool::safe_span;
use lessor_ledger::rule_text::{Count, Timespan, timespan};
use lessor_ledger::share::Safe;
use lessor_protocol::{Fallback, SafeShare};
use std::time::Duration;

/// Processes that share a reserve at most. An operator with more wants to divide them by limit or by region.
const NODES_MAX: u64 = 10_000;

/// A shorter outage than this is bridged by leases.
const LASTS_MIN: Duration = Duration::from_secs(1);

/// Who may spend of the `reserve` of a limit whose pools have one or the other of `rules`.
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
            return Err(format!("safe needs fallback = {name:?}: no node spends of the reserve without it"));
        }
        None => {
            return Err(format!(
                "fallback is {name:?} and safe is missing: say how many processes share the reserve, \
                 for example safe = {{ nodes = 20 }}"
            ));
        }
    };
    if let Some(parent) = &raw.parent {
        return Err(format!(
            "fallback is {name:?} and parent is {parent:?}: what is spent without asking would not be charged there, \
             use \"closed\""
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
            "safe.nodes is {nodes}, and reserve is {reserve}: each of them needs a permit, use a reserve of at least {nodes}"
        ));
    }
    let lasts = lasts.map_or(SafeShare::LASTS_MAX, |Timespan(lasts)| lasts);
    if !(LASTS_MIN..=SafeShare::LASTS_MAX).contains(&lasts) {
        let (least, most) = (timespan(LASTS_MIN), timespan(SafeShare::LASTS_MAX));
        return Err(format!("safe.lasts is {}: use {least} to {most}", timespan(lasts)));
    }
    Ok(Some(Safe { nodes: *nodes, lasts }))
}

/// `safe` as it would be written.
pub(super) fn raw(safe: Safe) -> RawSafe {
    RawSafe { nodes: Count(safe.nodes), lasts: Some(Timespan(safe.lasts)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    const WINDOW: &str = r#"{ kind = "sliding_window", limit = 600, per = "30s" }"#;

    fn config(said: &str) -> Config {
        Config::parse(&format!("[[limit]]\nname = \"a\"\nrules = [{WINDOW}]\n{said}\n")).expect("valid")
    }

    #[test]
    fn a_reserve_is_shared_by_so_many_for_ten_minutes_unless_it_says_otherwise() {
        let said = "reserve = 60\nfallback = \"safe_share\"\nsafe = { nodes = 20 }";
        let parsed = config(said);
        let safe = Safe { nodes: 20, lasts: Duration::from_secs(600) };
        assert_eq!(
            (parsed.limits[0].fallback, parsed.limits[0].sharing.safe),
            (Fallback::SafeShare, Some(safe))
        );
        assert_eq!(Config::parse(&parsed.to_string()), Ok(parsed));
    }
}
