//! The token that a client shows: a text, or the content of a file or of an environment variable. It is read when it is
//! first shown, and again after a refusal. Neither `Debug` nor an error has any part of it.
//!
//! Operators make a token, give it to a client and revoke the one before. An allocator hears of a new token up to a
//! quarter of a second later than the client may, so a token that was just read is shown again after a refusal.

use crate::FileError;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longest token, in bytes.
const TOKEN_MAX: usize = 8_192;

/// How long a file may have no token while it is written: a shell that writes to it empties it first.
const WRITES: Duration = Duration::from_millis(100);

/// How long an allocator may not know a token that was just read.
const NEW: Duration = Duration::from_millis(500);

/// Pause before a new token is shown again after the first refusal of a request. After each further one it is doubled.
const PAUSE: Duration = Duration::from_millis(50);

/// Refusals of a request that are doubted.
const DOUBTED: u32 = 3;

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
    /// When it was read; `None` for a text that never changes.
    at: Option<Instant>,
}

/// What to show after a refusal.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Another text.
    Other(String),
    /// The same one, which was just read.
    Same,
    Nothing,
}

/// A token while a request shows it. Its texts are shown one after the other until one is not refused.
pub struct Showing {
    token: Token,
    text: String,
    refusals: u32,
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
        let read = read.map(|text| Read { text, at: None });
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
                *read = Some(Read { text: text.clone(), at: Some(Instant::now()) });
                Ok(text)
            }
        }
    }

    /// Begins to show the token in one request. Blocks on the disk the first time.
    ///
    /// # Errors
    /// As [`Token::shown`].
    pub fn show(&self) -> Result<Showing, FileError> {
        Ok(Showing { token: self.clone(), text: self.shown()?, refusals: 0 })
    }

    /// Returns what to show after `refused` was refused. Blocks on the disk, and for [`WRITES`] on a file that is being
    /// written.
    fn after(&self, refused: &str) -> Next {
        // Another request may have read it meanwhile.
        if let Some(read) = self.read().as_ref().filter(|read| read.text != refused) {
            return Next::Other(read.text.clone());
        }
        let began = Instant::now();
        let text = loop {
            match self.0.source.read() {
                Ok(text) => break text,
                Err(_) if self.0.source.is_file() && began.elapsed() < WRITES => sleep(WRITES / 10),
                Err(_) => return Next::Nothing,
            }
        };
        let mut read = self.read();
        match &*read {
            Some(read) if text == refused => match read.at.is_some_and(|at| at.elapsed() < NEW) {
                true => Next::Same,
                false => Next::Nothing,
            },
            _ => {
                *read = Some(Read { text: text.clone(), at: Some(Instant::now()) });
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
        if self.refusals == DOUBTED {
            return false;
        }
        let pause = PAUSE * 2_u32.pow(self.refusals);
        self.refusals += 1;
        let (token, refused) = (self.token.clone(), self.text.clone());
        let next = tokio::task::spawn_blocking(move || token.after(&refused)).await;
        match next.unwrap_or(Next::Nothing) {
            Next::Other(text) => self.text = text,
            Next::Same => tokio::time::sleep(pause).await,
            Next::Nothing => return false,
        }
        true
    }
}

impl Source {
    fn is_file(&self) -> bool {
        matches!(self, Source::File(_))
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
        f.debug_struct("Showing").field("token", &self.token).field("refusals", &self.refusals).finish()
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
        assert_eq!(token.after("second"), Next::Nothing, "a file that stays half written");
    }

    /// The bug: a file that was just being written had no token, so the refusal of the one before was final.
    #[test]
    fn a_file_that_is_being_written_is_read_once_more() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("token");
        let token = Token::file(&file);
        std::fs::write(&file, "first").expect("written");
        assert_eq!(token.shown().as_deref(), Ok("first"));
        std::fs::write(&file, "").expect("written");
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| token.after("first"));
            sleep(WRITES / 5);
            std::fs::write(&file, "second").expect("written");
            assert_eq!(reader.join().expect("it reads"), other("second"));
        });
    }

    /// The bug: a client that read a new token before its allocator did was turned away.
    #[tokio::test(start_paused = true)]
    async fn a_token_that_was_just_read_is_shown_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("token");
        let token = Token::file(&file);
        std::fs::write(&file, "first").expect("written");
        let mut showing = token.show().expect("it is there");
        std::fs::write(&file, "second").expect("written");
        let began = tokio::time::Instant::now();
        for shown in ["second"; DOUBTED as usize] {
            assert!(showing.goes_on().await);
            assert_eq!(showing.text(), shown);
        }
        assert!(!showing.goes_on().await, "it is no token");
        assert!(began.elapsed() >= PAUSE * 2 + PAUSE * 4);
        let read_at = Instant::now().checked_sub(NEW).expect("long after the origin");
        token.read().as_mut().expect("it was read").at = Some(read_at);
        assert!(!token.show().expect("it was read").goes_on().await, "it was known");
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
        let showing = format!("{:?}", Token::new("very secret").show());
        assert!(!showing.contains("very"), "{showing}");
    }
}
