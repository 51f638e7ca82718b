//! What is made of files that change while it is in use. A change is taken over whole, or not at all: what is broken leaves the
//! last good one in force. Connections that were made before a change go on.

use crate::file::{Mark, TlsError, mark};
use arc_swap::ArcSwap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// What came of a look at the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// Nothing has changed.
    Same,
    /// They are in force now.
    Taken,
    /// They do not go together yet, as halfway through a change of several files. The last good ones stay in force.
    Unfinished,
    /// They are broken, and were so at the look before. The last good ones stay in force.
    Refused(TlsError),
}

/// Where the files were, by their marks.
#[derive(Debug, Default)]
struct Seen {
    good: Vec<Option<Mark>>,
    bad: Option<Vec<Option<Mark>>>,
    /// What is wrong with `bad`, once that was said.
    said: Option<TlsError>,
}

type Make<T> = Box<dyn Fn() -> Result<T, TlsError> + Send + Sync>;

/// A `T` that is made of files.
pub(crate) struct Reloading<T> {
    /// What it is, for logs.
    name: &'static str,
    files: Vec<PathBuf>,
    make: Make<T>,
    current: ArcSwap<T>,
    seen: Mutex<Seen>,
}

impl<T> Reloading<T> {
    /// Reads `files` by `make` for the first time.
    pub(crate) fn load(name: &'static str, files: Vec<PathBuf>, make: Make<T>) -> Result<Self, TlsError> {
        // Before they are read: a change in between is found at the first look.
        let good = files.iter().map(|file| mark(file)).collect();
        let current = ArcSwap::from_pointee(make()?);
        Ok(Reloading { name, files, make, current, seen: Mutex::new(Seen { good, ..Seen::default() }) })
    }

    /// The one in force.
    pub(crate) fn current(&self) -> Arc<T> {
        self.current.load_full()
    }

    /// Takes over what the files say, if they have changed. Reads the disk: not for a thread that others wait for.
    pub(crate) fn look(&self) -> Look {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let marks: Vec<_> = self.files.iter().map(|file| mark(file)).collect();
        if marks == seen.good {
            (seen.bad, seen.said) = (None, None);
            return Look::Same;
        }
        if seen.bad.as_ref() == Some(&marks)
            && let Some(said) = &seen.said
        {
            return Look::Refused(said.clone());
        }
        match (self.make)() {
            Ok(made) => {
                self.current.store(Arc::new(made));
                *seen = Seen { good: marks, ..Seen::default() };
                tracing::info!(what = self.name, "certificates were read again");
                Look::Taken
            }
            Err(problem) if seen.bad.as_ref() == Some(&marks) => {
                tracing::error!(what = self.name, %problem, "new certificates are refused: the old ones stay in force");
                seen.said = Some(problem.clone());
                Look::Refused(problem)
            }
            Err(_) => {
                (seen.bad, seen.said) = (Some(marks), None);
                Look::Unfinished
            }
        }
    }
}

/// Names the files alone.
impl<T> fmt::Debug for Reloading<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloading")
            .field("name", &self.name)
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}
