//! Reads files that an operator names: regular ones within a bound. Nothing else is waited for. And secrets in them, which other users
//! should not be able to read.

use crate::failure::Failure;
use lessor_allocator::cells::Password;
use rustix::fs::OFlags;
use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// The largest file of a password, in bytes. None is longer than a line.
const PASSWORD_MAX: u64 = 4 << 10;

/// Users other than the owner and its group may read.
const OTHERS_READ: u32 = 0o004;

/// The text in `file`.
///
/// # Errors
/// If it cannot be read, is no regular file, is larger than `max` bytes, or is no UTF-8.
pub(crate) fn text(file: &Path, max: u64) -> io::Result<String> {
    // To open a pipe takes until another process opens it to write, and to read it may never end.
    let opened =
        OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(file)?;
    if !opened.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    let mut text = String::new();
    // It may grow while it is read.
    opened.take(max + 1).read_to_string(&mut text)?;
    if text.len() as u64 > max {
        let bound = if max < 1 << 20 { format!("{} KiB", max >> 10) } else { format!("{} MiB", max >> 20) };
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {bound}")));
    }
    Ok(text)
}

/// The password in `file`, which `key` names: its one line. Other users should not be able to read it: if they are, a warning says so.
///
/// # Errors
/// As [`text`], and if there is no such line. Names key and file, and shows nothing of what is in it.
pub(crate) fn password(key: &str, file: &Path) -> Result<Password, Failure> {
    let wrong = |problem: &str| Failure::Input(format!("{key}: {}: {problem}", file.display()));
    // What is said of bad UTF-8 shows no byte.
    let text = text(file, PASSWORD_MAX).map_err(|error| wrong(&error.to_string()))?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.is_empty() {
        return Err(wrong("it is empty: write the password into it"));
    }
    if line.contains(|c: char| c.is_control()) {
        return Err(wrong(
            "it has more than one line, or a control character: write the password alone into it",
        ));
    }
    warn_if_open(file, "the password");
    Ok(Password::new(line))
}

/// A warning if users other than the owner of `file` and its group can read it, and so the `secret` in it.
pub(crate) fn warn_if_open(file: &Path, secret: &str) {
    if std::fs::metadata(file).is_ok_and(|data| data.mode() & OTHERS_READ != 0) {
        let file = file.display();
        tracing::warn!(%file, "every user of this machine can read {secret}: take that right away");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_the_one_line_of_a_file_and_no_error_shows_it() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("word");
        let read = |bytes: &[u8]| {
            std::fs::write(&file, bytes).expect("a file in it");
            password("store.password_file", &file).map_err(|failure| failure.to_string())
        };
        for good in ["s3 cret", "s3 cret\n", "s3 cret\r\n"] {
            assert_eq!(read(good.as_bytes()), Ok(Password::new("s3 cret")));
        }
        let long = "s3cret".repeat(1_000);
        for (bytes, said) in [
            (&b""[..], "it is empty"),
            (b"\n", "it is empty"),
            (b"s3cret\ns3cret\n", "more than one line"),
            (b"s3cret\0", "a control character"),
            (b"s3cret\xff", "UTF-8"),
            (long.as_bytes(), "larger than 4 KiB"),
        ] {
            let error = read(bytes).expect_err(said);
            let begins = format!("store.password_file: {}: ", file.display());
            assert!(error.starts_with(&begins) && error.contains(said) && !error.contains("s3"), "{error}");
        }
        let error = password("store.password_file", folder.path()).expect_err("a folder").to_string();
        assert!(error.contains("no regular file"), "{error}");
    }
}
