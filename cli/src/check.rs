//! `lessor check`: reads a configuration as `serve` would, and prints what was understood.

use crate::args::CheckArgs;
use crate::configuration;
use crate::failure::Failure;
use std::io::Write as _;

/// Prints the configuration with every default in it, or fails with what is wrong.
pub(crate) fn run(args: &CheckArgs) -> Result<(), Failure> {
    let config = configuration::read(&args.file)?;
    configuration::is_closed(&config, &config.server.listen)?;
    let printed = write!(std::io::stdout(), "{config}");
    printed.map_err(|error| Failure::Run(format!("cannot write to stdout: {error}")))
}
