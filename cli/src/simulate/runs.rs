//! Runs policies and seeds, a few at once, and shows progress on standard error if they take long. The results do not
//! depend on the order in which the runs end.

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

/// Time before progress is shown: an operator does not wonder sooner whether anything happens.
const PATIENCE: Duration = Duration::from_secs(2);
/// Interval at which the line on a terminal is redrawn.
const FRAME: Duration = Duration::from_millis(500);

/// A run to be made.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) policy: Policy,
    pub(super) setup: Setup,
    /// Whether its curve is drawn.
    pub(super) draws: bool,
}

/// The result of a job.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) policy: Policy,
    pub(super) seed: u64,
    pub(super) result: Result<Report, Box<Failure>>,
}

/// Runs `jobs` on `threads` threads and returns their results in the same order.
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
                    // The thread that collects the runs lives as long as this one.
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

/// Puts each result in its place until all runs have ended, and shows progress.
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
        // Erases the progress line, so that nothing of it is left between the lines of the result.
        let _ = write!(stderr(), "\r\x1b[K");
    }
}

fn show(terminal: bool, watch: &Watch, done: usize, jobs: &[Job]) {
    let all: u64 = jobs.iter().map(|job| job.setup.lasts / SECOND).sum();
    let over = watch.over.load(Ordering::Relaxed) / SECOND;
    let line = format!("{done} of {} runs, {over} of {all} simulated seconds", jobs.len());
    let (before, after) = if terminal { ("\r", "\x1b[K") } else { ("", "\n") };
    // A reader that went away misses nothing.
    let _ = write!(stderr(), "{before}{line}{after}");
    let _ = stderr().flush();
}
