//! `lessor check`: reads a configuration and the files that it names, as `serve` would, and prints it with every
//! default.

use crate::args::CheckArgs;
use crate::configuration;
use crate::failure::Failure;
use crate::print::print;
use crate::runtime;
use lessor_allocator::Server;

/// Prints the configuration with every default in it, or fails with the error.
pub(crate) fn run(args: &CheckArgs) -> Result<(), Failure> {
    let config = configuration::of_allocator(&args.file, &configuration::text(&args.file)?)?;
    configuration::is_closed(&config, args.listen.as_ref().unwrap_or(&config.server.listen))?;
    let mut opened = config.clone();
    configuration::unlock_store(&mut opened, &args.file)?;
    // Creating the clients of stores needs a runtime. They send no request.
    let runtime = runtime::on_this_thread()?;
    let checked = runtime.block_on(async { Server::check(&opened) });
    checked.map_err(|error| Failure::Input(format!("{}: {error}", args.file.display())))?;
    print(config.to_string())
}
