//! Failures of a subcommand, and their exit codes. `main` prints a failure as one line.

use std::process::ExitCode;

/// A failure. The text names the value, and where it was.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The input is wrong: a configuration, a file. Exit code 2, as for a bad command line.
    #[error("{0}")]
    Input(String),
    /// Something broke while running. Exit code 1.
    #[error("{0}")]
    Run(String),
}

impl Failure {
    /// Returns the exit code of the process.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Input(_) => ExitCode::from(2),
            Failure::Run(_) => ExitCode::FAILURE,
        }
    }
}
