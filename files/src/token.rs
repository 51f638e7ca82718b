//! The token that a client shows: a text, or the content of a file or of an environment variable. It is read when it is
//! first shown, and again after a refusal. Neither `Debug` nor an error has any part of it.
//!
//! Operators make a token, give it to a client and revoke the one before. An allocator reads a new token up to a tenth of
//! a second later than the client may, so a token that was just read from a file is shown again after a refusal.

use crate::FileError;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::sleep;

/// Longest token, in bytes.
const TOKEN_MAX: usize = 8_192;

/// Refusals of one request that are doubted, and of one text that was read from a file.
const DOUBTS: u32 = 4;

/// Longest pause before a text is shown again, or a file without one is read again: a shell that writes to it empties it
/// first.
const PAUSE: Duration = Duration::from_millis(40);

/// A token to show to an allocator. Clones share one reading of the source.
#[derive(Clone)]
pub struct Token(Arc<Inner>);

struct Inner {
    source: Source,
    read: Mutex<Option<Read>>,
}

/// A text as it was read.
struct Read {
    text: String,
    /// Refusals that are still to be doubted: an allocator may not know what was just read.
    doubts: u32,
}

/// What to show after a refusal.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Another text.
    Other(String),
    /// The same one, which may be new to the allocator.
    Same,
    /// What the source has once it was written.
    Unwritten,
    Nothing,
}

/// A token while a request shows it. Its texts are shown one after the other until one is not refused.
pub struct Showing {
    token: Token,
    text: String,
    doubts: u32,
    pause: Duration,
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
        let read = read.map(|text| Read { text, doubts: 0 });
        Token(Arc::new(Inner { source, read: Mutex::new(read) }))
    }

    /// Returns the text to show. Blocks on the disk the first time.
    ///
    /// # Errors
    /// If there is no text, or one that cannot be a token. The error names the file or the variable.
    pub fn shown(&self) -> Result<String, FileError> {
        let mut read = self.read();
        match &*read {
            Some(read) => checked(&read.text, &self.0.source),
            None => {
                let text = self.0.source.read()?;
                *read = Some(self.0.source.just_read(&text));
                Ok(text)
            }
        }
    }

    /// Begins to show the token in one request, which is given up after `patience`. Blocks on the disk the first time.
    /// A refusal is believed in time: a client that runs out of patience would take it for silence.
    ///
    /// # Errors
    /// As [`Token::shown`].
    pub fn show(&self, patience: Duration) -> Result<Showing, FileError> {
        let pause = PAUSE.min(patience / (2 * DOUBTS));
        Ok(Showing { token: self.clone(), text: self.shown()?, doubts: DOUBTS, pause })
    }

    /// Returns what to show after `refused` was refused. Blocks on the disk.
    fn after(&self, refused: &str) -> Next {
        // Another request may have read it meanwhile.
        if let Some(read) = self.read().as_ref().filter(|read| read.text != refused) {
            return Next::Other(read.text.clone());
        }
        let text = match self.0.source.read() {
            Ok(text) => text,
            Err(_) if self.0.source.is_file() => return Next::Unwritten,
            Err(_) => return Next::Nothing,
        };
        let mut read = self.read();
        match read.as_mut() {
            Some(read) if read.text != refused => Next::Other(read.text.clone()),
            Some(Read { doubts: 0, .. }) if text == refused => Next::Nothing,
            Some(read) if text == refused => {
                read.doubts -= 1;
                Next::Same
            }
            Some(_) | None => {
                *read = Some(self.0.source.just_read(&text));
                Next::Other(text)
            }
        }
    }

    fn read(&self) -> MutexGuard<'_, Option<Read>> {
        self.0.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Showing {
    /// The text to show.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Notes that the text was refused. Returns whether there is one to show next, which may be the same.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn goes_on(&mut self) -> bool {
        while self.doubts > 0 {
            self.doubts -= 1;
            let (token, refused) = (self.token.clone(), self.text.clone());
            let next = tokio::task::spawn_blocking(move || token.after(&refused)).await;
            match next.unwrap_or(Next::Nothing) {
                Next::Other(text) => {
                    self.text = text;
                    return true;
                }
                Next::Same => {
                    sleep(self.pause).await;
                    return true;
                }
                Next::Unwritten => sleep(self.pause).await,
                Next::Nothing => return false,
            }
        }
        false
    }
}

impl Source {
    fn is_file(&self) -> bool {
        matches!(self, Source::File(_))
    }

    /// Returns `text`, which was just read.
    fn just_read(&self, text: &str) -> Read {
        Read { text: text.to_owned(), doubts: if self.is_file() { DOUBTS } else { 0 } }
    }

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

/// Shows no text.
impl fmt::Debug for Showing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Showing").field("token", &self.token).finish_non_exhaustive()
    }
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

    fn other(text: &str) -> Next {
        Next::Other(text.to_owned())
    }

    #[test]
    fn a_token_is_read_again_once_it_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("token");
        let token = Token::file(&file);
        assert!(token.shown().is_err_and(|error| error.file == file), "it is not there yet");
        std::fs::write(&file, "first\n").expect("written");
        assert_eq!(token.shown().as_deref(), Ok("first"));
        std::fs::write(&file, "second\n").expect("written");
        assert_eq!(token.shown().as_deref(), Ok("first"), "it was not refused");
        assert_eq!(token.clone().after("first"), other("second"));
        assert_eq!(token.after("first"), other("second"), "another request has read it");
        assert_eq!(token.shown().as_deref(), Ok("second"));
        std::fs::write(&file, "").expect("written");
        assert_eq!(token.after("second"), Next::Unwritten);
    }

    /// The bug: a file that was just being written had no token, so the refusal of the one before was final.
    #[tokio::test(start_paused = true)]
    async fn a_file_that_is_being_written_is_read_once_more() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("token");
        std::fs::write(&file, "first").expect("written");
        let mut showing = Token::file(&file).show(Duration::from_secs(1)).expect("it is there");
        std::fs::write(&file, "").expect("written");
        let writes = async {
            sleep(PAUSE / 2).await;
            std::fs::write(&file, "second").expect("written");
        };
        let (goes_on, ()) = tokio::join!(showing.goes_on(), writes);
        assert_eq!((goes_on, showing.text()), (true, "second"));
        std::fs::write(&file, "").expect("written");
        assert!(!showing.goes_on().await, "a file that stays half written");
    }

    /// The bug: a client that read a new token before its allocator did was turned away.
    #[tokio::test(start_paused = true)]
    async fn a_token_that_was_just_read_is_shown_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("token");
        let token = Token::file(&file);
        std::fs::write(&file, "first").expect("written");
        let patience = Duration::from_millis(80);
        let mut showing = token.show(patience).expect("it is there");
        std::fs::write(&file, "second").expect("written");
        let refused = async {
            for _ in 0..DOUBTS {
                assert!(showing.goes_on().await);
                assert_eq!(showing.text(), "second");
            }
            assert!(!showing.goes_on().await, "it is no token");
        };
        // An answer to the last one comes in time.
        tokio::time::timeout(patience / 2, refused).await.expect("it is believed in time");
        assert!(
            token.show(patience).expect("it was read").goes_on().await,
            "another request has a doubt left"
        );
        assert!(!token.show(patience).expect("it was read").goes_on().await, "it is known by now");
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
        assert_eq!(Token::new("abc").after("abc"), Next::Nothing);
        let showing = format!("{:?}", Token::new("very secret").show(PAUSE));
        assert!(!showing.contains("very"), "{showing}");
    }
}
