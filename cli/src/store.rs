//! `lessor store`: checks, exports and imports the file of an allocator, to carry it to another machine. The allocator
//! must not run meanwhile, which the file enforces. Also creates what a store shared by several allocators needs.

use crate::configuration;
use crate::failure::Failure;
use crate::print;
use crate::runtime;
use clap::{Args, Subcommand};
use lessor_allocator::cells::{Cells, CellsConfig, CellsError, Password, StoreUrl};
use lessor_allocator::store::{Dump, Embedded, StoreError};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `lessor store`.
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Debug, Subcommand)]
enum StoreCommand {
    /// Check whether a store is complete, and print the numbers of its limits and pools.
    Check {
        /// The file.
        file: PathBuf,
    },
    /// Print the whole content of a store as JSON.
    Export {
        /// The file.
        file: PathBuf,
    },
    /// Create a store from an export. At the next start, leases and quarantines go on with the time that was left at the export.
    Import {
        /// The export, as JSON.
        from: PathBuf,
        /// The store file to create. It must not exist.
        file: PathBuf,
        /// Confirm that no allocator has lent a permit since the export. Such permits would be lent twice.
        #[arg(long, required = true)]
        nothing_was_lent_since: bool,
    },
    /// Create the tables of a PostgreSQL store that several allocators share. Existing tables stay as they are.
    Migrate {
        /// Address of the store: postgres://user@host/database, or redis://host or etcd://host, which need no tables. The password
        /// is a part of it, or in --store-password-file, or in the environment variable LESSOR_STORE_PASSWORD.
        #[arg(long, value_name = "URL", env = "LESSOR_STORE_URL", hide_env_values = true)]
        store_url: String,
        /// File with the password of the store, if the URL has none: one line.
        #[arg(long, value_name = "FILE")]
        store_password_file: Option<PathBuf>,
        /// Prefix of the names of tables.
        #[arg(long, value_name = "NAME", default_value = CellsConfig::PREFIX)]
        store_prefix: String,
    },
}

/// The environment variable with a password that is not in a URL. No list of processes shows it.
const STORE_PASSWORD: &str = "LESSOR_STORE_PASSWORD";

/// Largest export, in bytes: of several million pools.
const DUMP_MAX: u64 = 4 << 30;

/// Longest time to connect: no hot path waits for it, and a distant server may be slow to accept a connection.
pub(crate) const CONNECT_MAX: Duration = Duration::from_secs(10);

pub(crate) const STORE_EXAMPLE: &str = "\
Examples:
  lessor store check /var/lib/lessor/lessor.redb
  lessor store export lessor.redb > lessor.json
  lessor store import lessor.json lessor.redb --nothing-was-lent-since
  lessor store migrate --store-url 'postgres://lessor@db.internal/lessor?sslmode=verify-full'

Stop the allocator that uses a store before check, export and import. migrate runs beside allocators.
Exit codes: 0 done; 1 the store is missing, old or damaged, and an allocator would start in quarantine;
2 bad command line or unusable file. Exit codes of migrate: 1 the store is unreachable or unfit, 2 bad command line or URL.";

/// Runs the command.
pub(crate) fn run(args: &StoreArgs) -> Result<(), Failure> {
    match &args.command {
        StoreCommand::Check { file } => {
            print(&format!("{}: whole, {}", file.display(), counted(&read(file)?)))
        }
        StoreCommand::Export { file } => {
            let text = serde_json::to_string_pretty(&read(file)?);
            print(&text.map_err(|error| Failure::Run(format!("cannot write the store as JSON: {error}")))?)
        }
        StoreCommand::Import { from, file, nothing_was_lent_since: _ } => {
            let name = from.display();
            let text =
                lessor_files::text(from, DUMP_MAX).map_err(|error| Failure::Input(error.to_string()))?;
            let dump = Dump::parse(&text).map_err(|problem| Failure::Input(format!("{name}: {problem}")))?;
            Embedded::import(file, &dump).map_err(|error| failed(&error))?;
            print(&format!("{}: {}", file.display(), counted(&dump)))
        }
        StoreCommand::Migrate { store_url, store_password_file, store_prefix } => {
            migrate(store_url, store_password_file.as_deref(), store_prefix)
        }
    }
}

fn counted(dump: &Dump) -> String {
    match dump.counts() {
        [limits, pools, 0] => format!("{limits} limits and {pools} pools"),
        [limits, pools, decided] => {
            format!(
                "{limits} limits and {pools} pools; operators decided about {decided} limits over the API"
            )
        }
    }
}

/// Returns the configuration for the store at `url`. The password is in the URL, in the file, or in the environment.
///
/// # Errors
/// If the URL is invalid, or the file cannot be used.
pub(crate) fn cells(url: &str, password_file: Option<&Path>, prefix: &str) -> Result<CellsConfig, Failure> {
    // clap does not parse the URL: its error would show the URL, and the password in it.
    let url: StoreUrl = url.parse().map_err(|error| Failure::Input(format!("--store-url: {error}")))?;
    let password = match password_file {
        Some(_) if url.has_password() => {
            let problem = "--store-password-file: the URL has a password too: leave one of them out";
            return Err(Failure::Input(problem.to_owned()));
        }
        Some(file) => Some(configuration::password("--store-password-file", file)?),
        None => password_of_environment(),
    };
    Ok(CellsConfig { password, prefix: prefix.to_owned(), timeout: CONNECT_MAX, ..CellsConfig::new(url) })
}

/// Returns the password in [`STORE_PASSWORD`]. An empty variable is not set.
pub(crate) fn password_of_environment() -> Option<Password> {
    std::env::var(STORE_PASSWORD).ok().filter(|password| !password.is_empty()).map(Password::new)
}

fn migrate(url: &str, password_file: Option<&Path>, prefix: &str) -> Result<(), Failure> {
    let config = cells(url, password_file, prefix)?;
    let failed = |error: CellsError| match error {
        CellsError::Invalid(_) => Failure::Input(format!("store {}: {error}", config.url)),
        CellsError::Unreachable(_)
        | CellsError::Moved { .. }
        | CellsError::NotDurable(_)
        | CellsError::Unfit(_) => Failure::Run(format!("store {}: {error}", config.url)),
    };
    let runtime = runtime::on_this_thread()?;
    let made = runtime.block_on(async {
        let mut cells = Cells::new(&config)?;
        let made = cells.migrate().await?;
        // Also checks that the store can be used now.
        cells.timeline().await.map(|_| made)
    });
    let made = made.map_err(failed)?;
    let made = if made.is_empty() { "nothing, all is there".to_owned() } else { made.join(", ") };
    print(&format!("{}: made {made}", config.url))
}

fn read(file: &Path) -> Result<Dump, Failure> {
    let lost = |lost| Failure::Run(format!("store {}: {lost}", file.display()));
    Embedded::check(file).map_err(|error| failed(&error))?.map_err(lost)
}

fn failed(error: &StoreError) -> Failure {
    Failure::Input(error.to_string())
}

fn print(line: &str) -> Result<(), Failure> {
    print::print(format!("{line}\n"))
}
