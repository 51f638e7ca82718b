//! Runs one setup for a reader, and shows what came of it. The `simulate` tool calls it for `--swarm` and `--replay`.

use crate::sim::setup::Setup;
use crate::sim::{soak, text};

/// Runs `setup` and prints how it went; false if anything was wrong.
pub fn show(setup: Setup) -> bool {
    println!("{}", text::write(&setup));
    match soak::run(setup) {
        Ok(report) => {
            println!("{report:#?}");
            true
        }
        Err(failure) => {
            println!("{failure}");
            false
        }
    }
}
