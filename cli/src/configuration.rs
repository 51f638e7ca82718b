//! Reads the configuration of an allocator from a file. Whatever is wrong with it is one line and exit code 2.

use crate::failure::Failure;
use crate::file;
use crate::store::STORE_PASSWORD;
use lessor_allocator::cells::Password;
use lessor_allocator::config::{LimitConfig, Listen, StoreConfig};
use lessor_allocator::{Config, ConfigError};
use std::path::{Path, PathBuf};

/// The largest file, in bytes: ten thousand limits of one rule each take about one million. A larger file is another file.
pub(crate) const FILE_MAX: u64 = 4 << 20;

/// The configuration in `file`.
///
/// # Errors
/// If the file cannot be read, or does not hold a configuration: names file, key and value.
pub(crate) fn read(file: &Path) -> Result<Config, Failure> {
    read_as(file, Config::parse)
}

/// The same, where `parse` makes sense of the text.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_as(
    file: &Path,
    parse: impl FnOnce(&str) -> Result<Config, ConfigError>,
) -> Result<Config, Failure> {
    parse(&text(file)?).map_err(|error| wrong(file, &error))
}

/// The same, for those that answer requests by it alone.
///
/// # Errors
/// As [`read`], and if a limit is leased from another allocator: what it promises is said there.
pub(crate) fn read_whole(
    file: &Path,
    parse: impl FnOnce(&str) -> Result<Config, ConfigError>,
) -> Result<Config, Failure> {
    let mut config = read_as(file, parse)?;
    // What is in a store that several allocators share has its rules here all the same.
    let of_store = |limit: &&mut LimitConfig| limit.leased_from().is_none();
    config.limits.iter_mut().filter(of_store).for_each(|limit| limit.upstream = None);
    let leased = config.limits.iter().find_map(|limit| Some((&limit.name, limit.leased_from()?)));
    match leased {
        None => Ok(config),
        Some((name, upstream)) => Err(Failure::Input(format!(
            "{}: limit {:?}: upstream is {upstream}: what holds is said there, use the configuration of that allocator",
            file.display(),
            name.as_str()
        ))),
    }
}

/// What `file` holds.
///
/// # Errors
/// If it cannot be read, is no regular file, or is larger than [`FILE_MAX`].
pub(crate) fn text(file: &Path) -> Result<String, Failure> {
    let name = file.display();
    file::text(file, FILE_MAX)
        .map_err(|error| Failure::Input(format!("cannot read configuration {name}: {error}")))
}

/// The configuration of an allocator that `text`, of `file`, is: with its store where it is placed, and without the password for it.
///
/// # Errors
/// If it is none: names file, key and value.
pub(crate) fn of_allocator(file: &Path, text: &str) -> Result<Config, Failure> {
    let mut config = Config::parse(text).map_err(|error| wrong(file, &error))?;
    place_store(&mut config, file);
    Ok(config)
}

/// Refuses an address that lets in any peer of another machine, unless the operator accepts that, and a Unix socket with certificates.
///
/// # Errors
/// If it is one: names the address, and what to say.
pub(crate) fn is_closed(config: &Config, listen: &Listen) -> Result<(), Failure> {
    listen.check_tls("server", config.server.tls.is_some()).map_err(Failure::Input)?;
    let admin = config.admin.as_ref().and_then(|admin| config.admin_exposure(&admin.listen));
    let mut exposures = config.exposure(listen).into_iter().chain(admin);
    match exposures.find(|exposure| !exposure.is_accepted) {
        None => Ok(()),
        Some(exposure) => Err(Failure::Input(format!(
            "{exposure}: say tls with client_ca in [{}], or identities in [auth] and [[role]], listen on 127.0.0.1, or say \
             insecure = true there",
            exposure.section
        ))),
    }
}

/// Says where the store is, where `config`, which is from `file`, does not: in the folder that a service manager has made for
/// that, or else beside the file.
fn place_store(config: &mut Config, file: &Path) {
    if let StoreConfig::Embedded { path } = &mut config.server.store
        && path.is_none()
    {
        let managed = std::env::var_os("STATE_DIRECTORY").filter(|folder| !folder.is_empty());
        let managed = managed.map(|folder| PathBuf::from(folder).join(StoreConfig::FILE));
        *path = Some(managed.unwrap_or_else(|| file.with_extension("redb")));
    }
}

/// Says what the password of a store is that several allocators share, where its URL does not: what is in the file that `config` names,
/// or else in the environment. A warning is logged if other users can read it there, or in `file`, which has the URL.
///
/// # Errors
/// If that file cannot be used: names key and file.
pub(crate) fn unlock_store(config: &mut Config, file: &Path) -> Result<(), Failure> {
    if let StoreConfig::Shared(shared) = &mut config.server.store {
        if shared.cells.url.has_password() {
            file::warn_if_open(file, "the password in store.url");
        }
        shared.cells.password = match &shared.password_file {
            Some(file) => Some(file::password("store.password_file", file)?),
            None => std::env::var(STORE_PASSWORD).ok().map(Password::new),
        };
    }
    Ok(())
}

fn wrong(file: &Path, error: &ConfigError) -> Failure {
    Failure::Input(format!("{}: {error}", file.display()))
}
