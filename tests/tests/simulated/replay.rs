//! `lessor replay` as a process: in a pipe, on the trace in `data`, and with a wrong configuration. The expected
//! answers are worked out in the comments of the tests.

use scenarios::process::{Running, lessor};
use std::path::PathBuf;
use std::process::{Command, Output};

const CONFIG: &str = "[[limit]]\nname = \"calls\"\nkeyed = true\n\
                      rules = [{ kind = \"sliding_window\", limit = 30, per = \"60s\" }]\n";

fn replay(config: &str, args: &[&str]) -> (Command, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a private folder");
    let file = folder.path().join("limits.toml");
    std::fs::write(&file, config).expect("a writable file");
    let mut command = Command::new(lessor());
    command.arg("replay").arg("--config").arg(file).args(args);
    (command, folder)
}

fn output(config: &str, args: &[&str]) -> Output {
    let (mut command, _folder) = replay(config, args);
    command.output().expect("the command runs")
}

/// The next line is written only after the answer to the one before was read.
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

/// The trace has an hour and a half of requests of real users. At most 30 of each user may pass in any minute.
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
    std::fs::write(&file, log).expect("a writable file");
    let output = output(CONFIG, &["--summary", "--json", file.to_str().expect("UTF-8")]);
    assert!(output.status.success(), "{output:?}");
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = summary["limits"].as_array().expect("rows");
    let sum = |field: &str| rows.iter().map(|row| row[field].as_u64().expect("a number")).sum::<u64>();
    assert_eq!((sum("admitted"), sum("refused")), (40 + 30, 10));
}

/// The bug: it ended as if all were well, and reported that 6,000 lines meant nothing.
#[test]
fn a_log_that_cannot_be_read_ends_with_exit_code_2() {
    let folder = tempfile::tempdir().expect("a private folder");
    let file = folder.path().join("access.log");
    std::fs::write(&file, "what is this\n".repeat(6_000)).expect("a writable file");
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

/// Checks the answers to the requests of `data/replay/<name>.jsonl`, of which each is `ok|no|pass <remaining> [retry
/// <span>] [wait <span>]`.
#[track_caller]
fn check(name: &str, expected: &str) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/replay");
    let mut command = Command::new(lessor());
    command.arg("replay").arg("--config").arg(folder.join("limits.toml"));
    let output = command.arg(folder.join(format!("{name}.jsonl"))).output().expect("the command runs");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let answers: Vec<String> = text.lines().map(said).collect();
    assert_eq!(answers.join(", "), expected, "{name}");
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

/// Formats a span in the largest unit in which it is a whole number.
fn span(nanos: u64) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms")];
    let unit = units.iter().find(|(unit, _)| nanos > 0 && nanos.is_multiple_of(*unit));
    unit.map_or(nanos.to_string(), |(unit, name)| format!("{}{name}", nanos / unit))
}

#[test]
fn rules_alone_and_together_are_answered_as_worked_out() {
    // Three permits in any 10 s. The two of 0 s come back at 10 s and the one of 4 s at 14 s, each to the nanosecond.
    // Two are free at 14 s: the one that is free at 10 s, and the one of 4 s. A caller behind those waits until the
    // one of 10 s comes back at 20 s.
    check("sliding_window", "ok 1, no 1 retry 6s, ok 0, no 0 retry 1, ok 1, ok 0 wait 4s, no 0 retry 9s");
    // One permit each at 0, 1 and 2 ns. At 3 ns, two are 10 s + 1 - 3 ns away. At 10 s the first comes back and is
    // taken again. At 10 s + 1 ns the second comes back, and the third a nanosecond later.
    check("sliding_log", "ok 2, ok 1, ok 0, no 0 retry 9999999998, ok 0, no 1 retry 1, ok 0");
    // Windows aligned to the epoch: three permits at 7 s fill the window up to 10 s, and three at 10 s fill the one
    // up to 20 s. A caller that asks for two at 12 s is willing to wait for exactly the 8 s that it takes.
    check("fixed_window", "ok 0, no 0 retry 1s, no 0 retry 1, ok 0, ok 0 wait 8s");
    // Windows from first use: a look at 3 s opens none, so the first window is [7 s, 17 s). The next one opens at 22
    // s and ends at 32 s.
    check("first_use", "ok 3, ok 1, no 1 retry 1s, no 1 retry 1, ok 3, ok 0, no 0 retry 1s");
    // Days in UTC: 28 February 2024 is used up at 23:59:59, the 29th is a day of 86,400 s, and then comes March.
    check("day", "ok 0, no 0 retry 1, ok 0, no 0 retry 86400s, ok 2");
    // Months from the 31st on: the month that begins on 31 January 2025 ends with 28 February, 28 days or 2,419,200 s
    // later. The next one ends on 31 March, 31 days or 2,678,400 s later.
    check("month", "ok 0, ok 0, no 0 retry 2419200s, ok 1, no 1 retry 2678400s, ok 0");
    // Weeks in Berlin: the week of Monday, 19 October 2026, has the night in which clocks go back, and so 7 · 86,400
    // + 3,600 s.
    check("week", "ok 0, ok 0, no 0 retry 608400s, ok 0");
    // 29 March 2026 in Berlin has 23 hours, 82,800 s.
    check("spring", "ok 0, ok 0, no 0 retry 82800s, no 0 retry 1, ok 2");
    // 25 October 2026 has 25: 24 hours after its midnight it is 23:00, and an hour is left.
    check("autumn", "ok 0, no 0 retry 3600s, ok 2");
    // The hour from 2:00 on comes twice that night. At half past two for the first time, 1,800 s of it are left. The
    // second one is another window, with an hour of its own.
    check("autumn_hour", "ok 0, no 0 retry 1800s, ok 0, no 0 retry 3600s, ok 2");
    // Ten permits, and 3 a second: one in 333,333,333⅓ ns, so it comes at ...334. By 1 s three have come and one was
    // taken. Three more take another second, and at 60 s the bucket is full.
    check("token_bucket", "ok 0, no 0 retry 333333334, no 0 retry 1, ok 0, ok 0, ok 0 wait 1s, ok 10");
    // At intervals: four permits come at 1.5 s, a second after the limit began, and three are taken. For six, five
    // more are needed: four come at 2.5 s and four at 3.5 s.
    check("interval", "ok 0, no 0 retry 800ms, no 0 retry 1, ok 1, no 1 retry 2s");
    // With a debt: five permits and three more are lent at 0 s, so the level is -3, and 1 at 4 s. Then one and three
    // more are lent.
    check("debt", "ok 0, no 0 retry 4s, no 0 retry 1s, no 0 retry 1, ok 0, no 0 retry 4s");
    // Warming up: one permit in 100 ms when warm. The bucket is coldest with 2 · 2 s / (100 ms + 300 ms) = 10
    // permits. Four are spent, so the next one takes 100 ms · (1 + 2 · 6/10) = 220 ms, rounded up to the next
    // nanosecond. Once all ten are spent the bucket is warm.
    check("warm_up", "ok 6, no 6 retry 220000001, ok 0, ok 0");
    // Three permits a second, one at a time: 333,333,334 ns apart. After the one at 333,333,334 ns the next is due at
    // 666,666,668 ns, which is 66,666,668 ns after 600 ms. The one behind it is due at 1,000,000,002 ns, a nanosecond
    // later than its caller would wait.
    check(
        "leaky_bucket",
        "ok 0, no 0 retry 333333334, ok 0, ok 0 wait 66666668, no 0 retry 400000002 wait 400000002",
    );
    // Two calls at a time, for 5 s at most: one from 0 s and one from 1 s. The first one ends at 2 s. Two permits are
    // certainly free at 6 s, when the other call must be over. That call ends at 3 s, so the two are granted then,
    // and must be over at 8 s.
    check("concurrency", "ok 1, ok 0, no 0 retry 3s, ok 1, ok 0 wait 4s, ok 0, no 0 retry 2s, ok 2");
    // Three permits a minute, a bucket of two with one a second, and two calls at a time for 5 s at most. After two
    // at 0 s the window has one left, the bucket has one at 1 s, and a call is over at 5 s. One is refunded to all
    // three rules and taken again. At 1 s two are refunded: the window has three left, the bucket two, and nothing is
    // in flight. One at 1 s and one at 2 s leave one of the minute, until 61 s.
    check("three_at_once", "ok 0, no 0 retry 5s, ok 1, ok 0, ok 2, ok 1, ok 0, no 1 retry 1s");
    // Two permits a user, three a tenant, five in all, in any 10 s. acme's al takes two of acme's three, and bo the
    // third, so at 1 s acme has none before 10 s. zed takes the last two in all, and waits for one more until 10 s.
    // One of al's is refunded at 3 s, to al, to acme and to the vendor, and zed is served. At 10 s the three of 0 s
    // have left, and the vendor counts two of 1 s and one of 3 s.
    check("family", "ok 0, ok 0, no 0 retry 9s, ok 0, ok 0 wait 8s, ok 0, ok 0, ok 2");
    // Two of three permits are taken. Two more pass, because nothing is refused, and take nothing. No call waits. At
    // 10 s all are back.
    check("shadow", "ok 1, pass 1, pass 1 wait 0, ok 3");
    // Six of ten become twelve of twenty. Of five, none is left until the twelve come back at 10 s.
    check("changed", "ok 4, ok 8, ok 0, ok 5");
}
