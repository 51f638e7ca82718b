//! Files that are read while a process runs: certificates, keys, tokens. [`read`] reads one whole, within a bound. [`Reloading`]
//! keeps what is made of some and takes over their changes. A [`Token`] is what a client shows of one. An error names the file and shows nothing of what is in it.

mod reloading;
mod token;

pub use reloading::{Look, Reloading};
pub use token::Token;

use std::fs::{Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Opens without waiting, as a pipe would make the reader do (`O_NONBLOCK` of Linux).
const NONBLOCK: i32 = 0o4000;

/// Users other than the owner and its group may read.
const OTHERS_READ: u32 = 0o004;

/// Why a file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", file.display())]
pub struct FileError {
    /// Which one.
    pub file: PathBuf,
    /// What is wrong with it, without a word of what is in it.
    pub problem: String,
}

impl FileError {
    /// `problem` of `file`.
    pub fn of(file: &Path, problem: impl ToString) -> Self {
        FileError { file: file.to_owned(), problem: problem.to_string() }
    }
}

/// What tells two states of a file apart without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// The mark of what `path` leads to now; `None` if it cannot be seen.
pub fn mark(path: &Path) -> Option<Mark> {
    let of = |data: Metadata| Mark {
        device: data.dev(),
        inode: data.ino(),
        length: data.len(),
        modified: (data.mtime(), data.mtime_nsec()),
        changed: (data.ctime(), data.ctime_nsec()),
    };
    std::fs::metadata(path).ok().map(of)
}

/// What is in `file`, which is a regular one of at most `max` bytes. A pipe is no regular file, and is not waited for.
///
/// # Errors
/// If it cannot be read, is no regular file, or is larger.
pub fn read(file: &Path, max: u64) -> Result<Vec<u8>, FileError> {
    let read = || {
        let opened = OpenOptions::new().read(true).custom_flags(NONBLOCK).open(file)?;
        if !opened.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
        }
        let mut bytes = vec![];
        opened.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|error| FileError::of(file, format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > max {
        return Err(FileError::of(file, format!("it is larger than {max} bytes")));
    }
    Ok(bytes)
}

/// Whether others than the owner of `file` and its group may read it.
pub fn is_open_to_all(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|data| data.mode() & OTHERS_READ != 0)
}
