//! What is made of files that change while it is in use. A change is taken over whole, or not at all: what is broken leaves the
//! last good one in force. Connections that were made before a change go on.

use crate::{Mark, mark};
use arc_swap::ArcSwap;
use std::fmt::{self, Display};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::sleep;

/// How often the files are looked at: a call of the system for each. Longer, and an operator that has just changed one would wonder;
/// shorter gains nothing.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What came of a look at the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look<E> {
    /// Nothing has changed.
    Same,
    /// They are in force now.
    Taken,
    /// They do not go together yet, as halfway through a change of several files. The last good ones stay in force.
    Unfinished,
    /// They are broken, and were so at the look before. The last good ones stay in force.
    Refused(E),
}

/// Where the files were, by their marks.
#[derive(Debug)]
struct Seen<E> {
    good: Vec<Option<Mark>>,
    bad: Option<Vec<Option<Mark>>>,
    /// What is wrong with `bad`, once that was said.
    said: Option<E>,
}

type Make<T, E> = Box<dyn Fn() -> Result<T, E> + Send + Sync>;

/// A `T` that is made of files.
pub struct Reloading<T, E> {
    /// What it is, for logs.
    name: &'static str,
    files: Vec<PathBuf>,
    make: Make<T, E>,
    current: ArcSwap<T>,
    seen: Mutex<Seen<E>>,
}

impl<T: Send + Sync + 'static, E: Clone + Display + Send + 'static> Reloading<T, E> {
    /// Reads `files` by `make` for the first time. Logs call it `name`.
    ///
    /// # Errors
    /// What `make` says.
    pub fn load(name: &'static str, files: Vec<PathBuf>, make: Make<T, E>) -> Result<Self, E> {
        // Before they are read: a change in between is found at the first look.
        let good = files.iter().map(|file| mark(file)).collect();
        let current = ArcSwap::from_pointee(make()?);
        Ok(Reloading { name, files, make, current, seen: Mutex::new(Seen { good, bad: None, said: None }) })
    }

    /// The one in force.
    pub fn current(&self) -> Arc<T> {
        self.current.load_full()
    }

    /// Takes over what the files say, if they have changed. Reads the disk: not for a thread that others wait for.
    pub fn look(&self) -> Look<E> {
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
                *seen = Seen { good: marks, bad: None, said: None };
                tracing::info!(what = self.name, "files were read again");
                Look::Taken
            }
            Err(problem) if seen.bad.as_ref() == Some(&marks) => {
                tracing::error!(what = self.name, %problem, "changed files are refused: what they said before stays in force");
                seen.said = Some(problem.clone());
                Look::Refused(problem)
            }
            Err(_) => {
                (seen.bad, seen.said) = (Some(marks), None);
                Look::Unfinished
            }
        }
    }

    /// Looks at the files every so often until it is dropped.
    pub async fn watch(self: Arc<Self>) {
        loop {
            sleep(LOOK_EVERY).await;
            let this = self.clone();
            // A disk may take its time; requests do not wait for it.
            if let Err(error) = tokio::task::spawn_blocking(move || this.look()).await {
                tracing::error!(what = self.name, %error, "files cannot be looked at: this is a bug");
            }
        }
    }
}

/// Names the files alone.
impl<T, E> fmt::Debug for Reloading<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloading")
            .field("name", &self.name)
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}
