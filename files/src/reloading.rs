//! Values made of files that change while they are in use. A change is taken over as a whole, or not at all: broken
//! files leave the last good value in force. Connections that were made before a change go on.

use crate::{Mark, mark};
use arc_swap::ArcSwap;
use std::fmt::{self, Display};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::sleep;

/// Interval of looks, each of which is one system call per file. With a longer one an operator who has just changed a
/// file would wonder. A shorter one gains nothing.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Outcome of a look at the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look<E> {
    /// Nothing has changed.
    Same,
    /// The new files are in force.
    Taken,
    /// The files do not fit together yet, as halfway through a change of several. The last good value stays in force.
    Unfinished,
    /// The files are broken, as at the look before. The last good value stays in force.
    Refused(E),
}

/// States of the files, by their marks.
#[derive(Debug)]
struct Seen<E> {
    good: Vec<Option<Mark>>,
    bad: Option<Vec<Option<Mark>>>,
    /// The problem with `bad`, once it was reported.
    said: Option<E>,
}

type Make<T, E> = Box<dyn Fn() -> Result<T, E> + Send + Sync>;

/// A `T` that is made of files.
pub struct Reloading<T, E> {
    /// Its name in logs.
    name: &'static str,
    files: Vec<PathBuf>,
    make: Make<T, E>,
    current: ArcSwap<T>,
    seen: Mutex<Seen<E>>,
}

impl<T: Send + Sync + 'static, E: Clone + Display + Send + 'static> Reloading<T, E> {
    /// Makes the first value of `files` by `make`. Logs call it `name`.
    ///
    /// # Errors
    /// If `make` fails.
    pub fn load(name: &'static str, files: Vec<PathBuf>, make: Make<T, E>) -> Result<Self, E> {
        // Marked before they are read: the first look finds a change in between.
        let good = files.iter().map(|file| mark(file)).collect();
        let current = ArcSwap::from_pointee(make()?);
        Ok(Reloading { name, files, make, current, seen: Mutex::new(Seen { good, bad: None, said: None }) })
    }

    /// The value in force.
    pub fn current(&self) -> Arc<T> {
        self.current.load_full()
    }

    /// Makes a new value if the files have changed. Blocks on the disk: not for a thread that others wait for.
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
                tracing::error!(
                    what = self.name,
                    %problem,
                    "changed files are refused: their previous content stays in force"
                );
                seen.said = Some(problem.clone());
                Look::Refused(problem)
            }
            Err(_) => {
                (seen.bad, seen.said) = (Some(marks), None);
                Look::Unfinished
            }
        }
    }

    /// Looks at the files periodically, until it is dropped.
    pub async fn watch(self: Arc<Self>) {
        loop {
            sleep(LOOK_EVERY).await;
            let this = self.clone();
            // Disks may be slow; requests do not wait for them.
            if let Err(error) = tokio::task::spawn_blocking(move || this.look()).await {
                tracing::error!(what = self.name, %error, "files cannot be checked: this is a bug");
            }
        }
    }
}

/// Shows only the names of the files.
impl<T, E> fmt::Debug for Reloading<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloading")
            .field("name", &self.name)
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}
