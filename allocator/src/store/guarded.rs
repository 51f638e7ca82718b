//! The database in a file.

use redb::backends::FileBackend;
use redb::{Builder, Database, DatabaseError};
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Bytes of the file that are kept in memory at most. All rows are read once, at the start, and rows that are written
/// often stay in it. The library would take a gigabyte.
const CACHE_MAX: usize = 64 << 20;

/// A database in which a panic of the library does no harm, as a damaged file may cause one.
#[derive(Debug)]
pub(super) struct Guarded(Option<Database>);

impl Guarded {
    pub(super) fn new(database: Database) -> Self {
        Guarded(Some(database))
    }

    /// Runs `act`. A panic is an error like any other.
    pub(super) fn with<T, E: From<String>>(
        &self,
        act: impl FnOnce(&Database) -> Result<T, E>,
    ) -> Result<T, E> {
        let database = self.0.as_ref().ok_or_else(|| "it is closed".to_owned())?;
        let done = catch_unwind(AssertUnwindSafe(|| act(database)));
        done.unwrap_or_else(|_| Err("the library panicked on it".to_owned().into()))
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let database = self.0.take();
        // A panic changes nothing: durable batches were durable before.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(database)));
    }
}

/// Opens the database in `file`, or makes one if it is empty.
pub(super) fn database(file: File) -> Result<Database, DatabaseError> {
    Builder::new().set_cache_size(CACHE_MAX).create_with_backend(FileBackend::new(file)?)
}
