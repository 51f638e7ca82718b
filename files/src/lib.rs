//! Files that are read while a process runs: certificates, keys, tokens. [`read`] reads one as a whole, within a bound,
//! and [`text`] reads one as text. [`Reloading`] keeps a value that is made of files, and follows their changes. A
//! [`Token`] is shown by a client. An error names the file, and shows nothing of its content.

mod reloading;
mod token;

pub use reloading::{Look, Reloading};
pub use token::{Showing, Token};

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Does not block on opening, as a pipe would (`O_NONBLOCK` of Linux).
const NONBLOCK: i32 = 0o4000;

/// Mode bit by which users other than the owner and its group may read.
const OTHERS_READ: u32 = 0o004;

/// Why a file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", file.display())]
pub struct FileError {
    /// The file.
    pub file: PathBuf,
    /// The problem, without any of the content.
    pub problem: String,
}

impl FileError {
    /// Makes an error of `problem` with `file`.
    pub fn of(file: &Path, problem: impl ToString) -> Self {
        FileError { file: file.to_owned(), problem: problem.to_string() }
    }
}

/// Distinguishes two states of a file without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// Returns the present mark of the file that `path` leads to; `None` if it cannot be seen.
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

/// Opens `file`, a regular file, to read it. A pipe is refused without waiting for it.
///
/// # Errors
/// If it cannot be opened, or is no regular file.
pub fn open(file: &Path) -> io::Result<File> {
    let opened = OpenOptions::new().read(true).custom_flags(NONBLOCK).open(file)?;
    match opened.metadata()?.is_file() {
        true => Ok(opened),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
    }
}

/// Reads `file`, a regular file of at most `max` bytes. A pipe is refused without waiting for it.
///
/// # Errors
/// If it cannot be read, is no regular file, or is larger.
pub fn read(file: &Path, max: u64) -> Result<Vec<u8>, FileError> {
    let read = || {
        let mut bytes = vec![];
        open(file)?.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes: io::Result<Vec<u8>> = read();
    let bytes = bytes.map_err(|error| FileError::of(file, format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > max {
        let bound = if max < 1 << 20 { format!("{} KiB", max >> 10) } else { format!("{} MiB", max >> 20) };
        return Err(FileError::of(file, format!("it is larger than {bound}")));
    }
    Ok(bytes)
}

/// Reads `file`, as [`read`] does, as text.
///
/// # Errors
/// As [`read`], and if it is not UTF-8.
pub fn text(file: &Path, max: u64) -> Result<String, FileError> {
    String::from_utf8(read(file, max)?).map_err(|_| FileError::of(file, "it is not UTF-8"))
}

/// Whether users other than the owner of `file` and its group may read it.
pub fn is_open_to_all(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|data| data.mode() & OTHERS_READ != 0)
}

/// Logs a warning if users other than the owner of `file` and its group may read it, and so the `secret` in it.
pub fn warn_if_open(file: &Path, secret: &str) {
    if is_open_to_all(file) {
        let file = file.display();
        tracing::warn!(%file, "every user of this machine can read {secret}: remove that right (chmod o-r)");
    }
}
