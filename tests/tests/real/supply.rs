//! What enters the dependency tree, by the rules of `deny.toml`, and the list of it beside a binary. `cargo deny`
//! checks more, above all advisories; these tests need nothing that is not installed.

use scenarios::process::lessor;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository holds this crate").to_owned()
}

/// Returns all packages that a build for Linux may need, including those of tests and benches.
fn packages() -> Vec<Value> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["metadata", "--format-version", "1", "--locked", "--all-features"]);
    command.args(["--filter-platform", "x86_64-unknown-linux-gnu"]).current_dir(repository());
    let output = command.output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let needed: BTreeSet<&str> =
        list(&metadata["resolve"]["nodes"]).iter().map(|node| text(&node["id"])).collect();
    let packages = list(&metadata["packages"]).iter();
    packages.filter(|package| needed.contains(text(&package["id"]))).cloned().collect()
}

fn rules() -> toml::Table {
    let file = std::fs::read_to_string(repository().join("deny.toml")).expect("a readable file");
    file.parse().expect("TOML")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

/// Whether a licence expression leaves a choice of `allowed` licences, which are then added to `used`.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>, used: &mut BTreeSet<String>) -> bool {
    // Older crates write a choice as `A/B`.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let is_good = any(&words, &mut at, allowed, used);
    is_good && at == words.len()
}

fn any(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>, used: &mut BTreeSet<String>) -> bool {
    let mut is_good = all(words, at, allowed, used);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        is_good |= all(words, at, allowed, used);
    }
    is_good
}

fn all(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>, used: &mut BTreeSet<String>) -> bool {
    let mut is_good = one(words, at, allowed, used);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        is_good &= one(words, at, allowed, used);
    }
    is_good
}

fn one(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>, used: &mut BTreeSet<String>) -> bool {
    let Some(word) = words.get(*at) else { return false };
    *at += 1;
    if *word == "(" {
        let is_good = any(words, at, allowed, used);
        let is_closed = words.get(*at) == Some(&")");
        *at += 1;
        return is_good && is_closed;
    }
    if words.get(*at) == Some(&"WITH") {
        // An exception counts as a licence of its own, which no crate needs.
        *at += 2;
        return false;
    }
    allowed.get(*word).is_some_and(|word| {
        used.insert(word.clone());
        true
    })
}

#[test]
fn an_expression_is_allowed_if_a_choice_of_it_is() {
    let allowed = ["MIT", "ISC"].map(str::to_owned).into();
    for (expression, expected) in [
        ("MIT", true),
        ("MIT/Apache-2.0", true),
        ("Apache-2.0 OR MIT", true),
        ("Apache-2.0", false),
        ("MIT AND Apache-2.0", false),
        ("(MIT OR Apache-2.0) AND ISC", true),
        ("(MIT OR Apache-2.0) AND GPL-3.0", false),
        ("Apache-2.0 WITH LLVM-exception OR MIT", true),
        ("(MIT", false),
        ("MIT MIT", false),
        ("", false),
    ] {
        assert_eq!(is_allowed(expression, &allowed, &mut BTreeSet::new()), expected, "{expression}");
    }
}

/// Checks the same as `cargo deny check bans licenses sources`.
#[test]
fn what_enters_the_tree_is_what_was_decided() {
    let (rules, packages) = (rules(), packages());
    let words = |value: &toml::Value| value.as_str().expect("a text").to_owned();
    let allowed: BTreeSet<String> =
        rules["licenses"]["allow"].as_array().expect("a list").iter().map(words).collect();
    let banned: BTreeSet<String> =
        rules["bans"]["deny"].as_array().expect("a list").iter().map(|ban| words(&ban["crate"])).collect();
    assert!(
        packages.len() > 100 && banned.contains("openssl"),
        "too few packages or bans: the test proves nothing"
    );
    let (mut used, mut wrong) = (BTreeSet::new(), vec![]);
    for package in &packages {
        let name = text(&package["name"]);
        if banned.contains(name) {
            wrong.push(format!("{name} is banned"));
        }
        if package["source"].as_str().is_some_and(|source| source != CRATES_IO) {
            wrong.push(format!("{name} is from {}", package["source"]));
        }
        let licence = package["license"].as_str().unwrap_or_default();
        if !is_allowed(licence, &allowed, &mut used) {
            wrong.push(format!("{name} has the licence {licence:?}"));
        }
        let is_ours = package["source"].is_null();
        for dependency in list(&package["dependencies"]).iter().filter(|_| is_ours) {
            if text(&dependency["req"]) == "*" && dependency["path"].is_null() {
                wrong.push(format!("{name} takes any version of {}", dependency["name"]));
            }
        }
    }
    wrong.extend(allowed.difference(&used).map(|unused| format!("no crate needs the licence {unused}")));
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn the_list_beside_a_binary_names_what_is_linked_into_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let binary = folder.path().join("lessor");
    std::fs::copy(lessor(), &binary).expect("the binary was built");
    let mut command = Command::new(repository().join("packaging/sbom"));
    let output = command.arg(&binary).output().expect("the command runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said =
        std::fs::read(folder.path().join("lessor.cdx.json")).expect("the bill of materials was written");
    let said: Value = serde_json::from_slice(&said).expect("JSON");
    assert_eq!((text(&said["bomFormat"]), text(&said["specVersion"])), ("CycloneDX", "1.5"));
    assert_eq!(text(&said["metadata"]["component"]["version"]), env!("CARGO_PKG_VERSION"));
    let sum = Command::new("sha256sum").arg(&binary).output().expect("the command runs");
    let sum = String::from_utf8_lossy(&sum.stdout).into_owned();
    assert!(sum.starts_with(text(&said["metadata"]["component"]["hashes"][0]["content"])), "{sum}");
    let known = packages();
    let components = list(&said["components"]);
    for component in components {
        let (name, version) = (text(&component["name"]), text(&component["version"]));
        let is_it = |package: &&Value| package["name"] == name && package["version"] == version;
        let package = known.iter().find(is_it).unwrap_or_else(|| panic!("{name} {version} is unknown"));
        assert_eq!(text(&component["purl"]), format!("pkg:cargo/{name}@{version}"));
        assert_eq!(
            component["hashes"].is_null(),
            package["source"].is_null(),
            "{name}: from a registry, with a sum"
        );
        assert!(!text(&component["licenses"][0]["expression"]).contains('/'), "{component}");
    }
    let has = |name: &str| components.iter().any(|component| component["name"] == name);
    assert!(["lessor-allocator", "rustls", "redb"].into_iter().all(has), "{components:?}");
    // Crates that only build or test are not linked.
    assert!(!["serde_derive", "cc", "proptest", "scenarios"].into_iter().any(has), "{components:?}");
}
