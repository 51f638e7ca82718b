//! Lines that are not requests, the limits and keys of requests, and formats other than JSON.

use super::*;

const CONFIG: &str = "
[[limit]]
name = \"a\"
keyed = true
rules = [{ kind = \"sliding_window\", limit = 2, per = \"10s\" }]
[[limit]]
name = \"b\"
rules = [{ kind = \"token_bucket\", capacity = 5, refill = 1, per = \"1s\", initial = 0 }]
";

#[test]
fn a_bad_line_is_answered_with_what_is_wrong_and_changes_nothing() {
    let lines = [
        "{\"at_ns\":0,\"limit\":\"a\",\"key\":\"u\",\"op\":\"try_acquire\",\"permits\":2}",
        "no JSON",
        "",
        "{\"at_ns\":0,\"limit\":\"c\",\"op\":\"try_acquire\",\"permits\":1}",
        "{\"at_ns\":0,\"limit\":\"a\",\"op\":\"try_acquire\",\"permits\":1}",
        "{\"at_ns\":0,\"limit\":\"b\",\"key\":\"u\",\"op\":\"peek\",\"permits\":1}",
        "{\"at_ns\":99,\"limit\":\"a\",\"key\":\"\",\"op\":\"peek\",\"permits\":1}",
        "{\"at_ns\":0,\"limit\":\"a\",\"key\":\"u\",\"op\":\"peek\",\"permits\":\"1\"}",
        "{\"at_ns\":0,\"limit\":\"a\",\"key\":\"u\",\"op\":\"peek\",\"permits\":1}",
    ];
    let expected = [
        "{\"ok\":true,\"remaining\":0}",
        "{\"ok\":false,\"remaining\":0,\"error\":\"line 2: \\\"no JSON\\\" is no JSON object\"}",
        // The empty line 3 is no request.
        "{\"ok\":false,\"remaining\":0,\"error\":\"line 4: limit \\\"c\\\" is not in the configuration\"}",
        "{\"ok\":false,\"remaining\":0,\"error\":\"line 5: key is missing: limit \\\"a\\\" is counted by key\"}",
        "{\"ok\":false,\"remaining\":0,\"error\":\"line 6: key is \\\"u\\\", but limit \\\"b\\\" has no keys\"}",
        "{\"ok\":false,\"remaining\":0,\"error\":\"line 7: key \\\"\\\" is empty\"}",
        "{\"ok\":false,\"remaining\":0,\"error\":\"line 8: permits: invalid type: string \\\"1\\\", \
         expected u64 (column 58)\"}",
        // The time 99 of a bad line does not count: two count until 10 s.
        "{\"ok\":false,\"remaining\":0,\"retry_after_ns\":10000000000}",
    ];
    let answers = answers(CONFIG, &lines.join("\r\n"));
    assert_eq!(answers, expected);
}

#[test]
fn keys_do_not_see_each_other_and_new_rules_are_for_all_of_them() {
    let lines = [
        "{\"at_ns\":0,\"limit\":\"a\",\"key\":\"u\",\"op\":\"try_acquire\",\"permits\":2}",
        "{\"at_ns\":0,\"limit\":\"a\",\"key\":\"v\",\"op\":\"try_acquire\",\"permits\":1}",
        "{\"at_ns\":0,\"limit\":\"a\",\"key\":\"w\",\"op\":\"peek\",\"permits\":1}",
        "{\"at_ns\":0,\"limit\":\"a\",\"op\":\"set\",\"permits\":0,\
         \"rules\":[{\"kind\":\"sliding_window\",\"limit\":5,\"per\":\"10s\"}]}",
        "{\"at_ns\":0,\"limit\":\"a\",\"key\":\"u\",\"op\":\"peek\",\"permits\":1}",
        "{\"at_ns\":0,\"limit\":\"a\",\"key\":\"v\",\"op\":\"peek\",\"permits\":1}",
        "{\"at_ns\":0,\"limit\":\"a\",\"key\":\"w\",\"op\":\"peek\",\"permits\":1}",
    ];
    let remaining = [0, 1, 2, 5, 3, 4, 5];
    let expected = remaining.map(|remaining| format!("{{\"ok\":true,\"remaining\":{remaining}}}"));
    assert_eq!(answers(CONFIG, &lines.join("\n")), expected);
}

#[test]
fn a_limit_begins_with_the_first_request_of_all_and_a_key_with_its_own() {
    let lines = [
        "{\"at_ns\":7000000000,\"limit\":\"a\",\"key\":\"u\",\"op\":\"peek\",\"permits\":0}",
        "{\"at_ns\":9000000000,\"limit\":\"b\",\"op\":\"peek\",\"permits\":0}",
    ];
    let expected = ["{\"ok\":true,\"remaining\":2}", "{\"ok\":true,\"remaining\":2}"];
    assert_eq!(answers(CONFIG, &lines.join("\n")), expected);
}

#[test]
fn a_csv_file_asks_for_one_permit_in_each_row() {
    let text = "client,offset_s\nu,0\nu,0.5\nu,1\nv,1\nu,soon\nu,10\n";
    let expected = [
        "{\"ok\":true,\"remaining\":1}",
        "{\"ok\":true,\"remaining\":0}",
        "{\"ok\":false,\"remaining\":0,\"retry_after_ns\":9000000000}",
        "{\"ok\":true,\"remaining\":1}",
        "{\"ok\":false,\"remaining\":0,\"error\":\"line 6: offset_s is \\\"soon\\\": use a number of seconds, for \
         example 12.5\"}",
        "{\"ok\":true,\"remaining\":0}",
    ];
    assert_eq!(answers(CONFIG, text), expected);
}

/// The bug: each row of a CSV file with another header was refused as JSON that is none.
#[test]
fn the_header_of_a_csv_file_that_is_not_ours_is_refused_and_ours_named() {
    let csv = || Csv { limit: Ok("a".to_owned()), keyed: true, patience: None };
    let first = |text: &str| {
        let mut lines = Lines::new(Box::new(Cursor::new(text.as_bytes().to_vec())), csv(), MARGIN);
        lines.next().map(|line| line.is_some()).map_err(|failure| failure.to_string())
    };
    let error = first("timestamp,user\n0,u\n").expect_err("no header of ours");
    assert!(error.contains("a CSV file begins with offset_s,client"), "{error}");
    assert!(first("offset_s,user\n0,u\n").expect_err("one column is missing").contains("no column client"));
    for other in ["0,u\n", "a word\n", "{\"at_ns\":0,\"limit\":\"b\",\"op\":\"peek\"}\n"] {
        assert_eq!(first(other), Ok(true), "{other} is for its own check");
    }
}

#[test]
fn a_line_without_an_end_is_refused_and_the_next_one_read() {
    let long = format!("{{{}", " ".repeat(3 << 20));
    let answers = answers(CONFIG, &format!("{long}\n{{\"at_ns\":0,\"limit\":\"b\",\"op\":\"peek\"}}"));
    assert_eq!(
        answers[0],
        "{\"ok\":false,\"remaining\":0,\"error\":\"line 1: is longer than 1048576 bytes\"}"
    );
    assert_eq!(answers[1..], ["{\"ok\":true,\"remaining\":0}"]);
}

#[test]
fn the_ends_of_time_are_survived() {
    check(
        "{ kind = \"sliding_window\", limit = 1, per = \"10s\" }, { kind = \"fixed_window\", limit = 1, per = \"10s\" }",
        &[
            ("{\"at_ns\":18446744073709551615,\"limit\":\"a\",\"op\":\"try_acquire\",\"permits\":1}", "ok 0"),
            ("0 peek 2", "error TooLarge"),
        ],
    );
    let most =
        "{ kind = \"token_bucket\", capacity = 9007199254740991, refill = 9007199254740991, per = \"366d\" }";
    check(most, &[("0 try_acquire 9007199254740991", "ok 0"), ("366h peek 0", "ok 375299968947541")]);
}

/// The bug: the sums overflowed.
#[test]
fn more_permits_than_can_be_counted_are_summed_up_to_the_largest_number() {
    let largest = "[[limit]]\nname = \"a\"\nrules = [{ kind = \"fixed_window\", limit = 9007199254740991, per = \"1s\" }]";
    let config = Config::parse(largest).expect("a good configuration");
    let take = |at: u64| request(&format!("{at}s try_acquire 9007199254740991"));
    let requests: Vec<String> = (0..2_101).map(take).collect();
    let csv = Csv { limit: Ok("a".to_owned()), keyed: false, patience: None };
    let mut lines = Lines::new(Box::new(Cursor::new(requests.join("\n").into_bytes())), csv, MARGIN);
    let mut keeper = Keeper::Central(Contract::new(&config));
    let (mut summary, mut out) = (Summary::new(&config), Out::new(vec![], false));
    replay(&mut keeper, &mut lines, Some(&mut summary), &mut out).expect("it can be read").expect("memory");
    let told: Value = serde_json::from_str(&summary.json()).expect("JSON");
    assert_eq!(
        (&told["limits"][0]["admitted"], &told["limits"][0]["permits"]),
        (&json!(2_101), &json!(u64::MAX))
    );
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    plot::draw(file.path(), &summary.flows()).expect("it can be drawn");
}

/// The bug: the mark was taken for a part of the first request.
#[test]
fn a_byte_order_mark_is_no_part_of_the_first_line() {
    for first in [request("0 peek 1").replace("\"a\"", "\"b\""), "offset_s,client\n0,u".to_owned()] {
        let expected = answers(CONFIG, &first);
        assert!(!expected[0].contains("error"), "{expected:?}");
        assert_eq!(answers(CONFIG, &format!("\u{feff}{first}")), expected);
    }
}

/// The bug: a folder was opened, and failed with another exit code than a file that is not there.
#[test]
fn what_cannot_be_opened_is_a_wrong_input() {
    let csv = Csv { limit: Ok("a".to_owned()), keyed: true, patience: None };
    for file in ["/", "/nowhere"] {
        let opened = Lines::open(Path::new(file), csv.clone(), MARGIN);
        assert!(matches!(opened, Err(Failure::Input(said)) if said.contains("cannot read /")), "{file}");
    }
}

/// The bug: an export that broke was replayed without an error.
#[test]
fn an_input_without_a_request_is_refused() {
    let config = Config::parse_with_margin(CONFIG, Path::new(""), MARGIN).expect("a good configuration");
    for text in ["", "offset_s,client\n"] {
        let csv = Csv { limit: Ok("a".to_owned()), keyed: true, patience: None };
        let mut lines = Lines::new(Box::new(Cursor::new(text.as_bytes())), csv, MARGIN);
        let mut keeper = Keeper::Central(Contract::new(&config));
        let refused = replay(&mut keeper, &mut lines, None, &mut Out::new(vec![], true));
        assert!(refused.is_err_and(|failure| failure.to_string().contains("no requests")), "{text:?}");
    }
}
