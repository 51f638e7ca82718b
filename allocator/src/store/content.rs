//! The rows of a store: how a batch becomes rows, and how all of them are read and checked.

use super::row::{packed, put_row, row_sum, unpacked};
use lessor_ledger::registry::{Batch, LimitRow, PoolPlace, Written};
use lessor_ledger::steering::Course;
use lessor_protocol::Moment;
use redb::{
    Database, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition, TableError, TableHandle,
};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const LIMITS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("limits");
const POOLS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("pools");

/// Missing in stores of earlier versions.
const DECISIONS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("decisions");

/// Key of the one row of `META`.
const HEAD: &str = "head";

/// Version of the format. A file of another version is refused.
const FORMAT: u32 = 1;

/// What the head of every version has.
#[derive(Deserialize)]
struct Version {
    format: u32,
}

/// Why the rows of a store cannot be read.
#[derive(Debug)]
pub(super) enum Unread {
    /// They may be whole: the system failed, or a later version wrote them.
    Unknown(String),
    /// They are not as they were written.
    Damaged(String),
}

impl From<String> for Unread {
    fn from(problem: String) -> Self {
        Unread::Damaged(problem)
    }
}

impl From<redb::Error> for Unread {
    fn from(error: redb::Error) -> Self {
        // The library's own findings have no number of the system.
        let has_number = matches!(&error, redb::Error::Io(error) if error.raw_os_error().is_some());
        let is_of_system = has_number || matches!(error, redb::Error::PreviousIo);
        let problem = error.to_string();
        if is_of_system { Unread::Unknown(problem) } else { Unread::Damaged(problem) }
    }
}

/// The row of a store about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Head {
    pub(super) format: u32,
    /// A random number that tells stores apart.
    pub(super) store: u64,
    /// Durable batches so far.
    pub(super) commits: u64,
    /// The boot of the last batch.
    pub(super) boot: Option<String>,
    /// The origin of the clock of all moments, on the disciplined clock that it is steered to.
    pub(super) origin: u64,
    /// The clock at the last batch: what it showed, and the steady clock, in nanoseconds. Stores of earlier versions
    /// have none, as they went by the disciplined clock.
    #[serde(default)]
    pub(super) course: Option<(u64, u64)>,
    /// Sum over all rows. It shows a row that is missing or came from elsewhere.
    sum: u64,
}

impl Head {
    /// Makes the head of an empty store with the number `store`, on a clock that goes on from `course`.
    pub(super) fn new(store: u64, boot: Option<String>, course: Course) -> Self {
        let origin = course.aim;
        Head { format: FORMAT, store, commits: 0, boot, origin, course: None, sum: 0 }.on(course)
    }

    /// Returns this head on a clock that has come to `course`.
    pub(super) fn on(self, course: Course) -> Self {
        let at = (course.shown.as_nanos(), course.steady.as_nanos());
        Head { origin: course.aim, course: Some(at), ..self }
    }

    /// Returns where the clock goes on. If the head does not say, the clock goes by the disciplined one.
    pub(super) fn course(&self) -> Course {
        let (shown, steady) = self.course.unwrap_or((self.origin, 0));
        Course { shown: Moment::from_nanos(shown), steady: Moment::from_nanos(steady), aim: self.origin }
    }
}

/// Makes `batch` durable on top of the state of `head`, and returns the new head.
pub(super) fn write(database: &Database, head: &Head, batch: &Batch) -> Result<Head, redb::Error> {
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

/// Reads all rows of `database`, and checks each of them and their sum.
pub(super) fn rows(database: &Database) -> Result<(Head, Written), Unread> {
    let transaction = database.begin_read().map_err(unread)?;
    let head = transaction.open_table(META).map_err(unread)?;
    let head = head.get(HEAD).map_err(unread)?.ok_or_else(|| "it has no head".to_owned())?;
    let Version { format } = unpacked(HEAD, head.value())?;
    let other = || format!("its format is {format}, this version reads {FORMAT}");
    match format.cmp(&FORMAT) {
        Ordering::Equal => {}
        Ordering::Greater => return Err(Unread::Unknown(other())),
        Ordering::Less => return Err(Unread::Damaged(other())),
    }
    let head: Head = unpacked(HEAD, head.value())?;
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
        return Err(Unread::Damaged("rows are missing, or too many".to_owned()));
    }
    Ok((head, written))
}

fn unread(error: impl Into<redb::Error>) -> Unread {
    error.into().into()
}

/// Calls `take` with each row of `table`, and takes it into the `sum` of all. No row is copied.
fn each_row(
    transaction: &ReadTransaction,
    table: TableDefinition<'_, &str, &[u8]>,
    sum: &mut u64,
    mut take: impl FnMut(&str, &[u8]) -> Result<(), String>,
) -> Result<(), Unread> {
    let table = match transaction.open_table(table) {
        // Stores of earlier versions have no decisions.
        Err(TableError::TableDoesNotExist(_)) if table.name() == DECISIONS.name() => return Ok(()),
        opened => opened.map_err(unread)?,
    };
    for row in table.iter().map_err(unread)? {
        let (name, row) = row.map_err(unread)?;
        *sum ^= row_sum(name.value(), row.value());
        take(name.value(), row.value())?;
    }
    Ok(())
}
