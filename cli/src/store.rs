//! `lessor store`: looks at what an allocator has written down, and carries it to another machine. The allocator must not
//! run meanwhile, and the file says so itself.

use crate::failure::Failure;
use clap::{Args, Subcommand};
use lessor_allocator::store::{Dump, Embedded, StoreError};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// `lessor store`.
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Debug, Subcommand)]
enum StoreCommand {
    /// Say whether a store is whole, and what is in it.
    Check {
        /// The file.
        file: PathBuf,
    },
    /// Print all that is in a store as JSON.
    Export {
        /// The file.
        file: PathBuf,
    },
    /// Make a store of what was exported. What had to last when it was, has to last as long from the next start on.
    Import {
        /// What was exported, as JSON.
        from: PathBuf,
        /// The file to make; there must be none.
        file: PathBuf,
        /// Confirms that no allocator has lent anything since the export: what it lent would be lent again.
        #[arg(long, required = true)]
        nothing_was_lent_since: bool,
    },
}

pub(crate) const STORE_EXAMPLE: &str = "\
Examples:
  lessor store check /var/lib/lessor/lessor.redb
  lessor store export lessor.redb > lessor.json
  lessor store import lessor.json lessor.redb --nothing-was-lent-since

The allocator that has the store open must be stopped first.
Exit codes: 0 done, 1 the store is gone, old or damaged: an allocator would wait until all that may be out is over;
2 bad command line, or a file that cannot be used.";

/// Does what was asked.
pub(crate) fn run(args: &StoreArgs) -> Result<(), Failure> {
    match &args.command {
        StoreCommand::Check { file } => {
            let (limits, pools) = read(file)?.counts();
            print(&format!("{}: whole, {limits} limits and {pools} pools", file.display()))
        }
        StoreCommand::Export { file } => {
            let text = serde_json::to_string_pretty(&read(file)?);
            print(&text.map_err(|error| Failure::Run(format!("cannot be written as JSON: {error}")))?)
        }
        StoreCommand::Import { from, file, nothing_was_lent_since: _ } => {
            let name = from.display();
            let text = std::fs::read_to_string(from)
                .map_err(|error| Failure::Input(format!("cannot read {name}: {error}")))?;
            let dump = Dump::parse(&text).map_err(|problem| Failure::Input(format!("{name}: {problem}")))?;
            Embedded::import(file, &dump).map_err(|error| failed(&error))?;
            let (limits, pools) = dump.counts();
            print(&format!("{}: {limits} limits and {pools} pools", file.display()))
        }
    }
}

fn read(file: &Path) -> Result<Dump, Failure> {
    let lost = |lost| Failure::Run(format!("store {}: {lost}", file.display()));
    Embedded::check(file).map_err(|error| failed(&error))?.map_err(lost)
}

fn failed(error: &StoreError) -> Failure {
    Failure::Input(error.to_string())
}

fn print(line: &str) -> Result<(), Failure> {
    writeln!(std::io::stdout(), "{line}")
        .map_err(|error| Failure::Run(format!("cannot write to stdout: {error}")))
}
