//! What an allocator knows of its shared store: whether it answers, its limits, the decisions of operators, and the
//! other allocators.

use crate::config::{Config, StoreConfig};
use crate::overrides::{self, Overrides};
use crate::uplink::LastHost;
use lessor_ledger::overrides::Suspensions;
use lessor_protocol::lock_anyway::LockAnyway;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

/// Most names of allocators that are kept.
const NAMES_MAX: usize = 100;

/// The state of the store. Each part is for display and for the next exchange, and has its own lock.
#[derive(Debug)]
pub(crate) struct SharedStoreStatus {
    silence: Mutex<Silence>,
    is_silent: AtomicBool,
    lost_member: AtomicBool,
    newest_file: AtomicU64,
    overrides: Mutex<Overrides>,
    has_limits: AtomicBool,
    lacks_room: AtomicBool,
    here: Mutex<Vec<String>>,
    suspensions: Mutex<Suspensions>,
    last_host: LastHost,
}

/// What an allocator does with its store. A store may take signatures and fail each exchange: it may be full, or some of
/// its servers may be away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// It signs the head.
    Signing,
    /// It exchanges asks and grants with roots.
    Exchanging,
}

/// Why the store is of no use, for each kind of work that failed last.
#[derive(Debug, Default)]
struct Silence {
    /// Whether no signature has been answered yet, nor failed.
    is_awaited: bool,
    signing: Option<String>,
    exchanging: Option<String>,
}

impl SharedStoreStatus {
    /// The state before the first exchange, with the file `config`.
    pub(crate) fn new(config: &Config) -> Self {
        let is_shared = matches!(config.server.store, StoreConfig::Shared(_));
        SharedStoreStatus {
            silence: Mutex::new(Silence { is_awaited: is_shared, ..Silence::default() }),
            is_silent: AtomicBool::new(false),
            lost_member: AtomicBool::new(false),
            newest_file: AtomicU64::new(0),
            overrides: Mutex::new(overrides::begin(config)),
            has_limits: AtomicBool::new(false),
            lacks_room: AtomicBool::new(false),
            here: Mutex::default(),
            suspensions: Mutex::default(),
            last_host: LastHost::default(),
        }
    }

    /// Returns why the store is of no use, if it does not answer, or not well.
    pub(crate) fn silence(&self) -> Option<String> {
        let silence = self.silence.lock_anyway();
        let awaited = silence.is_awaited.then(|| "the store has not answered yet".to_owned());
        silence.signing.clone().or(awaited).or(silence.exchanging.clone())
    }

    /// Whether the store has stopped answering, or was waited for in vain. A store that is still awaited is not silent.
    /// Every exchange asks.
    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }

    /// Records why `work` with the store fails; `None` if it succeeds. That says nothing of the other work.
    pub(crate) fn fell_silent(&self, work: Work, why: Option<String>) {
        let mut silence = self.silence.lock_anyway();
        match work {
            Work::Signing => (silence.is_awaited, silence.signing) = (false, why),
            Work::Exchanging => silence.exchanging = why,
        }
        let is_silent = silence.signing.is_some() || silence.exchanging.is_some();
        self.is_silent.store(is_silent, Ordering::Relaxed);
    }

    /// Records that the task that leases from the store ended in a panic, and with it what it knew of the store.
    pub(crate) fn member_was_lost(&self) {
        self.lost_member.store(true, Ordering::Relaxed);
        let why = "the task that leases from the store ended, and begins again: this is a bug";
        self.fell_silent(Work::Signing, Some(why.to_owned()));
    }

    /// Whether a task that leased from the store was lost. Then the store may have been lent from in this life.
    pub(crate) fn has_lost_member(&self) -> bool {
        self.lost_member.load(Ordering::Relaxed)
    }

    /// Locks the limits as far as they are known. A task that changes limits by them keeps the guard until it is done,
    /// so that each limit goes by the version in here. A task that has locked the registry never waits for this guard.
    pub(crate) fn overrides(&self) -> MutexGuard<'_, Overrides> {
        self.overrides.lock_anyway()
    }

    /// Locks the newest known suspensions. A task that applies them keeps the guard until it is done.
    pub(crate) fn suspensions(&self) -> MutexGuard<'_, Suspensions> {
        self.suspensions.lock_anyway()
    }

    /// Returns the host of the store that the next decision asks first.
    pub(crate) fn last_host(&self) -> &LastHost {
        &self.last_host
    }

    /// Whether the store has told its limits, beside those of the file.
    pub(crate) fn has_limits(&self) -> bool {
        self.has_limits.load(Ordering::Relaxed)
    }

    /// Records that the store has told its limits.
    pub(crate) fn limits_are_known(&self) {
        self.has_limits.store(true, Ordering::Relaxed);
    }

    /// Whether there was no room here for a limit of the store at the last look.
    pub(crate) fn lacks_room(&self) -> bool {
        self.lacks_room.load(Ordering::Relaxed)
    }

    /// Records whether there was no room here for a limit of the store.
    pub(crate) fn room_was_lacking(&self, lacks_room: bool) {
        self.lacks_room.store(lacks_room, Ordering::Relaxed);
    }

    /// Returns the version of the newest file that the head names; 0 before it was read.
    pub(crate) fn newest_file(&self) -> u64 {
        self.newest_file.load(Ordering::Relaxed)
    }

    /// Records the version of the newest file that the head names.
    pub(crate) fn newest_file_is(&self, version: u64) {
        self.newest_file.store(version, Ordering::Relaxed);
    }

    /// Returns a warning that the store goes by a newer file than this allocator, if so.
    pub(crate) fn older_file_warning(&self) -> Option<String> {
        let (own, newest) = (self.overrides().file(), self.newest_file());
        (newest > own).then(|| {
            format!(
                "the store goes by version {newest} of the configuration, and the file here has store.version = {own}: \
                 limits of the store are shown with rules that may not hold; raise store.version above {newest} to \
                 have them hold"
            )
        })
    }

    /// Returns the names of the allocators that lend from the store, this one among them; at most a hundred.
    pub(crate) fn here(&self) -> Vec<String> {
        self.here.lock_anyway().clone()
    }

    /// Records the names of the allocators that lend from the store. Returns their number.
    pub(crate) fn are_here<'a>(&self, names: impl Iterator<Item = &'a str>) -> usize {
        let mut names: Vec<String> = names.map(str::to_owned).collect();
        let all = names.len();
        names.sort_unstable();
        names.truncate(NAMES_MAX);
        *self.here.lock_anyway() = names;
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{LIMIT, STORE, config};

    /// The bug: a file that was rolled back showed its rules, while those of the newer file held.
    #[test]
    fn a_file_that_is_older_than_that_of_the_store_is_warned_of() {
        let status = SharedStoreStatus::new(&config(&[STORE, "version = 7\n", LIMIT].concat()));
        for (newest, is_older) in [(0, false), (7, false), (8, true)] {
            status.newest_file_is(newest);
            let warning = status.older_file_warning();
            assert_eq!(warning.as_ref().is_some_and(|why| why.contains("above 8")), is_older, "{warning:?}");
        }
    }

    /// The bug: the allocator signs while it rests after a failed exchange. The signature hid that every exchange failed:
    /// the allocator was ready, and lent nothing.
    #[test]
    fn a_signature_that_succeeds_does_not_hide_that_exchanges_fail() {
        let status = SharedStoreStatus::new(&config(&[STORE, LIMIT].concat()));
        for _ in 0..2 {
            assert!(status.silence().is_some_and(|why| why.contains("yet")) && !status.is_silent());
            // Before the first signature there is nothing to exchange.
            status.fell_silent(Work::Exchanging, None);
        }
        status.fell_silent(Work::Signing, None);
        assert_eq!(status.silence(), None);
        status.fell_silent(Work::Exchanging, Some("full".to_owned()));
        status.fell_silent(Work::Signing, None);
        assert_eq!((status.silence().as_deref(), status.is_silent()), (Some("full"), true));
        status.fell_silent(Work::Signing, Some("away".to_owned()));
        status.fell_silent(Work::Exchanging, None);
        assert_eq!((status.silence().as_deref(), status.is_silent()), (Some("away"), true));
        status.fell_silent(Work::Signing, None);
        assert_eq!((status.silence(), status.is_silent()), (None, false));
    }
}
