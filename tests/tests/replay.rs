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
