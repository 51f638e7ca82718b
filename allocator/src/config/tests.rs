//! Configurations that are accepted or refused, and the words of each refusal.

mod example;
mod places;
mod rules;
mod safe;
mod vendor;

use super::*;
use crate::samples::LIMIT;
use lessor_ledger::rule::{
    Calendar, Concurrency, FixedWindow, LeakyBucket, SlidingWindow, TokenBucket, Unit, WarmUp, Windows, Zone,
};
use lessor_ledger::rule_text::timespan;
use lessor_ledger::share::Sharing;
use lessor_protocol::{Fallback, Key};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn calls_in_flight_are_capped_beside_a_rate() {
    let text = "[[limit]]\nname = \"a\"\nrules = [{ kind = \"sliding_window\", limit = 600, per = \"30s\" }, \
                { kind = \"concurrency\", limit = 25, longest = \"2m\" }]";
    let config = Config::parse(text).expect("valid");
    let in_flight = Rule::Concurrency(Concurrency::try_new(25, 120 * SECOND).expect("valid"));
    assert_eq!(config.limits[0].rules[1], in_flight);
    assert_eq!(Config::parse(&config.to_string()), Ok(config));
}

#[test]
fn a_limit_is_closed_without_its_allocator_unless_it_says_otherwise() {
    let rules = "rules = [{ kind = \"sliding_window\", limit = 600, per = \"30s\" }]";
    for (said, fallback) in [
        ("", Fallback::Closed),
        ("fallback = \"closed\"", Fallback::Closed),
        ("fallback = \"open\"", Fallback::Open),
    ] {
        let config = Config::parse(&format!("[[limit]]\nname = \"a\"\n{said}\n{rules}")).expect("valid");
        assert_eq!(config.limits[0].fallback, fallback);
        assert_eq!(Config::parse(&config.to_string()), Ok(config));
    }
}

#[test]
fn durations_are_printed_in_the_largest_unit_that_fits() {
    for text in ["0s", "1ns", "999us", "250ms", "30s", "90s", "1h", "31d"] {
        let span = humantime::parse_duration(text).expect("valid");
        assert_eq!(timespan(span), text);
    }
}

/// The default margin of a window shorter than itself is no mistake of the operator.
#[test]
fn the_default_margin_is_never_longer_than_its_window() {
    let text = "[[limit]]\nname = \"a\"\nrules = [{ kind = \"sliding_window\", limit = 1, per = \"100ms\" }]";
    let config = Config::parse(text).expect("valid");
    let rule = SlidingWindow::try_new(1, SECOND / 10, SECOND / 10).expect("valid");
    assert_eq!(config.limits[0].rules, [Rule::SlidingWindow(rule)]);
}

/// Checks that `text` is refused with exactly `expected`.
#[track_caller]
fn refused(text: &str, expected: &str) {
    let error = Config::parse(text).expect_err(text).to_string();
    assert_eq!(error, expected, "\n{text}");
}

/// Checks that a limit `a` with `rule`, on line 3, is refused.
#[track_caller]
fn rule_refused(rule: &str, expected: &str) {
    refused(&format!("[[limit]]\nname = \"a\"\nrules = [{{ {rule} }}]"), &format!("line 3: {expected}"));
}

/// Checks that a limit `a` with a good rule and `option`, on line 4, is refused.
#[track_caller]
fn option_refused(option: &str, expected: &str) {
    let rule = "{ kind = \"fixed_window\", limit = 1, per = \"1s\" }";
    let text = format!("[[limit]]\nname = \"a\"\nrules = [{rule}]\n{option}");
    refused(&text, &format!("line 4: {expected}"));
}

#[test]
fn what_is_no_configuration_is_refused() {
    refused(
        "\n\nlimt = 3",
        "line 3: limt: unknown field `limt`, expected one of `clock_drift_ppm`, `server`, `admin`, `upstream_tls`, `upstream_auth`, `auth`, `audit`, `role`, `store`, `limit`",
    );
    // The bug: the error used the parser's name for such a number.
    refused(
        "[[limit]]\nname = \"a\"\nrules = [{ kind = \"fixed_window\", limit = 99999999999999999999, per = \"1s\" }]",
        "line 3: limit[0].rules[0].limit: 99999999999999999999 is more than 9007199254740991 (2^53 - 1), the most that can be counted",
    );
    // The URL of a store may have a password in it.
    let quotes = "string values must be quoted, expected literal string, in:";
    refused("[store]\nurl = redis://:s3cret@h", &format!("line 2: {quotes} url = …"));
    refused("store = { url = redis://:s3cret@h }", &format!("line 1: {quotes} store = …"));
    // Found by a replay of the fuzz corpus: a bare carriage return, and a line of any length.
    refused(
        "a = b\rlessor: all is well",
        "line 1: carriage return must be followed by newline, expected newline, in: a = b lessor: all is well",
    );
    let long = Config::parse(&format!("a = \"{}", "x".repeat(100_000))).expect_err("no end").to_string();
    assert!(long.len() < 400, "{} bytes", long.len());
    let long = Config::parse(&format!("{} = 1", "x".repeat(100_000))).expect_err("unknown").to_string();
    assert!(long.len() < 1_100 && long.ends_with('…'), "{} bytes", long.len());
    refused(
        &format!("[server]\nconnections_per_address_max = 0\n{LIMIT}"),
        "line 2: server.connections_per_address_max is 0: use a number from 1 to 9007199254740991",
    );
    refused(
        &format!("[server]\nconnections_max = 8\nconnections_per_address_max = 9\n{LIMIT}"),
        "line 3: server.connections_per_address_max is 9: use at most 8, as many as may be open at once (connections_max)",
    );
    refused(
        &format!("[server]\nmemory_max = 1000\n{LIMIT}"),
        "line 2: server.memory_max is 1000: use at least 67108864 bytes (64 MiB), about what an allocator without keys takes",
    );
}

#[test]
fn rules_that_promise_nothing_sensible_are_refused() {
    rule_refused(
        "kind = \"sliding_window\", limit = 1, per = \"30\"",
        "limit[0].rules[0].per: invalid value: string \"30\", expected a number with a unit, for example \"30s\"",
    );
    rule_refused(
        "kind = \"sliding_window\", limit = -1, per = \"30s\"",
        "limit[0].rules[0].limit: invalid value: integer `-1`, expected a whole number, not negative",
    );
    rule_refused(
        "kind = \"sliding_window\", limit = \"9000\", per = \"30s\"",
        "limit[0].rules[0].limit: invalid type: string \"9000\", expected a whole number, not negative",
    );
    rule_refused(
        "kind = \"concurrency\", limit = 25, longest = \"2m\", per = \"30s\"",
        "limit \"a\": rules[0].per is \"30s\", which means nothing to a concurrency: it takes limit, longest",
    );
}

#[test]
fn options_that_make_no_sense_are_refused() {
    option_refused(
        "weights = { \"a-*-b\" = 2 }",
        "limit \"a\": weights.\"a-*-b\" contains '*', allowed are A-Z a-z 0-9 . _ : / -: use a node name, or a \
         prefix and a *",
    );
    option_refused(
        "weights = { \"\" = 2 }",
        "limit \"a\": weights.\"\" is empty: use a node name, or a prefix and a *",
    );
}

#[test]
fn no_limit_above_takes_a_call_for_ended_that_goes_on() {
    let limit = |name: &str, longest: &str, parent: &str| {
        let parent = if parent.is_empty() { String::new() } else { format!("parent = {parent:?}\n") };
        let rules = match longest {
            "" => "{ kind = \"fixed_window\", limit = 1, per = \"1s\" }".to_owned(),
            longest => format!("{{ kind = \"concurrency\", limit = 9, longest = {longest:?} }}"),
        };
        format!("[[limit]]\nname = {name:?}\nrules = [{rules}]\n{parent}")
    };
    let vendor = limit("vendor", "1m", "") + &limit("tenant", "", "vendor");
    Config::parse(&(limit("user", "1m", "tenant") + &vendor)).expect("as long");
    refused(
        &(limit("user", "1m 1s", "tenant") + &vendor),
        "line 3: limit \"user\": rules[0].longest is 1m 1s, but \"vendor\", which is above it, counts calls as ended after 1m: \
         use the same or less",
    );
}

#[test]
fn sharing_that_makes_no_sense_is_refused() {
    let ten = "rules = [{ kind = \"fixed_window\", limit = 10, per = \"1s\" }]";
    let refused = |option: &str, expected: &str| {
        refused(
            &format!("[[limit]]\nname = \"a\"\n{ten}\n{option}"),
            &format!("line 4: limit \"a\": {expected}"),
        );
    };
    refused("lease_max = 4294967296", "lease_max is 4294967296: use a number from 1 to 4294967295");
    let sum = "guaranteed adds up to 9, more than the limit without its reserve: use at most 8";
    refused("guaranteed = { \"x\" = 4, \"y\" = 5 }\nreserve = 2", sum);
    let many = |name: &str, count: u64, star: &str| {
        let entries: Vec<String> = (0..count).map(|n| format!("\"n{n}{star}\" = 1")).collect();
        format!("{name} = {{ {} }}", entries.join(", "))
    };
    refused(&many("weights", 10_001, ""), "weights has 10001 node names: use at most 10000");
    refused(&many("priorities", 257, "*"), "priorities has 257 patterns: use at most 256");
    refused(&many("guaranteed", 257, ""), "guaranteed has 257 entries: use at most 256");
    option_refused(
        "term = { most = \"1s\" }",
        "limit[0].term.most: unknown field `most`, expected `min` or `max`",
    );
}

/// The bug: a larger number was accepted from a file, and could not be read again from a decision about its limit.
#[test]
fn no_number_is_larger_than_can_be_kept() {
    let limit = "[[limit]]\nname = \"a*\"\nkeyed = true\n\
                 rules = [{ kind = \"fixed_window\", limit = 1, per = \"1s\" }]\n";
    let with = |key: &str, line: String| match key.split_once('.') {
        Some((section, _)) if section != "priorities" => format!("[{section}]\n{line}\n{limit}"),
        _ => format!("{limit}{line}"),
    };
    let store = "kind = \"redis\"\nurl = \"redis://h\"\nversion = ";
    for (key, line) in [
        ("keys_max", "keys_max = "),
        ("names_max", "names_max = "),
        ("lessees_max", "lessees_max = "),
        ("priorities.\"n\"", "priorities.n = "),
        ("server.connections_max", "connections_max = "),
        ("server.memory_max", "memory_max = "),
        ("server.change_factor_max", "change_factor_max = "),
    ] {
        let config = Config::parse(&with(key, format!("{line}9007199254740991"))).expect(key);
        assert_eq!(Config::parse(&config.to_string()), Ok(config), "{key}");
        for number in [1 << 53, u64::MAX] {
            let error = Config::parse(&with(key, format!("{line}{number}"))).expect_err(key).to_string();
            let said = format!("{key} is {number}: use ");
            assert!(error.contains(&said) && error.contains("9007199254740991"), "{error}");
        }
    }
    // The bug: no file could be newer than one whose version was a time in nanoseconds.
    let version = |version: u64| Config::parse(&with("store.version", format!("{store}{version}")));
    let config = version(i64::MAX.unsigned_abs()).expect("the largest");
    assert_eq!(Config::parse(&config.to_string()), Ok(config));
    let error = version(1 << 63).expect_err("too large").to_string();
    assert!(
        error.contains("store.version is 9223372036854775808: use at most 9223372036854775807"),
        "{error}"
    );
}
