//! How a limit stands: in words, and by how much it needs an operator. `lessor limits`, `status` and `top` say the same.

use crate::span::span;
use serde_json::{Value, json};
use std::time::Duration;

/// Whether a limit has one pool, so that what is left has a ceiling.
pub(crate) fn is_one(limit: &Value) -> bool {
    limit["keyed"] == json!(false) && limit.get("names").is_none()
}

/// Returns the count `of` a limit, 0 if there is none.
pub(crate) fn count(limit: &Value, of: &str) -> u64 {
    limit[of].as_u64().unwrap_or_default()
}

/// Returns the part that is left, in thousandths: all of it where the ceiling is unknown.
pub(crate) fn left_milli(limit: &Value) -> u64 {
    let ceiling = u128::from(count(limit, "ceiling"));
    let left = u128::from(count(limit, "available")) * 1_000;
    left.checked_div(ceiling)
        .filter(|_| is_one(limit))
        .map_or(1_000, |part| part.try_into().unwrap_or(u64::MAX))
}

/// Sums up the asks that were lent nothing.
pub(crate) fn refusals(limit: &Value) -> u64 {
    sum(&limit["asks"], &["empty", "quarantine", "paused", "blocked", "stopping"])
}

fn sum(counts: &Value, of: &[&str]) -> u64 {
    of.iter().map(|one| count(counts, one)).sum()
}

/// Returns how much the limit needs an operator, from 0, not at all, to 3, and why. Some reasons show only beside an
/// `earlier` look.
pub(crate) fn stands(limit: &Value, earlier: Option<&Value>) -> (u8, String) {
    let mut found: Vec<(u8, String)> = vec![];
    let (is, of) = (|what: &str| limit[what] == json!(true), |what: &str| count(limit, what));
    let lasts = |ms: &str| limit[ms].as_u64().map_or(String::new(), |ms| format!(" for {}", of_millis(ms)));
    let rose = |count: fn(&Value) -> u64| earlier.is_some_and(|earlier| count(limit) > count(earlier));
    if of("quarantine_ms") > 0 {
        found.push((3, format!("quarantine{}", lasts("quarantine_ms"))));
    }
    if is("paused") {
        found.push((3, format!("paused{}", lasts("paused_ms"))));
    }
    if is("upstream_silent") {
        found.push((3, "upstream silent".to_owned()));
    }
    match (of("vendor_paused_pools"), of("pools")) {
        (0, _) => {}
        _ if is_one(limit) => found.push((3, format!("vendor paused{}", lasts("vendor_paused_ms")))),
        // Of many keys, some are paused at any moment.
        (paused, pools) => {
            let bad = if paused > pools / 2 { 3 } else { 2 };
            found.push((bad, format!("vendor paused {paused} of {pools} pools")));
        }
    }
    let is_empty = is_one(limit) && of("available") == 0 && found.is_empty();
    match (is_empty, rose(refusals) && !is("paused")) {
        (true, true) => found.push((3, "empty, refusing".to_owned())),
        // A leased limit has as many permits in hand as nodes want, which may be none.
        (true, false) if is("leased") => {}
        (true, false) => found.push((2, "empty".to_owned())),
        (false, true) => found.push((2, "refusing".to_owned())),
        (false, false) => {}
    }
    if is("shadow") && rose(|limit| count(limit, "shadow_refused")) {
        found.push((2, "would refuse".to_owned()));
    }
    if rose(|limit| sum(&limit["vendor_disagreed"], &["refused", "had_less", "lower_limit"])) {
        found.push((2, "vendor disagrees".to_owned()));
    }
    if of("vendor_withheld") > 0 {
        found.push((2, format!("{} withheld", of("vendor_withheld"))));
    }
    if of("blocked_nodes") > 0 {
        found.push((1, format!("{} blocked", of("blocked_nodes"))));
    }
    if of("available") > 0 && !is("leased") && left_milli(limit) < 100 {
        found.push((1, "low".to_owned()));
    }
    if is("shadow") {
        found.push((1, "shadow".to_owned()));
    }
    let worst = found.iter().map(|(bad, _)| *bad).max().unwrap_or(0);
    let words: Vec<String> = found.into_iter().map(|(_, word)| word).collect();
    (worst, if words.is_empty() { "ok".to_owned() } else { words.join(", ") })
}

/// Formats a number of milliseconds for people.
pub(super) fn of_millis(millis: u64) -> String {
    span(Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how a limit with a pool of 100 stands, of which `more` is different.
    fn state(more: Value, earlier: Option<Value>) -> (u8, String) {
        let mut limit =
            json!({ "keyed": false, "pools": 1, "ceiling": 100, "available": 50, "shadow": false });
        limit.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        stands(&limit, earlier.as_ref())
    }

    fn is(bad: u8, words: &str) -> (u8, String) {
        (bad, words.to_owned())
    }

    /// The bugs: a pause had no end, and a long wait was a number of milliseconds.
    #[test]
    fn what_lends_nothing_says_for_how_long() {
        assert_eq!(state(json!({ "paused": true, "paused_ms": 599_123 }), None), is(3, "paused for 9m 59s"));
        assert_eq!(state(json!({ "paused": true, "available": 0 }), None), is(3, "paused"));
        assert_eq!(state(json!({ "quarantine_ms": 519_596_457 }), None), is(3, "quarantine for 6d 0h"));
    }

    /// The bug: a limit that was leased from an allocator that did not answer was `ok`.
    #[test]
    fn a_limit_whose_upstream_does_not_answer_says_so() {
        let leased = json!({ "leased": true, "available": 0, "upstream_silent": true });
        assert_eq!(state(leased, None), is(3, "upstream silent"));
    }

    /// The bugs: a limit that the vendor had paused lent, by its state, and later the end of the pause was nowhere. One
    /// paused key of ten thousand made the limit as bad as one that lends nothing.
    #[test]
    fn a_limit_that_the_vendor_holds_back_says_so() {
        let one = json!({ "vendor_paused_pools": 1, "vendor_paused_ms": 40_000 });
        assert_eq!(state(one, None), is(3, "vendor paused for 40s"));
        let keys =
            |paused| state(json!({ "keyed": true, "pools": 10_000, "vendor_paused_pools": paused }), None);
        assert_eq!(keys(1), is(2, "vendor paused 1 of 10000 pools"));
        assert_eq!(keys(5_001), is(3, "vendor paused 5001 of 10000 pools"));
        assert_eq!(state(json!({ "vendor_withheld": 7 }), None), is(2, "7 withheld"));
        let disagreed = |times| json!({ "vendor_disagreed": { "refused": times } });
        assert_eq!(state(disagreed(2), Some(disagreed(1))), is(2, "vendor disagrees"));
        assert_eq!(state(disagreed(2), Some(disagreed(2))), is(0, "ok"));
    }

    /// The bug: a limit that was used up lent, by its state in `lessor limits` and `status`.
    #[test]
    fn a_limit_that_is_used_up_is_empty() {
        assert_eq!(state(json!({ "available": 0 }), None), is(2, "empty"));
        assert_eq!(state(json!({ "available": 9, "shadow": true }), None), is(1, "low, shadow"));
        assert_eq!(state(json!({ "available": 0, "keyed": true }), None), is(0, "ok"), "no key is in use");
    }
}
