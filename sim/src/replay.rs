//! Runs one setup for a reader, and shows what came of it: if it fails, cut down to what matters. The `simulate` tool
//! calls it for `--generator` and `--replay`, and a soak for what failed in it.

use crate::setup::Setup;
use crate::shrink::shrink;
use crate::world::Failure;
use crate::{soak, text};

/// Runs that cutting a failure down may take: some seconds.
const BUDGET: usize = 600;

/// Runs `setup` and prints how it went; false if anything was wrong.
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

/// What is left of a `setup` that fails with `failure`, in words.
pub fn cut_down(setup: &Setup, failure: &Failure) -> String {
    let shrunk = shrink(setup, failure, BUDGET);
    format!("cut down in {} runs:\n{}", shrunk.runs, shrunk.failure)
}
