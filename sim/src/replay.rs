//! Runs one setup for a reader and tells the result; a failure is cut down to what matters. The `simulate` tool uses it
//! for `--swarm` and `--replay`, and a soak for its failures.

use crate::setup::Setup;
use crate::shrink::shrink;
use crate::soak;
use crate::world::Failure;

/// Most runs to cut a failure down: some seconds.
const BUDGET: usize = 600;

/// Runs `setup`. Returns the result in words, and whether nothing was wrong.
pub fn told(setup: &Setup) -> (String, bool) {
    match soak::run(setup.clone()) {
        Ok(report) => (format!("{report:#?}\n"), true),
        Err(failure) => (format!("{failure}\n\n{}\n", cut_down(setup, &failure)), false),
    }
}

/// Cuts down a `setup` that fails with `failure`, and returns the rest in words.
pub(crate) fn cut_down(setup: &Setup, failure: &Failure) -> String {
    let shrunk = shrink(setup, failure, BUDGET);
    format!("shrunk in {} runs to:\n{}", shrunk.runs, shrunk.failure)
}
