//! The state of a server: its [`Registry`], with a clock and metrics. Exchanges use the registry through
//! [`Shared::beside`], many threads at once; all else has it alone, in [`Shared::with`]. Neither is held across a wait.

mod known;
mod open;
mod overrides;
mod served;
mod turns;

use crate::access::Access;
use crate::audit::Audit;
use crate::clock::{EpochClock, begin};
use crate::config::{Config, Exposure};
use crate::events::Events;
use crate::http::Bodies;
use crate::journal::{Journal, NotDurable};
use crate::metrics::Metrics;
use crate::shared_store_status::SharedStoreStatus;
use crate::silent_upstreams::SilentUpstreams;
use known::Known;
use lessor_ledger::overrides::Suspensions;
use lessor_ledger::pool::Past;
use lessor_ledger::registry::Registry;
use lessor_ledger::steering::Course;
use lessor_protocol::lock_anyway::LockAnyway;
use lessor_protocol::trace::Cause;
use lessor_protocol::{Moment, PERMITS_MAX, entropy};
use served::Standing;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockWriteGuard};
use tokio::sync::watch;
use turns::Turns;
pub(crate) use turns::{Reader, TooManyWait, Turn};

/// The registry, its clock and its metrics.
#[derive(Debug)]
pub(crate) struct Shared {
    config: Config,
    /// Whether no earlier life can have lent anything.
    is_fresh: bool,
    /// Set if `--fresh` has an effect on new limits at most: a store shows that earlier lives may have lent the others.
    fresh_warning: Option<&'static str>,
    clock: EpochClock,
    metrics: Metrics,
    events: Events,
    stop: watch::Sender<bool>,
    /// When this life began.
    began: Moment,
    /// Counts the exchanges of nodes.
    asked: watch::Sender<u64>,
    /// The newest exchange that is traced.
    cause: Cause,
    /// Set with a store of its own.
    journal: OnceLock<Arc<Journal>>,
    shared_store_status: SharedStoreStatus,
    silent_upstreams: SilentUpstreams,
    file: Mutex<FileState>,
    /// Addresses that let in any peer of another machine.
    exposures: OnceLock<Vec<Exposure>>,
    /// Identities and their rights, once they were read.
    access: OnceLock<Access>,
    audit: Audit,
    limits: Mutex<Known>,
    registry: RwLock<Registry>,
    /// Whether a panic left the books half written.
    is_broken: AtomicBool,
    show: Turns,
    scrape: Turns,
    decide: Turns,
    record: Turns,
    bodies: Bodies,
    bodies_of_strangers: Bodies,
    standing: Standing,
}

/// The result of reading the file last.
#[derive(Debug, Default)]
struct FileState {
    /// What is wrong with the file, if anything: its previous content stays in force.
    problem: Option<String>,
    /// Limits that stay though the file no longer has them, see [`crate::reload::Removals::Keep`].
    kept: Vec<String>,
    /// Changed settings that need a restart.
    needs_restart: Vec<&'static str>,
}

/// Marks the books as broken if its thread panics. It is dropped before the lock of the registry.
struct Breaks<'a>(&'a AtomicBool);

impl Drop for Breaks<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Relaxed);
        }
    }
}

impl Shared {
    /// Makes a new life. Unless it is `fresh`, an earlier one may have lent until now.
    pub(crate) fn new(config: Config, fresh: bool) -> Self {
        let clock = EpochClock::new(begin(), config.clocks);
        let now = clock.now();
        let past = if fresh { Past::None } else { Past::Lost(now) };
        let registry = Registry::new(&config.limits, config.clocks, past, now, epoch());
        Shared::of(config, fresh, clock, registry)
    }

    fn of(config: Config, is_fresh: bool, clock: EpochClock, mut registry: Registry) -> Self {
        registry.ask_above_as(entropy::number());
        let now = clock.now();
        let limits = registry.limits(now).into_iter().map(|(limit, _)| limit.clone()).collect();
        Shared {
            journal: OnceLock::new(),
            shared_store_status: SharedStoreStatus::new(&config),
            silent_upstreams: SilentUpstreams::default(),
            file: Mutex::default(),
            exposures: OnceLock::new(),
            access: OnceLock::new(),
            audit: Audit::new(config.audit.clone()),
            registry: RwLock::new(registry),
            show: Turns::default(),
            scrape: Turns::default(),
            decide: Turns::default(),
            record: Turns::default(),
            bodies: Bodies::new(config.server.connections_max, config.server.connections_per_address_max),
            bodies_of_strangers: Bodies::of_strangers(
                config.server.connections_max,
                config.server.connections_per_address_max,
            ),
            standing: Standing::default(),
            is_broken: AtomicBool::new(false),
            metrics: Metrics::new(&config, now),
            events: Events::new(config.server.connections_max, config.server.connections_per_address_max),
            stop: watch::Sender::new(false),
            began: now,
            asked: watch::Sender::new(0),
            cause: Cause::default(),
            limits: Mutex::new(limits),
            clock,
            is_fresh,
            fresh_warning: None,
            config,
        }
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Whether no earlier life can have lent anything.
    pub(crate) fn is_fresh(&self) -> bool {
        self.is_fresh
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The listeners, and the last events.
    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    /// Stops lending, and the streams of events.
    pub(crate) fn stop(&self) {
        self.with(|registry, _| registry.stop());
        self.stop.send_replace(true);
    }

    /// Waits until it stops. Cancel-safe.
    pub(crate) async fn stopped(&self) {
        // An error says that no sender is left that could stop it.
        let _ = self.stop.subscribe().wait_for(|stopped| *stopped).await;
    }

    /// Wakes the uplinks after an exchange of a node: there may be something to ask upstream.
    pub(crate) fn was_asked(&self) {
        // Without an uplink none waits. One that begins to wait later looks at the registry first.
        if self.asked.receiver_count() > 0 {
            self.asked.send_modify(|asked| *asked = asked.wrapping_add(1));
        }
    }

    /// Span of the newest exchange that left work for an uplink.
    pub(crate) fn cause(&self) -> &Cause {
        &self.cause
    }

    /// Changes with every call of [`Shared::was_asked`].
    pub(crate) fn asked(&self) -> watch::Receiver<u64> {
        self.asked.subscribe()
    }

    /// When this life began.
    pub(crate) fn began(&self) -> Moment {
        self.began
    }

    /// Returns this instant on the allocator's clock.
    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Returns where the allocator's clock is, for a later life.
    pub(crate) fn course(&self) -> Course {
        self.clock.course()
    }

    /// Waits until `batch` is durable; returns at once if there is none. Cancel-safe.
    ///
    /// # Errors
    /// If the store fails.
    pub(crate) async fn durable(&self, batch: Option<u64>) -> Result<(), NotDurable> {
        match (batch, self.journal.get()) {
            (Some(batch), Some(journal)) => journal.durable(batch).await,
            (Some(_), None) => Err(NotDurable),
            (None, _) => Ok(()),
        }
    }

    /// Whether there is a store that outlives the process.
    pub(crate) fn has_store(&self) -> bool {
        self.journal.get().is_some()
    }

    /// Returns why the store is of no use, if so.
    pub(crate) fn store_fails(&self) -> Option<String> {
        let is_unread = self.access().is_some_and(Access::is_unread);
        let unread = is_unread.then(|| "the tokens in the store are unread: no token is accepted".to_owned());
        self.shared_store_status.silence().or(unread).or_else(|| self.journal.get()?.failing())
    }

    /// Returns what was wrong with the file at the last read, if anything: its previous content stays in force.
    pub(crate) fn file_fails(&self) -> Option<String> {
        self.file.lock_anyway().problem.clone()
    }

    /// Returns the limits that stay though the file no longer has them, unless they were removed over the API since.
    pub(crate) fn kept_limits(&self) -> Vec<String> {
        let kept = self.file.lock_anyway().kept.clone();
        let limits = self.limits();
        kept.into_iter().filter(|name| limits.contains_key(name)).collect()
    }

    /// Returns the settings that the file changes and that need a restart.
    pub(crate) fn needs_restart(&self) -> Vec<&'static str> {
        self.file.lock_anyway().needs_restart.clone()
    }

    /// Records that the file was applied: the limits that stay though it does not have them, and the settings that need
    /// a restart.
    pub(crate) fn file_was_read(&self, kept: Vec<String>, needs_restart: Vec<&'static str>) {
        *self.file.lock_anyway() = FileState { problem: None, kept, needs_restart };
    }

    /// Records that the file has a `problem`.
    pub(crate) fn file_was_refused(&self, problem: String) {
        self.file.lock_anyway().problem = Some(problem);
    }

    /// Applies suspensions of the shared store, unless later ones are known. `there` is the time of the store. Tasks
    /// that decide and tasks that read the store call this in any order.
    pub(crate) fn follow_suspensions(&self, suspensions: &Suspensions, there: Moment) {
        let mut known = self.shared_store_status.suspensions();
        known.merge(suspensions);
        let news = self.with(|registry, now| registry.follow_suspensions(&known, there, now));
        drop(known);
        news.iter().for_each(|event| self.tell(event));
    }

    /// The state of the shared store.
    pub(crate) fn shared_store_status(&self) -> &SharedStoreStatus {
        &self.shared_store_status
    }

    /// The upstream allocators that do not answer.
    pub(crate) fn silent_upstreams(&self) -> &SilentUpstreams {
        &self.silent_upstreams
    }

    /// Writes the rest, and closes the store. Blocks for as long as that takes.
    pub(crate) fn close_store(&self) {
        if let Some(journal) = self.journal.get() {
            journal.finish();
        }
    }

    /// Calls `act` with the registry, now. No other thread uses the registry meanwhile.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Registry, Moment) -> T) -> T {
        let mut registry = self.alone();
        let _breaks = Breaks(&self.is_broken);
        // Read under the lock: moments then come in the order in which they are used.
        let now = self.clock.now();
        let result = act(&mut registry, now);
        self.wake_journal(&registry);
        result
    }

    /// Calls `act` with the registry, now. Other calls of this function may use it at the same time.
    pub(crate) fn beside<T>(&self, act: impl FnOnce(&Registry, Moment) -> T) -> T {
        let mut registry = self.registry.read().unwrap_or_else(PoisonError::into_inner);
        while self.is_broken.load(Relaxed) {
            drop(registry);
            drop(self.alone());
            registry = self.registry.read().unwrap_or_else(PoisonError::into_inner);
        }
        let _breaks = Breaks(&self.is_broken);
        let now = self.clock.now();
        let result = act(&registry, now);
        self.wake_journal(&registry);
        result
    }

    fn wake_journal(&self, registry: &Registry) {
        if let Some(journal) = self.journal.get()
            && registry.is_unwritten()
        {
            journal.wake();
        }
    }

    /// Locks the registry for this thread alone. If its books are broken, a new life begins.
    fn alone(&self) -> RwLockWriteGuard<'_, Registry> {
        // Poison is not enough: a thread may have panicked in [`Shared::beside`].
        let mut registry = self.registry.write().unwrap_or_else(PoisonError::into_inner);
        if self.is_broken.load(Relaxed) {
            self.start_over(&mut registry);
        }
        registry
    }

    /// Begins a new life in quarantine, as after a crash: a panic left the books half written, so they are lost. To go
    /// on with such books could lend a permit twice. To give up for good would be an outage where a wait of seconds is
    /// enough.
    fn start_over(&self, registry: &mut Registry) {
        let now = self.clock.now();
        let (was_stopping, batches) = (registry.is_stopping(), registry.batches());
        let limits = self.limits().values().cloned().collect();
        let config = Config { limits, ..self.config.clone() };
        let new = Registry::new(&config.limits, config.clocks, Past::Lost(now), now, epoch());
        let mut broken = std::mem::replace(registry, new);
        registry.ask_above_as(entropy::number());
        registry.keep_decisions_of(&mut broken, now);
        if was_stopping {
            registry.stop();
        }
        if self.journal.get().is_some() {
            registry.begin_writing(batches);
        }
        self.registry.clear_poison();
        self.is_broken.store(false, Relaxed);
        tracing::error!("a bug broke the books: all limits are in quarantine, as after a crash");
    }
}

/// Draws a random number of 53 bits that tells this life from others. It is not 0, which stands for none.
fn epoch() -> u64 {
    (entropy::number() & PERMITS_MAX).max(1)
}

#[cfg(test)]
mod tests;
