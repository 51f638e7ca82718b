//! Opens the files of a store, for this user alone and never through a symbolic link. Such a link could lead a process
//! with more rights to a file of another user.

use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// Access mode: none for other users.
const MODE: u32 = 0o600;

/// Opens the file at `path` for reading and writing. If there is none, it is made if it `may_be_new`.
///
/// # Errors
/// If it is a symbolic link or no regular file, or cannot be opened.
pub(super) fn open(path: &Path, may_be_new: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(may_be_new).truncate(false).mode(MODE);
    // Opening a pipe would block.
    let file = options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed()).open(path);
    let file = file.map_err(|error| match error.raw_os_error() {
        Some(code) if code == Errno::LOOP.raw_os_error() => link(path),
        _ => error,
    })?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
    }
}

/// What tells a file from any other: its device, and its number there.
pub(super) type FileId = (u64, u64);

/// # Errors
/// If the system does not say.
pub(super) fn id(file: &File) -> io::Result<FileId> {
    file.metadata().map(|meta| (meta.dev(), meta.ino()))
}

/// Returns which file, or link, is at `path`, if there is one.
pub(super) fn id_at(path: &Path) -> Option<FileId> {
    std::fs::symlink_metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// Removes the access of other users to `file`, which an earlier version may have made readable for all.
///
/// # Errors
/// If it is not this user's.
pub(super) fn keep_to_ourselves(file: &File) -> io::Result<()> {
    match file.metadata()?.permissions().mode() & 0o777 {
        MODE => Ok(()),
        _ => file.set_permissions(Permissions::from_mode(MODE)),
    }
}

/// # Errors
/// If there is a symbolic link at `path`.
pub(super) fn refuse_link(path: &Path) -> io::Result<()> {
    let is_link = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_symlink());
    if is_link { Err(link(path)) } else { Ok(()) }
}

fn link(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{} is a symbolic link", path.display()))
}
