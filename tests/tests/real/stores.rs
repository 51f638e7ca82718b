//! The promises of cells, for each store: the same list of behaviours against a map, Redis, a cluster of Redis,
//! PostgreSQL, and etcd. Behaviours of only one kind of server are in a file of their own.

mod behaviours;
mod cluster;
mod etcd;
mod figures;
mod migrate;
mod mutual_tls;
mod passwords;
mod postgres;
mod redis;
mod tls;
mod trouble;

use lessor_allocator::cells::{Cell, Cells, CellsConfig, CellsError, StoreKind, Swap, Swapped, Timeline};
use scenarios::cluster::Cluster;
use scenarios::etcd::Etcd;
use scenarios::servers::Server;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A store for one test.
struct Store {
    cells: Cells,
    /// The configuration of the cells, with a prefix that no other test has.
    config: Option<CellsConfig>,
    server: Option<Arc<Server>>,
    /// Both end with the last test that uses them.
    _cluster: Option<Arc<Cluster>>,
    _etcd: Option<Arc<Etcd>>,
}

/// Returns a prefix that no other test has.
fn prefix() -> String {
    static PREFIXES: AtomicU64 = AtomicU64::new(0);
    format!("test.{}", PREFIXES.fetch_add(1, Ordering::Relaxed))
}

impl Store {
    async fn of(kind: StoreKind) -> Self {
        if kind == StoreKind::Memory {
            let config = CellsConfig::new("memory:".parse().expect("a URL"));
            let cells = Cells::connect(&config).await.expect("nothing can go wrong");
            return Store { cells, config: None, server: None, _cluster: None, _etcd: None };
        }
        // The server may have to start, which takes a while.
        let server = tokio::task::block_in_place(|| Server::shared(kind));
        Store::on(server).await
    }

    /// Makes a store on `server`, with a prefix that no other test has.
    async fn on(server: Arc<Server>) -> Self {
        let config = server.config(&prefix());
        let mut cells = Cells::new(&config).expect("a good configuration");
        cells.migrate().await.expect("the store can be migrated");
        Store { cells, config: Some(config), server: Some(server), _cluster: None, _etcd: None }
    }

    /// Makes a store on a cluster that other tests use, too.
    async fn of_a_cluster() -> Self {
        let cluster = Cluster::shared().await;
        Store { _cluster: Some(Arc::clone(&cluster)), ..Store::on_cluster(&cluster) }
    }

    /// Makes a store on an etcd with three members.
    async fn of_an_etcd() -> Self {
        let etcd = Etcd::shared();
        let config = etcd.config(&prefix());
        let cells = Cells::new(&config).expect("a good configuration");
        Store { cells, config: Some(config), server: None, _cluster: None, _etcd: Some(etcd) }
    }

    fn on_cluster(cluster: &Cluster) -> Self {
        let config = cluster.config(&prefix());
        let cells = Cells::new(&config).expect("a good configuration");
        Store { cells, config: Some(config), server: None, _cluster: None, _etcd: None }
    }

    fn server(&self) -> Arc<Server> {
        self.server.clone().expect("a server")
    }

    async fn load(&mut self, name: &str) -> Option<Cell> {
        self.load_all(&[name]).await.remove(0)
    }

    async fn load_all(&mut self, names: &[&str]) -> Vec<Option<Cell>> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        self.cells.load(&names).await.expect("the store is there").1
    }

    async fn timeline(&mut self) -> Timeline {
        self.cells.timeline().await.expect("the store is there")
    }

    async fn swap(&mut self, swap: Swap) -> Swapped {
        self.try_swap(&[swap]).await.expect("the store is there").remove(0)
    }

    async fn try_swap(&mut self, swaps: &[Swap]) -> Result<Vec<Swapped>, CellsError> {
        let timeline = self.timeline().await;
        self.cells.swap(&timeline, swaps).await
    }
}

/// Makes a swap.
fn swap(name: &str, expected: Option<u64>, next: Option<Cell>) -> Swap {
    Swap { name: name.to_owned(), expected, next }
}

fn cell(version: u64, value: impl AsRef<[u8]>) -> Cell {
    Cell { version, value: value.as_ref().to_vec() }
}

/// Returns the number that `cell` holds as eight bytes.
fn count_in(cell: &Cell) -> u64 {
    u64::from_be_bytes(cell.value[..].try_into().expect("eight bytes"))
}
