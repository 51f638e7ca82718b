//! A real etcd of three members for one test: its leader is killed or stopped while clients use it.

use crate::servers::Server;
use lessor_allocator::cells::CellsConfig;
use lessor_allocator::cells::private::{PrivateServer, Setting};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tempfile::TempDir;

/// Members of each cluster.
const MEMBERS: usize = 3;

/// Three members, which end when this value is dropped.
#[derive(Debug)]
pub struct Etcd {
    members: Vec<Arc<Server>>,
}

impl Etcd {
    /// Starts a cluster that no other test uses, which takes a while.
    pub fn start(settings: &[Setting]) -> Self {
        let folders = [(); MEMBERS].map(|()| tempfile::tempdir().expect("a folder"));
        let paths: Vec<PathBuf> = folders.iter().map(|folder: &TempDir| folder.path().to_owned()).collect();
        let started = PrivateServer::start_etcd(&paths, settings);
        let started = started.unwrap_or_else(|error| panic!("etcd: {error}"));
        let members =
            started.into_iter().zip(folders).map(|(server, folder)| Arc::new(Server::of(server, folder)));
        Etcd { members: members.collect() }
    }

    /// Returns a cluster that other tests use, too. Each test has a prefix of its own.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Etcd>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().expect("no test panics in here");
        if let Some(etcd) = shared.upgrade() {
            return etcd;
        }
        let etcd = Arc::new(Etcd::start(&[]));
        *shared = Arc::downgrade(&etcd);
        etcd
    }

    /// The members of the cluster.
    pub fn members(&self) -> &[Arc<Server>] {
        &self.members
    }

    /// Returns the place of the member that leads.
    ///
    /// # Panics
    /// If a member does not answer, or none leads.
    pub fn leader(&self) -> usize {
        let leads = |member: &Arc<Server>| {
            let status = member.tell("/v3/maintenance/status {}");
            let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
            status["header"]["member_id"] == status["leader"]
        };
        self.members.iter().position(leads).expect("one member leads")
    }

    /// Returns the URL of the store, with its password, and all members as hosts.
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.members.iter().map(|member| member.address().to_string()).collect();
        self.url_by(&hosts.join(","))
    }

    /// Returns the URL of the store with other hosts.
    pub fn url_by(&self, hosts: &str) -> String {
        format!("etcd://root:{}@{hosts}", self.members[0].password())
    }

    /// Returns the configuration of a handle on the store's cells, with this prefix.
    pub fn config(&self, prefix: &str) -> CellsConfig {
        let url = self.url().parse().expect("a URL of ours");
        // On a machine that is busy with a build, members answer late.
        CellsConfig { prefix: prefix.to_owned(), timeout: Duration::from_secs(5), ..CellsConfig::new(url) }
    }
}
