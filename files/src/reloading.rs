//! Values made of files that change while they are in use. A change is taken over as a whole, or not at all: broken
//! files leave the last good value in force. Connections that were made before a change go on.

use crate::{Mark, mark};
use arc_swap::ArcSwap;
use std::fmt::{self, Display};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::sleep;

/// Interval of looks, each of which is one system call per file. A change holds within a tenth of a second.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Time for which changed files must stay as they are. Files that change ten times a second rest for longer than that in
/// between; with a longer time they would never be read again.
const REST: Duration = Duration::from_millis(40);

/// Looks between two reads of files that are refused and stay as they are: a second of periodic looks. The cause may be
/// the system, which had no descriptor left or could not read the disk.
const READ_AGAIN: u32 = 20;

/// Outcome of a look at the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look<E> {
    /// Nothing has changed.
    Same,
    /// The new files are in force.
    Taken,
    /// The files have just changed, and may be half written, or do not fit together yet. The last good value stays in
    /// force.
    Unfinished,
    /// The files are broken or cannot be read, as at the look before. The last good value stays in force.
    Refused(E),
}

/// States of the files, by their marks.
#[derive(Debug)]
struct Seen<E> {
    good: Vec<Option<Mark>>,
    /// At the look before, if the files were not good.
    other: Option<Vec<Option<Mark>>>,
    /// The problem with `other`, once it was reported, and the looks since they were last read.
    said: Option<(E, u32)>,
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
        let good = marks(&files);
        let current = ArcSwap::from_pointee(make()?);
        Ok(Reloading { name, files, make, current, seen: Mutex::new(Seen { good, other: None, said: None }) })
    }

    /// The value in force.
    pub fn current(&self) -> Arc<T> {
        self.current.load_full()
    }

    /// Makes a new value if the files have changed, and are as they were at the look before. A file that is being
    /// written may be readable, and lack its end. Blocks on the disk: not for a thread that others wait for.
    pub fn look(&self) -> Look<E> {
        self.look_at(true)
    }

    /// Makes a new value if the files have changed, even if that was only just now: for a caller that looks before each
    /// use of the value. Blocks on the disk.
    pub fn look_at_once(&self) -> Look<E> {
        self.look_at(false)
    }

    fn look_at(&self, must_rest: bool) -> Look<E> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let marks = marks(&self.files);
        if marks == seen.good {
            (seen.other, seen.said) = (None, None);
            return Look::Same;
        }
        let rests = seen.other.as_ref() == Some(&marks);
        if rests
            && must_rest
            && let Some((said, looks)) = &mut seen.said
        {
            *looks += 1;
            if *looks < READ_AGAIN {
                return Look::Refused(said.clone());
            }
        }
        if must_rest && !rests {
            (seen.other, seen.said) = (Some(marks), None);
            return Look::Unfinished;
        }
        let made = (self.make)();
        if must_rest && self::marks(&self.files) != marks {
            // They changed while they were read.
            (seen.other, seen.said) = (None, None);
            return Look::Unfinished;
        }
        match made {
            Ok(made) => {
                self.current.store(Arc::new(made));
                *seen = Seen { good: marks, other: None, said: None };
                tracing::info!(what = self.name, "files were read again");
                Look::Taken
            }
            Err(problem) if rests => {
                if seen.said.as_ref().is_none_or(|(said, _)| said.to_string() != problem.to_string()) {
                    tracing::error!(
                        what = self.name,
                        %problem,
                        "changed files are refused: their previous content stays in force"
                    );
                }
                seen.said = Some((problem.clone(), 0));
                Look::Refused(problem)
            }
            Err(_) => {
                (seen.other, seen.said) = (Some(marks), None);
                Look::Unfinished
            }
        }
    }

    /// Looks at the files periodically, until it is dropped.
    pub async fn watch(self: Arc<Self>) {
        let mut pause = LOOK_EVERY;
        loop {
            sleep(pause).await;
            let this = self.clone();
            // Disks may be slow; requests do not wait for them.
            let looked = tokio::task::spawn_blocking(move || this.look()).await;
            pause = if matches!(looked, Ok(Look::Unfinished)) { REST } else { LOOK_EVERY };
            if let Err(error) = looked {
                tracing::error!(what = self.name, %error, "files cannot be checked: this is a bug");
            }
        }
    }
}

fn marks(files: &[PathBuf]) -> Vec<Option<Mark>> {
    files.iter().map(|file| mark(file)).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering::Relaxed;

    /// The bug: a file that was cut off in the middle, and could be read, was taken over at the first look.
    #[test]
    fn a_file_is_taken_over_once_it_is_no_longer_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("names");
        fs::write(&file, "a b").expect("written");
        let path = file.clone();
        let read = move || fs::read_to_string(&path).map_err(|error| error.to_string());
        let names = Reloading::load("names", vec![file.clone()], Box::new(read)).expect("it is there");
        assert_eq!(names.look(), Look::Same);
        for written in ["", "a b c"] {
            fs::write(&file, written).expect("written");
            assert_eq!((names.look(), names.current().as_str()), (Look::Unfinished, "a b"), "{written:?}");
        }
        assert_eq!((names.look(), names.current().as_str()), (Look::Taken, "a b c"));
        assert_eq!(names.look(), Look::Same);
        fs::remove_file(&file).expect("it is there");
        assert_eq!(names.look(), Look::Unfinished);
        assert!(matches!(names.look(), Look::Refused(_)) && matches!(names.look(), Look::Refused(_)));
        fs::write(&file, "d").expect("written");
        assert_eq!((names.look_at_once(), names.current().as_str()), (Look::Taken, "d"));
    }

    /// The bug: a changed file that could not be read once, as no descriptor was left, was not read again until it changed
    /// once more.
    #[test]
    fn a_file_that_could_not_be_read_is_read_again_though_it_stays_as_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("names");
        fs::write(&file, "a").expect("written");
        let (path, left) = (file.clone(), Arc::new(AtomicU32::new(0)));
        let fails = left.clone();
        let read = move || match fails.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)) {
            Ok(_) => Err("too many open files".to_owned()),
            Err(_) => fs::read_to_string(&path).map_err(|error| error.to_string()),
        };
        let names = Reloading::load("names", vec![file.clone()], Box::new(read)).expect("it is there");
        let refused = Look::Refused("too many open files".to_owned());
        fs::write(&file, "ab").expect("written");
        left.store(2, Relaxed);
        assert_eq!(names.look(), Look::Unfinished);
        for _ in 0..2 * READ_AGAIN {
            assert_eq!((names.look(), names.current().as_str()), (refused.clone(), "a"));
        }
        assert_eq!((names.look(), names.current().as_str()), (Look::Taken, "ab"));
        // A caller that looks before each use tries each time.
        fs::write(&file, "abc").expect("written");
        left.store(2, Relaxed);
        let looks = [(); 3].map(|()| names.look_at_once());
        assert_eq!((looks, names.current().as_str()), ([Look::Unfinished, refused, Look::Taken], "abc"));
    }

    #[test]
    fn a_file_that_changes_while_it_is_read_is_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("names");
        fs::write(&file, "a").expect("written");
        let path = file.clone();
        let read = move || {
            let text = fs::read_to_string(&path).map_err(|error| error.to_string())?;
            if text == "b" {
                fs::write(&path, "bcd").map_err(|error| error.to_string())?;
            }
            Ok(text)
        };
        let names: Reloading<String, String> =
            Reloading::load("names", vec![file.clone()], Box::new(read)).expect("it is there");
        fs::write(&file, "b").expect("written");
        let looks = [(); 4].map(|()| (names.look(), names.current().to_string()));
        let expected =
            [(Look::Unfinished, "a"), (Look::Unfinished, "a"), (Look::Unfinished, "a"), (Look::Taken, "bcd")];
        assert_eq!(looks, expected.map(|(look, text)| (look, text.to_owned())));
    }
}
