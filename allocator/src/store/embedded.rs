//! The store of an allocator that is alone: one file, one writer, and one sync for each batch. A store that cannot be
//! read for certain is set aside, and counts as lost.

use super::dump::Dump;
use super::file::{self, FileId};
use super::guarded::{Guarded, database};
use super::row::{packed, put_row, row_sum, unpacked};
use super::seal::{self, Seal, with_more};
use super::{StoreError, aside, boot};
use crate::clock::begin;
use lessor_ledger::registry::{Batch, LimitRow, PoolPlace, Written};
use lessor_ledger::rule::Gap;
use lessor_ledger::steering::Course;
use lessor_protocol::{Moment, entropy};
use redb::{
    Database, DatabaseError, ReadTransaction, ReadableDatabase, ReadableTable, StorageError, TableDefinition,
    TableError, TableHandle,
};
use serde::{Deserialize, Serialize};
use std::fs::{File, TryLockError};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const LIMITS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("limits");
const POOLS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("pools");

/// Missing in stores of earlier versions.
const DECISIONS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("decisions");

/// Key of the one row of `META`.
const HEAD: &str = "head";

/// Version of the format. A file of another version is refused.
const FORMAT: u32 = 1;

/// Largest distance, in nanoseconds, of the wall clock from where the clock of the last process would have it. Beyond
/// it, the wall clock was set: fixed windows go by it, so the clock begins anew.
const STEP_MAX: u64 = 1_000_000_000;

/// The row of a store about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Head {
    format: u32,
    /// A random number that tells stores apart.
    store: u64,
    /// Durable batches so far.
    commits: u64,
    /// The boot of the last batch.
    boot: Option<String>,
    /// The origin of the clock of all moments, on the disciplined clock that it is steered to.
    origin: u64,
    /// The clock at the last batch: what it showed, and the steady clock, in nanoseconds. Stores of earlier versions
    /// have none, as they went by the disciplined clock.
    #[serde(default)]
    course: Option<(u64, u64)>,
    /// Sum over all rows. It shows a row that is missing or came from elsewhere.
    sum: u64,
}

impl Head {
    /// Returns this head on a clock that has come to `course`.
    fn on(self, course: Course) -> Self {
        let at = (course.shown.as_nanos(), course.steady.as_nanos());
        Head { origin: course.aim, course: Some(at), ..self }
    }

    /// Returns where the clock goes on. If the head does not say, the clock goes by the disciplined one.
    fn course(&self) -> Course {
        let (shown, steady) = self.course.unwrap_or((self.origin, 0));
        Course { shown: Moment::from_nanos(shown), steady: Moment::from_nanos(steady), aim: self.origin }
    }
}

/// An open store.
#[derive(Debug)]
pub struct Embedded {
    path: PathBuf,
    database: Guarded,
    seal: Seal,
    head: Head,
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
    /// Opens the store at `path`, and reads it. An unusable store is set aside, and a new one is made.
    ///
    /// # Errors
    /// If another process has it, it can be neither read nor made, or it never was a store and is left as it is.
    pub fn open(path: &Path) -> Result<(Self, Result<Found, Lost>), StoreError> {
        // A link in place of the seal would count as a missing seal, and the store as an old one.
        file::refuse_link(&seal::beside(path)).map_err(|error| unusable(path, &error))?;
        let before = file::id_at(path);
        let lost = match Self::read(path)? {
            Ok((database, head, written)) => {
                let (course, gap) = course(&head);
                let seal = Seal::open(path).map_err(|error| unusable(path, &error))?;
                let ours = file::open(path, false).and_then(|file| file::keep_to_ourselves(&file));
                ours.map_err(|error| unusable(path, &error))?;
                let head = Head { boot: boot::id(), ..head }.on(course);
                let store = Embedded { path: path.to_owned(), database, seal, head };
                return Ok((store, Ok(Found { written, gap })));
            }
            Err(lost) => lost,
        };
        if lost != Lost::Gone {
            // Locked until it is out of the way: another process may be making it, or setting it aside.
            let file = file::open(path, false).map_err(|error| unusable(path, &error))?;
            let is_taken = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
            let id = file::id(&file).map_err(|error| unusable(path, &error))?;
            if is_taken || before != Some(id) || file::id_at(path) != before {
                return Err(StoreError::Taken(path.to_owned()));
            }
            let aside = aside::free_name(path).map_err(|error| unusable(path, &error))?;
            std::fs::rename(path, &aside).map_err(|error| unusable(path, &error))?;
        }
        Ok((Self::make(path, begin())?, Err(lost)))
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
        let mut store = Self::make(path, course)?;
        store.head.boot = None;
        store.commit(&batch, course)
    }

    /// Makes an empty store at `path`, for moments on a clock that goes on from `course`.
    fn make(path: &Path, course: Course) -> Result<Self, StoreError> {
        let file = file::open(path, true).map_err(|error| unusable(path, &error))?;
        let id = file::id(&file).map_err(|error| unusable(path, &error))?;
        let database = database(file).map_err(|error| cannot_open(path, error))?;
        is_still_at(id, path)?;
        let store = entropy::number();
        let (boot, origin) = (boot::id(), course.aim);
        let head = Head { format: FORMAT, store, commits: 0, boot, origin, course: None, sum: 0 }.on(course);
        let seal = Seal::open(path).map_err(|error| unusable(path, &error))?;
        seal.write(store, 0).map_err(|error| unusable(path, &error))?;
        seal.sync(path).map_err(|error| unusable(path, &error))?;
        Ok(Embedded { path: path.to_owned(), database: Guarded::new(database), seal, head })
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
            Ok(Err(DatabaseError::Storage(StorageError::Io(error))))
                if error.kind() == std::io::ErrorKind::PermissionDenied =>
            {
                return Err(unusable(path, &error));
            }
            Ok(Err(error)) => return Ok(Err(Lost::Damaged(error.to_string()))),
            Err(_) => return Ok(Err(Lost::Damaged("it cannot be opened".to_owned()))),
        };
        is_still_at(id, path)?;
        let (head, written) = match database.with(rows) {
            Ok(read) => read,
            Err(problem) => return Ok(Err(Lost::Damaged(problem))),
        };
        // A seal is written once its commit is durable. A store without one may be a copy of any age.
        let is_behind =
            seal::read(path).is_none_or(|(store, commits)| store != head.store || commits > head.commits);
        Ok(if is_behind { Err(Lost::Older) } else { Ok((database, head, written)) })
    }

    /// Makes `batch` durable, as a whole or not at all. Its moments are on a clock that has come to `course`.
    ///
    /// # Errors
    /// If that failed. Then the batch may or may not be there, and no other batch may be written to this store.
    pub fn commit(&mut self, batch: &Batch, course: Course) -> Result<(), StoreError> {
        let head = self.head.clone().on(course);
        let write = |database: &Database| write(database, &head, batch).map_err(|error| error.to_string());
        let written = self.database.with(write);
        let sealed = written.and_then(|head| {
            self.head = head;
            self.seal.write(self.head.store, self.head.commits).map_err(|error| error.to_string())
        });
        sealed.map_err(|problem| StoreError::Write { path: self.path.clone(), problem })
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
        let aside = with_more(&self.path, ".new");
        let path = self.path.clone();
        let failed = |error: &dyn std::fmt::Display| StoreError::Write {
            path: path.clone(),
            problem: error.to_string(),
        };
        for old in [aside.clone(), seal::beside(&aside)] {
            match std::fs::remove_file(old) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(&error)),
                Ok(()) | Err(_) => {}
            }
        }
        let mut new = Self::make(&aside, course)?;
        new.commit(batch, course)?;
        // The seal goes first: a store without its own seal counts as lost.
        std::fs::rename(seal::beside(&aside), seal::beside(&path)).map_err(|error| failed(&error))?;
        std::fs::rename(&aside, &path).map_err(|error| failed(&error))?;
        // From here on the lock of the new file keeps others out, whatever fails.
        *self = Embedded { path: path.clone(), ..new };
        sync(&path).map_err(|error| failed(&error))
    }
}

/// Makes `batch` durable on top of the state of `head`, and returns the new head.
fn write(database: &Database, head: &Head, batch: &Batch) -> Result<Head, redb::Error> {
    let transaction = database.begin_write()?;
    let mut head = Head { commits: head.commits + 1, ..head.clone() };
    {
        if batch.is_first {
            transaction.delete_table(LIMITS)?;
            transaction.delete_table(POOLS)?;
            transaction.delete_table(DECISIONS)?;
            head.sum = 0;
        }
        let mut limits = transaction.open_table(LIMITS)?;
        let mut pools = transaction.open_table(POOLS)?;
        for (name, row) in &batch.limits {
            let old = put_row(&mut limits, name, row.as_ref(), &mut head.sum)?;
            let old = old.and_then(|old| unpacked::<LimitRow>(name, old.value()).ok());
            let version = old.map(|old| old.version);
            if row.as_ref().map(|row| row.version) != version {
                // The pools that are there belong to other rules. Pools of the new rules come with the batch.
                let prefix = PoolPlace::prefix(name);
                // No name of a pool has so high a character after its limit.
                let end = format!("{prefix}\u{10ffff}");
                for old in pools.extract_from_if(prefix.as_str()..end.as_str(), |_, _| true)? {
                    let (place, old) = old?;
                    head.sum ^= row_sum(place.value(), old.value());
                }
            }
        }
        for (place, row) in &batch.pools {
            put_row(&mut pools, &place.text(), row.as_ref(), &mut head.sum)?;
        }
        // Most batches hold no decision.
        if !batch.decisions.is_empty() {
            let mut decisions = transaction.open_table(DECISIONS)?;
            for (name, row) in &batch.decisions {
                put_row(&mut decisions, name, row.as_ref(), &mut head.sum)?;
            }
        }
        transaction.open_table(META)?.insert(HEAD, packed(&head).as_slice())?;
    }
    // Durable on return, which is redb's default.
    transaction.commit()?;
    Ok(head)
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

/// Reads all rows of `database`, and checks each of them and their sum.
fn rows(database: &Database) -> Result<(Head, Written), String> {
    let transaction = database.begin_read().map_err(said)?;
    let head = transaction.open_table(META).map_err(said)?;
    let head = head.get(HEAD).map_err(said)?.ok_or("it has no head")?;
    let head: Head = unpacked(HEAD, head.value())?;
    if head.format != FORMAT {
        return Err(format!("its format is {}, this version reads {FORMAT}", head.format));
    }
    let (mut written, mut sum) = (Written::default(), 0);
    each_row(&transaction, LIMITS, &mut sum, |name, row| {
        written.limits.insert(name.to_owned(), unpacked(name, row)?);
        Ok(())
    })?;
    each_row(&transaction, POOLS, &mut sum, |name, row| {
        let place = PoolPlace::parse(name).ok_or_else(|| format!("{name} is no pool"))?;
        written.pools.insert(place, unpacked(name, row)?);
        Ok(())
    })?;
    each_row(&transaction, DECISIONS, &mut sum, |name, row| {
        written.decisions.insert(name.to_owned(), unpacked(name, row)?);
        Ok(())
    })?;
    if sum != head.sum {
        return Err("rows are missing, or too many".to_owned());
    }
    Ok((head, written))
}

fn said(error: impl Into<redb::Error>) -> String {
    error.into().to_string()
}

/// Calls `take` with each row of `table`, and takes it into the `sum` of all. No row is copied.
fn each_row(
    transaction: &ReadTransaction,
    table: TableDefinition<'_, &str, &[u8]>,
    sum: &mut u64,
    mut take: impl FnMut(&str, &[u8]) -> Result<(), String>,
) -> Result<(), String> {
    let table = match transaction.open_table(table) {
        // Stores of earlier versions have no decisions.
        Err(TableError::TableDoesNotExist(_)) if table.name() == DECISIONS.name() => return Ok(()),
        opened => opened.map_err(said)?,
    };
    for row in table.iter().map_err(said)? {
        let (name, row) = row.map_err(said)?;
        *sum ^= row_sum(name.value(), row.value());
        take(name.value(), row.value())?;
    }
    Ok(())
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
