//! Where tokens are kept: a file, or the store that allocators share. If two commands change them at once, both changes
//! are made.

use super::TokensArgs;
use crate::configuration;
use crate::failure::Failure;
use crate::runtime;
use crate::store;
use lessor_access::Tokens;
use lessor_allocator::cells::{Cells, CellsConfig, CellsError};
use lessor_allocator::config::{StoreConfig, TokensAt};
use lessor_allocator::stored_tokens::{self, StoredTokensError};
use std::fmt::{self, Display};
use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

/// Largest file of tokens, in bytes.
const FILE_MAX: u64 = 4 << 20;

/// The place of the tokens.
pub(crate) enum Kept {
    /// In a file.
    File(PathBuf),
    /// In a store.
    Store(Box<CellsConfig>),
}

impl Kept {
    /// Returns the place that `args` name.
    ///
    /// # Errors
    /// If they name a configuration or a store that cannot be used.
    pub(super) fn of(args: &TokensArgs) -> Result<Self, Failure> {
        let places = [
            ("--file (or LESSOR_TOKENS)", args.file.is_some()),
            ("--config", args.config.is_some()),
            ("--store-url", args.store_url.is_some()),
        ];
        let said: Vec<&str> =
            places.into_iter().filter_map(|(name, is_said)| is_said.then_some(name)).collect();
        if said.len() > 1 {
            return Err(Failure::Input(format!("{} are given: use only one of them", said.join(" and "))));
        }
        if let Some(url) = &args.store_url {
            let prefix = args.store_prefix.as_deref().unwrap_or(CellsConfig::PREFIX);
            let cells = store::cells(url, args.store_password_file.as_deref(), prefix)?;
            return Ok(Kept::Store(Box::new(cells)));
        }
        if args.store_password_file.is_some() || args.store_prefix.is_some() {
            let problem = "--store-password-file and --store-prefix need --store-url";
            return Err(Failure::Input(problem.to_owned()));
        }
        match &args.config {
            Some(file) => Kept::as_in(file),
            None => Ok(Kept::File(args.file.clone().unwrap_or_else(|| PathBuf::from(super::FILE)))),
        }
    }

    /// Returns the place that the configuration in `file` names.
    fn as_in(file: &Path) -> Result<Self, Failure> {
        let mut config = configuration::of_allocator(file, &configuration::text(file)?)?;
        let missing = || {
            let problem = "auth.tokens is missing: set it to a file or to \"store\"";
            Failure::Input(format!("{}: {problem}", file.display()))
        };
        match config.auth.as_ref().and_then(|auth| auth.tokens.clone()).ok_or_else(missing)? {
            TokensAt::File(tokens) => Ok(Kept::File(tokens)),
            TokensAt::Store => {
                configuration::unlock_store(&mut config, file)?;
                match config.server.store {
                    StoreConfig::Shared(shared) => {
                        let timeout = store::CONNECT_MAX;
                        Ok(Kept::Store(Box::new(CellsConfig { timeout, ..shared.cells })))
                    }
                    // Such a configuration was refused before.
                    StoreConfig::Memory | StoreConfig::Embedded { .. } => Err(missing()),
                }
            }
        }
    }

    /// Reads all tokens.
    ///
    /// # Errors
    /// If they cannot be read.
    pub(super) fn read(&self) -> Result<Tokens, Failure> {
        match self {
            Kept::File(file) => read(file).map_err(|problem| self.wrong(&problem)),
            Kept::Store(config) => self.carry(async {
                let mut cells = Cells::new(config)?;
                stored_tokens::read(&mut cells).await
            }),
        }
    }

    /// Applies `change` to the current tokens. It may be called more than once.
    ///
    /// # Errors
    /// If it fails, or the tokens cannot be read or written.
    pub(super) fn change<T>(
        &self,
        mut change: impl FnMut(&mut Tokens) -> Result<T, String>,
    ) -> Result<T, Failure> {
        match self {
            Kept::File(file) => change_file(file, change).map_err(|problem| self.wrong(&problem)),
            Kept::Store(config) => self.carry(async {
                let mut cells = Cells::new(config)?;
                stored_tokens::change(&mut cells, &mut change).await
            }),
        }
    }

    fn carry<T, E: Display>(
        &self,
        what: impl Future<Output = Result<T, StoredTokensError<E>>>,
    ) -> Result<T, Failure> {
        let runtime = runtime::on_this_thread()?;
        let done = runtime.block_on(what);
        // A read of a file that hangs is not waited for.
        runtime.shutdown_background();
        done.map_err(|error| match &error {
            StoredTokensError::Store(CellsError::Invalid(_))
            | StoredTokensError::Broken(_)
            | StoredTokensError::TooLarge(_)
            | StoredTokensError::Refused(_) => self.wrong(&error.to_string()),
            StoredTokensError::Store(_) | StoredTokensError::Unknown(_) | StoredTokensError::Contested => {
                Failure::Run(format!("{self}: {error}"))
            }
        })
    }

    fn wrong(&self, problem: &str) -> Failure {
        Failure::Input(format!("{self}: {problem}"))
    }
}

/// Shows the name of the file, or the address of the store.
impl Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kept::File(file) => write!(f, "{}", file.display()),
            Kept::Store(config) => write!(f, "store {}", config.url),
        }
    }
}

fn read(file: &Path) -> Result<Tokens, String> {
    let text = lessor_files::text(file, FILE_MAX).map_err(|error| error.problem)?;
    Tokens::parse(&text).map_err(|error| error.to_string())
}

/// Changes the tokens in `file`, which may not exist yet. Another command that changes them at the same time waits. A
/// reader sees the old file or the new one, whole.
fn change_file<T>(file: &Path, change: impl FnOnce(&mut Tokens) -> Result<T, String>) -> Result<T, String> {
    let said = |error: io::Error| error.to_string();
    let file = if file.exists() { file.canonicalize().map_err(said)? } else { file.to_owned() };
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let lock = File::open(folder).map_err(said)?;
    lock.lock().map_err(said)?;
    let mut tokens = if file.exists() { read(&file)? } else { Tokens::default() };
    let done = change(&mut tokens)?;
    // Created for its owner alone.
    let mut new = tempfile::NamedTempFile::new_in(folder).map_err(said)?;
    if let Ok(old) = file.metadata() {
        // An allocator that could read the old one can read the new one.
        fchown(new.as_file(), Some(old.uid()), Some(old.gid())).map_err(said)?;
        new.as_file().set_permissions(Permissions::from_mode(old.mode() & 0o777)).map_err(said)?;
    }
    new.write_all(tokens.to_string().as_bytes()).and_then(|()| new.as_file().sync_all()).map_err(said)?;
    new.persist(&file).map_err(|error| error.to_string())?;
    lock.sync_all().map_err(said)?;
    Ok(done)
}
