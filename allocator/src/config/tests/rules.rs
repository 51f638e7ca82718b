//! Options of windows and buckets, and rules of single keys: how each is parsed, printed and refused.

use super::{SECOND, rule_refused};
use crate::config::Config;
use lessor_ledger::Rule;
use lessor_ledger::rule::{
    Calendar, FixedWindow, RefillStyle, SlidingWindow, TokenBucket, Unit, WarmUp, Windows, Zone,
};

#[test]
fn windows_of_a_calendar_are_refused_with_what_would_be_right() {
    let refused = |rest: &str, expected: &str| {
        let rule = format!("kind = \"fixed_window\", limit = 1, {rest}");
        rule_refused(&rule, &format!("limit \"a\": rules[0].{expected}"));
    };
    refused(
        "calendar = \"month\", anchor_day = \"monday\"",
        "anchor_day is \"monday\": use a day of the month, 1 to 31",
    );
    refused(
        "calendar = \"day\", anchor = \"epoch\"",
        "anchor is \"epoch\", but calendar decides where windows begin: leave it out",
    );
    refused(
        "per = \"24h\", zone = \"UTC\"",
        "zone is \"UTC\", which means nothing to a fixed_window: it takes limit, per, anchor, calendar",
    );
    refused(
        "per = \"1s\", anchor_day = 3",
        "anchor_day is 3, which means nothing to a fixed_window: it takes limit, per, anchor, calendar",
    );
    rule_refused(
        "kind = \"fixed_window\", limit = 1, calendar = \"month\", anchor_day = -1",
        "limit[0].rules[0].anchor_day: invalid value: integer `-1`, expected a day of the month, 1 to 31, or the name of a weekday",
    );
}

#[test]
fn buckets_that_make_no_sense_are_refused_with_what_would_be_right() {
    let refused = |rest: &str, expected: &str| {
        let rule = format!("kind = \"token_bucket\", capacity = 5, refill = 1, per = \"1s\", {rest}");
        rule_refused(&rule, &format!("limit \"a\": rules[0].{expected}"));
    };
    refused(
        "warm_up = { over = \"1s\", cold_factor = 4294967298 }",
        "warm_up.cold_factor is 4294967298: use 2 to 1000",
    );
    rule_refused(
        "kind = \"fixed_window\", limit = 1, per = \"1s\", debt = 3",
        "limit \"a\": rules[0].debt is 3, which means nothing to a fixed_window: it takes limit, per, anchor, calendar",
    );
}

/// Each rule is printed and parsed back, with defaults and without.
#[test]
fn every_kind_of_rule_is_printed_as_it_means() {
    let zone = |name| Zone::try_new(name).expect("a zone");
    let calendar =
        |calendar| Rule::FixedWindow(FixedWindow::of(7, Windows::Calendar(calendar)).expect("valid"));
    let bucket = || TokenBucket::try_new(5, 1, SECOND, 5).expect("valid");
    let month = Calendar::new(Unit::Month, zone("Europe/Berlin")).with_anchor_day(31).expect("valid");
    let week = Calendar::new(Unit::Week, Zone::utc()).with_anchor_weekday("sunday").expect("valid");
    let day = Calendar::new(Unit::Day, Zone::utc());
    let warm =
        |factor| bucket().with_warm_up(WarmUp::try_new(10 * SECOND, factor).expect("valid")).expect("valid");
    let first_use = FixedWindow::of(7, Windows::FirstUse { per: SECOND }).expect("valid");
    let bucket_text = "kind = \"token_bucket\", capacity = 5, refill = 1, per = \"1s\"";
    let cases = [
        (
            "kind = \"sliding_log\", limit = 7, per = \"1s\"".to_owned(),
            Rule::SlidingLog(SlidingWindow::try_new(7, SECOND, SECOND / 4).expect("valid")),
        ),
        (
            "kind = \"fixed_window\", limit = 7, per = \"1s\", anchor = \"first_use\"".to_owned(),
            Rule::FixedWindow(first_use),
        ),
        (
            "kind = \"fixed_window\", limit = 7, calendar = \"month\", anchor_day = 31, zone = \"europe/berlin\"".to_owned(),
            calendar(month),
        ),
        (
            "kind = \"fixed_window\", limit = 7, calendar = \"week\", anchor_day = \"sunday\"".to_owned(),
            calendar(week),
        ),
        ("kind = \"fixed_window\", limit = 7, calendar = \"day\"".to_owned(), calendar(day)),
        (
            format!("{bucket_text}, refill_style = \"interval\""),
            Rule::TokenBucket(bucket().with_refill_style(RefillStyle::Interval).expect("valid")),
        ),
        (format!("{bucket_text}, debt = 3"), Rule::TokenBucket(bucket().with_debt(3).expect("valid"))),
        (format!("{bucket_text}, warm_up = {{ over = \"10s\" }}"), Rule::TokenBucket(warm(3))),
        (
            format!("{bucket_text}, warm_up = {{ over = \"10s\", cold_factor = 5 }}"),
            Rule::TokenBucket(warm(5)),
        ),
    ];
    for (text, rule) in cases {
        let text = format!("[[limit]]\nname = \"a\"\nrules = [{{ {text} }}]");
        let config = Config::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(config.limits[0].rules, [rule], "{text}");
        let printed = config.to_string();
        assert_eq!(Config::parse(&printed), Ok(config), "{printed}");
        // And as `GET /v1/limits` shows it.
        let json = serde_json::to_string(&Config::parse(&printed).expect("printed").limits[0].raw());
        assert!(json.expect("it is shown").contains(rule.kind()));
    }
}

/// The bug: a limit with fourteen thousand rules, put by an operator of one limit, kept an allocator busy for minutes.
#[test]
fn a_limit_has_few_rules() {
    let rule = "{ kind = \"fixed_window\", limit = 1, per = \"1s\" }, ";
    let of = |rules: usize| {
        let keyed = format!("keyed = true\noverride = [{{ key = \"x\", rules = [{}] }}]", rule.repeat(rules));
        [format!("rules = [{}]", rule.repeat(rules)), format!("rules = [{rule}]\n{keyed}")]
    };
    for (text, named) in of(17).into_iter().zip(["rules", "override[0].rules"]) {
        let refused =
            Config::parse(&format!("[[limit]]\nname = \"a\"\n{text}")).expect_err(&text).to_string();
        let problem = format!("limit \"a\": {named} has 17 rules: use at most 16");
        assert!(refused.ends_with(&problem), "{refused}");
    }
    for text in of(16) {
        assert!(Config::parse(&format!("[[limit]]\nname = \"a\"\n{text}")).is_ok(), "{text}");
    }
}
