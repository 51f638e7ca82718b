//! Runs one setup for a reader and shows the result; a failure is cut down to what matters. The `simulate` tool uses it
//! for `--generator` and `--replay`, and a soak for its failures.

use crate::setup::Setup;
use crate::shrink::shrink;
use crate::world::Failure;
use crate::{soak, text};

/// Most runs to cut a failure down: some seconds.
const BUDGET: usize = 600;

/// Runs `setup` and prints the result. Returns false if anything was wrong.
pub fn show(setup: &Setup) -> bool {
    println!("{}", text::write(setup));
    match soak::run(setup.clone()) {
        Ok(report) => {
            println!("{report:#?}");
            true
        }
        Err(failure) => {
            println!("{failure}");
            println!("\n{}", cut_down(setup, &failure));
            false
        }
    }
}

/// Cuts down a `setup` that fails with `failure`, and returns the rest in words.
pub(crate) fn cut_down(setup: &Setup, failure: &Failure) -> String {
    let shrunk = shrink(setup, failure, BUDGET);
    format!("shrunk in {} runs to:\n{}", shrunk.runs, shrunk.failure)
}
