//! What is let go on without an allocator, raw → checked: how many processes share the reserve then, and for how long. The
//! check of how a limit is shared calls it; problems begin with the key, which limit that is, the caller adds.

use super::raw::{Count, RawLimit, RawSafe, Timespan};
use super::show::timespan;
use crate::pool::safe_span;
use crate::share::Safe;
use lessor_protocol::{Fallback, Rule, SafeShare};
use std::time::Duration;
use toml::Spanned;

/// Processes that share a reserve at most. Whoever has more wants to divide them by limit or by region.
const NODES_MAX: u64 = 10_000;

/// A shorter outage than this is bridged by leases.
const LASTS_MIN: Duration = Duration::from_secs(1);

/// What is wrong, and the offset at which it stands.
type Problem = (usize, String);

/// Who may spend of the `reserve` of a limit whose pools have one or the other of `rules`.
pub(super) fn safe<'a>(
    raw: &RawLimit,
    reserve: u64,
    mut rules: impl Iterator<Item = &'a [Rule]>,
) -> Result<Option<Safe>, Problem> {
    let name = Fallback::SafeShare.name();
    let fallback = raw.fallback.as_ref().filter(|fallback| fallback.get_ref() == name);
    let (fallback, safe) = match (fallback, &raw.safe) {
        (None, None) => return Ok(None),
        (Some(fallback), Some(safe)) => (fallback, safe),
        (Some(fallback), None) => {
            let problem = format!(
                "fallback {name:?} lacks safe: say how many processes share the reserve, for example safe = {{ nodes = 20 }}"
            );
            return Err(at(fallback, problem));
        }
        (None, Some(safe)) => {
            return Err(at(
                safe,
                format!("safe needs fallback = {name:?}: nobody spends of the reserve without"),
            ));
        }
    };
    if let Some(parent) = &raw.parent {
        let parent = parent.get_ref();
        let problem = format!(
            "fallback {name:?} with parent {parent:?}: what is spent without asking would not be charged there, use \"closed\""
        );
        return Err(at(fallback, problem));
    }
    if !rules.all(|rules| safe_span(rules).is_some()) {
        let problem = format!(
            "fallback {name:?} needs rules that count in windows: use sliding_window, sliding_log or fixed_window without \
             anchor = \"first_use\", or \"closed\""
        );
        return Err(at(fallback, problem));
    }
    let RawSafe { nodes: Count(nodes), lasts } = safe.get_ref();
    if !(1..=NODES_MAX).contains(nodes) {
        return Err(at(safe, format!("safe.nodes is {nodes}: use a number from 1 to {NODES_MAX}")));
    }
    if reserve < *nodes {
        let problem = format!(
            "safe.nodes is {nodes}, and reserve is {reserve}: each of them needs a permit, use a reserve of at least {nodes}"
        );
        return Err(at(safe, problem));
    }
    let lasts = lasts.map_or(SafeShare::LASTS_MAX, |Timespan(lasts)| lasts);
    if !(LASTS_MIN..=SafeShare::LASTS_MAX).contains(&lasts) {
        let (least, most) = (timespan(LASTS_MIN), timespan(SafeShare::LASTS_MAX));
        return Err(at(safe, format!("safe.lasts is {}: use {least} to {most}", timespan(lasts))));
    }
    Ok(Some(Safe { nodes: *nodes, lasts }))
}

/// `safe` as it would be written.
pub(super) fn raw(safe: Safe) -> RawSafe {
    RawSafe { nodes: Count(safe.nodes), lasts: Some(Timespan(safe.lasts)) }
}

fn at<T>(place: &Spanned<T>, problem: String) -> Problem {
    (place.span().start, problem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    const WINDOW: &str = r#"{ kind = "sliding_window", limit = 600, per = "30s" }"#;

    fn config(said: &str, rules: &str) -> Result<Config, String> {
        let text = format!("[[limit]]\nname = \"a\"\nrules = [{rules}]\n\n{said}\n");
        Config::parse(&text).map_err(|error| error.to_string())
    }

    fn refused(said: &str, line: usize, problem: &str) {
        refused_by(said, WINDOW, line, problem);
    }

    fn refused_by(said: &str, rules: &str, line: usize, problem: &str) {
        let error = config(said, rules).expect_err("it is wrong");
        assert_eq!(error, format!("line {line}: limit \"a\": {problem}"));
    }

    #[test]
    fn a_reserve_is_shared_by_so_many_for_ten_minutes_unless_it_says_otherwise() {
        let said = "reserve = 60\nfallback = \"safe_share\"\nsafe = { nodes = 20 }";
        let parsed = config(said, WINDOW).expect("valid");
        let safe = Safe { nodes: 20, lasts: Duration::from_secs(600) };
        assert_eq!(
            (parsed.limits[0].fallback, parsed.limits[0].sharing.safe),
            (Fallback::SafeShare, Some(safe))
        );
        assert_eq!(Config::parse(&parsed.to_string()), Ok(parsed));
    }

    #[test]
    fn what_could_not_keep_the_cap_is_refused() {
        let share = "fallback = \"safe_share\"";
        let lacks = "fallback \"safe_share\" lacks safe: say how many processes share the reserve, \
                     for example safe = { nodes = 20 }";
        refused(&format!("reserve = 60\n{share}"), 6, lacks);
        let needs = "safe needs fallback = \"safe_share\": nobody spends of the reserve without";
        refused("reserve = 60\n\nsafe = { nodes = 20 }", 7, needs);
        let none = "safe.nodes is 0: use a number from 1 to 10000";
        refused(&format!("{share}\nreserve = 60\nsafe = {{ nodes = 0 }}"), 7, none);
        let poor =
            "safe.nodes is 20, and reserve is 0: each of them needs a permit, use a reserve of at least 20";
        refused(&format!("{share}\nsafe = {{ nodes = 20 }}"), 6, poor);
        let long = "safe.lasts is 1h: use 1s to 10m";
        refused(&format!("{share}\nreserve = 60\nsafe = {{ nodes = 20, lasts = \"1h\" }}"), 7, long);
        let bucket = r#"{ kind = "token_bucket", capacity = 600, refill = 600, per = "30s" }"#;
        let counts = "fallback \"safe_share\" needs rules that count in windows: use sliding_window, sliding_log or \
                      fixed_window without anchor = \"first_use\", or \"closed\"";
        refused_by(&format!("reserve = 60\nsafe = {{ nodes = 20 }}\n{share}"), bucket, 7, counts);
    }
}
