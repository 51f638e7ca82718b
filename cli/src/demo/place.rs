//! Where the allocators of a demo keep their books: in memory, each in its own file, or all in one server. The demo
//! starts that server for itself if the operator names none.

use crate::args::Store;
use crate::failure::Failure;
use lessor_allocator::cells::private::PrivateServer;
use lessor_allocator::cells::{Cells, CellsConfig, StoreKind, StoreUrl};
use lessor_protocol::entropy;
use std::path::Path;
use tempfile::TempDir;

/// A store for the books.
pub(crate) struct Place {
    store: Store,
    /// Address of the server, if there is one.
    url: String,
    /// Prefix of this demo's names there.
    prefix: String,
    // Dropped before its folder: the server may be writing into it.
    _server: Option<PrivateServer>,
    _folder: Option<TempDir>,
}

impl Place {
    /// Opens a store of the kind `store`. A server is the one at `url`, or a new one, which ends with this value.
    pub(crate) async fn open(store: Store, url: Option<&str>) -> Result<Self, Failure> {
        let prefix = format!("demo-{:08x}", entropy::number() as u32);
        let kind = match store {
            Store::Memory | Store::Embedded => {
                return Ok(Place { store, url: String::new(), prefix, _server: None, _folder: None });
            }
            Store::Redis => StoreKind::Redis,
            Store::Postgres => StoreKind::Postgres,
            Store::Etcd => StoreKind::Etcd,
        };
        let (url, server, folder) = match url {
            Some(url) => (url.to_owned(), None, None),
            None => {
                let cannot = |error| Failure::Run(format!("cannot start a {} server: {error}", store.name()));
                let folder = tempfile::Builder::new().prefix("lessor-store-").tempdir().map_err(cannot)?;
                let server = PrivateServer::start(kind, folder.path(), &[]).map_err(cannot)?;
                (server.url(), Some(server), Some(folder))
            }
        };
        let parsed: StoreUrl =
            url.parse().map_err(|error| Failure::Input(format!("--store-url: {error}")))?;
        if parsed.kind() != kind {
            return Err(Failure::Input(format!(
                "--store-url is for another kind of store than --store {}",
                store.name()
            )));
        }
        let config = CellsConfig { prefix: prefix.clone(), ..CellsConfig::new(parsed) };
        let unfit = |error| Failure::Run(format!("the store of the demo: {error}"));
        let mut cells = Cells::new(&config).map_err(unfit)?;
        cells.migrate().await.map_err(unfit)?;
        cells.timeline().await.map_err(unfit)?;
        Ok(Place { store, url, prefix, _server: server, _folder: folder })
    }

    /// Whether all allocators share the store.
    pub(crate) fn is_shared(&self) -> bool {
        self.store.is_shared()
    }

    /// Returns the kind of the store.
    pub(crate) fn store(&self) -> Store {
        self.store
    }

    /// Adds the store to `config`; a store in a file is in `folder`.
    pub(crate) fn config(&self, config: &str, folder: &Path) -> Result<String, Failure> {
        with_store(config, self.store, folder, &self.url, &self.prefix)
    }
}

/// Adds a store to `config` without opening it, to print the configuration. Without a `url` it is the one of a server on
/// this machine.
pub(crate) fn shown(config: &str, store: Store, folder: &Path, url: Option<&str>) -> Result<String, Failure> {
    let usual = match store {
        Store::Redis => "redis://127.0.0.1:6379",
        Store::Etcd => "etcd://127.0.0.1:2379",
        Store::Memory | Store::Embedded | Store::Postgres => "postgres://lessor@127.0.0.1/lessor",
    };
    with_store(config, store, folder, url.unwrap_or(usual), CellsConfig::PREFIX)
}

/// Adds `store` to `config`: a file in `folder`, or the server at `url` with names under `prefix`.
fn with_store(config: &str, store: Store, folder: &Path, url: &str, prefix: &str) -> Result<String, Failure> {
    let more = match store {
        Store::Memory => String::new(),
        Store::Embedded => {
            let file = folder.join("demo.redb");
            let path = file
                .to_str()
                .ok_or_else(|| Failure::Run(format!("a configuration cannot name {}", file.display())))?;
            format!("path = {}\n", toml::Value::from(path))
        }
        Store::Redis | Store::Postgres | Store::Etcd => {
            format!("url = {}\nprefix = {}\n", toml::Value::from(url), toml::Value::from(prefix))
        }
    };
    Ok(format!("{config}\n[store]\nkind = \"{}\"\n{more}", store.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bug: the printed configuration had another server than the one that was named.
    #[test]
    fn a_printed_configuration_has_the_server_that_is_named() {
        let printed = |url| shown("", Store::Redis, Path::new(""), url).expect("text");
        assert!(printed(Some("redis://h:1")).contains("url = \"redis://h:1\"\n"));
        assert!(printed(None).contains("url = \"redis://127.0.0.1:6379\"\n"));
    }
}
