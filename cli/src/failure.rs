//! Why a subcommand failed, and the exit code that says so. `main` prints it as one line.

use std::process::ExitCode;

/// What went wrong. The text says which value, and where it was.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// What was given is wrong: a configuration, a file. Exit code 2, as for a bad command line.
    #[error("{0}")]
    Input(String),
    /// Something broke on the way. Exit code 1.
    #[error("{0}")]
    Run(String),
}

impl Failure {
    /// The exit code of the process.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Input(_) => ExitCode::from(2),
            Failure::Run(_) => ExitCode::FAILURE,
        }
    }
}
