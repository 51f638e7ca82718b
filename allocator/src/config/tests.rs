//! Configurations that are accepted or refused, and the words of each refusal.

mod example;
mod places;
mod rules;
mod safe;
mod vendor;

use super::*;
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
    refused("", "line 1: there is no [[limit]]: add at least one");
    refused("\nlimit = 3", "line 2: limit: invalid type: integer `3`, expected a sequence");
    refused(
        "\n\nlimt = 3",
        "line 3: limt: unknown field `limt`, expected one of `clock_drift_ppm`, `server`, `admin`, `upstream_tls`, `upstream_auth`, `auth`, `audit`, `role`, `store`, `limit`",
    );
    refused(
        "[[limit]]\nname = a",
        "line 2: string values must be quoted, expected literal string, in: name = a",
    );
    refused(
        "[[limit]]\nname = \"a\"",
        "line 1: limit \"a\": rules is missing: say for example rules = [{ kind = \"sliding_window\", limit = 100, per = \"30s\" }]",
    );
    refused(
        "[[limit]]\nname = \"a\"\nrules = []",
        "line 3: limit \"a\": rules is empty: a limit needs at least one rule",
    );
    refused(
        "[[limit]]\nname = \"a b\"\nrules = []",
        "line 2: limit \"a b\": name contains ' ', allowed are A-Z a-z 0-9 . _ : / -",
    );
    refused("[[limit]]\nname = \"a\"\nname = \"a\"", "line 3: duplicate key, in: name = \"a\"");
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
    let limit = "[[limit]]\nname = \"a\"\nrules = [{ kind = \"fixed_window\", limit = 1, per = \"1s\" }]\n";
    refused(
        &format!("{limit}{limit}"),
        "line 5: limit \"a\": name is \"a\", which is there twice: every limit needs its own name",
    );
    refused(
        &format!("clock_drift_ppm = 200000\n{limit}"),
        "line 1: clock_drift_ppm is 200000: a clock that is off by more than a tenth is broken, use at most 100000",
    );
    refused(
        &format!("clock_drift_ppm = -1\n{limit}"),
        "line 1: clock_drift_ppm: invalid value: integer `-1`, expected a whole number, not negative",
    );
    refused(
        &format!("[server]\nlisten = \"7400\"\n{limit}"),
        "line 2: server.listen is \"7400\": use an IP address and a port, for example \"127.0.0.1:7400\", or unix: and the path of a socket",
    );
    refused(
        &format!("[server]\nconnections_max = 0\n{limit}"),
        "line 2: server.connections_max is 0: use a number from 1 on",
    );
    refused(
        &format!("[server]\nconnections_per_address_max = 0\n{limit}"),
        "line 2: server.connections_per_address_max is 0: use a number from 1 on",
    );
    refused(
        &format!("[server]\nconnections_max = 8\nconnections_per_address_max = 9\n{limit}"),
        "line 3: server.connections_per_address_max is 9: use at most 8, as many as may be open at once (connections_max)",
    );
    refused(
        &format!("[server]\nmemory_max = 1000\n{limit}"),
        "line 2: server.memory_max is 1000: use at least 67108864 bytes (64 MiB), about what an allocator without keys takes",
    );
    refused(
        &format!("[server]\nport = 1\n{limit}"),
        "line 2: server.port: unknown field `port`, expected one of `listen`, `connections_max`, `connections_per_address_max`, `memory_max`, `node`, `hosts`, `upstreams`, `tls`, `change_factor_max`, `insecure`",
    );
}

#[test]
fn rules_that_promise_nothing_sensible_are_refused() {
    rule_refused(
        "kind = \"sliding_window\", limit = 1, per = 30",
        "limit[0].rules[0].per: invalid type: integer `30`, expected a number with a unit, for example \"30s\"",
    );
    rule_refused(
        "kind = \"sliding_window\", limit = 1, per = \"30\"",
        "limit[0].rules[0].per: invalid value: string \"30\", expected a number with a unit, for example \"30s\"",
    );
    rule_refused(
        "kind = \"sliding_window\", limit = -1, per = \"30s\"",
        "limit[0].rules[0].limit: invalid value: integer `-1`, expected a whole number, not negative",
    );
    rule_refused(
        "kind = \"sliding_window\", limit = 1.5, per = \"30s\"",
        "limit[0].rules[0].limit: invalid type: floating point `1.5`, expected a whole number, not negative",
    );
    rule_refused(
        "kind = \"sliding_window\", limit = \"9000\", per = \"30s\"",
        "limit[0].rules[0].limit: invalid type: string \"9000\", expected a whole number, not negative",
    );
    rule_refused(
        "kind = \"sliding_window\", limit = 9007199254740992, per = \"30s\"",
        "limit \"a\": rules[0].limit is 9007199254740992, more than 9007199254740991 (2^53 - 1), the most that can be counted",
    );
    rule_refused(
        "kind = \"sliding_window\", limit = 1, per = \"0s\"",
        "limit \"a\": rules[0].per is zero: a window needs a length, for example \"30s\"",
    );
    rule_refused(
        "kind = \"sliding_window\", limit = 1, per = \"1s\", margin = \"2s\"",
        "limit \"a\": rules[0].margin is 2s, longer than the window itself (1s): use a shorter margin",
    );
    rule_refused(
        "kind = \"sliding_window\", limit = 1",
        "limit \"a\": rules[0].per is missing: a sliding_window needs it, for example per = \"30s\"",
    );
    rule_refused(
        "kind = \"sliding_window\", per = \"1s\"",
        "limit \"a\": rules[0].limit is missing: a sliding_window needs it, for example limit = 100",
    );
    rule_refused(
        "kind = \"sliding_window\", limit = 1, per = \"1s\", capacity = 3",
        "limit \"a\": rules[0].capacity is 3, which means nothing to a sliding_window: it takes limit, per, margin",
    );
    rule_refused(
        "kind = \"fixed_window\", limit = 1, per = \"10ms\"",
        "limit \"a\": rules[0].per is 10ms, no lease fits in it: use at least 50ms",
    );
    rule_refused(
        "kind = \"fixed_window\", limit = 1, per = \"1s\", anchor = \"noon\"",
        "limit \"a\": rules[0].anchor is \"noon\": use \"epoch\" or \"first_use\", or calendar",
    );
    rule_refused(
        "kind = \"token_bucket\", capacity = 1, refill = 1, per = \"1s\", initial = 2",
        "limit \"a\": rules[0].initial is 2, more than the bucket holds: use at most 1",
    );
    rule_refused(
        "kind = \"token_bucket\", capacity = 1, per = \"1s\"",
        "limit \"a\": rules[0].refill is missing: a token_bucket needs it, for example refill = 100",
    );
    rule_refused(
        "kind = \"concurrency\", limit = 25",
        "limit \"a\": rules[0].longest is missing: a concurrency needs it, for example longest = \"2m\"",
    );
    rule_refused(
        "kind = \"concurrency\", limit = 25, longest = \"0s\"",
        "limit \"a\": rules[0].longest is zero: a call takes some time, for example \"2m\"",
    );
    rule_refused(
        "kind = \"concurrency\", limit = 25, longest = \"2m\", per = \"30s\"",
        "limit \"a\": rules[0].per is \"30s\", which means nothing to a concurrency: it takes limit, longest",
    );
    rule_refused(
        "kind = \"concurrency\", limit = 9, longest = \"1s\" }, { kind = \"concurrency\", limit = 5, longest = \"2s\"",
        "limit \"a\": rules[1].kind is \"concurrency\" for the second time: put the lower limit and the longest \
         call into one rule",
    );
    rule_refused(
        "kind = \"sliding_widow\"",
        "limit \"a\": rules[0].kind is \"sliding_widow\": use \"sliding_window\", \"sliding_log\", \"fixed_window\", \"token_bucket\", \"leaky_bucket\" or \"concurrency\"",
    );
    rule_refused("limit = 1", "limit[0].rules[0].kind is missing: say for example kind = \"sliding_window\"");
    rule_refused(
        "kind = \"leaky_bucket\", per = \"100ms\"",
        "limit \"a\": rules[0].refill is missing: a leaky_bucket needs it, for example refill = 100",
    );
    rule_refused(
        "kind = \"leaky_bucket\", refill = 1, per = \"1s\" }, { kind = \"leaky_bucket\", refill = 9, per = \"1m\"",
        "limit \"a\": rules[1].kind is \"leaky_bucket\" for the second time: only one leaky_bucket can pace calls, \
         use a token_bucket for the other rate",
    );
    rule_refused(
        "kind = \"leaky_bucket\", refill = 1, per = \"2s\" }, { kind = \"fixed_window\", limit = 9, per = \"15s\"",
        "limit \"a\": rules[1].per is 15s, too short beside a leaky_bucket: use at least 20s",
    );
}

/// The design knows more options than this version. An operator who uses one of them is told so.
#[test]
fn what_comes_later_is_said_to_come_later() {
    option_refused("priority = 3", "limit[0].priority is not available in this version: leave it out");
}

#[test]
fn options_that_make_no_sense_are_refused() {
    option_refused(
        "fallback = \"ajar\"",
        "limit \"a\": fallback is \"ajar\": use one of \"closed\", \"safe_share\", \"open\"",
    );
    option_refused(
        "keys_max = 3",
        "limit \"a\": keys_max is 3, which needs keyed = true: this limit has no keys",
    );
    option_refused(
        "names_max = 3",
        "limit \"a\": names_max is 3, which needs a name that ends in *: this limit has one name",
    );
    option_refused("lessees_max = 0", "limit \"a\": lessees_max is 0: use a number from 1 on");
    option_refused("keyed = \"yes\"", "limit[0].keyed: invalid type: string \"yes\", expected a boolean");
    option_refused(
        "weights = { \"a-*\" = 0 }",
        "limit \"a\": weights.\"a-*\" is 0: use a weight from 1 to 1000000",
    );
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
fn parents_that_make_no_sense_are_refused() {
    let rules = "rules = [{ kind = \"fixed_window\", limit = 1, per = \"1s\" }]";
    let limit = |name: &str, options: &str| format!("[[limit]]\nname = {name:?}\n{rules}\n{options}\n");
    let parent = |name: &str| format!("parent = {name:?}");
    let both = |first: &str, second: &str, line: usize, expected: &str| {
        refused(&(limit("a", first) + &limit("b", second)), &format!("line {line}: limit {expected}"));
    };
    both(
        &parent("c"),
        "",
        4,
        "\"a\": parent is \"c\", which is no limit here: use the name of another limit",
    );
    let round =
        "\"a\": parent is \"b\", and from there parents lead back to \"a\": no limit may be above itself";
    both(&parent("b"), &parent("a"), 4, round);
    both(
        &parent("a"),
        "",
        4,
        "\"a\": parent is \"a\", and from there parents lead back to \"a\": no limit may be above itself",
    );
    let shadow = "\"a\": parent is \"b\", which is in shadow mode: a parent must be able to refuse, use \
                  shadow = false there";
    both(&parent("b"), "shadow = true", 4, shadow);
    let keyed = "\"a\": parent is \"b\", which is counted by key: this limit needs keyed = true too";
    both(&parent("b"), "keyed = true", 4, keyed);
    let options = format!("{}\nkeyed = true\noverride = [{{ key = \"x\", {rules} }}]", parent("b"));
    let key = "\"a\": override.\"x\".key has no /: the part before the last / is the key of \"b\", use a key with a /";
    both(&options, "keyed = true", 6, key);
    let many = limit("a", &parent("b*")) + &limit("b*", "");
    let single = "line 4: limit \"a\": parent is \"b*\", which is a pattern: use the name of a single limit";
    refused(&many, single);
    let flow = |name: &str, extra: &str| {
        limit(name, extra).replace(rules, "rules = [{ kind = \"leaky_bucket\", refill = 1, per = \"1s\" }]")
    };
    refused(
        &(flow("a", &parent("b")) + &flow("b", "")),
        "line 3: limit \"a\": rules[0].kind is \"leaky_bucket\", and \"b\" above has one, too: only one \
         leaky_bucket can pace calls, use a token_bucket for the other rate",
    );
    let tower: String = (0..5).map(|n| limit(&n.to_string(), &parent(&(n + 1).to_string()))).collect();
    let deep =
        "line 4: limit \"0\": parent is \"1\", which puts more than 4 limits above each other: use at most 4";
    refused(&(tower + &limit("5", "")), deep);
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
    refused("reserve = 10", "reserve is 10, all that the limit has: use at most 9");
    refused("lease_max = 0", "lease_max is 0: use a number from 1 to 4294967295");
    refused("lease_max = 4294967296", "lease_max is 4294967296: use a number from 1 to 4294967295");
    refused("term = { min = \"5ms\" }", "term.min is 5ms: use 20ms to 2s");
    refused("term = { max = \"3s\" }", "term.max is 3s: use 20ms to 2s");
    refused(
        "term = { min = \"1s\", max = \"500ms\" }",
        "term.min is 1s, longer than term.max: use at most 500ms",
    );
    refused("guaranteed = { \"x\" = 0 }", "guaranteed.\"x\" is 0: use a number from 1 on, or leave it out");
    let sum = "guaranteed adds up to 9, more than the limit without its reserve: use at most 8";
    refused("guaranteed = { \"x\" = 4, \"y\" = 5 }\nreserve = 2", sum);
    let pattern = "priorities.\"x*y\" contains '*', allowed are A-Z a-z 0-9 . _ : / -: use a node name, or a prefix and a *";
    refused("priorities = { \"x*y\" = 1 }", pattern);
    option_refused(
        "priorities = { x = -1 }",
        "limit[0].priorities.x: invalid value: integer `-1`, expected a whole number, not negative",
    );
    option_refused(
        "term = { most = \"1s\" }",
        "limit[0].term.most: unknown field `most`, expected `min` or `max`",
    );
}
