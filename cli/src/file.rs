//! Reads files that an operator names: regular ones within a bound, and none that would have to be waited for. Also
//! reads secrets from files, which other users should not be able to read.

use crate::failure::Failure;
use lessor_allocator::cells::Password;
use rustix::fs::OFlags;
use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Permission bit: users other than the owner and its group may read.
const OTHERS_READ: u32 = 0o004;

/// Reads the text in `file`.
///
/// # Errors
/// If it cannot be read, is no regular file, is larger than `max` bytes, or is not UTF-8.
pub(crate) fn text(file: &Path, max: u64) -> io::Result<String> {
    // Opening a pipe waits until another process opens it to write, and reading it may never end.
    let opened =
        OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(file)?;
    if !opened.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    let mut text = String::new();
    // The file may grow while it is read.
    opened.take(max + 1).read_to_string(&mut text)?;
    if text.len() as u64 > max {
        let bound = if max < 1 << 20 { format!("{} KiB", max >> 10) } else { format!("{} MiB", max >> 20) };
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {bound}")));
    }
    Ok(text)
}

/// Reads the password in `file`, which `key` names: its one line. A warning says so if other users can read the file.
///
/// # Errors
/// If there is no such line. Names key and file, and shows nothing of the file's content.
pub(crate) fn password(key: &str, file: &Path) -> Result<Password, Failure> {
    Password::file(file).map_err(|error| Failure::Input(format!("{key}: {error}")))
}

/// Logs a warning if users other than the owner of `file` and its group can read it, and so the `secret` in it.
pub(crate) fn warn_if_open(file: &Path, secret: &str) {
    if std::fs::metadata(file).is_ok_and(|data| data.mode() & OTHERS_READ != 0) {
        let file = file.display();
        tracing::warn!(%file, "every user of this machine can read {secret}: remove that right (chmod o-r)");
    }
}
