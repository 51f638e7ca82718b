//! Requests and the answers to them, worked out by hand in the comments beside them, for every kind of rule. The lines
//! go the whole way: read, decided, written.
//!
//! A request is `[<limit> [<key>]: ]<at> <op> <permits> [timeout <span>]`, of the limit `a` unless it names another; an
//! answer is `ok|no|pass <remaining> [retry <span>] [wait <span>]` or `error <how it begins>`. Instants and spans are
//! sums of numbers with a unit; without one they are nanoseconds.

mod bucket;
mod change;
mod concurrency;
mod family;
mod fixed_window;
mod fleet;
mod lines;
mod shadow;
mod sliding_log;

use super::*;
use serde_json::{Value, json};
use std::io::Cursor;
use std::path::Path;

/// Returns the answers to `requests`, line by line.
fn answers(config: &str, requests: &str) -> Vec<String> {
    let config = Config::parse_with_margin(config, Path::new(""), MARGIN).expect("a good configuration");
    let csv = Csv { limit: Ok("a".to_owned()), keyed: true, patience: None };
    let input = Cursor::new(requests.as_bytes().to_vec());
    let mut lines = Lines::new(Box::new(input), csv, MARGIN);
    let mut keeper = Keeper::Central(Contract::new(&config));
    read(&mut keeper, &mut lines)
}

fn read(keeper: &mut Keeper, lines: &mut Lines) -> Vec<String> {
    let mut out = Out::new(vec![], true);
    replay(keeper, lines, None, &mut out).expect("it can be read").expect("memory takes everything");
    let text = String::from_utf8(out.into_inner()).expect("JSON is UTF-8");
    text.lines().map(str::to_owned).collect()
}

/// Checks the answers of a limit with `rules` to the requests, in turn.
#[track_caller]
fn check(rules: &str, script: &[(&str, &str)]) {
    check_limits(&format!("[[limit]]\nname = \"a\"\nrules = [{rules}]"), script);
}

/// Checks the answers of the limits of `config` to the requests, in turn.
#[track_caller]
fn check_limits(config: &str, script: &[(&str, &str)]) {
    let requests: Vec<String> = script.iter().map(|(request, _)| self::request(request)).collect();
    let answers = answers(config, &requests.join("\n"));
    assert_eq!(answers.len(), script.len(), "one line out for one line in");
    for ((request, expected), answer) in script.iter().zip(answers) {
        if let Some(begins) = expected.strip_prefix("error ") {
            let parsed: Value = serde_json::from_str(&answer).expect("JSON");
            let error = parsed["error"].as_str().unwrap_or_default();
            assert!(error.starts_with(begins) && parsed["ok"] == false, "{request} gave {answer}");
            assert!(parsed.get("retry_after_ns").is_none(), "{request} gave {answer}");
        } else {
            assert_eq!(answer, self::answer(expected), "{request}");
        }
    }
}

fn request(text: &str) -> String {
    // A request that cannot be abbreviated is in JSON.
    if text.starts_with('{') {
        return text.to_owned();
    }
    let (pool, call) = text.split_once(": ").unwrap_or(("a", text));
    let words: Vec<&str> = call.split(' ').collect();
    let [at, op, permits, rest @ ..] = &words[..] else {
        panic!("{text}");
    };
    let permits: u64 = permits.parse().expect("a number");
    let (limit, key) = pool.split_once(' ').map_or((pool, None), |(limit, key)| (limit, Some(key)));
    let mut request = json!({ "at_ns": span(at), "limit": limit, "op": op, "permits": permits });
    if let Some(key) = key {
        request["key"] = json!(key);
    }
    if let ["timeout", timeout] = rest {
        request["timeout_ns"] = json!(span(timeout));
    }
    request.to_string()
}

fn answer(text: &str) -> String {
    let words: Vec<&str> = text.split(' ').collect();
    let mut answer = Answer::yes(words[1].parse().expect("a number"));
    answer.ok = words[0] != "no";
    answer.shadow = words[0] == "pass";
    for pair in words[2..].chunks(2) {
        let place = if pair[0] == "retry" { &mut answer.retry_after_ns } else { &mut answer.wait_ns };
        *place = Some(span(pair[1]));
    }
    serde_json::to_string(&answer).expect("plain data")
}

/// Parses a sum such as `2s+5ms-1`, in nanoseconds.
fn span(text: &str) -> u64 {
    let clocks = text.replace('-', "+-");
    let nanos = |term: &str| {
        let (sign, term) = term.strip_prefix('-').map_or((1, term), |term| (-1, term));
        let units =
            [("ms", 1_000_000), ("s", 1_000_000_000), ("m", 60_000_000_000), ("h", 3_600_000_000_000)];
        let unit = units.iter().find_map(|(unit, nanos)| Some((term.strip_suffix(unit)?, *nanos)));
        let (number, unit) = unit.unwrap_or((term, 1));
        sign * unit * number.parse::<i64>().expect("a number")
    };
    u64::try_from(clocks.split('+').map(nanos).sum::<i64>()).expect("not negative")
}
