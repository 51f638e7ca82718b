//! Runs many seeds at once until the time is up, for the `simulate` tool. Every seed is a run of its own; one that
//! fails or panics does not stop the others.

use crate::faults::Struck;
use crate::policy::Policy;
use crate::setup::Setup;
use crate::world::{Failure, Report, Watch, World};
use crate::{generator, replay};
use lessor_protocol::{Clock, Moment};
use std::io::{Write as _, stderr};
use std::panic::catch_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Time between two lines of progress.
pub const PROGRESS: Duration = Duration::from_secs(10);

/// The sum of all runs.
#[derive(Clone, Debug, Default)]
pub struct Soaked {
    /// Runs that ended.
    pub seeds: u64,
    /// Simulated time in nanoseconds.
    pub lasted: u128,
    /// Admissions judged.
    pub admissions: u64,
    /// How often each fault struck.
    pub struck: Struck,
    /// The failures found.
    pub failures: Vec<Failure>,
}

impl Soaked {
    /// Adds the result of a run.
    pub fn add(&mut self, run: Result<Report, Box<Failure>>) {
        self.seeds += 1;
        match run {
            Ok(report) => {
                self.lasted += u128::from(report.lasted);
                self.admissions += report.admissions;
                for (fault, times) in report.struck {
                    *self.struck.entry(fault).or_default() += times;
                }
            }
            Err(failure) => self.failures.push(*failure),
        }
    }

    /// Returns the number of failures in which more was admitted than promised.
    pub fn over_admissions(&self) -> usize {
        self.failures.iter().filter(|failure| failure.is_over).count()
    }

    /// Returns the simulated time in hours.
    pub fn hours(&self) -> f64 {
        self.lasted as f64 / 3.6e12
    }
}

/// Runs `setup`. A panic of the code under test is a failure like any other.
pub fn run(setup: Setup) -> Result<Report, Box<Failure>> {
    run_as(Policy::Lessor, setup, Watch::default())
}

/// Runs `setup` as [`run`] does, with leases sized by `policy`.
pub fn run_as(policy: Policy, setup: Setup, watch: Watch) -> Result<Report, Box<Failure>> {
    let (seed, replay) = (setup.seed, setup.replay.clone());
    catch_unwind(|| World::run_as(policy, setup, watch)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let what = format!("panic: {}", text.unwrap_or_default());
        let (name, last) = ("panic", vec![]);
        Err(Box::new(Failure { is_over: false, name, what, real: 0, seed, step: 0, last, replay }))
    })
}

/// Runs the seeds from `first` on, on as many `threads`, for the time `wall`.
pub fn soak(first: u64, threads: usize, wall: Duration) -> Soaked {
    let clock = Clock::since_boot();
    let (start, next) = (clock.now(), AtomicU64::new(first));
    let all = Mutex::new((Soaked::default(), start));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while clock.now().since(start) < wall {
                    let setup = generator::swarm(next.fetch_add(1, Ordering::Relaxed));
                    let result = run(setup.clone());
                    if let Err(failure) = &result {
                        let cut_down = replay::cut_down(&setup, failure);
                        // The line needs no reader: the failure is also in the result.
                        let _ = writeln!(stderr(), "{failure}\n{cut_down}\n");
                    }
                    let mut all = all.lock().expect("no panic while it is held");
                    all.0.add(result);
                    show_progress(&mut all, start, clock.now());
                }
            });
        }
    });
    all.into_inner().expect("no panic while it is held").0
}

fn show_progress((soaked, shown): &mut (Soaked, Moment), start: Moment, now: Moment) {
    if now.since(*shown) < PROGRESS {
        return;
    }
    *shown = now;
    let _ = writeln!(
        stderr(),
        "{:>5} s: {} seeds, {:.1} simulated hours, {} admissions, {} faults, {} over-admissions, {} failures",
        now.since(start).as_secs(),
        soaked.seeds,
        soaked.hours(),
        soaked.admissions,
        soaked.struck.values().sum::<u64>(),
        soaked.over_admissions(),
        soaked.failures.len()
    );
}
