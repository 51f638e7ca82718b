//! `lessor audit`: prints the audit log of an allocator, oldest entry first. It reads the file, so no allocator has to
//! run.

use crate::failure::Failure;
use crate::print;
use clap::Args;
use serde_json::Value;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Text below the help of `lessor audit`.
pub(crate) const AUDIT_EXAMPLE: &str = "\
Examples:
  lessor audit audit.jsonl
  lessor audit audit.jsonl --limit vendor/rest --since 1d
  lessor audit audit.jsonl --action refused --json | jq -r .who | sort | uniq -c

Exit codes: 0 done, 1 stdout cannot be written, 2 bad command line, or a file that cannot be read or has
no entry.";

/// Most files that are read: as many as an allocator keeps.
const FILES_MAX: u64 = 1_000;

/// The longest line that is read, in bytes: two configurations of a limit.
const LINE_MAX: u64 = 16 << 20;

/// Most lines that are named because they are no entries. The rest are only counted.
const STRANGE_MAX: u64 = 10;

/// All actions of entries.
const ACTIONS: [&str; 8] = ["put", "remove", "top_up", "pause", "resume", "block", "unblock", "refused"];

/// `lessor audit`.
#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    /// The file that the configuration names as audit.path. Older files beside it are read before it.
    file: PathBuf,
    /// Only entries about this limit.
    #[arg(long, value_name = "NAME")]
    limit: Option<String>,
    /// Only entries of this identity, for example token:on-call.
    #[arg(long, value_name = "IDENTITY")]
    who: Option<String>,
    /// Only entries of this action.
    #[arg(long, value_name = "ACTION", value_parser = ACTIONS)]
    action: Option<String>,
    /// Only entries that are at most this old, for example 1d.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    since: Option<Duration>,
    /// Print the entries as they are: one JSON object a line.
    #[arg(long)]
    json: bool,
}

/// Prints the entries that match.
pub(crate) fn run(args: &AuditArgs) -> Result<(), Failure> {
    let mut stdout = io::BufWriter::new(io::stdout().lock());
    let from = args.since.map(|since| {
        let from = lessor_access::calendar().checked_sub(since).unwrap_or(SystemTime::UNIX_EPOCH);
        humantime::format_rfc3339_millis(from.max(SystemTime::UNIX_EPOCH)).to_string()
    });
    let (mut entries, mut strange) = (0_u64, 0_u64);
    for file in files(&args.file) {
        let wrong = |problem: String| Failure::Input(format!("{}: {problem}", file.display()));
        let opened = lessor_files::open(&file).map_err(|error| wrong(error.to_string()))?;
        let mut lines = BufReader::new(opened);
        for number in 1.. {
            let mut line = vec![];
            let read = lines.by_ref().take(LINE_MAX).read_until(b'\n', &mut line);
            if read.map_err(|error| wrong(error.to_string()))? == 0 {
                break;
            }
            // The last line of a killed process may be incomplete.
            let Ok(entry) = serde_json::from_slice::<Value>(&line) else {
                strange += 1;
                if strange <= STRANGE_MAX {
                    let name = file.display();
                    let _ = writeln!(io::stderr(), "lessor: {name}: line {number} is not an audit entry");
                }
                continue;
            };
            entries += 1;
            if !is_wanted(args, &entry, from.as_deref()) {
                continue;
            }
            let text = if args.json { entry.to_string() } else { shown(&entry) };
            let printed = writeln!(stdout, "{text}");
            if printed.is_err() {
                return print::done(printed);
            }
        }
    }
    print::done(stdout.flush())?;
    if entries == 0 && strange > 0 {
        let name = args.file.display();
        return Err(Failure::Input(format!("{name}: none of {strange} lines is an audit entry")));
    }
    if strange > STRANGE_MAX {
        let _ = writeln!(io::stderr(), "lessor: {strange} lines are not audit entries");
    }
    Ok(())
}

/// Returns the older files that exist, the oldest first, and then the current one.
fn files(file: &Path) -> Vec<PathBuf> {
    let numbered = |number: u64| {
        let mut name = file.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    let mut files: Vec<PathBuf> = (1..FILES_MAX).map(numbered).take_while(|file| file.exists()).collect();
    files.reverse();
    files.push(file.to_owned());
    files
}

fn is_wanted(args: &AuditArgs, entry: &Value, from: Option<&str>) -> bool {
    let is = |field: &str, wanted: &Option<String>| {
        wanted.as_deref().is_none_or(|wanted| entry[field].as_str() == Some(wanted))
    };
    // Times in this format sort as text.
    let is_late = from.is_none_or(|from| entry["at"].as_str().is_some_and(|at| at >= from));
    is("limit", &args.limit) && is("who", &args.who) && is("action", &args.action) && is_late
}

/// Formats an entry as one line for people, without configurations, which only `--json` prints.
fn shown(entry: &Value) -> String {
    const FIRST: [&str; 5] = ["at", "who", "action", "limit", "from"];
    let text = |value: &Value| match value {
        Value::String(text) => text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect(),
        Value::Object(_) | Value::Array(_) => "…".to_owned(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    };
    let mut line: Vec<String> =
        FIRST.iter().map(|name| &entry[name]).filter(|value| !value.is_null()).map(text).collect();
    let rest = entry.as_object().into_iter().flatten().filter(|(name, _)| !FIRST.contains(&name.as_str()));
    line.extend(rest.map(|(name, value)| format!("{name}={}", text(value))));
    line.join("  ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        audit: AuditArgs,
    }

    /// The bug: a mistyped action printed nothing, with exit code 0.
    #[test]
    fn an_action_that_is_none_is_refused_and_all_are_named() {
        for action in ACTIONS {
            let line = Line::try_parse_from(["lessor", "audit.jsonl", "--action", action]);
            assert_eq!(line.map(|line| line.audit.action).ok().flatten().as_deref(), Some(action));
        }
        let refused = Line::try_parse_from(["lessor", "audit.jsonl", "--action", "foo"]).map(|_| ());
        let said = refused.expect_err("no action").to_string();
        assert!(ACTIONS.iter().all(|action| said.contains(action)), "{said}");
    }

    /// The bug: exit code 0, and a line on stderr for each line of the file.
    #[test]
    fn a_file_without_an_entry_is_no_audit_log() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("audit.jsonl");
        let of = |text: &str| {
            std::fs::write(&file, text).expect("written");
            let line = Line::try_parse_from(["lessor", file.to_str().expect("a path")]).expect("a file");
            run(&line.audit).map_err(|failure| failure.to_string())
        };
        assert!(of("[server]\n[[limit]]\n").is_err_and(|said| said.contains("none of 2 lines")));
        assert_eq!(of("{\"at\":\"2026\"}\n{\"at\""), Ok(()), "the last line was cut off");
        assert_eq!(of(""), Ok(()), "no decision yet");
    }
}
