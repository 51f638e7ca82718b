//! Small values, *cells*, in a store that several allocators share. It offers one thing: compare-and-swap of a cell by its
//! version, on the timeline that was expected. Nothing here knows what a permit is.

mod check;
mod etcd;
mod hosts;
mod memory;
mod outcome;
mod password;
mod postgres;
#[cfg(unix)]
pub mod private;
mod redis;
mod tls;
mod url;

pub(crate) use check::prefix as check_prefix;
pub use etcd::Etcd;
pub use lessor_ledger::cells::{
    BATCH_BYTES_MAX, BATCH_MAX, Cell, CellsError, NAME_MAX, Swap, Swapped, Table, Timeline, VALUE_MAX,
    batches,
};
pub use memory::{Fault, Memory};
pub use password::Password;
pub use postgres::Postgres;
pub use redis::{Cluster, Redis};
pub(crate) use url::files_in;
pub use url::{StoreKind, StoreUrl, UrlError};

use self::url::Place;
use lessor_protocol::Moment;
use lessor_protocol::clock::wall;
use std::time::Duration;

/// The store of the cells, and the demands on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellsConfig {
    /// Which store.
    pub url: StoreUrl,
    /// The password, if the URL has none. Never shown.
    pub password: Option<Password>,
    /// Prefix of keys or tables: letters, digits, `_`, `-` and `.`, at most 32 of them.
    pub prefix: String,
    /// Replicas that must have a swap before it counts as done. Zero for etcd, where a majority always has it.
    pub replicas: u32,
    /// Whether a swap must be synced to a disk before it counts as done. PostgreSQL and etcd always do that; Redis only
    /// if told to.
    pub synced: bool,
    /// Time-out of a call.
    pub timeout: Duration,
}

impl CellsConfig {
    /// The default of `prefix`.
    pub const PREFIX: &str = "lessor";

    /// The default of `timeout`: many round trips across a region, and short compared to the terms that wait for it.
    pub(crate) const TIMEOUT: Duration = Duration::from_millis(500);

    /// Makes the configuration of the store at `url`, with defaults for all else.
    pub fn new(url: StoreUrl) -> Self {
        CellsConfig {
            url,
            password: None,
            prefix: Self::PREFIX.to_owned(),
            replicas: 0,
            synced: false,
            timeout: Self::TIMEOUT,
        }
    }

    fn no_answer(&self) -> CellsError {
        CellsError::Unreachable(format!("no answer within {:?}", self.timeout))
    }
}

/// Cells in the order of their names, and the timeline that they are on.
type Loaded = (Timeline, Vec<Option<Cell>>);

/// A handle on the cells of a store, with one connection (to a cluster: one for each master) and one call at a time. It
/// connects when it is used, and again after a call that failed. A call whose future is dropped counts as failed: it
/// may have been done.
#[derive(Debug)]
pub enum Cells {
    /// In this process.
    Memory(Memory),
    /// In a server of Redis or Valkey.
    Redis(Redis),
    /// In a cluster of such servers.
    Cluster(Cluster),
    /// In a table of PostgreSQL.
    Postgres(Postgres),
    /// In keys of etcd.
    Etcd(Etcd),
}

impl Cells {
    /// Makes a handle that is not connected yet.
    pub fn new(config: &CellsConfig) -> Result<Self, CellsError> {
        check::prefix(&config.prefix).map_err(CellsError::Invalid)?;
        match &config.url.place {
            Place::Memory => Ok(Cells::Memory(Memory::new())),
            Place::Redis(place) if place.is_cluster => Ok(Cells::Cluster(Cluster::new(place, config)?)),
            Place::Redis(place) => Ok(Cells::Redis(Redis::new(place, config)?)),
            Place::Postgres(place) => Ok(Cells::Postgres(Postgres::new(place, config)?)),
            Place::Etcd(place) => Ok(Cells::Etcd(Etcd::new(place, config)?)),
        }
    }

    /// Makes a connected handle: the store is there, and fit for the demands on it.
    pub async fn connect(config: &CellsConfig) -> Result<Self, CellsError> {
        let mut cells = Self::new(config)?;
        cells.timeline().await?;
        Ok(cells)
    }

    /// Makes another handle on the same store, with its own connection.
    pub fn another(&self) -> Self {
        match self {
            Cells::Memory(memory) => Cells::Memory(memory.clone()),
            Cells::Redis(redis) => Cells::Redis(redis.another()),
            Cells::Cluster(cluster) => Cells::Cluster(cluster.another()),
            Cells::Postgres(postgres) => Cells::Postgres(postgres.another()),
            Cells::Etcd(etcd) => Cells::Etcd(etcd.another()),
        }
    }

    /// Returns the timeline that the store is on.
    pub async fn timeline(&mut self) -> Result<Timeline, CellsError> {
        Ok(self.load(&[]).await?.0)
    }

    /// Returns the time of the store's clock, since the epoch. The caller bounds the moment of that reading by when it
    /// asked and when it heard. etcd has no clock, which is an error ([`StoreUrl::has_clock`]).
    pub async fn time(&mut self) -> Result<Moment, CellsError> {
        let micros = match self {
            Cells::Memory(_) => return Ok(wall()),
            Cells::Redis(redis) => redis.time().await?,
            Cells::Cluster(cluster) => cluster.time().await?,
            Cells::Postgres(postgres) => postgres.time().await?,
            Cells::Etcd(_) => {
                return Err(CellsError::Unfit("store.kind is \"etcd\": etcd has no clock to ask".to_owned()));
            }
        };
        Ok(Moment::from_nanos(micros.saturating_mul(1_000)))
    }

    /// Loads the cells with these names, in their order, and the timeline that they are on.
    pub async fn load(&mut self, names: &[String]) -> Result<Loaded, CellsError> {
        check::names(names)?;
        match self {
            Cells::Memory(memory) => memory.load(names),
            Cells::Redis(redis) => redis.load(names).await,
            Cells::Cluster(cluster) => cluster.load(names).await,
            Cells::Postgres(postgres) => postgres.load(names).await,
            Cells::Etcd(etcd) => etcd.load(names).await,
        }
    }

    /// Does these swaps, if the store is on this timeline. This takes one round trip, unless a key of a cluster has
    /// moved, or etcd needs several requests. Each swap is done as a whole or not at all, independently of the others
    /// and in no certain order.
    pub async fn swap(&mut self, timeline: &Timeline, swaps: &[Swap]) -> Result<Vec<Swapped>, CellsError> {
        check::swaps(swaps)?;
        match self {
            Cells::Memory(memory) => memory.swap(timeline, swaps),
            Cells::Redis(redis) => redis.swap(timeline, swaps).await,
            Cells::Cluster(cluster) => cluster.swap(timeline, swaps).await,
            Cells::Postgres(postgres) => postgres.swap(timeline, swaps).await,
            Cells::Etcd(etcd) => etcd.swap(timeline, swaps).await,
        }
    }

    /// Makes what the store needs before there can be cells. Returns the names of what was made.
    pub async fn migrate(&mut self) -> Result<Vec<String>, CellsError> {
        match self {
            Cells::Memory(_) | Cells::Redis(_) | Cells::Cluster(_) | Cells::Etcd(_) => Ok(vec![]),
            Cells::Postgres(postgres) => postgres.migrate().await,
        }
    }
}
