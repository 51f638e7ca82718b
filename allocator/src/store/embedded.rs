//! The store of an allocator that is alone: one file, one writer, and one sync for each batch. A store that cannot be
//! read for certain is set aside, and counts as lost.

use super::content::{Head, Unread, rows, write};
use super::dump::Dump;
use super::file::{self, FileId};
use super::guarded::{Guarded, database};
use super::seal::{self, Seal, with_more};
use super::{StoreError, aside, boot};
use crate::clock::begin;
use lessor_ledger::registry::{Batch, Written};
use lessor_ledger::rule::Gap;
use lessor_ledger::steering::Course;
use lessor_protocol::{Moment, entropy};
use redb::{Database, DatabaseError};
use std::fs::{File, TryLockError};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Largest distance, in nanoseconds, of the wall clock from where the clock of the last process would have it. Beyond
/// it, the wall clock was set: fixed windows go by it, so the clock begins anew.
const STEP_MAX: u64 = 1_000_000_000;

/// An open store.
#[derive(Debug)]
pub struct Embedded {
    path: PathBuf,
    database: Guarded,
    seal: Seal,
    head: Head,
    /// Set until the first batch of a new store is durable. Until then the store has a name of its own.
    unnamed: Option<Unnamed>,
}

/// The place that a new store takes once its first batch is durable. A start that ends before that leaves what it found.
#[derive(Debug)]
struct Unnamed {
    /// The lost store that is there, locked.
    lost: Option<File>,
}

/// The content of a store.
#[derive(Debug)]
pub struct Found {
    /// All rows.
    pub written: Written,
    /// The time between the last batch and now.
    pub gap: Gap,
}

/// Why a store is unusable, so that its books count as lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// There is none: a first start, or it was removed.
    #[error("there is none")]
    Gone,
    /// It is older than the seal beside it, or has no seal.
    #[error("it is older than its seal, or has none: was it restored from a copy?")]
    Older,
    /// It cannot be read for certain.
    #[error("it is damaged: {0}")]
    Damaged(String),
}

impl Embedded {
    /// Opens the store at `path`, and reads it. A new store is made in place of one that is lost, which is set aside once
    /// the first batch of the new one is durable.
    ///
    /// # Errors
    /// If another process has it, it can be neither read nor made, or it never was a store. It is left as it is.
    pub fn open(path: &Path) -> Result<(Self, Result<Found, Lost>), StoreError> {
        // A link in place of the seal would count as a missing seal, and the store as an old one.
        file::refuse_link(&seal::beside(path)).map_err(|error| unusable(path, &error))?;
        let before = file::id_at(path);
        let lost = match Self::read(path)? {
            Ok((database, mut head, written)) => {
                let (course, gap) = course(&head);
                let seal = Seal::open(path).map_err(|error| unusable(path, &error))?;
                let ours = file::open(path, false).and_then(|file| file::keep_to_ourselves(&file));
                ours.map_err(|error| unusable(path, &error))?;
                head.boot = boot::id();
                let (path, head) = (path.to_owned(), head.on(course));
                let store = Embedded { path, database, seal, head, unnamed: None };
                return Ok((store, Ok(Found { written, gap })));
            }
            Err(lost) => lost,
        };
        let there = match lost {
            Lost::Gone => None,
            Lost::Older | Lost::Damaged(_) => {
                // Locked until it is out of the way: another process may be replacing it.
                let file = file::open(path, false).map_err(|error| unusable(path, &error))?;
                let is_taken = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
                let id = file::id(&file).map_err(|error| unusable(path, &error))?;
                if is_taken || before != Some(id) {
                    return Err(StoreError::Taken(path.to_owned()));
                }
                Some(file)
            }
        };
        Ok((Self::make_unnamed(path, begin(), before, there)?, Err(lost)))
    }

    /// Returns where the clock of its moments goes on.
    pub fn course(&self) -> Course {
        self.head.course()
    }

    /// Reads the store at `path`, and changes nothing.
    ///
    /// # Errors
    /// If another process has it, or it cannot be read at all.
    pub fn check(path: &Path) -> Result<Result<Dump, Lost>, StoreError> {
        Ok(Self::read(path)?.map(|(_, head, written)| Dump::of(written, head.origin)))
    }

    /// Checks that the file at `path` is a store, without opening it as one: another process may have it.
    ///
    /// # Errors
    /// If the file never was a store.
    pub(crate) fn refuse_foreign(path: &Path) -> Result<(), StoreError> {
        let is_foreign = file::open(path, false).and_then(|file| aside::is_foreign(&file, path));
        // A file that cannot be read is for the start to report.
        if is_foreign.unwrap_or(false) { Err(StoreError::Foreign(path.to_owned())) } else { Ok(()) }
    }

    /// Makes a store of `dump` at `path`, as if it were of another boot: the time since then is unknown.
    ///
    /// # Errors
    /// If there is a file of that name, or it cannot be made.
    pub fn import(path: &Path, dump: &Dump) -> Result<(), StoreError> {
        if path.exists() {
            return Err(unusable(path, &"there is a file already"));
        }
        let batch = dump.batch().map_err(|problem| unusable(path, &problem))?;
        let course =
            Course { shown: Moment::from_nanos(dump.origin), steady: Moment::ORIGIN, aim: dump.origin };
        let mut store = Self::make_unnamed(path, course, None, None)?;
        store.head.boot = None;
        store.commit(&batch, course)
    }

    /// Makes an empty store, for moments on a clock that goes on from `course`. It takes its place at `path` once its
    /// first batch is durable, from the store `lost`, which this process has locked. `before` is the file that was there
    /// when this start looked.
    fn make_unnamed(
        path: &Path,
        course: Course,
        before: Option<FileId>,
        lost: Option<File>,
    ) -> Result<Self, StoreError> {
        let new = Self::make_beside(path, course)?;
        // Each process makes a store under the same name, and locks it. One that was faster has taken its place already.
        if file::id_at(path) != before {
            return Err(StoreError::Taken(path.to_owned()));
        }
        Ok(Embedded { path: path.to_owned(), unnamed: Some(Unnamed { lost }), ..new })
    }

    /// Makes an empty store beside `path`, as [`Embedded::make`] does.
    fn make_beside(path: &Path, course: Course) -> Result<Self, StoreError> {
        let new = beside(path);
        remove_left(&new)?;
        Self::make(&new, course)
    }

    /// Makes an empty store at `path`, for moments on a clock that goes on from `course`.
    fn make(path: &Path, course: Course) -> Result<Self, StoreError> {
        let file = file::open(path, true).map_err(|error| unusable(path, &error))?;
        let id = file::id(&file).map_err(|error| unusable(path, &error))?;
        let database = database(file).map_err(|error| cannot_open(path, error))?;
        is_still_at(id, path)?;
        let store = entropy::number();
        let head = Head::new(store, boot::id(), course);
        let seal = Seal::open(path).map_err(|error| unusable(path, &error))?;
        seal.write(store, 0).map_err(|error| unusable(path, &error))?;
        seal.sync(path).map_err(|error| unusable(path, &error))?;
        let database = Guarded::new(database);
        Ok(Embedded { path: path.to_owned(), database, seal, head, unnamed: None })
    }

    fn read(path: &Path) -> Result<Result<(Guarded, Head, Written), Lost>, StoreError> {
        let file = match file::open(path, false) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Err(Lost::Gone)),
            Err(error) => return Err(unusable(path, &error)),
            Ok(file) => file,
        };
        Self::read_from(file, path)
    }

    /// Reads the store in `file`, which was opened at `path`.
    pub(super) fn read_from(
        file: File,
        path: &Path,
    ) -> Result<Result<(Guarded, Head, Written), Lost>, StoreError> {
        // The library would make a new store of an empty file.
        if file.metadata().is_ok_and(|meta| meta.len() == 0) {
            return Ok(Err(Lost::Damaged("it is empty".to_owned())));
        }
        Self::refuse_foreign(path)?;
        let id = file::id(&file).map_err(|error| unusable(path, &error))?;
        let opened = catch_unwind(AssertUnwindSafe(|| database(file)));
        let database = match opened {
            Ok(Ok(database)) => Guarded::new(database),
            Ok(Err(DatabaseError::DatabaseAlreadyOpen)) => return Err(StoreError::Taken(path.to_owned())),
            Ok(Err(error)) => return lost(path, redb::Error::from(error).into()),
            Err(_) => return Ok(Err(Lost::Damaged("it cannot be opened".to_owned()))),
        };
        is_still_at(id, path)?;
        let (head, written) = match database.with(rows) {
            Ok(read) => read,
            Err(problem) => return lost(path, problem),
        };
        // A seal is written once its commit is durable. A store without one may be a copy of any age.
        let seal = seal::read(path).map_err(|error| unusable(&seal::beside(path), &error))?;
        let is_behind = seal.is_none_or(|(store, commits)| store != head.store || commits > head.commits);
        Ok(if is_behind { Err(Lost::Older) } else { Ok((database, head, written)) })
    }

    /// Makes `batch` durable, as a whole or not at all. Its moments are on a clock that has come to `course`.
    ///
    /// # Errors
    /// If that failed. Then the batch may or may not be there, and no other batch may be written to this store.
    pub fn commit(&mut self, batch: &Batch, course: Course) -> Result<(), StoreError> {
        self.write(batch, course)?;
        match self.unnamed.take() {
            Some(Unnamed { lost }) => take_place(&self.path, lost).map_err(|error| self.failed(&error)),
            None => Ok(()),
        }
    }

    /// Makes `batch` durable, under whichever name the store has.
    fn write(&mut self, batch: &Batch, course: Course) -> Result<(), StoreError> {
        let head = self.head.clone().on(course);
        let write = |database: &Database| write(database, &head, batch).map_err(|error| error.to_string());
        let written = self.database.with(write);
        let sealed = written.and_then(|head| {
            self.head = head;
            self.seal.write(self.head.store, self.head.commits).map_err(|error| error.to_string())
        });
        sealed.map_err(|problem| self.failed(&problem))
    }

    /// Writes later batches as another version does.
    #[cfg(test)]
    pub(super) fn of_format(&mut self, format: u32) {
        self.head.format = format;
    }

    fn failed(&self, problem: &dyn std::fmt::Display) -> StoreError {
        StoreError::Write { path: self.path.clone(), problem: problem.to_string() }
    }

    /// Replaces this store by one of `batch` alone, on a clock that has come to `course`. Nothing is taken over from
    /// the old file: after an error it is unknown which parts of it are on the disk.
    ///
    /// # Errors
    /// If that failed. Then the file is the old one, or the new one already. If only the new seal is in place, the old
    /// file counts as lost at the next start.
    pub(crate) fn recreate(&mut self, batch: &Batch, course: Course) -> Result<(), StoreError> {
        self.recreate_and(batch, course, |path| seal::folder(path)?.sync_all())
    }

    /// Does what [`Embedded::recreate`] says, and makes the names durable by `sync`.
    pub(super) fn recreate_and(
        &mut self,
        batch: &Batch,
        course: Course,
        sync: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<(), StoreError> {
        let mut new = Self::make_beside(&self.path, course)?;
        new.write(batch, course)?;
        rename(&self.path).map_err(|error| self.failed(&error))?;
        // From here on the lock of the new file keeps others out, whatever fails.
        *self = Embedded { path: self.path.clone(), ..new };
        sync(&self.path).map_err(|error| self.failed(&error))
    }
}

/// Returns that the store at `path` is lost if it is damaged.
///
/// # Errors
/// If it may be whole. A later start may read it, so it is left as it is.
fn lost<T>(path: &Path, problem: Unread) -> Result<Result<T, Lost>, StoreError> {
    match problem {
        Unread::Unknown(problem) => Err(unusable(path, &problem)),
        Unread::Damaged(problem) => Ok(Err(Lost::Damaged(problem))),
    }
}

/// Returns the name of a new store until it takes its place at `path`.
fn beside(path: &Path) -> PathBuf {
    with_more(path, ".new")
}

/// Removes the store at `path` that an earlier process left unfinished, if there is one.
///
/// # Errors
/// If another process is making it.
fn remove_left(path: &Path) -> Result<(), StoreError> {
    let file = match file::open(path, false) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened.map_err(|error| unusable(path, &error))?,
    };
    if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
        return Err(StoreError::Taken(path.to_owned()));
    }
    is_still_at(file::id(&file).map_err(|error| unusable(path, &error))?, path)?;
    std::fs::remove_file(path).map_err(|error| unusable(path, &error))
}

/// Gives the new store beside `path` its place there, durably. The store `lost`, which has it, keeps another name: at no
/// moment is there no store at `path`, as if there had been no earlier life.
fn take_place(path: &Path, lost: Option<File>) -> io::Result<()> {
    if lost.is_some() {
        aside::keep(path, |path, name| std::fs::hard_link(path, name))?;
    }
    rename(path)?;
    seal::folder(path)?.sync_all()
}

/// Renames the new store beside `path` to `path`. Its seal goes first: a store without its own seal counts as lost.
fn rename(path: &Path) -> io::Result<()> {
    let new = beside(path);
    std::fs::rename(seal::beside(&new), seal::beside(path))?;
    std::fs::rename(new, path)
}

/// Returns where the clock continues from `head`. The gap is counted if the clock of the head still runs.
fn course(head: &Head) -> (Course, Gap) {
    let now = begin();
    let is_same_boot = head.boot.is_some() && head.boot == boot::id();
    match is_same_boot && now.aim.abs_diff(head.origin) <= STEP_MAX {
        true if head.course.is_none() => {
            let shown = now.shown.as_nanos().wrapping_add(head.origin).wrapping_sub(now.aim);
            (Course { shown: Moment::from_nanos(shown), aim: head.origin, ..now }, Gap::Counted)
        }
        true => (head.course(), Gap::Counted),
        false => (now, Gap::Unknown),
    }
}

/// # Errors
/// If `path` no longer names the file `id`, which is locked by now: the process that has replaced it has the store.
fn is_still_at(id: FileId, path: &Path) -> Result<(), StoreError> {
    match file::id_at(path) {
        Some(there) if there == id => Ok(()),
        Some(_) | None => Err(StoreError::Taken(path.to_owned())),
    }
}

fn unusable(path: &Path, problem: &dyn std::fmt::Display) -> StoreError {
    StoreError::Unusable { path: path.to_owned(), problem: problem.to_string() }
}

fn cannot_open(path: &Path, error: DatabaseError) -> StoreError {
    if matches!(error, DatabaseError::DatabaseAlreadyOpen) {
        return StoreError::Taken(path.to_owned());
    }
    unusable(path, &error)
}
