//! `lessor completions` and `lessor man`: completion scripts and manual pages. Both come from the description that
//! parses the command line.

use crate::args::Cli;
use crate::failure::Failure;
use crate::print::print;
use clap::{Args, CommandFactory as _};
use std::path::PathBuf;

/// `lessor completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

/// `lessor man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write one page for each command into this folder, in place of one page to stdout.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) into: Option<PathBuf>,
}

/// Prints the completions for one shell.
pub(crate) fn complete(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = vec![];
    clap_complete::generate(args.shell, &mut Cli::command(), "lessor", &mut script);
    print(&script)
}

/// Prints the manual page of the binary, or writes the pages of all commands.
pub(crate) fn pages(args: &ManArgs) -> Result<(), Failure> {
    if let Some(folder) = &args.into {
        let written = clap_mangen::generate_to(Cli::command(), folder);
        return written
            .map_err(|error| Failure::Run(format!("cannot write pages into {}: {error}", folder.display())));
    }
    let mut page = vec![];
    let rendered = clap_mangen::Man::new(Cli::command()).render(&mut page);
    rendered.map_err(|error| Failure::Run(format!("cannot render the page: {error}")))?;
    print(&page)
}
