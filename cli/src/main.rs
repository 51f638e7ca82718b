//! `lessor`: the one binary. Parses the command line and dispatches; each subcommand has its own module.

mod args;
mod audit;
mod check;
mod configuration;
mod demo;
mod descriptors;
mod failure;
mod limits;
mod logging;
mod manual;
#[cfg(feature = "otlp")]
mod otlp;
mod print;
mod replay;
mod runtime;
mod serve;
mod simulate;
mod span;
mod status;
mod stop;
mod store;
mod tls;
mod token;
mod top;
mod watch;
mod window;

use args::{Cli, Command};
use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let outcome = match Cli::read().command {
        Command::Serve(args) => serve::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Limits(args) => limits::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Audit(args) => audit::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Store(args) => store::run(&args),
        Command::Tls(args) => tls::run(&args),
        Command::Token(args) => token::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Completions(args) => manual::complete(&args),
        Command::Man(args) => manual::pages(&args),
        Command::DemoNode => demo::run_node(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // The line needs no reader: the exit code says the same.
            let _ = writeln!(std::io::stderr(), "lessor: {failure}");
            failure.exit_code()
        }
    }
}
