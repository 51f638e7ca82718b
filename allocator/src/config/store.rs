//! Where the books outlive the process, raw → checked: the kind of store, and its options.

use super::raw::RawStore;
use super::{LimitConfig, SharedStore, StoreConfig, Upstream, upstream};
use crate::cells::{Cells, CellsConfig, CellsError, StoreUrl, check_prefix};
use lessor_ledger::roots::TimeSource;
use lessor_ledger::rule_text::{Count, Timespan};
use std::path::Path;
use std::time::Duration;

/// Least and greatest time-out of a call to a store. A shorter one is below the sync of a disk, and no caller waits for
/// longer.
const TIMEOUT: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(10));

pub(super) fn store(raw: &RawStore) -> Result<StoreConfig, String> {
    let kind = raw.kind.as_deref().unwrap_or("embedded");
    let is_shared = ["redis", "postgres", "etcd"].contains(&kind);
    let own = [
        ("url", raw.url.is_some()),
        ("password_file", raw.password_file.is_some()),
        ("prefix", raw.prefix.is_some()),
        ("replicas", raw.replicas.is_some()),
        ("synced", raw.synced.is_some()),
        ("timeout", raw.timeout.is_some()),
        ("version", raw.version.is_some()),
    ];
    let shown_kind = shown(kind);
    if let Some((key, _)) = own.into_iter().find(|(_, is_said)| *is_said && !is_shared) {
        return Err(format!("store.{key} is set with kind = {shown_kind}, which has none: leave it out"));
    }
    let path = raw.path.as_deref();
    match (kind, path) {
        (_, Some("")) => {
            Err("store.path is \"\": use the path of a file, for example \"/var/lib/lessor/lessor.redb\""
                .to_owned())
        }
        ("embedded", Some(path)) if path.contains("://") => Err(
            "store.path is a URL, and store.kind is \"embedded\": name a file, or use store.url with another kind"
                .to_owned(),
        ),
        ("embedded", path) => Ok(StoreConfig::Embedded { path: path.map(Into::into) }),
        ("memory", None) => Ok(StoreConfig::Memory),
        ("memory", Some(path)) => {
            Err(format!("store.path is {}: a store in memory has none, leave it out", shown(path)))
        }
        ("redis" | "postgres" | "etcd", Some(path)) => {
            Err(format!("store.path is {}: a store of kind {kind} has none, use store.url", shown(path)))
        }
        ("redis" | "postgres" | "etcd", None) => Ok(StoreConfig::Shared(Box::new(shared(kind, raw)?))),
        _ => Err(format!("store.kind is {shown_kind}: use one of {}", StoreConfig::KINDS.join(", "))),
    }
}

/// Formats `value` for an error. A value that may be a URL is left out, with the password that it may have.
pub(super) fn shown(value: &str) -> String {
    if may_be_url(value) {
        "not shown, as it may be a URL with a password".to_owned()
    } else {
        format!("{value:?}")
    }
}

/// Whether `text` may be the URL of a store, or hold one.
pub(super) fn may_be_url(text: &str) -> bool {
    text.contains("://") || text.contains('@')
}

fn shared(kind: &str, raw: &RawStore) -> Result<SharedStore, String> {
    let example = match kind {
        "redis" => "redis://127.0.0.1:6379",
        "etcd" => "etcd://127.0.0.1:2379",
        _ => "postgres://lessor@127.0.0.1/lessor",
    };
    let Some(url) = &raw.url else {
        return Err(format!("store.url is missing: say for example url = {example:?}"));
    };
    // Not shown: the URL may have a password in it.
    let url: StoreUrl =
        url.parse().map_err(|error| format!("store.url: {error}, for example {example:?}"))?;
    let found = url.kind().name();
    if found != kind {
        return Err(format!("store.url is a URL of {found}, and store.kind is {kind:?}: use the same"));
    }
    let password_file = raw.password_file.as_deref();
    if password_file == Some("") {
        return Err("store.password_file is \"\": use the path of a file that holds the password".to_owned());
    }
    if let (Some(file), true) = (password_file, url.has_password()) {
        return Err(format!(
            "store.password_file is {}, and store.url has a password, too: leave one of them out",
            shown(file)
        ));
    }
    let mut cells = CellsConfig::new(url);
    if let Some(prefix) = &raw.prefix {
        cells.prefix.clone_from(prefix);
    }
    if let Some(Count(replicas)) = raw.replicas {
        let most = 100;
        cells.replicas = u32::try_from(replicas)
            .ok()
            .filter(|replicas| *replicas <= most)
            .ok_or_else(|| format!("store.replicas is {replicas}: use at most {most}"))?;
        if kind == "etcd" && replicas > 0 {
            return Err(format!(
                "store.replicas is {replicas}: etcd always writes a change to a majority, leave it out"
            ));
        }
    }
    cells.synced = raw.synced.unwrap_or(cells.synced);
    if let Some(Timespan(timeout)) = raw.timeout {
        if !(TIMEOUT.0..=TIMEOUT.1).contains(&timeout) {
            return Err(format!("store.timeout is {timeout:?}: use {:?} to {:?}", TIMEOUT.0, TIMEOUT.1));
        }
        cells.timeout = timeout;
    }
    if may_be_url(&cells.prefix) {
        return Err(format!("store.prefix is {}: use store.url", shown(&cells.prefix)));
    }
    check_prefix(&cells.prefix).map_err(|problem| format!("store.prefix: {problem}"))?;
    // Reads the files of TLS.
    Cells::new(&cells).map_err(|error| match error {
        CellsError::Invalid(problem) | CellsError::Unfit(problem) => format!("store.url: {problem}"),
        CellsError::Unreachable(_) | CellsError::Moved { .. } | CellsError::NotDurable(_) => {
            format!("store.url: {error}")
        }
    })?;
    let version = raw.version.map_or(1, |Count(version)| version);
    // A file holds no larger number, and a newer file has to pass the version of each file that a store knows.
    if i64::try_from(version).is_err() {
        return Err(format!("store.version is {version}: use at most {}", i64::MAX));
    }
    Ok(SharedStore { cells, password_file: password_file.map(Into::into), version })
}

impl SharedStore {
    /// Returns the kind, as in configurations.
    pub(super) fn kind(&self) -> &'static str {
        self.cells.url.kind().name()
    }

    /// Returns the clock that limits in this store go by.
    pub(crate) fn time_source(&self) -> TimeSource {
        match self.cells.url.has_clock() {
            true => TimeSource::Store,
            false => TimeSource::Allocators,
        }
    }

    /// Returns everything but a password.
    fn shown(&self) -> (String, Option<&Path>, &str, u32, bool, Duration, u64) {
        let CellsConfig { url, password: _, prefix, replicas, synced, timeout } = &self.cells;
        let file = self.password_file.as_deref();
        (url.without_password(), file, prefix, *replicas, *synced, *timeout, self.version)
    }
}

impl PartialEq for SharedStore {
    fn eq(&self, other: &Self) -> bool {
        self.shown() == other.shown()
    }
}

impl Eq for SharedStore {}

impl StoreConfig {
    /// Returns the version of this configuration, see [`SharedStore::version`]; 1 for a store that is not shared.
    pub fn version(&self) -> u64 {
        match self {
            StoreConfig::Shared(shared) => shared.version,
            StoreConfig::Memory | StoreConfig::Embedded { .. } => 1,
        }
    }

    /// Returns this store with the version of `other`: the version may change while a server runs.
    pub(crate) fn as_of(&self, other: &StoreConfig) -> StoreConfig {
        match self {
            StoreConfig::Shared(shared) => {
                StoreConfig::Shared(Box::new(SharedStore { version: other.version(), ..*shared.clone() }))
            }
            StoreConfig::Memory | StoreConfig::Embedded { .. } => self.clone(),
        }
    }

    /// Leases `limit` from this store, if several allocators share it and the limit has its rules here.
    ///
    /// # Errors
    /// If the limit has something that such a store does not keep; the problem begins with the key.
    pub(crate) fn lends(&self, limit: &mut LimitConfig) -> Result<(), String> {
        let StoreConfig::Shared(shared) = self else { return Ok(()) };
        if limit.upstream.is_some() {
            return Ok(());
        }
        let source = shared.time_source();
        if let Some(problem) = upstream::unshared(limit, source) {
            return Err(problem);
        }
        limit.upstream = Some(Upstream::Store(source));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;
    use crate::reload::{Reloads, Removals};
    use crate::samples::{self, LIMIT, allocator};
    use lessor_tls::dev_ca::{DevCa, Purpose, VALID};

    fn store_of(lines: &str) -> Result<StoreConfig, String> {
        let parsed = Config::parse(&format!("[store]\n{lines}\n{LIMIT}"));
        parsed.map(|config| config.server.store).map_err(|error| error.to_string())
    }

    #[test]
    fn a_password_is_in_one_place() {
        let with_file =
            |url: &str| format!("kind = \"redis\"\nurl = \"{url}\"\npassword_file = \"/run/word\"");
        let store = store_of(&with_file("redis://h")).expect("it is one");
        let StoreConfig::Shared(shared) = &store else { panic!("{store:?}") };
        assert_eq!(shared.password_file.as_deref(), Some(Path::new("/run/word")));
        let at = |line: &str, key: &str| line.replacen("KEY", &format!("{key} = \"redis://:s3cret@h\""), 1);
        let (unquoted, no_prefix) =
            ("kind = \"redis\"\npassword = s3cret", "kind = \"redis\"\nurl = \"redis://h\"\nKEY");
        let hidden = "not shown, as it may be a URL with a password";
        for (lines, said) in [
            (at("KEY", "kind"), format!("store.kind is {hidden}: use one of")),
            (at("KEY\nreplicas = 1", "kind"), format!("store.replicas is set with kind = {hidden}")),
            (at("KEY", "path"), "store.path is a URL, and store.kind is \"embedded\"".to_owned()),
            (
                at("kind = \"redis\"\nKEY", "path"),
                format!("store.path is {hidden}: a store of kind redis has none"),
            ),
            (
                at("kind = \"memory\"\nKEY", "path"),
                format!("store.path is {hidden}: a store in memory has none"),
            ),
            (at(no_prefix, "prefix"), format!("store.prefix is {hidden}: use store.url")),
            (at(no_prefix, "replicas"), format!("store.replicas is {hidden}: use store.url")),
            (at(no_prefix, "timeout"), format!("store.timeout is {hidden}: use store.url")),
            (unquoted.to_owned(), "in: password = …".to_owned()),
            (
                with_file("redis://:s3cret@h"),
                "store.password_file is \"/run/word\", and store.url has a password".to_owned(),
            ),
            (
                with_file("redis://h").replace("/run/word", ""),
                "store.password_file is \"\": use the path".to_owned(),
            ),
            (
                "password_file = \"/run/word\"".to_owned(),
                "store.password_file is set with kind = \"embedded\"".to_owned(),
            ),
        ] {
            let error = store_of(&lines).expect_err(&lines);
            assert!(error.contains(&said) && !error.contains("s3cret"), "{error}");
        }
    }

    /// The bug: user, TLS and options were not compared. A reload that changed only these named no restart.
    #[test]
    fn stores_are_equal_if_they_differ_in_the_password_at_most() {
        let store = |url: &str| SharedStore {
            cells: CellsConfig::new(url.parse().unwrap_or_else(|error| panic!("{url}: {error}"))),
            password_file: None,
            version: 1,
        };
        let files = "sslrootcert=/ca.crt&sslcert=/n.crt&sslkey=/n.key";
        for begin in ["rediss://u:p@h?", "etcds://u:p@h?", "postgres://u:p@h/d?sslmode=verify-full&"] {
            let url = &format!("{begin}{files}");
            for (part, other) in [
                ("u:", "v:"),
                ("@h", "@i"),
                ("/ca.crt", "/b.crt"),
                ("/n.crt", "/m.crt"),
                ("/n.key", "/m.key"),
            ] {
                assert_ne!(store(url), store(&url.replacen(part, other, 1)), "{url}: {part}");
            }
            for other in [":s3cret@", "@"] {
                assert_eq!(store(url), store(&url.replacen(":p@", other, 1)), "{url}: {other}");
            }
        }
        let plain = "postgres://u:p@h/d?sslmode=disable";
        assert_eq!(store(plain), store("postgres://u:p@h:5432/d"));
        assert_ne!(store(plain), store(&plain.replacen("disable", "require", 1)));
        assert_ne!(store(plain), store(&format!("{plain}&application_name=a")));
        assert_ne!(store("redis://h"), store("rediss://h"));
    }

    /// The bug: each of these changes waited for a restart, and neither the log nor `lessor status` said so.
    #[test]
    fn a_reload_names_a_store_whose_user_or_options_changed() {
        let config = |url: &str| format!("[store]\nkind = \"postgres\"\nurl = {url:?}\n{LIMIT}");
        let reloads = Reloads::new(allocator(&config("postgres://u:p@h/d")));
        let needs_restart = |url: &str| {
            let done = reloads.reload(&samples::config(&config(url)), Removals::Keep);
            done.expect("it fits").needs_restart
        };
        assert_eq!(needs_restart("postgres://v:p@h/d"), ["[store]"]);
        assert_eq!(needs_restart("postgres://u:p@h/d?connect_timeout=3"), ["[store]"]);
        assert!(needs_restart("postgres://u:other@h/d").is_empty());
    }

    /// The bug: user, options and the files of TLS were left out, and the printed configuration meant another store.
    #[test]
    fn what_a_check_prints_means_the_same_store_and_has_no_password() {
        let (folder, ca) = (tempfile::tempdir().expect("a folder"), DevCa::try_new().expect("good"));
        let signed = ca.sign(Purpose::Client, VALID).expect("good");
        let (certificate, key) = signed.write(folder.path(), "node").expect("written");
        let authority = folder.path().join("ca.crt");
        std::fs::write(&authority, ca.certificate()).expect("written");
        let [authority, certificate, key] =
            [authority, certificate, key].map(|file| file.display().to_string());
        let files = format!("sslrootcert={authority}&sslcert={certificate}&sslkey={key}");
        for (kind, url, parts) in [
            ("redis", format!("rediss://u:s3cret@h/2?{files}"), vec!["//u@h:6379/2?", &*files]),
            (
                "redis",
                format!("rediss://u:s3cret@h,i?cluster=true&{files}"),
                vec!["//u@h:6379,i:6379/?", &*files],
            ),
            ("etcd", format!("etcds://u:s3cret@h?{files}"), vec!["//u@h:2379?", &*files]),
            (
                "postgres",
                format!("postgres://u:s3cret@h/d?application_name=a&sslmode=verify-full&{files}"),
                vec!["//u@h:5432/d?sslmode=verify-full&", &*files, "&application_name=a\""],
            ),
        ] {
            let config = samples::config(&format!("[store]\nkind = {kind:?}\nurl = {url:?}\n{LIMIT}"));
            let printed = config.to_string();
            assert!(!printed.contains("s3cret"), "{printed}");
            assert!(parts.iter().all(|part| printed.contains(part)), "{printed}");
            assert_eq!(Config::parse(&printed), Ok(config));
        }
        // What stands alone before the @ has no effect, and may be a password in a wrong place.
        for (kind, url) in [("redis", "rediss://s3cret@h"), ("etcd", "etcd://s3cret@h")] {
            let printed =
                samples::config(&format!("[store]\nkind = {kind:?}\nurl = {url:?}\n{LIMIT}")).to_string();
            assert!(printed.contains("://h:") && !printed.contains("s3cret"), "{printed}");
        }
    }

    #[test]
    fn an_etcd_has_a_url_and_no_replicas() {
        let url = "kind = \"etcd\"\nurl = \"etcd://u@a,b:7\"\nsynced = true";
        let store = store_of(url).expect("it is one");
        let StoreConfig::Shared(shared) = &store else { panic!("{store:?}") };
        assert_eq!((store.kind(), shared.cells.url.to_string().as_str()), ("etcd", "etcd://a:2379,b:7"));
        for (lines, said) in [
            ("kind = \"etcd\"", "store.url is missing: say for example url = \"etcd://127.0.0.1:2379\""),
            ("kind = \"etcd\"\nurl = \"http://s3cret@h\"", "store.url: the URL of a store begins with"),
            (
                "kind = \"etcd\"\nurl = \"redis://s3cret@h\"",
                "store.url is a URL of redis, and store.kind is \"etcd\"",
            ),
            (
                "kind = \"redis\"\nurl = \"etcd://s3cret@h\"",
                "store.url is a URL of etcd, and store.kind is \"redis\"",
            ),
            (&format!("{url}\nreplicas = 2"), "store.replicas is 2: etcd always writes"),
            (&format!("{url}\npath = \"p\""), "store.path is \"p\": a store of kind etcd has none"),
        ] {
            let error = store_of(lines).expect_err(lines);
            assert!(error.contains(said) && !error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn a_file_of_tls_that_cannot_be_used_is_named() {
        for (lines, said) in [
            (
                "kind = \"redis\"\nurl = \"rediss://:s3cret@h?sslrootcert=/nowhere.crt\"",
                "store.url: sslrootcert: /nowhere.crt: cannot be read",
            ),
            ("kind = \"etcd\"\nurl = \"etcds://h?sslkey=/nowhere.key\"", "store.url: sslkey needs sslcert"),
            ("kind = \"etcd\"\nurl = \"etcd://h\"\nprefix = \"\"", "the prefix \"\" is invalid"),
        ] {
            let error = store_of(lines).expect_err(lines);
            assert!(error.contains(said) && !error.contains("s3cret"), "{error}");
        }
    }
}
