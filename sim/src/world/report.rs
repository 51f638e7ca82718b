//! The result of a run: figures, or the violation and all that is needed to see it again. An observer sees how far a
//! run is, and its state a few hundred times; nothing in the run depends on that.

use super::World;
use super::rates::sustained;
use crate::curve::{Curve, LOOKS};
use crate::faults::Struck;
use crate::meter::Figures;
use crate::oracle::{Instant, Violation};
use crate::reference::Spend;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The result of a run without violations.
#[derive(Clone, Debug)]
pub struct Report {
    /// The figures of the run.
    pub figures: Figures,
    /// How often each fault struck.
    pub struck: Struck,
    /// A hash of all events: two runs of one setup have the same.
    pub hash: u64,
    /// Simulated time in nanoseconds.
    pub lasted: u64,
    /// Admissions that the oracle judged.
    pub admissions: u64,
    /// Permits that nodes let pass by themselves, while no allocator answered.
    pub passed: u64,
    /// Permits that each node admitted.
    pub by_node: Vec<u64>,
    /// Permits that a rival admitted beyond the limit. With Lessor, the first such permit is a failure.
    pub over_admissions: u64,
    /// The run over time, if that was wanted.
    pub curve: Option<Curve>,
    /// Permits that an exact limiter would have admitted if asked about each call, if that was wanted.
    pub exact: Option<u64>,
    /// All admissions and all grants, each in order of time, if they were wanted.
    pub spends: Vec<Spend>,
    /// See `spends`.
    pub grants: Vec<Spend>,
}

/// A violation, and all that is needed to see it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Whether more was admitted than promised.
    pub is_over: bool,
    /// The name of the invariant, as in the oracle's table; `panic` if the code under test panicked.
    pub name: &'static str,
    /// What was wrong, in words.
    pub what: String,
    /// Real time in nanoseconds.
    pub real: u64,
    /// The seed.
    pub seed: u64,
    /// The step.
    pub step: u64,
    /// The last events, in words.
    pub last: Vec<String>,
    /// The command that runs the setup again.
    pub replay: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "seed {}, step {}: {}: {}", self.seed, self.step, self.name, self.what)?;
        for line in &self.last {
            writeln!(out, "{line}")?;
        }
        write!(out, "replay: {}", self.replay)
    }
}

/// What an observer wants to see of a run.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// Whether the report has a curve.
    pub draws: bool,
    /// Whether an exact limiter is also asked about each call.
    pub compares: bool,
    /// Whether the report has each admission and each grant.
    pub remembers: bool,
    /// The counter to which every run adds its simulated nanoseconds.
    pub over: Arc<AtomicU64>,
}

impl World {
    pub(super) fn report(mut self) -> Report {
        // A limit above several is all that they have.
        let limits = if self.setup.above > 0 { 1 } else { self.setup.limits() };
        Report {
            figures: self.meter.figures(self.real, sustained(&self.setup.plan.rules), limits),
            struck: self.struck,
            hash: self.log.hash(),
            lasted: self.real,
            admissions: self.admissions,
            passed: self.passed,
            by_node: self.meter.by_node(),
            over_admissions: self.over_admissions,
            curve: self.curve,
            spends: self.spends,
            grants: self.grants,
            exact: self.exact.map(|exact| exact.1),
        }
    }

    pub(super) fn failure(self, wrong: Violation) -> Failure {
        Failure {
            is_over: wrong.is_over,
            name: wrong.name,
            what: wrong.what,
            real: self.real,
            seed: self.setup.seed,
            step: self.log.steps(),
            last: self.log.words(),
            replay: self.setup.replay,
        }
    }

    /// Records that `permits` were admitted or lent now.
    pub(super) fn remember(&mut self, permits: u64, list: impl FnOnce(&mut World) -> &mut Vec<Spend>) {
        if self.watch.remembers {
            let Instant { real, allocator } = self.now();
            list(self).push(Spend { real, allocator: allocator.as_nanos(), permits });
        }
    }

    /// Takes the looks that are due up to `next`.
    pub(super) fn look_until(&mut self, next: u64) {
        let every = (self.setup.lasts / LOOKS).max(1);
        while self.next_look <= next.min(self.setup.lasts) {
            let real = self.next_look;
            self.next_look += every;
            if real > 0 {
                self.watch.over.fetch_add(every, Ordering::Relaxed);
            }
            if self.curve.is_some() {
                self.real = real;
                self.draw();
            }
        }
    }

    fn draw(&mut self) {
        let (available, coming) = (self.in_pool(0), self.desks.iter().map(|desk| desk.coming).sum::<u64>());
        let outstanding = self.in_hand().iter().sum::<u64>() + coming;
        if let Some(curve) = &mut self.curve {
            curve.look(self.real, available, outstanding);
        }
    }
}
