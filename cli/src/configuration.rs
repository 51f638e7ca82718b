//! Reads the configuration of an allocator from a file. Any error in it is one line and exit code 2.

use crate::failure::Failure;
use crate::store::password_of_environment;
use lessor_allocator::cells::Password;
use lessor_allocator::config::{LimitConfig, Listen, StoreConfig, TokensAt};
use lessor_allocator::{Config, ConfigError};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Largest file, in bytes. Ten thousand limits of one rule each take about one million; a larger file is not a
/// configuration.
pub(crate) const FILE_MAX: u64 = 4 << 20;

/// Reads the configuration in `file`, with `parse` for its text and its folder.
///
/// # Errors
/// If the file cannot be read, or does not hold a configuration: names file, key and value.
fn read_as(
    file: &Path,
    parse: impl FnOnce(&str, &Path) -> Result<Config, ConfigError>,
) -> Result<Config, Failure> {
    parse(&text(file)?, &folder(file)).map_err(|error| wrong(file, &error))
}

/// Returns the folder of `file`, by an absolute path. Relative paths in a configuration count from there.
pub(crate) fn folder(file: &Path) -> PathBuf {
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    absolute.parent().map(Path::to_owned).unwrap_or_default()
}

/// Does the same as [`read_as`], for commands that answer requests from the configuration alone.
///
/// # Errors
/// As [`read_as`], and if a limit is leased from another allocator: its rules are in that allocator's configuration.
pub(crate) fn read_whole(
    file: &Path,
    parse: impl FnOnce(&str, &Path) -> Result<Config, ConfigError>,
) -> Result<Config, Failure> {
    let mut config = read_as(file, parse)?;
    // A limit in a store that several allocators share still has its rules here.
    let of_store = |limit: &&mut LimitConfig| limit.leased_from().is_none();
    config.limits.iter_mut().filter(of_store).for_each(|limit| limit.upstream = None);
    let leased = config.limits.iter().find_map(|limit| Some((&limit.name, limit.leased_from()?)));
    match leased {
        None => Ok(config),
        Some((name, upstream)) => Err(Failure::Input(format!(
            "{}: limit {:?}: upstream is {upstream}, whose configuration has the rules: use that one",
            file.display(),
            name.as_str()
        ))),
    }
}

/// Reads the text of `file`.
///
/// # Errors
/// If it cannot be read, is no regular file, or is larger than [`FILE_MAX`].
pub(crate) fn text(file: &Path) -> Result<String, Failure> {
    lessor_files::text(file, FILE_MAX).map_err(|error| Failure::Input(format!("configuration {error}")))
}

/// Parses `text`, from `file`, as the configuration of an allocator. Sets the path of its store, but not the password.
///
/// # Errors
/// If it is not a configuration, or its audit log is another file of the allocator: names file, key and value.
pub(crate) fn of_allocator(file: &Path, text: &str) -> Result<Config, Failure> {
    let mut config = Config::parse_in(text, &folder(file)).map_err(|error| wrong(file, &error))?;
    place_store(&mut config, file);
    check_audit(&config, file)?;
    Ok(config)
}

/// Refuses an audit log in a file that the allocator has for something else: the first entry would ruin it.
fn check_audit(config: &Config, file: &Path) -> Result<(), Failure> {
    let Some(audit) = &config.audit else { return Ok(()) };
    let mut others = vec![("the configuration", file.to_owned())];
    if let StoreConfig::Embedded { path: Some(path) } = &config.server.store {
        let mut seal = path.clone().into_os_string();
        seal.push(".seal");
        others.extend([("store.path", path.clone()), ("the seal of store.path", seal.into())]);
    }
    if let Some(TokensAt::File(tokens)) = config.auth.as_ref().and_then(|auth| auth.tokens.as_ref()) {
        others.push(("auth.tokens", tokens.clone()));
    }
    let log = resolved(&audit.path).into_os_string().into_encoded_bytes();
    // Older entries are in the files with a number.
    let is_log = |other: &Path| match other.as_os_str().as_encoded_bytes().strip_prefix(&log[..]) {
        Some([]) => true,
        Some([b'.', number @ ..]) => !number.is_empty() && number.iter().all(u8::is_ascii_digit),
        Some(_) | None => false,
    };
    match others.iter().find(|(_, other)| is_log(&resolved(other))) {
        None => Ok(()),
        Some((what, other)) => Err(Failure::Input(format!(
            "{}: audit.path is {:?}, and {what} is {other:?}: use another file for the audit log",
            file.display(),
            audit.path
        ))),
    }
}

/// Returns the path of `file` without links, also if there is no such file yet.
fn resolved(file: &Path) -> PathBuf {
    let by_folder = || Some(std::fs::canonicalize(folder(file)).ok()?.join(file.file_name()?));
    std::fs::canonicalize(file).ok().or_else(by_folder).unwrap_or_else(|| file.to_owned())
}

/// Refuses an address that lets in any peer of another machine, unless the operator accepts that. Refuses a Unix socket
/// with certificates.
///
/// # Errors
/// If an address is refused: names the address, and what to configure.
pub(crate) fn is_closed(config: &Config, listen: &Listen) -> Result<(), Failure> {
    listen.check_tls("server", config.server.tls.is_some()).map_err(Failure::Input)?;
    let admin = config.admin.as_ref().and_then(|admin| config.admin_exposure(&admin.listen));
    let mut exposures = config.exposure(listen).into_iter().chain(admin);
    match exposures.find(|exposure| !exposure.is_accepted) {
        None => Ok(()),
        Some(exposure) => Err(Failure::Input(format!(
            "{exposure}: set tls with client_ca in [{}], or identities in [auth] and [[role]], listen on 127.0.0.1, or set \
             insecure = true there",
            exposure.section
        ))),
    }
}

/// Sets the path of the store where `config`, from `file`, does not: in the folder that a service manager has made for
/// state, or else beside the file.
fn place_store(config: &mut Config, file: &Path) {
    if let StoreConfig::Embedded { path } = &mut config.server.store
        && path.is_none()
    {
        let managed = std::env::var_os("STATE_DIRECTORY").and_then(|folders| first_folder(&folders));
        let managed = managed.map(|folder| folder.join(StoreConfig::FILE));
        let name = file.with_extension("redb").file_name().map_or_else(Default::default, PathBuf::from);
        *path = Some(managed.unwrap_or_else(|| folder(file).join(name)));
    }
}

/// Returns the first of the `folders` that a service manager names, with colons between them.
fn first_folder(folders: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(folders).next().filter(|folder| !folder.as_os_str().is_empty())
}

/// Sets the password of a shared store whose URL has none: from the file that `config` names, or else from the
/// environment. Logs a warning if other users can read it there, or in `file` if that has the URL with a password.
///
/// # Errors
/// If the password file cannot be used: names key and file.
pub(crate) fn unlock_store(config: &mut Config, file: &Path) -> Result<(), Failure> {
    if let StoreConfig::Shared(shared) = &mut config.server.store {
        if shared.cells.url.has_password() {
            lessor_files::warn_if_open(file, "the password in store.url");
        }
        shared.cells.password = match &shared.password_file {
            Some(file) => Some(password("store.password_file", file)?),
            None => password_of_environment(),
        };
    }
    Ok(())
}

/// Reads the password in `file`, which `key` names: its one line. A warning says so if other users can read the file.
///
/// # Errors
/// If there is no such line. Names key and file, and shows nothing of the file's content.
pub(crate) fn password(key: &str, file: &Path) -> Result<Password, Failure> {
    Password::file(file).map_err(|error| Failure::Input(format!("{key}: {error}")))
}

fn wrong(file: &Path, error: &ConfigError) -> Failure {
    Failure::Input(format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bug: the list was taken for the name of one folder.
    #[test]
    fn of_several_folders_for_state_the_first_is_taken() {
        let first = |folders: &str| first_folder(OsStr::new(folders));
        assert_eq!(first("/var/lib/lessor:/var/lib/other"), Some("/var/lib/lessor".into()));
        assert_eq!(first("/var/lib/lessor"), Some("/var/lib/lessor".into()));
        assert_eq!(first(""), None);
    }

    /// The bug: such a configuration was accepted, and the first decision of an operator ruined the other file.
    #[test]
    fn an_audit_log_has_a_file_of_its_own() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let at = |name: &str| folder.path().join(name);
        std::os::unix::fs::symlink(at("lessor.toml"), at("link.toml")).expect("a link");
        let limit =
            "[[limit]]\nname = \"a\"\nrules = [{ kind = \"fixed_window\", limit = 1, per = \"1s\" }]\n";
        let auth = "[auth]\ntokens = \"tokens.toml\"\n[[role]]\nname = \"r\"\nidentities = [\"token:a\"]\nread = [\"a\"]\n";
        let check = |audit: &str, store: &str| {
            let text = format!("{auth}[store]\n{store}\n[audit]\npath = {audit:?}\n{limit}");
            std::fs::write(at("lessor.toml"), &text).expect("a writable file");
            of_allocator(&at("link.toml"), &text).map(drop).map_err(|failure| failure.to_string())
        };
        let books = "path = \"books.redb\"";
        for (audit, store, said) in [
            ("books.redb", books, "store.path is"),
            ("./books.redb", books, "store.path is"),
            ("books", "path = \"books.1\"", "store.path is"),
            ("link.redb", "", "store.path is"),
            ("books.redb.seal", books, "the seal of store.path is"),
            ("tokens.toml", books, "auth.tokens is"),
            ("lessor.toml", books, "the configuration is"),
            ("link.toml", books, "the configuration is"),
        ] {
            let error = check(audit, store).expect_err(audit);
            assert!(error.contains("audit.path is ") && error.contains(said), "{error}");
        }
        for (audit, store) in
            [("audit.jsonl", books), ("books.redb.", books), ("books", books), ("a", "kind = \"memory\"")]
        {
            assert_eq!(check(audit, store), Ok(()), "{audit}");
        }
    }
}
