//! `lessor replay` as a process: in a pipe, on the file that we ship, and with a configuration that is wrong. What it
//! answers is worked out beside the code of the subcommand.

use scenarios::process::{Running, lessor};
use std::path::PathBuf;
use std::process::{Command, Output};

const CONFIG: &str = "[[limit]]\nname = \"calls\"\nkeyed = true\n\
                      rules = [{ kind = \"sliding_window\", limit = 30, per = \"60s\" }]\n";

fn replay(config: &str, args: &[&str]) -> (Command, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a private folder");
    let file = folder.path().join("limits.toml");
    std::fs::write(&file, config).expect("it is ours");
    let mut command = Command::new(lessor());
    command.arg("replay").arg("--config").arg(file).args(args);
    (command, folder)
}

fn output(config: &str, args: &[&str]) -> Output {
    let (mut command, _folder) = replay(config, args);
    command.output().expect("it was built")
}

/// The next line is written only when the answer to the one before has been read.
#[test]
fn each_answer_is_there_before_the_next_request_is() {
    let (mut command, _folder) = replay(CONFIG, &[]);
    let mut running = Running::start(&mut command);
    for remaining in (0..30).rev() {
        running.tell("{\"at_ns\":7,\"limit\":\"calls\",\"key\":\"u\",\"op\":\"try_acquire\",\"permits\":1}");
        assert_eq!(running.line(), format!("{{\"ok\":true,\"remaining\":{remaining}}}"));
    }
    running.tell("nonsense");
    assert!(running.line().contains("line 31: \\\"nonsense\\\" is no JSON object"));
    running.tell("{\"at_ns\":7,\"limit\":\"calls\",\"key\":\"u\",\"op\":\"peek\",\"permits\":1}");
    assert_eq!(running.line(), "{\"ok\":false,\"remaining\":0,\"retry_after_ns\":60000000000}");
}

/// The trace holds an hour and a half of requests of real users; at most 30 of each may pass in any minute.
#[test]
fn a_csv_file_is_replayed_and_summed_up() {
    let trace = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/access-log.csv");
    let output = output(CONFIG, &["--summary", "--json", trace.to_str().expect("UTF-8")]);
    assert!(output.status.success(), "{output:?}");
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = summary["limits"].as_array().expect("rows");
    let sum = |field: &str| rows.iter().map(|row| row[field].as_u64().expect("a number")).sum::<u64>();
    let most = rows.iter().map(|row| row["most"][0]["permits"].as_u64().expect("a number")).max();
    assert_eq!((sum("admitted") + sum("refused"), most), (10_000, Some(30)));
    assert!(sum("refused") > 0, "some users ask for more");
}

/// A log of one client that calls 40 times in a minute, among others that call once.
#[test]
fn a_combined_access_log_is_replayed_and_summed_up() {
    let folder = tempfile::tempdir().expect("a private folder");
    let file = folder.path().join("access.log");
    let line = |client: &str, second: u32| {
        let time = format!("25/Nov/2026:10:00:{second:02} +0100");
        format!("{client} - frank [{time}] \"GET /a HTTP/1.1\" 200 2326 \"-\" \"curl/8\"\n")
    };
    let log: String =
        (0..40).map(|n| line("203.0.113.9", n) + &line(&format!("203.0.113.{}", 100 + n), n)).collect();
    std::fs::write(&file, log).expect("it is ours");
    let output = output(CONFIG, &["--summary", "--json", file.to_str().expect("UTF-8")]);
    assert!(output.status.success(), "{output:?}");
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = summary["limits"].as_array().expect("rows");
    let sum = |field: &str| rows.iter().map(|row| row[field].as_u64().expect("a number")).sum::<u64>();
    assert_eq!((sum("admitted"), sum("refused")), (40 + 30, 10));
}

/// The bug: it ended as if all were well, and said that 6,000 lines meant nothing.
#[test]
fn a_log_that_cannot_be_read_ends_with_exit_code_2() {
    let folder = tempfile::tempdir().expect("a private folder");
    let file = folder.path().join("access.log");
    std::fs::write(&file, "what is this\n".repeat(6_000)).expect("it is ours");
    let output = output(CONFIG, &["--summary", file.to_str().expect("UTF-8")]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("none of 6000 lines is a request") && said.contains("line 1:"), "{said}");
}

#[test]
fn a_bad_configuration_is_one_line_and_exit_code_2() {
    let output = output(&CONFIG.replace("60s", "60"), &[]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("limits.toml: line 4: limit[0].rules[0].per: invalid value: string \"60\""),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1);
    assert!(output.stdout.is_empty());
}

/// What is answered to the requests of `data/replay/<name>.jsonl`, a line each: `ok|no|pass <remaining> [retry <span>]
/// [wait <span>]`.
#[track_caller]
fn check(name: &str, expected: &[&str]) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/replay");
    let mut command = Command::new(lessor());
    command.arg("replay").arg("--config").arg(folder.join("limits.toml"));
    let output = command.arg(folder.join(format!("{name}.jsonl"))).output().expect("it was built");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let answers: Vec<String> = text.lines().map(said).collect();
    assert_eq!(answers, expected, "{name}");
}

fn said(line: &str) -> String {
    let answer: serde_json::Value = serde_json::from_str(line).expect("JSON");
    let word = match (answer["ok"] == true, answer["shadow"] == true) {
        (true, true) => "pass",
        (true, false) => "ok",
        (false, _) => "no",
    };
    let mut said = format!("{word} {}", answer["remaining"]);
    for (field, word) in [("retry_after_ns", "retry"), ("wait_ns", "wait")] {
        if let Some(nanos) = answer[field].as_u64() {
            said += &format!(" {word} {}", span(nanos));
        }
    }
    said
}

/// In the largest unit in which it is whole.
fn span(nanos: u64) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms")];
    let unit = units.iter().find(|(unit, _)| nanos > 0 && nanos.is_multiple_of(*unit));
    unit.map_or(nanos.to_string(), |(unit, name)| format!("{}{name}", nanos / unit))
}

/// Three in any 10 s. Two of 0 leave at 10 s and one of 4 s at 14 s, each to the nanosecond. Two more than the one that is
/// free at 10 s are there at 14 s. For a caller behind those, the one of 10 s leaves at 20 s.
#[test]
fn a_sliding_window_is_answered_as_worked_out() {
    let expected = ["ok 1", "no 1 retry 6s", "ok 0", "no 0 retry 1", "ok 1", "ok 0 wait 4s", "no 0 retry 9s"];
    check("sliding_window", &expected);
}

/// One at 0, at 1 and at 2 ns: at 3 ns two are 10 s + 1 - 3 away. At 10 s one has come back and goes again, at 10 s + 1 the
/// second one, and the third a nanosecond later.
#[test]
fn a_sliding_log_is_answered_as_worked_out() {
    check("sliding_log", &["ok 2", "ok 1", "ok 0", "no 0 retry 9999999998", "ok 0", "no 1 retry 1", "ok 0"]);
}

/// Windows of the epoch: three at 7 s fill the one up to 10 s, three at 10 s the one up to 20 s; who asks for two at 12 s
/// may wait for just the 8 s that it takes.
///
/// From the first use on: looking at 3 s opens nothing, so the first window is [7 s, 17 s), and the next one is opened at
/// 22 s and ends at 32 s.
#[test]
fn fixed_windows_are_answered_as_worked_out() {
    check("fixed_window", &["ok 0", "no 0 retry 1s", "no 0 retry 1", "ok 0", "ok 0 wait 8s"]);
    let expected = ["ok 3", "ok 1", "no 1 retry 1s", "no 1 retry 1", "ok 3", "ok 0", "no 0 retry 1s"];
    check("first_use", &expected);
}

/// Days in UTC: 28 February 2024 has been used up at 23:59:59, the 29th is a day of its own with 86,400 s, and then it is
/// March.
///
/// Months from the 31st on: 31 January 2025 begins one that ends with the 28th of February, 28 days or 2,419,200 s later,
/// and the next one ends on 31 March, 31 days or 2,678,400 s later.
///
/// Weeks in Berlin: that of Monday, 19 October 2026, holds the night in which clocks go back, and has 7 · 86,400 + 3,600 s.
#[test]
fn days_weeks_and_months_are_answered_as_worked_out() {
    check("day", &["ok 0", "no 0 retry 1", "ok 0", "no 0 retry 86400s", "ok 2"]);
    check("month", &["ok 0", "ok 0", "no 0 retry 2419200s", "ok 1", "no 1 retry 2678400s", "ok 0"]);
    check("week", &["ok 0", "ok 0", "no 0 retry 608400s", "ok 0"]);
}

/// 29 March 2026 in Berlin has 23 hours, 82,800 s. 25 October 2026 has 25: 24 hours after its midnight it is 23:00, and an
/// hour is left.
///
/// The hour from 2:00 on comes twice that night. At half past two for the first time 1,800 s of it are left; the second one
/// is another window, with an hour of its own.
#[test]
fn days_on_which_clocks_change_are_answered_as_worked_out() {
    check("spring", &["ok 0", "ok 0", "no 0 retry 82800s", "no 0 retry 1", "ok 2"]);
    check("autumn", &["ok 0", "no 0 retry 3600s", "ok 2"]);
    check("autumn_hour", &["ok 0", "no 0 retry 1800s", "ok 0", "no 0 retry 3600s", "ok 2"]);
}

/// Ten, and 3 a second: one in 333,333,333⅓ ns, so at ...334. At 1 s three have come since 0 and one was taken; three more
/// take a second, and at 60 s it is full.
///
/// In intervals: four at 1.5 s, a second after the limit began, of which three are taken. For six five more are needed: four
/// come at 2.5 s and four at 3.5 s.
///
/// With a debt: five and three more are lent at 0, so the level is -3, and 1 at 4 s. Then one and three more are lent.
///
/// Warming up: one in 100 ms when warm. It is coldest where 2 · 2 s / (100 ms + 300 ms) = 10 are in it. Of these four are
/// spent, so the next one takes 100 ms · (1 + 2 · 6/10) = 220 ms, rounded up to the next nanosecond. Where all ten are
/// spent it is warm.
#[test]
fn token_buckets_are_answered_as_worked_out() {
    let expected = ["ok 0", "no 0 retry 333333334", "no 0 retry 1", "ok 0", "ok 0", "ok 0 wait 1s", "ok 10"];
    check("token_bucket", &expected);
    check("interval", &["ok 0", "no 0 retry 800ms", "no 0 retry 1", "ok 1", "no 1 retry 2s"]);
    check("debt", &["ok 0", "no 0 retry 4s", "no 0 retry 1s", "no 0 retry 1", "ok 0", "no 0 retry 4s"]);
    check("warm_up", &["ok 6", "no 6 retry 220000001", "ok 0", "ok 0"]);
}

/// Three a second, one at a time: 333,333,334 ns apart. After the one of 333,333,334 the next is due at 666,666,668, which is
/// 66,666,668 after 600 ms, and the one behind it at 1,000,000,002: a nanosecond later than it would wait.
#[test]
fn a_leaky_bucket_is_answered_as_worked_out() {
    let expected =
        ["ok 0", "no 0 retry 333333334", "ok 0", "ok 0 wait 66666668", "no 0 retry 400000002 wait 400000002"];
    check("leaky_bucket", &expected);
}

/// Two at a time, for 5 s at most: one since 0 and one since 1 s. The one of 0 comes back at 2 s; two are free for certain
/// at 6 s, when the other one is over. That comes back at 3 s, so they are served then, and are over at 8 s.
#[test]
fn what_is_in_flight_is_answered_as_worked_out() {
    let expected = ["ok 1", "ok 0", "no 0 retry 3s", "ok 1", "ok 0 wait 4s", "ok 0", "no 0 retry 2s", "ok 2"];
    check("concurrency", &expected);
}

/// Three a minute, a bucket of two with one a second, and two at a time for 5 s at most. After two at 0 the window has one
/// left, the bucket has one at 1 s, and one flight is over at 5 s. One comes back to all three, and goes again. At 1 s two
/// come back: the window has three left, the bucket its two, and nothing is in flight. One at 1 s and one at 2 s leave one
/// of the minute, until 61 s.
#[test]
fn three_rules_at_once_are_answered_as_worked_out() {
    let expected = ["ok 0", "no 0 retry 5s", "ok 1", "ok 0", "ok 2", "ok 1", "ok 0", "no 1 retry 1s"];
    check("three_at_once", &expected);
}

/// Two a user, three a tenant, five in all, in any 10 s. al takes two of acme's three, bo the third: at 1 s acme has none
/// before 10 s. zed takes the last two of all, and waits for one more until 10 s. One of al's comes back at 3 s, to al, to
/// acme and to the vendor: zed is served. At 10 s three of 0 are gone, and of the vendor two of 1 s and one of 3 s count.
#[test]
fn a_family_is_answered_as_worked_out() {
    let expected = ["ok 0", "ok 0", "no 0 retry 9s", "ok 0", "ok 0 wait 8s", "ok 0", "ok 0", "ok 2"];
    check("family", &expected);
}

/// Two of three are taken: two more pass, because nothing is refused, and take nothing; no call waits. At 10 s all is back.
///
/// Six of ten are twelve of twenty; of five nothing is left, until the twelve leave at 10 s.
#[test]
fn shadow_mode_and_changed_rules_are_answered_as_worked_out() {
    check("shadow", &["ok 1", "pass 1", "pass 1 wait 0", "ok 3"]);
    check("changed", &["ok 4", "ok 8", "ok 0", "ok 5"]);
}
