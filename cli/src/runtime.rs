//! The tokio runtimes of the subcommands.

use crate::failure::Failure;
use tokio::runtime::{Builder, Runtime};

/// Starts a runtime that runs on the thread that calls it.
pub(crate) fn on_this_thread() -> Result<Runtime, Failure> {
    start(&mut Builder::new_current_thread())
}

/// Starts the runtime of `builder`, with time and IO.
pub(crate) fn start(builder: &mut Builder) -> Result<Runtime, Failure> {
    builder.enable_all().build().map_err(|error| Failure::Run(format!("cannot start a runtime: {error}")))
}
