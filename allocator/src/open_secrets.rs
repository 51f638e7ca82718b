//! Files of secrets that every user of the machine can read. The log says so when they are read; operators see a
//! warning for as long as it is true.

use crate::config::{Config, StoreConfig};
use crate::shared::Shared;
use arc_swap::ArcSwap;
use lessor_tls::Tls;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Interval of looks.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Warnings of the last look, one for each file.
#[derive(Debug, Default)]
pub(crate) struct OpenSecrets(ArcSwap<Vec<String>>);

impl OpenSecrets {
    pub(crate) fn warnings(&self) -> Arc<Vec<String>> {
        self.0.load_full()
    }
}

/// Checks the files of `shared` periodically, until it is dropped.
pub(crate) async fn watch(shared: Arc<Shared>) {
    loop {
        let of_files = shared.clone();
        // Disks may be slow; requests do not wait for them.
        match tokio::task::spawn_blocking(move || found(of_files.config())).await {
            Ok(found) => shared.standing().open_secrets.0.store(Arc::new(found)),
            Err(error) => tracing::error!(%error, "files of secrets cannot be checked: this is a bug"),
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Returns a warning for each file of `config` that every user can read. Blocks on the disk.
fn found(config: &Config) -> Vec<String> {
    let open = files(config).into_iter().filter(|(_, file)| lessor_files::is_open_to_all(file));
    let warning = |(key, file): (&str, &Path)| {
        format!(
            "{key} is {}, which every user of this machine can read: remove that right (chmod o-r)",
            file.display()
        )
    };
    open.map(warning).collect()
}

/// Returns the files of secrets that `config` names, by their keys.
fn files(config: &Config) -> Vec<(&'static str, &Path)> {
    let admin = config.admin.as_ref().and_then(|admin| admin.tls.as_ref());
    let upstream = config.upstream_tls.as_ref().and_then(|tls| tls.certificate_files());
    let (password, of_store) = match &config.server.store {
        StoreConfig::Shared(shared) => (shared.password_file.as_deref(), shared.cells.url.tls()),
        StoreConfig::Memory | StoreConfig::Embedded { .. } => (None, None),
    };
    let of_store = of_store.and_then(Tls::certificate_files);
    let files = [
        ("server.tls.key", config.server.tls.as_ref().map(|files| files.key.as_path())),
        ("admin.tls.key", admin.map(|files| files.key.as_path())),
        ("upstream_tls.key", upstream.map(|(_, key)| key)),
        ("auth.tokens", config.auth.as_ref().and_then(|auth| auth.tokens.as_ref()?.file())),
        ("upstream_auth.token_file", config.upstream_token.as_deref()),
        ("store.password_file", password),
        ("sslkey in store.url", of_store.map(|(_, key)| key)),
    ];
    files.into_iter().filter_map(|(key, file)| Some((key, file?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::LIMIT;
    use lessor_tls::dev_ca::{DevCa, Purpose, VALID};
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn each_secret_that_all_can_read_is_named_by_its_key() {
        let folder = tempfile::tempdir().expect("a folder");
        // The key of a store is read with its certificate when the configuration is checked.
        let signed = DevCa::try_new().and_then(|ca| ca.sign(Purpose::Client, VALID)).expect("good");
        let (certificate, key) = signed.write(folder.path(), "store").expect("written");
        let authority = certificate.display();
        let file = |name: &str, mode: u32| {
            let file = folder.path().join(name);
            std::fs::write(&file, "").expect("written");
            std::fs::set_permissions(&file, Permissions::from_mode(mode)).expect("it is ours");
            file
        };
        let text = |mode| {
            std::fs::set_permissions(&key, Permissions::from_mode(mode)).expect("it is ours");
            let files =
                format!("sslrootcert={authority}&sslcert={}&sslkey={}", certificate.display(), key.display());
            format!(
                "[server]\ntls = {{ certificate = \"c\", key = {:?} }}\n\
                 [admin]\nlisten = \"127.0.0.1:1\"\ntls = {{ certificate = \"c\", key = {:?} }}\n\
                 [upstream_tls]\ncertificate = \"c\"\nkey = {:?}\n[upstream_auth]\ntoken_file = {:?}\n\
                 [auth]\ntokens = {:?}\n[[role]]\nname = \"r\"\nidentities = [\"token:a\"]\nread = [\"*\"]\n\
                 [store]\nkind = \"redis\"\nurl = \"rediss://127.0.0.1:1?{files}\"\npassword_file = {:?}\n{LIMIT}",
                file("s", mode),
                file("a", mode),
                file("u", mode),
                file("t", mode),
                file("k", mode),
                file("p", mode),
            )
        };
        let config = Config::parse(&text(0o640)).expect("valid");
        assert_eq!(found(&config), Vec::<String>::new());
        let config = Config::parse(&text(0o644)).expect("valid");
        let (found, files) = (found(&config), files(&config));
        let keys = [
            "server.tls.key",
            "admin.tls.key",
            "upstream_tls.key",
            "auth.tokens",
            "upstream_auth.token_file",
            "store.password_file",
            "sslkey in store.url",
        ];
        assert_eq!(files.iter().map(|(key, _)| *key).collect::<Vec<_>>(), keys);
        assert_eq!(found.len(), keys.len(), "{found:?}");
        for (warning, (key, file)) in found.iter().zip(files) {
            assert!(
                warning.starts_with(&format!("{key} is {}, which every user", file.display())),
                "{warning}"
            );
        }
    }
}
