//! Small values, *cells*, in a store that several allocators share. It offers one thing: compare-and-swap of a cell by its
//! version, on the timeline that was expected. Nothing here knows what a permit is.

mod check;
mod etcd;
mod excerpt;
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
pub use url::{StoreKind, StoreUrl, UrlError};

use self::url::Place;
use lessor_protocol::Moment;
use lessor_protocol::clock::wall;
use std::time::Duration;

/// Where cells are, and what is asked of that place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellsConfig {
    /// Which store.
    pub url: StoreUrl,
    /// The password, if the URL has none. Never shown.
    pub password: Option<Password>,
    /// What the names of keys or tables begin with: letters, digits, `_`, `-` and `.`, at most 32 of them.
    pub prefix: String,
    /// On so many replicas a swap must be before it is done. None may be asked for of etcd, where a majority always has it.
    pub replicas: u32,
    /// Whether it must be synced to a disk before it is done. PostgreSQL and etcd always do that; Redis only if
    /// it is told to.
    pub synced: bool,
    /// No call takes longer.
    pub timeout: Duration,
}

impl CellsConfig {
    /// The default of `prefix`.
    pub const PREFIX: &str = "lessor";

    /// The default of `timeout`: many round trips across a region, and short beside the terms that wait for it.
    pub const TIMEOUT: Duration = Duration::from_millis(500);

    /// The store at `url`, with the defaults of all else.
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
}

/// A handle on the cells of a store: one connection (of a cluster, one for each master), one call at a time. It connects when it is used, and again after
/// each call that failed. A call that was dropped before its end is one that failed: what it asked for may be done.
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
    /// A handle that is not connected yet.
    pub fn new(config: &CellsConfig) -> Result<Self, CellsError> {
        check::prefix(&config.prefix)?;
        match &config.url.place {
            Place::Memory => Ok(Cells::Memory(Memory::new())),
            Place::Redis(place) if place.is_cluster => Ok(Cells::Cluster(Cluster::new(place, config)?)),
            Place::Redis(place) => Ok(Cells::Redis(Redis::new(place, config)?)),
            Place::Postgres(place) => Ok(Cells::Postgres(Postgres::new(place, config)?)),
            Place::Etcd(place) => Ok(Cells::Etcd(Etcd::new(place, config)?)),
        }
    }

    /// A handle that is connected: the store is there, and fit for what is asked of it.
    pub async fn connect(config: &CellsConfig) -> Result<Self, CellsError> {
        let mut cells = Self::new(config)?;
        cells.timeline().await?;
        Ok(cells)
    }

    /// Another handle on the same store, with a connection of its own.
    pub fn another(&self) -> Self {
        match self {
            Cells::Memory(memory) => Cells::Memory(memory.clone()),
            Cells::Redis(redis) => Cells::Redis(redis.another()),
            Cells::Cluster(cluster) => Cells::Cluster(cluster.another()),
            Cells::Postgres(postgres) => Cells::Postgres(postgres.another()),
            Cells::Etcd(etcd) => Cells::Etcd(etcd.another()),
        }
    }

    /// Which timeline the store is on.
    pub async fn timeline(&mut self) -> Result<Timeline, CellsError> {
        match self {
            Cells::Memory(memory) => memory.timeline(),
            Cells::Redis(redis) => redis.timeline().await,
            Cells::Cluster(cluster) => cluster.timeline().await,
            Cells::Postgres(postgres) => postgres.timeline().await,
            Cells::Etcd(etcd) => etcd.timeline().await,
        }
    }

    /// What the clock of the store shows, since the epoch. The caller bounds when that was by when it asked and when it
    /// heard. etcd has none: that is an error ([`StoreUrl::has_clock`]).
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

    /// The cells of these names, in their order, and the timeline that they are on.
    pub async fn load(&mut self, names: &[String]) -> Result<(Timeline, Vec<Option<Cell>>), CellsError> {
        check::names(names)?;
        match self {
            Cells::Memory(memory) => memory.load(names),
            Cells::Redis(redis) => redis.load(names).await,
            Cells::Cluster(cluster) => cluster.load(names).await,
            Cells::Postgres(postgres) => postgres.load(names).await,
            Cells::Etcd(etcd) => etcd.load(names).await,
        }
    }

    /// Does these swaps, in one round trip if no server of a cluster says that a key moved and etcd takes as much in one request, if the store is on this timeline. Each is done as a whole or not at all,
    /// whatever becomes of the others, in no order that can be relied on.
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

    /// Makes what the store needs before there can be cells, and says what it made: nothing, if all is there.
    pub async fn migrate(&mut self) -> Result<Vec<String>, CellsError> {
        match self {
            Cells::Memory(_) | Cells::Redis(_) | Cells::Cluster(_) | Cells::Etcd(_) => Ok(vec![]),
            Cells::Postgres(postgres) => postgres.migrate().await,
        }
    }
}
