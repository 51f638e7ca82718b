//! Simulates a fleet that shares one limit: see `scenarios::sim`.
//! `cargo run --release -p scenarios --bin simulate -- --help`

use clap::Parser;
use scenarios::sim::cli::Args;
use std::process::ExitCode;

fn main() -> ExitCode {
    match Args::parse().run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::from(2)
        }
    }
}
