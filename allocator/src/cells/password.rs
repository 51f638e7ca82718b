//! The password of a store: a text, or the one line of a file, which is checked before each connection. No password is
//! ever printed.

use lessor_files::{FileError, Reloading};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Largest file of a password, in bytes: a line is shorter.
const FILE_MAX: u64 = 4 << 10;

/// A password, which is never printed. Clones share one reading of the file.
#[derive(Clone)]
pub struct Password(Source);

#[derive(Clone)]
enum Source {
    Text(Arc<str>),
    File(Arc<Reloading<String, FileError>>),
}

impl Password {
    /// Makes a password of `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Password(Source::Text(text.into().into()))
    }

    /// Reads the one line of `file`, now and whenever the file changes. If the new content is no password, the last one
    /// stays in force, and the log says so. A warning is logged if every user of the machine can read the file.
    ///
    /// # Errors
    /// If the file cannot be read, is no regular file, is larger than 4 KiB, or is not one line. The error shows
    /// nothing of the content.
    pub fn file(file: &Path) -> Result<Self, FileError> {
        let (files, file) = (vec![file.to_owned()], file.to_owned());
        let read = Reloading::load("the password of a store", files, Box::new(move || read(&file)))?;
        Ok(Password(Source::File(Arc::new(read))))
    }

    /// Returns the password that is in force now.
    ///
    /// # Cancel safety
    /// Nothing is lost if the future is dropped.
    pub(super) async fn reveal(&self) -> String {
        match &self.0 {
            Source::Text(text) => text.as_ref().to_owned(),
            Source::File(file) => {
                let looked = file.clone();
                // Disks may be slow. If the file cannot be checked, the last password is used.
                let _ = tokio::task::spawn_blocking(move || looked.look_at_once()).await;
                file.current().as_ref().clone()
            }
        }
    }

    /// Returns the password that was read last.
    fn last(&self) -> Arc<str> {
        match &self.0 {
            Source::Text(text) => text.clone(),
            Source::File(file) => file.current().as_str().into(),
        }
    }
}

/// Reads the line in `file`.
fn read(file: &Path) -> Result<String, FileError> {
    let text = lessor_files::text(file, FILE_MAX)?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.is_empty() {
        return Err(FileError::of(file, "it is empty: write the password into it"));
    }
    if line.contains(|c: char| c.is_control()) {
        let problem = "it has more than one line, or a control character: write the password alone into it";
        return Err(FileError::of(file, problem));
    }
    lessor_files::warn_if_open(file, "the password");
    Ok(line.to_owned())
}

/// Passwords are equal if their last readings are.
impl PartialEq for Password {
    fn eq(&self, other: &Self) -> bool {
        self.last() == other.last()
    }
}

impl Eq for Password {}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(_)")
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
            Password::file(&file).map_err(|error| error.to_string())
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
            let begins = format!("{}: ", file.display());
            assert!(error.starts_with(&begins) && error.contains(said) && !error.contains("s3"), "{error}");
        }
        let error = Password::file(folder.path()).expect_err("a folder").to_string();
        assert!(error.contains("no regular file"), "{error}");
    }

    #[tokio::test]
    async fn a_file_that_changed_has_another_password_and_a_broken_one_has_the_last() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("word");
        std::fs::write(&file, "first\n").expect("a file in it");
        let password = Password::file(&file).expect("good");
        assert_eq!(password.reveal().await, "first");
        std::fs::write(&file, "second\n").expect("it is ours");
        assert_eq!(password.clone().reveal().await, "second");
        assert!(password == Password::new("second") && format!("{password:?}") == "Password(_)");
        for broken in ["", "two\nlines\n"] {
            std::fs::write(&file, broken).expect("it is ours");
            assert_eq!(
                (password.reveal().await, password.reveal().await),
                ("second".into(), "second".into())
            );
        }
        std::fs::remove_file(&file).expect("it is ours");
        assert_eq!(password.reveal().await, "second");
    }
}
