//! Rules that no lint can hold: crate arrows, the length and opening of files, a pure core, a portable tree, a true
//! layout. These tests read the repository, as cargo and git list it, and change nothing.
//!
//! Each rule is a function from a text to what is wrong with it. At the end each is tried on texts that it must refuse.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The arrows: folder and name of each crate, and the crates of this repository that it may see to build, to run or to
/// test. No crate sees the last four, so their own dependencies reach no user.
const ARROWS: [(&str, &str, &[&str]); 13] = [
    ("protocol", "lessor-protocol", &[]),
    ("holder", "lessor-holder", &["lessor-protocol"]),
    ("ledger", "lessor-ledger", &["lessor-protocol"]),
    ("files", "lessor-files", &[]),
    ("tls", "lessor-tls", &["lessor-files"]),
    ("access", "lessor-access", &[]),
    (
        "allocator",
        "lessor-allocator",
        &["lessor-protocol", "lessor-holder", "lessor-ledger", "lessor-files", "lessor-tls", "lessor-access"],
    ),
    ("client", "lessor", &["lessor-protocol", "lessor-holder", "lessor-files", "lessor-tls"]),
    ("sim", "lessor-sim", &["lessor-protocol", "lessor-holder", "lessor-ledger", "lessor"]),
    ("cli", "lessor-cli", WITH_SIM),
    ("tests", "scenarios", WITH_SIM),
    ("tests/gate", "gate", &["lessor-protocol", "lessor-ledger", "lessor-sim"]),
    ("benches", "benches", BOTH_SIDES),
];
const BOTH_SIDES: &[&str] = &["lessor-protocol", "lessor-ledger", "lessor-tls", "lessor-allocator", "lessor"];
const WITH_SIM: &[&str] = &[
    "lessor-protocol",
    "lessor-holder",
    "lessor-ledger",
    "lessor-files",
    "lessor-tls",
    "lessor-access",
    "lessor-allocator",
    "lessor",
    "lessor-sim",
];

/// The core: each entry is a file `….rs`, a folder, or both. It takes `now` and dice as arguments, and counts in
/// integers.
const CORE: &str = "
    protocol/src/exchange protocol/src/lease protocol/src/observed protocol/src/sizing protocol/src/steady
    holder/src
    ledger/src
    allocator/src/overrides allocator/src/earlier_decisions
    client/src/feedback client/src/rate_limit_headers client/src/slot
";

/// Words that the core must not have: clocks, dice, floats, the outside world. The last word would hide some of the
/// others from a check that reads line by line.
const IMPURE: &str = "
    CLOCK Clock Instant SystemTime fastrand rand:: f32 f64
    axum dbg! eprint! eprintln! print! println! reqwest tokio tracing
    std::env std::fs std::io std::net std::process std::{
";

/// Most lines of a file. A file is split at about 400 lines, and the rest leaves room to finish a thought. A larger
/// bound would allow files that are not read in one sitting, and a smaller one would cut ideas in half.
const LINES_MAX: usize = 450;

#[test]
fn crates_see_only_what_the_arrows_allow() {
    let crates = crates().into_iter();
    expect_none(crates.map(|(path, package)| (against_the_arrows(&package, &read(&path)), path)));
}

#[test]
fn every_source_file_can_be_read_in_one_sitting() {
    expect_each(is_source, too_long);
}

#[test]
fn every_source_file_opens_by_saying_what_it_is() {
    expect_each(is_source, undocumented);
}

#[test]
fn the_core_reads_no_clock_rolls_no_dice_and_does_no_io() {
    expect_each(is_core, impure);
}

/// A sum that wraps would lend permits that do not exist. The core stops the request instead, in releases too.
#[test]
fn releases_check_the_sums_of_the_core() {
    let manifest = read("Cargo.toml");
    let (_, release) = manifest
        .split_once("[profile.release.package]")
        .expect("Cargo.toml has a release profile for packages");
    let release = release.split("\n[").next().unwrap_or(release);
    let unchecked = ["lessor-protocol", "lessor-ledger", "lessor-allocator"]
        .map(|name| format!("{name}.overflow-checks = true"))
        .into_iter()
        .filter(|line| !release.lines().any(|written| written == line));
    assert_eq!(unchecked.collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn no_file_names_a_folder_of_one_machine() {
    expect_each(|_| true, machine_bound);
}

#[test]
fn every_folder_that_a_layout_names_exists() {
    expect_each(draws_layout, no_such_folder);
}

#[test]
fn every_crate_is_named_in_a_layout() {
    let mut documents = String::new();
    documents.extend(files().filter(|path| draws_layout(path)).map(|path| read(&path)));
    for (folder, ..) in ARROWS {
        let is_named = layout(&documents).iter().any(|(_, named)| *named == folder);
        assert!(is_named, "{folder}/ is in no layout: add it to ARCHITECTURE.md");
    }
}

/// What is wrong with a text, and on which lines, counted from one.
type Wrong = Vec<(usize, String)>;

fn against_the_arrows(package: &Value, manifest: &str) -> Wrong {
    let name = text(&package["name"]);
    let Some((.., allowed)) = ARROWS.into_iter().find(|(_, known, _)| *known == name) else {
        return vec![(1, format!("{name} is new: give it a line in ARROWS"))];
    };
    let mut wrong = Wrong::new();
    for dependency in list(&package["dependencies"]) {
        let seen = text(&dependency["name"]);
        // Only crates of this repository have a path.
        if dependency["path"].is_string() && !allowed.contains(&seen) {
            let what = format!("{name} must not see {seen}: move what they share to protocol");
            wrong.push((line_of(seen, manifest), what));
        }
    }
    wrong
}

/// Returns the line of a manifest that declares a dependency, or the first line.
fn line_of(dependency: &str, manifest: &str) -> usize {
    let declares = |line: &str| line.split([' ', '.', '=']).next() == Some(dependency);
    manifest.lines().position(declares).map_or(1, |index| index + 1)
}

fn is_source(path: &str) -> bool {
    path.ends_with(".rs")
}

fn too_long(text: &str) -> Wrong {
    let lines = text.lines().count();
    if lines <= LINES_MAX {
        return vec![];
    }
    let mend = "split it by idea, or move its tests to `<file>/tests.rs`";
    vec![(LINES_MAX + 1, format!("{lines} lines: {mend}"))]
}

fn undocumented(text: &str) -> Wrong {
    if text.starts_with("//!") {
        return vec![];
    }
    let mend = "say with `//!` what it is, who calls it, and what it never does";
    vec![(1, mend.to_owned())]
}

/// Whether `path` belongs to the core. Its tests do not, and may do as they like.
fn is_core(path: &str) -> bool {
    let is_test = path.ends_with("/tests.rs") || path.contains("/tests/");
    let mut rests = CORE.split_whitespace().filter_map(|stem| path.strip_prefix(stem));
    !is_test && rests.any(|rest| rest == ".rs" || rest.starts_with('/'))
}

fn impure(text: &str) -> Wrong {
    let mut wrong = Wrong::new();
    for (number, line) in shipped(text) {
        let code = line.split(" // ").next().unwrap_or(line);
        let words = IMPURE.split_whitespace().filter(|word| has_word(code, word));
        let what = |word| format!("`{word}` in the core: hand the value in, count in integers");
        wrong.extend(words.map(|word| (number, what(word))));
    }
    wrong
}

/// Returns the lines that users run: no comments, and no item after `#[cfg(test)]`.
fn shipped(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut indent_of_test = None;
    numbered(text).filter(move |(_, line)| {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        if code == "#[cfg(test)]" {
            indent_of_test = Some(indent);
        }
        let is_test = indent_of_test.is_some();
        // In formatted code, an item ends on the first line that ends like this and is indented as its attribute is.
        if indent_of_test == Some(indent) && code.ends_with([';', '}', ',']) {
            indent_of_test = None;
        }
        !is_test && !code.starts_with("//")
    })
}

/// Whether `word` is in `code` and is not a part of a longer name. A digit may precede it, as in `1f64`.
fn has_word(code: &str, word: &str) -> bool {
    let in_name = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + word.len()..]);
        let goes_on = word.ends_with(in_name) && after.starts_with(in_name);
        !goes_on && !before.ends_with(|c: char| in_name(c) && !c.is_ascii_digit())
    })
}

fn machine_bound(text: &str) -> Wrong {
    // These are assembled here because this file is searched, too.
    let folders = ["home", "root", "work", "Users"].map(|folder| format!("/{folder}/"));
    let mut wrong = Wrong::new();
    for (number, line) in numbered(text) {
        let absolute = folders.iter().filter(|folder| has_absolute(line, folder));
        let what = |folder| format!("{folder}… is on one machine: name it from the root");
        wrong.extend(absolute.map(|folder| (number, what(folder))));
    }
    wrong
}

/// Whether a path in `line` starts with `folder`, and does not continue with it after a name, a dot, `~` or `${…}`.
fn has_absolute(line: &str, folder: &str) -> bool {
    let goes_on = |c: char| c.is_alphanumeric() || "_-.~*)}>".contains(c);
    let mut starts = line.match_indices(folder).map(|(at, _)| &line[..at]);
    starts.any(|before| !before.ends_with(goes_on))
}

fn draws_layout(path: &str) -> bool {
    ["README.md", "ARCHITECTURE.md"].contains(&path)
}

fn no_such_folder(text: &str) -> Wrong {
    let mut wrong = Wrong::new();
    for (number, folder) in layout(text) {
        if !root().join(folder).is_dir() {
            wrong.push((number, format!("there is no {folder}/ in the root: mend the layout")));
        }
    }
    wrong
}

/// Returns the folders that a document names: each `name/` that begins a line of a code block, a row of a table, or an
/// item of a list.
fn layout(text: &str) -> Vec<(usize, &str)> {
    let in_path = |c: char| c.is_alphanumeric() || "._-/".contains(c);
    let mut folders = Vec::new();
    let mut in_code = false;
    for (number, line) in numbered(text) {
        in_code ^= line.starts_with("```");
        let mut marks = ["| `", "- `", "* `"].into_iter();
        let marked = marks.find_map(|mark| line.strip_prefix(mark));
        let Some(entry) = marked.or(in_code.then_some(line)) else {
            continue;
        };
        let path = entry.split(|c| !in_path(c)).next().unwrap_or_default();
        let folder = path.strip_suffix('/').filter(|path| !path.starts_with('/'));
        folders.extend(folder.map(|folder| (number, folder)));
    }
    folders
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines())
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the paths, from the root, of every file that the next commit can contain.
fn files() -> impl Iterator<Item = String> {
    // A checkout that is mounted into a container often belongs to another user, which git must accept.
    let list = "-c safe.directory=* ls-files -z --cached --others --exclude-standard";
    let paths = printed_by(Command::new("git").args(list.split(' ')));
    let paths: Vec<String> = paths.split_terminator('\0').map(str::to_owned).collect();
    paths.into_iter().filter(|path| root().join(path).is_file())
}

/// Reads a file of the repository. Bytes that are no text become replacement characters.
fn read(path: &str) -> String {
    let bytes = std::fs::read(root().join(path));
    let bytes = bytes.unwrap_or_else(|error| panic!("cannot read {path}: {error}"));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the crates of the workspace as cargo describes them, each with the path of its manifest from the root.
fn crates() -> Vec<(String, Value)> {
    let describe = "metadata --format-version 1 --no-deps --offline";
    let printed = printed_by(Command::new(env!("CARGO")).args(describe.split(' ')));
    let metadata: Value = serde_json::from_str(&printed).expect("cargo prints JSON");
    let root = text(&metadata["workspace_root"]);
    let path = |package: &Value| text(&package["manifest_path"])[root.len() + 1..].to_owned();
    let packages = list(&metadata["packages"]).iter();
    packages.map(|package| (path(package), package.clone())).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().expect("cargo metadata has a text here")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("cargo metadata has a list here")
}

/// Runs `command` in the root of the repository and returns what it prints.
fn printed_by(command: &mut Command) -> String {
    let output = command.current_dir(root()).output();
    let output = output.unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Applies `rule` to each file of the repository whose path `applies` picks.
#[track_caller]
fn expect_each(applies: fn(&str) -> bool, rule: fn(&str) -> Wrong) {
    let mut paths = files().filter(|path| applies(path)).peekable();
    assert!(paths.peek().is_some(), "no file is left that this rule applies to");
    expect_none(paths.map(|path| (rule(&read(&path)), path)));
}

#[track_caller]
fn expect_none(found: impl Iterator<Item = (Wrong, String)>) {
    let mut list = String::new();
    for (wrong, path) in found {
        for (line, what) in wrong {
            list += &format!("\n{path}:{line}: {what}");
        }
    }
    assert!(list.is_empty(), "{list}");
}

/// Each rule refuses what it is meant to refuse, and nothing else.
mod samples {
    use super::*;
    use serde_json::json;

    /// Asserts that `rule` finds something wrong with `text` on `lines`, and on no others.
    #[track_caller]
    fn check(rule: fn(&str) -> Wrong, text: &str, lines: &[usize]) {
        let wrong = rule(text);
        let found = wrong.iter().map(|(line, _)| line);
        assert!(found.eq(lines), "{wrong:?} in {text:?}");
    }

    #[test]
    fn an_arrow_against_the_design_is_found_in_every_kind_of_dependency() {
        let manifest = "[dependencies]\nlessor-protocol = {}\n\nscenarios.workspace = true\n";
        let found = |name, seen, kind| {
            let external = json!({ "name": "serde", "kind": null, "path": null });
            let beside = json!({ "name": seen, "kind": kind, "path": "somewhere" });
            let package = json!({ "name": name, "dependencies": [external, beside] });
            against_the_arrows(&package, manifest)
        };
        assert_eq!(found("lessor", "lessor-protocol", None), []);
        for kind in [None, Some("dev"), Some("build")] {
            let wrong = found("lessor", "scenarios", kind);
            let what = "lessor must not see scenarios: move what they share to protocol";
            assert_eq!(wrong, [(4, what.to_owned())]);
        }
        assert_eq!(found("lessor-protocol", "lessor", None).len(), 1);
        assert_eq!(found("common", "lessor", None).len(), 1, "a crate without arrows");
    }

    #[test]
    fn a_line_too_many_is_found() {
        let text = "x\n".repeat(LINES_MAX);
        check(too_long, &text, &[]);
        check(too_long, &(text + "x"), &[LINES_MAX + 1]);
    }

    #[test]
    fn an_opening_without_module_docs_is_found() {
        check(undocumented, "//! A pool.\n", &[]);
        check(undocumented, "", &[1]);
        check(undocumented, "// A pool.\n", &[1]);
        check(undocumented, "/// A pool.\nstruct Pool;\n", &[1]);
        check(undocumented, "\n//! A pool.\n", &[1]);
    }

    #[test]
    fn the_core_is_known_by_its_paths() {
        assert!(is_core("client/src/slot.rs"));
        assert!(is_core("ledger/src/pool/mod.rs"));
        assert!(!is_core("ledger/src/pool/tests.rs"));
        assert!(!is_core("client/src/slots.rs"));
    }

    #[test]
    fn each_impure_word_is_found() {
        for word in IMPURE.split_whitespace() {
            check(impure, &format!("//! A pool.\nlet x = ({word} );"), &[2]);
        }
        check(impure, "let x = 1f64;", &[1]);
        check(impure, "operand::half(of64, tokio_like); // tokio", &[]);
        check(impure, "//! f64\n    /// tokio\n// fastrand\n", &[]);
    }

    #[test]
    fn test_code_in_the_core_ends_where_its_item_ends() {
        check(impure, "#[cfg(test)]\nmod tests;\nlet a: f64;\n", &[3]);
        let module = "#[cfg(test)]\nmod a {\n    use tokio;\n}\nuse axum;\n";
        check(impure, module, &[5]);
        let methods = "    #[cfg(test)]\n    fn a(x: f64) {\n        x;\n    }\n    fn b(x: f64) {}\n";
        check(impure, methods, &[5]);
    }

    #[test]
    fn a_path_of_one_machine_is_found() {
        let path = format!("/{}/me", "home");
        for before in ["", "cd ", "\"", "PATH=", "file://"] {
            check(machine_bound, &format!("\n{before}{path}"), &[2]);
        }
        for before in ["..", "~", "${ROOT}", "example.org"] {
            check(machine_bound, &format!("\n{before}{path}"), &[]);
        }
    }

    #[test]
    fn a_folder_that_does_not_exist_is_found_wherever_a_layout_names_it() {
        let block = "gone/ in prose\n```\ntests/   real\n  gone/ nested\ngone/    left over\nrun.sh\n```\n";
        check(no_such_folder, block, &[5]);
        check(no_such_folder, "| `gone/` | |\n| `tests/` | |\n", &[1]);
        check(no_such_folder, "- `tests/`: real\n- `gone/`: left over\n", &[2]);
        check(no_such_folder, "- `/v1/`: a route\n- `run.sh`: a file\n", &[]);
    }
}
