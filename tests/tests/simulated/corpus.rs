//! The fuzz targets, called with their corpus and with small changes of it. The fuzzer itself needs minutes and a C++
//! compiler. These tests need neither, and keep what it found.

#[expect(unreachable_pub, reason = "the fuzz targets, which are crates of their own, call these")]
#[path = "../../../fuzz/src/lib.rs"]
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Changes that are tried of each file, besides the file itself.
const CHANGES: u64 = 100;

/// Bytes that have a meaning in the inputs.
const MARKS: &[u8] = b"\"{}[],:=#\n\r-+.0189eE @/?&%\\\0\xff";

fn files(target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    files
}

/// Returns `bytes` with one to four small changes.
fn changed(bytes: &[u8], rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..rng.usize(1..=4) {
        let at = rng.usize(0..=bytes.len());
        let to = rng.usize(at..=bytes.len());
        match rng.u8(0..5) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, MARKS[rng.usize(0..MARKS.len())]),
            2 if at < bytes.len() => bytes[at] = MARKS[rng.usize(0..MARKS.len())],
            3 => drop(bytes.drain(at..to.min(at + 16))),
            _ => {
                let piece = bytes[at..to.min(at + 64)].to_vec();
                let at = rng.usize(0..=bytes.len());
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes
}

/// Runs a target on its files, of which there must be at least `least`. A failure prints the input.
fn replay(target: &str, least: usize) {
    let (_, run) = targets::TARGETS.into_iter().find(|(name, _)| *name == target).expect("the target exists");
    let (files, mut rng) = (files(target), fastrand::Rng::with_seed(7));
    assert!(files.len() >= least, "{target} has {} files", files.len());
    for file in files {
        let whole = std::fs::read(&file).expect("a readable file");
        let changes = (0..CHANGES).map(|_| changed(&whole, &mut rng)).collect::<Vec<_>>();
        for data in std::iter::once(&whole).chain(&changes) {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(data))) {
                eprintln!("{target} fails on {:?}", String::from_utf8_lossy(data));
                std::panic::resume_unwind(panic);
            }
        }
    }
}

#[test]
fn bodies_of_nodes() {
    replay("wire", 5);
}

#[test]
fn configurations() {
    replay("configuration", 5);
}

#[test]
fn addresses_of_stores() {
    replay("store_url", 5);
}

#[test]
fn rows_of_stores() {
    replay("stored_rows", 4);
}

#[test]
fn headers_of_vendors() {
    replay("rate_limit_headers", 5);
}

#[test]
fn rules_over_the_api() {
    replay("rules", 5);
}
