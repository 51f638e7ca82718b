//! Runs policies and seeds, a few at once, and says on standard error how far it is if that takes long. What comes of
//! them does not depend on the order in which they end.

use lessor_protocol::Clock;
use lessor_sim::SECOND;
use lessor_sim::policy::Policy;
use lessor_sim::setup::Setup;
use lessor_sim::soak::{self, PROGRESS};
use lessor_sim::world::{Failure, Report, Watch};
use std::io::{IsTerminal, Write, stderr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// An operator does not wonder sooner whether anything happens.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often a line on a terminal is written anew.
const FRAME: Duration = Duration::from_millis(500);

/// Something to run.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) policy: Policy,
    pub(super) setup: Setup,
    /// Whether its curve is wanted.
    pub(super) draws: bool,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) policy: Policy,
    pub(super) seed: u64,
    pub(super) result: Result<Report, Box<Failure>>,
}

/// Runs `jobs` on `threads` threads and returns what came of them, in their order.
pub(super) fn run_all(jobs: Vec<Job>, threads: usize) -> Vec<Run> {
    let (watch, next) = (Watch::default(), AtomicUsize::new(0));
    let (send, ended) = mpsc::channel();
    let mut runs: Vec<Option<Run>> = jobs.iter().map(|_| None).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads.min(jobs.len()) {
            let (jobs, watch, next, send) = (&jobs, &watch, &next, send.clone());
            scope.spawn(move || {
                while let Some((index, job)) = take(jobs, next) {
                    let watch = Watch { draws: job.draws, ..watch.clone() };
                    let result = soak::run_as(job.policy, job.setup.clone(), watch);
                    let run = Run { policy: job.policy, seed: job.setup.seed, result };
                    // The thread that collects the runs is there as long as this one.
                    let _ = send.send((index, run));
                }
            });
        }
        drop(send);
        collect(&ended, &mut runs, &watch, &jobs);
    });
    runs.into_iter().map(|run| run.expect("every job ends")).collect()
}

fn take<'a>(jobs: &'a [Job], next: &AtomicUsize) -> Option<(usize, &'a Job)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    jobs.get(index).map(|job| (index, job))
}

/// Puts what ends in its place until all has, and shows how far it is.
fn collect(ended: &mpsc::Receiver<(usize, Run)>, runs: &mut [Option<Run>], watch: &Watch, jobs: &[Job]) {
    let terminal = stderr().is_terminal();
    let every = if terminal { FRAME } else { PROGRESS };
    let (clock, mut done) = (Clock::since_boot(), 0);
    let (start, mut shown) = (clock.now(), clock.now());
    loop {
        match ended.recv_timeout(every.saturating_sub(clock.now().since(shown))) {
            Ok((index, run)) => (runs[index], done) = (Some(run), done + 1),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                shown = clock.now();
                if shown.since(start) >= PATIENCE {
                    show(terminal, watch, done, jobs);
                }
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    if terminal {
        // Nothing of it is left between the lines of the result.
        let _ = write!(stderr(), "\r\x1b[K");
    }
}

fn show(terminal: bool, watch: &Watch, done: usize, jobs: &[Job]) {
    let all: u64 = jobs.iter().map(|job| job.setup.lasts / SECOND).sum();
    let over = watch.over.load(Ordering::Relaxed) / SECOND;
    let line = format!("{done} of {} runs, {over} of {all} simulated seconds", jobs.len());
    let (before, after) = if terminal { ("\r", "\x1b[K") } else { ("", "\n") };
    // A reader who went away misses nothing.
    let _ = write!(stderr(), "{before}{line}{after}");
    let _ = stderr().flush();
}
