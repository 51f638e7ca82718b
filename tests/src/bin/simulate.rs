//! Simulates a fleet that shares one limit: see `scenarios::sim`.
//! `cargo run --release -p scenarios --bin simulate -- --help`

use clap::Parser;
use scenarios::sim::cli::Args;
use std::process::ExitCode;

fn main() -> ExitCode {
    let outcome = match Args::try_parse() {
        Ok(args) => args.run(),
        Err(help) if !help.use_stderr() => help.exit(),
        Err(error) => Err(first_line(&error.to_string())),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("simulate: {problem}");
            ExitCode::from(2)
        }
    }
}

/// What is wrong, of what the parser says about it and about how to ask for help.
fn first_line(error: &str) -> String {
    let problem = error.trim_start_matches("error: ").split("\n\n").next().unwrap_or_default();
    problem.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}
