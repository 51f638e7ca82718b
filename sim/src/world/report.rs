//! What comes of a run: figures, or what was wrong and all that is needed to see it again.

use super::World;
use super::rates::sustained;
use crate::curve::Curve;
use crate::faults::Struck;
use crate::meter::Figures;
use crate::oracle::Violation;
use crate::reference::Spend;
use std::fmt;

/// What came of a run in which nothing was wrong.
#[derive(Clone, Debug)]
pub struct Report {
    /// How well it went.
    pub figures: Figures,
    /// How often each fault struck.
    pub struck: Struck,
    /// Of all events: two runs of one setup have the same.
    pub hash: u64,
    /// Simulated nanoseconds.
    pub lasted: u64,
    /// Admissions that the oracle judged.
    pub admissions: u64,
    /// Permits that nodes let pass by themselves, while no allocator answered.
    pub passed: u64,
    /// Permits that each node admitted.
    pub by_node: Vec<u64>,
    /// Permits that a rival admitted beyond the limit. Lessor's first one is a failure.
    pub over_admissions: u64,
    /// How it went over time, if that was wanted.
    pub curve: Option<Curve>,
    /// Calls that an exact limiter would have admitted which is asked about each of them, if that was wanted.
    pub exact: Option<u64>,
    /// Every admission and everything that was lent, each in the order of time, if that was wanted.
    pub spends: Vec<Spend>,
    /// See `spends`.
    pub grants: Vec<Spend>,
}

/// What was wrong, and all that is needed to see it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Whether more was admitted than promised.
    pub is_over: bool,
    /// The name of what was broken, as in the oracle's table; `panic` if the code under test did.
    pub name: &'static str,
    /// In words.
    pub what: String,
    /// When, in real time.
    pub real: u64,
    /// The seed.
    pub seed: u64,
    /// The step.
    pub step: u64,
    /// The last events, in words.
    pub last: Vec<String>,
    /// The command that runs it again.
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

impl World {
    pub(super) fn report(mut self) -> Report {
        // What is above several limits is all that they have.
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
}
