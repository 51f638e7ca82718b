//! What an allocator knows of the store that it shares with others: whether it answers, by which configuration all go, what
//! operators have decided, and who else is there.

use crate::roots::Gates;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Names that are kept of those who share a store.
const NAMES_MAX: usize = 100;

/// What is known of it. Each part is for people and for the next exchange: none waits for another.
#[derive(Debug)]
pub(crate) struct Commons {
    is_silent: AtomicBool,
    version: AtomicU64,
    here: Mutex<Vec<String>>,
    gates: Mutex<Gates>,
}

impl Commons {
    /// One that nobody asked yet, with a configuration of this version.
    pub(crate) fn new(version: u64) -> Self {
        Commons {
            is_silent: AtomicBool::new(false),
            version: AtomicU64::new(version),
            here: Mutex::default(),
            gates: Mutex::default(),
        }
    }

    /// Whether it does not answer.
    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }

    /// It does not answer, or does again.
    pub(crate) fn silent(&self, is_silent: bool) {
        self.is_silent.store(is_silent, Ordering::Relaxed);
    }

    /// The version of the configuration.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// The configuration is this one by now.
    pub(crate) fn version_is(&self, version: u64) {
        self.version.store(version, Ordering::Relaxed);
    }

    /// The newest of what operators have decided, as far as is known. Whoever follows it keeps this until that is done.
    pub(crate) fn gates(&self) -> MutexGuard<'_, Gates> {
        // Replaced as a whole: no panic can have left it half changed.
        self.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names of those who lend by it, this one among them; the first hundred.
    pub(crate) fn here(&self) -> Vec<String> {
        self.here.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Those lend by it. How many they are.
    pub(crate) fn are_here<'a>(&self, names: impl Iterator<Item = &'a str>) -> usize {
        let mut names: Vec<String> = names.map(str::to_owned).collect();
        let all = names.len();
        names.sort_unstable();
        names.truncate(NAMES_MAX);
        *self.here.lock().unwrap_or_else(PoisonError::into_inner) = names;
        all
    }
}
