//! What an allocator knows of the store that it shares with others: whether it answers, which limits there are, what operators
//! have decided, and who else is there.

use crate::config::{Config, StoreConfig};
use crate::overrides::{self, Overrides};
use lessor_ledger::overrides::Suspensions;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Names that are kept of those who share a store.
const NAMES_MAX: usize = 100;

/// What is known of it. Each part is for people and for the next exchange: none waits for another.
#[derive(Debug)]
pub(crate) struct SharedStoreStatus {
    silence: Mutex<Option<String>>,
    is_silent: AtomicBool,
    overrides: Mutex<Overrides>,
    has_limits: AtomicBool,
    here: Mutex<Vec<String>>,
    suspensions: Mutex<Suspensions>,
}

impl SharedStoreStatus {
    /// What is known of a store before the first exchange with it, where the file says `config`.
    pub(crate) fn new(config: &Config) -> Self {
        let is_shared = matches!(config.server.store, StoreConfig::Shared(_));
        SharedStoreStatus {
            silence: Mutex::new(is_shared.then(|| "it was not heard of yet".to_owned())),
            is_silent: AtomicBool::new(false),
            overrides: Mutex::new(overrides::begin(config)),
            has_limits: AtomicBool::new(false),
            here: Mutex::default(),
            suspensions: Mutex::default(),
        }
    }

    /// Why it is of no use, if it does not answer, or not well.
    pub(crate) fn silence(&self) -> Option<String> {
        self.silence.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether it is of no use, and was of use before or was waited for in vain. Every exchange asks.
    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }

    /// It does not answer, or not well, and why; or does again.
    pub(crate) fn fell_silent(&self, why: Option<String>) {
        self.is_silent.store(why.is_some(), Ordering::Relaxed);
        *self.silence.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// Which limits there are, as far as is known. A task that changes limits by it keeps the guard until that is done. So each
    /// limit goes by the version said here. A task that has locked the allocator never waits for this guard.
    pub(crate) fn overrides(&self) -> MutexGuard<'_, Overrides> {
        // Replaced as a whole: no panic can have left it half changed.
        self.overrides.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest suspensions that are known. A task that follows them keeps the guard until that is done.
    pub(crate) fn suspensions(&self) -> MutexGuard<'_, Suspensions> {
        // Replaced as a whole: no panic can have left it half changed.
        self.suspensions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the store has said which limits there are beside those of the file.
    pub(crate) fn has_limits(&self) -> bool {
        self.has_limits.load(Ordering::Relaxed)
    }

    /// It has.
    pub(crate) fn limits_are_known(&self) {
        self.has_limits.store(true, Ordering::Relaxed);
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
