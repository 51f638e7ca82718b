//! A file beside the store that records how far the store had come. A store that was put back from a copy is behind its
//! seal, or has none: later grants are missing in it. The seal is synced only when its store is made. After a power cut
//! an older seal may be found, which is still true.

use super::file;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Size of the file in bytes. It is constant, so that each write replaces the one before.
const SIZE: usize = 64;

/// The seal of a store.
#[derive(Debug)]
pub(super) struct Seal {
    file: File,
}

/// Returns the path of the seal of the store at `path`.
pub(super) fn beside(path: &Path) -> PathBuf {
    with_more(path, ".seal")
}

/// Appends `more` to the file name of `path`.
pub(super) fn with_more(path: &Path, more: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(more);
    path.with_file_name(name)
}

/// Opens the folder of the file at `path`.
pub(super) fn folder(path: &Path) -> io::Result<File> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))
}

/// Reads the seal beside `path`: the number of its store, and the commits it has seen. `None` if there is none, or it says
/// something else.
///
/// # Errors
/// If the system does not let it be read. There may be a good one.
pub(super) fn read(path: &Path) -> io::Result<Option<(u64, u64)>> {
    let mut bytes = vec![];
    match file::open(&beside(path), false) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?.take(SIZE as u64).read_to_end(&mut bytes)?,
    };
    Ok(parsed(&bytes))
}

fn parsed(bytes: &[u8]) -> Option<(u64, u64)> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut words = text.split_whitespace();
    let store = u64::from_str_radix(words.next()?, 16).ok()?;
    let commits = words.next()?.parse().ok()?;
    (words.next() == Some("lessor")).then_some((store, commits))
}

impl Seal {
    /// Opens the seal of the store at `path`.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = file::open(&beside(path), true)?;
        file::keep_to_ourselves(&file)?;
        Ok(Seal { file })
    }

    /// Makes the file and its name in the folder durable, so that a power cut leaves a seal beside the store at `path`.
    pub(super) fn sync(&self, path: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        folder(path)?.sync_all()
    }

    /// Records that the store with the number `store` has seen this many `commits`.
    pub(super) fn write(&self, store: u64, commits: u64) -> io::Result<()> {
        let mut bytes = [b' '; SIZE];
        let text = format!("{store:016x} {commits} lessor");
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        bytes[SIZE - 1] = b'\n';
        self.file.write_all_at(&bytes, 0)
    }
}
