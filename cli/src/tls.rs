//! `lessor tls`: throw-away certificates, to try TLS out. They are not for running a fleet: the key of the authority
//! lies beside them.

use crate::failure::Failure;
use crate::print::print;
use crate::token::parse_valid;
use clap::{Args, Subcommand};
use lessor_tls::TlsError;
use lessor_tls::dev_ca::{DevCa, Purpose};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Text below the help of `lessor tls`.
pub(crate) const TLS_EXAMPLE: &str = "\
Example:
  lessor tls dev-ca certificates

  [server]
  tls = { certificate = \"certificates/server.crt\", key = \"certificates/server.key\", client_ca = \"certificates/ca.crt\" }

  lessor status --server https://localhost:7400 \\
    --ca certificates/ca.crt --cert certificates/client.crt --key certificates/client.key

A running allocator reads new certificates by itself. If the folder has an authority, it signs the new certificates.
Exit codes: 0 done, 1 stdout cannot be written, 2 bad command line, or a folder that cannot be used.";

/// `lessor tls`.
#[derive(Debug, Args)]
pub(crate) struct TlsArgs {
    #[command(subcommand)]
    command: TlsCommand,
}

/// What to make.
#[derive(Debug, Subcommand)]
enum TlsCommand {
    /// Make an authority, a certificate for a server at localhost, 127.0.0.1 and ::1, and one for a client. Only to try things out.
    DevCa {
        /// The folder for the files: ca, server and client, each with .crt and .key.
        folder: PathBuf,
        /// How long the two certificates are valid.
        #[arg(long, value_name = "DURATION", default_value = "90d", value_parser = parse_valid)]
        valid: Duration,
    },
}

/// Makes the certificates, and prints their files.
pub(crate) fn run(args: &TlsArgs) -> Result<(), Failure> {
    let TlsCommand::DevCa { folder, valid } = &args.command;
    let said = make(folder, *valid).map_err(|error| Failure::Input(error.to_string()))?;
    print(said)
}

fn make(folder: &Path, valid: Duration) -> Result<String, TlsError> {
    let ca = DevCa::open(folder)?;
    let mut said = format!("{}  the authority\n", folder.join("ca.crt").display());
    for (purpose, name) in [(Purpose::Server, "server"), (Purpose::Client, "client")] {
        let (certificate, key) = ca.sign(purpose, valid)?.write(folder, name)?;
        said.push_str(&format!("{}  {}  for a {name}\n", certificate.display(), key.display()));
    }
    Ok(said)
}
