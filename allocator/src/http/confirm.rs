//! Decides which changes of a limit are so large that an operator has to confirm them: most typos are a zero too many.

use crate::config::{Keyed, LimitConfig, Names, Upstream};
use lessor_ledger::Rule;
use lessor_ledger::rejection::quoted;
use lessor_protocol::Fallback;
use std::collections::BTreeSet;
use std::time::Duration;

/// The span over which rates are compared.
const SPAN: Duration = Duration::from_secs(86_400);

/// Returns why a change from `before` to `after` needs confirmation; `None` if it needs none. `before` is a pattern if
/// `after` is new and has a name that the pattern fits. Both the permits that may be spent at once and the permits that
/// may be spent in a day may change by at most `factor`.
pub(super) fn reason(before: &LimitConfig, after: &LimitConfig, factor: u64) -> Option<String> {
    let why = change(before, after, factor)?;
    if before.name.as_str() == after.name.as_str() {
        return Some(why);
    }
    Some(format!("{why} (the pattern {} holds for this limit now)", quoted(before.name.as_str())))
}

fn change(before: &LimitConfig, after: &LimitConfig, factor: u64) -> Option<String> {
    if after.shadow && !before.shadow {
        return Some("in shadow mode nothing is refused".to_owned());
    }
    if after.fallback == Fallback::Open && before.fallback != Fallback::Open {
        return Some("with fallback \"open\" nothing holds the cap while no allocator answers".to_owned());
    }
    if let Some(parent) = before.parent.as_ref().filter(|parent| after.parent.as_ref() != Some(*parent)) {
        return Some(format!("its grants would no longer be charged to {}", quoted(parent)));
    }
    if upstream(before) != upstream(after) {
        return Some("the limit would be leased from another upstream".to_owned());
    }
    match (before.keyed, after.keyed) {
        (Keyed::No, Keyed::Yes { .. }) => {
            return Some(
                "with keyed = true each key may spend what the whole limit may spend now".to_owned(),
            );
        }
        // A key that has spent keeps its place, so this many keys can spend within one window.
        (Keyed::Yes { keys_max: before }, Keyed::Yes { keys_max: after }) if after > before => {
            if let Some(times) = larger(Some(before as u128), Some(after as u128), factor) {
                return Some(format!("the number of keys that may spend the limit changes {times}"));
            }
        }
        (Keyed::No | Keyed::Yes { .. }, Keyed::No | Keyed::Yes { .. }) => {}
    }
    // Each name of a pattern has a pool of its own, as each key has.
    if let (Names::Many { names_max: before }, Names::Many { names_max: after }) =
        (before.name.names(), after.name.names())
        && after > before
        && let Some(times) = larger(Some(before as u128), Some(after as u128), factor)
    {
        return Some(format!("the number of names that may spend the limit changes {times}"));
    }
    let keys: BTreeSet<_> = before.overrides.keys().chain(after.overrides.keys()).map(Some).collect();
    keys.into_iter().chain([None]).find_map(|key| {
        let rules = |config: &'_ LimitConfig| {
            key.and_then(|key| config.overrides.get(key)).unwrap_or(&config.rules).clone()
        };
        let (before, after) = (rules(before), rules(after));
        let of = key.map_or(String::new(), |key| format!(" of key {key}"));
        let at_once = larger(at_once(&before), at_once(&after), factor)
            .map(|times| format!("what may be spent at once{of} changes {times}"));
        at_once.or_else(|| match (in_a_day(&before), in_a_day(&after)) {
            (Some(_), None) => {
                Some(format!("what may be spent in a day{of} would have no bound, only the calls in flight"))
            }
            (before, after) => larger(before, after, factor)
                .map(|times| format!("what may be spent in a day{of} changes {times}")),
        })
    })
}

fn upstream(config: &LimitConfig) -> Option<&Upstream> {
    config.upstream.as_ref().filter(|upstream| !upstream.is_store())
}

/// Returns the permits that may be spent at once; `None` without rules.
fn at_once(rules: &[Rule]) -> Option<u128> {
    rules.iter().map(|rule| u128::from(rule.ceiling())).min()
}

/// Returns the permits that may be spent in a day; `None` if all rules only bound the calls in flight.
fn in_a_day(rules: &[Rule]) -> Option<u128> {
    let rate = |rule: &Rule| match rule {
        Rule::Concurrency(_) => None,
        Rule::SlidingWindow(_)
        | Rule::SlidingLog(_)
        | Rule::FixedWindow(_)
        | Rule::LeakyBucket(_)
        | Rule::TokenBucket(_) => {
            let ceiling = u128::from(rule.ceiling());
            let in_a_day = |window: Duration| ceiling * SPAN.as_nanos() / window.as_nanos().max(1);
            // A bucket that never refills has no window.
            Some(rule.window().map_or(ceiling, in_a_day))
        }
    };
    rules.iter().filter_map(rate).min()
}

/// Says in words how far one value is from the other, if by more than `factor`.
fn larger(before: Option<u128>, after: Option<u128>, factor: u64) -> Option<String> {
    let (before, after) = (before?, after?);
    let factor = u128::from(factor);
    if after > before.saturating_mul(factor) || before > after.saturating_mul(factor) {
        return Some(format!("from {before} to {after}, by more than {factor} times"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Named};

    fn limit(text: &str) -> LimitConfig {
        let config = Config::parse(&format!("[[limit]]\nname = \"a\"\n{text}\n")).expect(text);
        config.limits.into_iter().next().expect("one")
    }

    const IN_FLIGHT: &str = "{ kind = \"concurrency\", limit = 600, longest = \"10s\" }";

    fn window(limit: u64, per: &str) -> String {
        format!("{{ kind = \"sliding_window\", limit = {limit}, per = \"{per}\" }}")
    }

    #[test]
    fn a_zero_too_many_is_to_be_confirmed_and_a_tenth_more_is_not() {
        let rules = |rules: &str| limit(&format!("rules = [{rules}]"));
        let asked = |before: &LimitConfig, after: &LimitConfig| reason(before, after, 10).is_some();
        let before = rules(&window(600, "30s"));
        for (after, is_asked) in [
            (window(6_000, "30s"), false),
            (window(6_001, "30s"), true),
            (window(60, "30s"), false),
            (window(59, "30s"), true),
            (window(0, "30s"), true),
            (window(600, "3s"), false),
            (window(600, "2s"), true),
            (window(600, "1h"), true),
            (format!("{}, {}", window(600, "30s"), window(10_000, "1h")), false),
            (format!("{}, {}", window(600, "30s"), window(100, "1h")), true),
            (format!("{}, {IN_FLIGHT}", window(600, "30s")), false),
        ] {
            let after = rules(&after);
            assert_eq!(asked(&before, &after), is_asked, "{after:?}");
        }
        assert!(!asked(&rules(&window(0, "30s")), &rules(&window(0, "30s"))));
        assert!(asked(&rules(&window(0, "30s")), &rules(&window(1, "30s"))), "from nothing");
    }

    #[test]
    fn what_takes_the_cap_away_is_to_be_confirmed() {
        let of = |more: &str| limit(&format!("rules = [{}]\n{more}", window(600, "30s")));
        for more in ["shadow = true", "fallback = \"open\""] {
            assert!(reason(&of(""), &of(more), 10).is_some(), "{more}");
            assert_eq!(reason(&of(more), &of(""), 10), None, "{more}");
        }
        // The bug: a change that left the parent out took a limit out of its cap.
        let below = |parent: Option<&str>| LimitConfig { parent: parent.map(str::to_owned), ..of("") };
        for (before, after, is_asked) in [
            (Some("b"), None, true),
            (Some("b"), Some("c"), true),
            (Some("b"), Some("b"), false),
            (None, Some("b"), false),
        ] {
            assert_eq!(reason(&below(before), &below(after), 10).is_some(), is_asked, "{before:?} {after:?}");
        }
        let keyed =
            |rules: &str| of(&format!("keyed = true\n[[limit.override]]\nkey = \"acme\"\nrules = [{rules}]"));
        let said =
            reason(&keyed(&window(600, "30s")), &keyed(&window(60_000, "30s")), 10).expect("it is large");
        assert!(said.contains("of key acme"), "{said}");
    }

    /// The bug: a cap on the calls in flight, or a bucket that never refills, had no figure for a day, and such a change
    /// needed no confirmation.
    #[test]
    fn a_day_without_a_bound_is_to_be_confirmed() {
        let rules = |rules: &str| limit(&format!("rules = [{rules}]"));
        let said = |before: &str, after: &str| reason(&rules(before), &rules(after), 10);
        let (windowed, both) = (window(600, "30s"), format!("{}, {IN_FLIGHT}", window(600, "30s")));
        for before in [&windowed, &both] {
            let said = said(before, IN_FLIGHT).expect("nothing bounds a day");
            assert!(said.contains("spent in a day would have no bound"), "{said}");
        }
        for (before, after) in [(IN_FLIGHT, IN_FLIGHT), (IN_FLIGHT, &*both), (IN_FLIGHT, &*windowed)] {
            assert_eq!(said(before, after), None, "{before} {after}");
        }
        let once = "{ kind = \"token_bucket\", capacity = 600, refill = 0, per = \"1s\" }";
        for (before, after) in [(&*windowed, once), (once, &*windowed)] {
            assert!(said(before, after).is_some_and(|said| said.contains("in a day")), "{before} {after}");
        }
        assert_eq!(said(once, once), None);
        let keyed = |rules: &str| {
            let of_key = format!("[[limit.override]]\nkey = \"acme\"\nrules = [{rules}]");
            limit(&format!("keyed = true\nrules = [{windowed}]\n{of_key}"))
        };
        let said = reason(&keyed(&windowed), &keyed(IN_FLIGHT), 10).expect("nothing bounds a day");
        assert!(said.contains("of key acme"), "{said}");
    }

    /// The bug: a limit that is counted by key from then on lets each key spend all of it, and needed no confirmation.
    #[test]
    fn a_limit_for_each_key_in_place_of_one_is_to_be_confirmed() {
        let of = |more: &str| limit(&format!("{more}\nrules = [{}]", window(600, "30s")));
        let keys = |most: u64| of(&format!("keyed = true\nkeys_max = {most}"));
        for most in [1, 2_000] {
            let said = reason(&of(""), &keys(most), 10).expect("each key has the limit");
            assert!(said.contains("keyed = true"), "{said}");
            assert_eq!(reason(&keys(most), &of(""), 10), None);
        }
        let names = |most: u64| {
            let mut pattern = of("");
            let named = Named::try_new("api/*").expect("a pattern");
            pattern.name = named.with_names_max(usize::try_from(most).expect("small"));
            pattern
        };
        for (before, after, is_asked) in [(100, 1_000, false), (100, 1_001, true), (1_001, 1, false)] {
            assert_eq!(reason(&keys(before), &keys(after), 10).is_some(), is_asked, "{before} {after}");
            assert_eq!(reason(&names(before), &names(after), 10).is_some(), is_asked, "{before} {after}");
        }
    }
}
