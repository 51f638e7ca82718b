//! What happens to a file that is in the way of a store: one that never was a store is told from a damaged one, and what is set aside
//! overwrites nothing.

use super::seal::{self, with_more};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// How files of the library begin. It writes this last when it makes one: after a crash there are zeros in its place.
const MAGIC: [u8; 9] = *b"redb\x1a\x0a\xa9\x0d\x0a";

/// Stores that are kept aside beside one another. With more, an operator is to look at them first.
const ASIDE_MAX: u32 = 1_000;

/// Whether `file`, at `path`, never was a store. Beside a seal it is one with damage where it begins.
pub(super) fn is_foreign(file: &File, path: &Path) -> io::Result<bool> {
    Ok(file.metadata()?.is_file() && !begins_as_store(file)? && seal::read(path).is_none())
}

/// Whether `file` begins as a store does, or as one that a crash left before it was made.
fn begins_as_store(file: &File) -> io::Result<bool> {
    let mut first = [0; MAGIC.len()];
    let mut read = 0;
    while read < first.len() {
        match file.read_at(&mut first[read..], read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(first[..read] == MAGIC[..read] || first[..read].iter().all(|&byte| byte == 0))
}

/// The first free name beside `path` for a store that is set aside. None is overwritten that is there already.
pub(super) fn free_name(path: &Path) -> io::Result<PathBuf> {
    let names = (1..=ASIDE_MAX).map(|number| match number {
        1 => with_more(path, ".lost"),
        _ => with_more(path, &format!(".lost.{number}")),
    });
    for name in names {
        match std::fs::symlink_metadata(&name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(name),
            Err(error) => return Err(error),
            Ok(_) => {}
        }
    }
    let problem = format!("it is of no use, and {ASIDE_MAX} lost ones are beside it: take them away");
    Err(io::Error::new(io::ErrorKind::AlreadyExists, problem))
}
