//! The token that a client shows: a text, or the content of a file or of an environment variable. It is read when it is
//! first shown, and again after a refusal. Neither `Debug` nor an error has any part of it.

use crate::FileError;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Longest token, in bytes.
const TOKEN_MAX: usize = 8_192;

/// A token to show to an allocator. Clones share one reading of the source.
#[derive(Clone)]
pub struct Token(Arc<Inner>);

struct Inner {
    source: Source,
    read: Mutex<Option<String>>,
}

#[derive(Debug)]
enum Source {
    Text,
    File(PathBuf),
    Env(String),
}

impl Token {
    /// Makes a token of `text`, which never changes.
    pub fn new(text: impl Into<String>) -> Self {
        Token::of(Source::Text, Some(text.into()))
    }

    /// Makes a token of the content of `file`, without surrounding white space.
    pub fn file(file: impl Into<PathBuf>) -> Self {
        Token::of(Source::File(file.into()), None)
    }

    /// Makes a token of the environment variable `name`.
    pub fn env(name: impl Into<String>) -> Self {
        Token::of(Source::Env(name.into()), None)
    }

    fn of(source: Source, read: Option<String>) -> Self {
        Token(Arc::new(Inner { source, read: Mutex::new(read) }))
    }

    /// Returns the text to show. Blocks on the disk the first time.
    ///
    /// # Errors
    /// If there is no text, or one that cannot be a token. The error names the file or the variable.
    pub fn shown(&self) -> Result<String, FileError> {
        let mut read = self.0.read.lock().unwrap_or_else(PoisonError::into_inner);
        let text = match &*read {
            Some(text) => checked(text, &self.0.source)?,
            None => self.0.source.read()?,
        };
        *read = Some(text.clone());
        Ok(text)
    }

    /// Reads another text to show after `refused` was refused; `None` if the source has the same text, or none that can
    /// be a token. Blocks on the disk.
    pub fn after(&self, refused: &str) -> Option<String> {
        let mut read = self.0.read.lock().unwrap_or_else(PoisonError::into_inner);
        // Another request may have read it meanwhile.
        if let Some(text) = read.as_ref().filter(|text| *text != refused) {
            return Some(text.clone());
        }
        let text = self.0.source.read().ok().filter(|text| text != refused)?;
        *read = Some(text.clone());
        Some(text)
    }
}

impl Source {
    fn read(&self) -> Result<String, FileError> {
        let text = match self {
            Source::Text => String::new(),
            Source::File(file) => {
                crate::warn_if_open(file, "the token");
                let bytes = crate::read(file, TOKEN_MAX as u64)?;
                String::from_utf8(bytes).unwrap_or_default()
            }
            Source::Env(name) => std::env::var(name).unwrap_or_default(),
        };
        checked(text.trim(), self)
    }
}

fn checked(text: &str, source: &Source) -> Result<String, FileError> {
    if !text.is_empty() && text.len() <= TOKEN_MAX && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(text.to_owned());
    }
    Err(match source {
        Source::Text => FileError::of(Path::new("token"), "this is no token"),
        Source::File(file) => FileError::of(file, "there is no token in it"),
        Source::Env(name) => FileError::of(Path::new(name), "this variable has no token"),
    })
}

/// Shows only the source.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Token").field(&self.0.source).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_again_once_it_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("token");
        let token = Token::file(&file);
        assert!(token.shown().is_err_and(|error| error.file == file), "it is not there yet");
        std::fs::write(&file, "first\n").expect("written");
        assert_eq!(token.shown().as_deref(), Ok("first"));
        assert_eq!(token.after("first"), None, "it says the same");
        std::fs::write(&file, "second\n").expect("written");
        assert_eq!(token.shown().as_deref(), Ok("first"), "it was not refused");
        assert_eq!(token.clone().after("first").as_deref(), Some("second"));
        assert_eq!(token.after("first").as_deref(), Some("second"), "another request has read it");
        assert_eq!(token.shown().as_deref(), Ok("second"));
        std::fs::write(&file, "").expect("written");
        assert_eq!(token.after("second"), None, "a file that is half written");
    }

    #[test]
    fn nothing_shows_a_token() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("token");
        std::fs::write(&file, "very secret").expect("written");
        let said = format!("{:?} {:?}", Token::new("very secret"), Token::file(&file).shown());
        assert!(!said.contains("very"), "{said}");
        for text in ["", "a b", "a\nb", &"x".repeat(TOKEN_MAX + 1)] {
            let error = Token::new(text).shown().expect_err(text).to_string();
            assert!(error.len() < 100, "{error}");
        }
        assert_eq!(Token::new("abc").after("abc"), None);
    }
}
