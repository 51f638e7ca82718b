//! The Dockerfile: its base is pinned, the build uses the lock file, and the image has one binary that does not run as
//! root.

use super::file::{read, services};
use scenarios::process::{Allocator, lessor};
use std::path::Path;
use std::process::Command;

/// A limit whose quarantine lasts for a day.
const LIMIT: &str =
    "[[limit]]\nname = \"a\"\nrules = [{ kind = \"sliding_window\", limit = 10, per = \"1d\" }]\n";

/// Asserts that an image has a full version, and its digest when it was pinned.
pub(crate) fn assert_pinned(image: &str) {
    let (tag, digest) = image.split_once("@sha256:").unwrap_or_else(|| panic!("{image} has no digest"));
    assert!(digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()), "{image}");
    let version = tag.rsplit_once(':').unwrap_or_else(|| panic!("{image} has no tag")).1;
    assert!(version.matches('.').count() >= 1 && version.contains(|c: char| c.is_ascii_digit()), "{image}");
}

/// Returns the instructions, each in one line.
fn instructions() -> Vec<(String, String)> {
    let text = read("Dockerfile").replace("\\\n", "");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let split = lines.map(|line| line.split_once(' ').unwrap_or_else(|| panic!("{line}")));
    split
        .map(|(word, rest)| (word.to_owned(), rest.split_whitespace().collect::<Vec<_>>().join(" ")))
        .collect()
}

fn of<'a>(instructions: &'a [(String, String)], word: &str) -> Vec<&'a str> {
    instructions.iter().filter(|(known, _)| known == word).map(|(_, rest)| rest.as_str()).collect()
}

#[test]
fn it_is_a_static_binary_on_nothing_and_not_run_by_root() {
    let instructions = instructions();
    let stages = of(&instructions, "FROM");
    assert_eq!(stages.last(), Some(&"scratch"));
    let built = stages[0].strip_suffix(" AS build").expect("the stage is called build");
    assert_pinned(built);
    assert!(built.contains("-alpine"), "{built} does not build without libraries");
    let user = of(&instructions, "USER");
    assert_eq!(user, [services(&[])["vendor"].text("user")]);
    // The image has the binary that compose runs.
    let binary = of(&instructions, "ENTRYPOINT");
    assert_eq!(binary, ["[\"/usr/local/bin/lessor\"]"]);
    assert!(
        of(&instructions, "COPY").contains(&"--from=build /src/target/release/lessor /usr/local/bin/lessor")
    );
}

/// The bug: the check asked for readiness, so orchestrators replaced an allocator that waited out a quarantine.
#[test]
fn its_health_is_that_the_process_answers() {
    let instructions = instructions();
    let health = of(&instructions, "HEALTHCHECK");
    assert!(health[0].ends_with(r#"CMD ["/usr/local/bin/lessor", "status", "--live"]"#), "{health:?}");
    let waits = Allocator::start(LIMIT, "127.0.0.1:0", false);
    let code = |args: &[&str]| {
        let mut command = Command::new(lessor());
        command.args(args).env("LESSOR_SERVER", &waits.url).output().expect("the command runs").status.code()
    };
    assert_eq!([code(&["status", "--ready"]), code(&["status", "--live"])], [Some(1), Some(0)]);
    drop(waits);
}

#[test]
fn it_is_built_by_what_is_locked_from_files_that_are_there() {
    let instructions = instructions();
    let builds: Vec<&str> =
        of(&instructions, "RUN").into_iter().filter(|run| run.contains("cargo build")).collect();
    assert_eq!(builds.len(), 2, "dependencies, and ours");
    assert!(builds.iter().all(|run| run.contains("cargo build --release --locked --package lessor-cli")));
    // Cargo goes by file times. In a checkout older than the first layer, untouched sources would look older than the
    // build of the empty ones.
    let touched = builds[1]
        .strip_prefix("touch ")
        .and_then(|run| run.split_once(" && "))
        .expect("the build begins with touch")
        .0;
    let empty = builds[0].replace("echo 'fn main() {}' > ", "touch ");
    for root in touched.split(' ') {
        assert!(empty.contains(root), "{root} was not made for the layer of dependencies");
    }
    assert_eq!(
        touched.split(' ').count(),
        10,
        "ours are protocol, holder, ledger, files, tls, access, allocator, client, sim and cli"
    );
    let workspace: toml::Table = read("Cargo.toml").parse().expect("TOML");
    let copies = of(&instructions, "COPY");
    for member in workspace["workspace"]["members"].as_array().expect("a list") {
        let member = member.as_str().expect("a folder");
        let manifest = format!("{member}/Cargo.toml {member}/");
        assert!(copies.contains(&manifest.as_str()), "the layer of dependencies lacks {member}");
    }
    let sent = read(".dockerignore");
    let sent: Vec<&str> = sent.lines().filter_map(|line| line.strip_prefix('!')).collect();
    for copy in copies.iter().filter(|copy| !copy.starts_with("--from")) {
        let files: Vec<&str> = copy.split(' ').collect();
        for file in &files[..files.len() - 1] {
            assert!(super::project().join(file).exists(), "{file}");
            assert!(
                sent.iter().any(|sent| Path::new(file).starts_with(sent)),
                ".dockerignore leaves {file} out of the build"
            );
        }
    }
}
