//! Handles a file that is in the way of a store. A damaged store is set aside, under a name that is free. A file that
//! never was a store is refused.

use super::seal::{self, with_more};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// First bytes of a file of the library, which writes them last when it makes one. After a crash in between there are
/// zeros instead.
const MAGIC: [u8; 9] = *b"redb\x1a\x0a\xa9\x0d\x0a";

/// Most stores that are kept aside. An operator has to look at them before there are more.
const ASIDE_MAX: u32 = 1_000;

/// Whether `file`, at `path`, never was a store. With a seal beside it, it is a store whose beginning is damaged.
pub(super) fn is_foreign(file: &File, path: &Path) -> io::Result<bool> {
    Ok(file.metadata()?.is_file() && !begins_as_store(file)? && seal::read(path)?.is_none())
}

/// Whether `file` begins as a store does, or as one that a crash left unfinished.
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

/// Gives the store at `path` a second name, by a `link`, or by a copy where the file system has no links.
pub(super) fn keep(path: &Path, link: impl FnOnce(&Path, &Path) -> io::Result<()>) -> io::Result<()> {
    let name = free_name(path)?;
    match link(path, &name) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        Err(_) => std::fs::copy(path, &name).and_then(|_| File::open(&name)?.sync_all()),
        Ok(()) => Ok(()),
    }
}

/// Returns the first free name beside `path` for a store that is set aside, so that no file is overwritten.
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
    let problem = format!("it is unusable, and {ASIDE_MAX} lost stores are beside it already: remove some");
    Err(io::Error::new(io::ErrorKind::AlreadyExists, problem))
}
