//! Hands batches to the store, one at a time, on a thread of its own: changes made during a write go into the next
//! batch. Exchanges wait here until their answers are durable. While the store fails nothing new is lent, and the store
//! is made anew.

use crate::shared::Shared;
use crate::store::{Batch, Embedded};
use lessor_ledger::registry::Registry;
use lessor_protocol::lock_anyway::LockAnyway;
use lessor_protocol::{Clock, Moment};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;

/// Retry delay after the store failed. A full disk is not hurried, and no task waits for longer than that once there is
/// room.
const RETRY: Duration = Duration::from_secs(1);

/// How long a write may take before the store counts as failing. A disk that hangs reports no error.
const HANGS: Duration = Duration::from_secs(5);

/// Pools that are copied in one step, while exchanges wait for about a millisecond.
const POOLS_AT_ONCE: usize = 300;

/// Partial batches in a row after which the next one is copied in one step. No limit is changed meanwhile, so it is whole.
/// More of them would keep answers waiting for as long as limits are changed.
const PARTIAL_MAX: u32 = 2;

/// Progress of the journal.
#[derive(Clone, Debug, Default)]
struct Done {
    /// Number of the last durable batch.
    batch: u64,
    /// Why the store fails, if it does.
    failing: Option<Arc<str>>,
    /// When the running write began.
    writing: Option<Moment>,
    /// Whether nothing more is written.
    is_over: bool,
}

/// The decision is not durable, and may never be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotDurable;

/// The handle of the journal's thread.
#[derive(Debug)]
pub(crate) struct Journal {
    wake: SyncSender<()>,
    done: watch::Sender<Done>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Journal {
    /// Starts to write what the allocator of `shared` has to write to `store`. `batch` is the last durable one.
    pub(crate) fn start(shared: &Arc<Shared>, store: Embedded, batch: u64) -> Arc<Self> {
        let (wake, woken) = sync_channel(1);
        let (done, _) = watch::channel(Done { batch, ..Done::default() });
        let journal = Arc::new(Journal { wake, done: done.clone(), thread: Mutex::default() });
        let writer = Writer { shared: Arc::downgrade(shared), store, done, woken, partial: 0 };
        let thread = std::thread::Builder::new().name("journal".to_owned()).spawn(move || writer.run());
        // Without the thread nothing becomes durable, and nothing is lent.
        match thread {
            Ok(thread) => *journal.thread.lock_anyway() = Some(thread),
            Err(error) => {
                journal.done.send_modify(|done| done.failing = Some(error.to_string().into()));
                tracing::error!(%error, "the thread of the store cannot start: nothing is lent");
            }
        }
        journal
    }

    /// Wakes the thread: there is something to write.
    pub(crate) fn wake(&self) {
        // Full: the thread has been woken, and has not looked yet.
        let _ = self.wake.try_send(());
    }

    /// Waits until the batch with this number is durable. Cancel-safe.
    ///
    /// # Errors
    /// If the store fails.
    pub(crate) async fn durable(&self, batch: u64) -> Result<(), NotDurable> {
        self.wake();
        let mut done = self.done.subscribe();
        let settled = |done: &Done| done.batch >= batch || done.failing.is_some() || done.is_over;
        match done.wait_for(settled).await {
            Ok(done) if done.batch >= batch => Ok(()),
            Ok(_) | Err(_) => Err(NotDurable),
        }
    }

    /// Returns why the store fails, if it does. A write that has not ended after [`HANGS`] is such a reason, though it
    /// may still succeed.
    pub(crate) fn failing(&self) -> Option<String> {
        let done = self.done.borrow();
        let took = done.writing.map_or(Duration::ZERO, |began| Clock::since_boot().now().since(began));
        let hangs = (took > HANGS).then(|| format!("a write has taken {} s", took.as_secs()));
        done.failing.as_deref().map(str::to_owned).or(hangs)
    }

    /// Writes the rest, and ends the thread. Blocks for as long as that takes.
    pub(crate) fn finish(&self) {
        self.done.send_modify(|done| done.is_over = true);
        self.wake();
        let thread = self.thread.lock_anyway().take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the thread of the store has panicked");
        }
    }
}

struct Writer {
    shared: Weak<Shared>,
    store: Embedded,
    done: watch::Sender<Done>,
    woken: Receiver<()>,
    /// Partial batches in a row.
    partial: u32,
}

/// The outcome of writing a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It is durable.
    Whole,
    /// It is durable, and the next batch has rows that it lacks.
    Partial,
    /// The store failed.
    Failed,
}

impl Writer {
    fn run(mut self) {
        loop {
            let is_over = self.done.borrow().is_over;
            let Some(shared) = self.shared.upgrade() else { return };
            let outcome = self.write_or_fail(&shared);
            drop(shared);
            if is_over && outcome != Outcome::Partial {
                return;
            }
            let is_alone = match outcome {
                Outcome::Whole => self.woken.recv().is_err(),
                Outcome::Partial => false,
                Outcome::Failed => self.rest(),
            };
            if is_alone {
                return;
            }
        }
    }

    /// Waits for the retry delay, whichever task wakes the thread: tasks that wait are told that the store fails.
    /// Returns whether no task is left that could wake it.
    fn rest(&self) -> bool {
        let clock = Clock::since_boot();
        let until = clock.now() + RETRY;
        loop {
            let left = until.since(clock.now());
            match self.woken.recv_timeout(left) {
                Ok(()) if self.done.borrow().is_over => return false,
                Ok(()) => {}
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) => return true,
            }
        }
    }

    /// Writes one batch. A panic is a failure like any other: the state of the disk is unknown then, and waiting tasks are
    /// told.
    fn write_or_fail(&mut self, shared: &Shared) -> Outcome {
        let written = catch_unwind(AssertUnwindSafe(|| self.write(shared)));
        written.unwrap_or_else(|_| {
            self.failed(&"writing the store panicked, see the log: this is a bug");
            Outcome::Failed
        })
    }

    /// Writes one batch.
    fn write(&mut self, shared: &Shared) -> Outcome {
        let is_failing = self.done.borrow().failing.is_some();
        let batch = gathered(shared, is_failing, self.partial);
        self.partial = if batch.is_partial { self.partial + 1 } else { 0 };
        if batch.is_empty() && !batch.is_partial {
            self.done.send_modify(|done| done.batch = batch.number);
            return Outcome::Whole;
        }
        let began = shared.now();
        self.done.send_if_modified(|done| {
            done.writing = Some(Clock::since_boot().now());
            // No task that waits for the batch has to look.
            false
        });
        let course = shared.course();
        let written = match is_failing {
            true => self.store.recreate(&batch, course),
            false => self.store.commit(&batch, course),
        };
        shared.metrics().store().written(batch.pools.len(), shared.now().since(began), written.is_ok());
        match written {
            Ok(()) => {
                shared.beside(|registry, _| registry.raise_high_water(&batch));
                if is_failing {
                    tracing::info!("the store can be written again");
                }
                self.done.send_modify(|done| {
                    // Tasks that wait for a partial batch wait on: the next one has all that they wait for.
                    let number = if batch.is_partial { done.batch } else { batch.number };
                    *done = Done { batch: number, is_over: done.is_over, ..Done::default() }
                });
                if batch.is_partial { Outcome::Partial } else { Outcome::Whole }
            }
            Err(error) => {
                self.failed(&error);
                Outcome::Failed
            }
        }
    }

    /// Tells the waiting tasks before it writes to the log, so that a reader of the log finds them told.
    fn failed(&self, error: &dyn Display) {
        let (mut again, why) = (false, error.to_string());
        self.done.send_modify(|done| {
            again = done.failing.replace(why.into()).is_some();
            done.writing = None;
        });
        if !again {
            tracing::error!(%error, "nothing new is lent until the store can be written again");
        }
    }
}

/// Gathers the next batch after so many that were `partial`. It holds everything if the store failed. A first batch is gathered
/// until it is whole: it replaces all that was durable.
fn gathered(shared: &Shared, is_failing: bool, partial: u32) -> Batch {
    let (mut is_whole, mut partial) = (is_failing, partial);
    loop {
        let batch = copied(shared, is_whole, partial);
        if !(batch.is_first && batch.is_partial) {
            return batch;
        }
        (is_whole, partial) = (true, partial + 1);
    }
}

/// Copies a batch of everything (`is_whole`), or of what is to be written. Exchanges go on while pools are copied, unless
/// many batches were `partial`.
fn copied(shared: &Shared, is_whole: bool, partial: u32) -> Batch {
    let begin = |registry: &mut Registry, now| match is_whole {
        true => registry.begin_whole_batch(now),
        false => registry.begin_batch(now),
    };
    if partial >= PARTIAL_MAX {
        return shared.with(|registry, now| {
            let mut gathering = begin(registry, now);
            registry.gather(now, &mut gathering, usize::MAX);
            gathering.into_batch()
        });
    }
    let mut gathering = shared.with(begin);
    loop {
        let (is_all, took) = shared.beside(|registry, now| {
            let is_all = registry.gather(now, &mut gathering, POOLS_AT_ONCE);
            (is_all, shared.now().since(now))
        });
        if is_all {
            return gathering.into_batch();
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "no waiting thread gets a lock that is taken again at once"
        )]
        std::thread::sleep(took);
    }
}
