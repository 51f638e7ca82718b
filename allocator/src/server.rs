//! The allocator as a service, which runs on a listener until it is told to stop. Binaries and tests own both. It
//! spawns a task for each connection; no task outlives the service.

mod budget;
mod connection;
mod doors;
mod first_head;
mod frames;
mod head_timer;
mod looks;
mod patience;
mod peers;
#[cfg(test)]
mod tests;
mod unproven;

pub(crate) use unproven::Proven;

use crate::access::{Access, AccessError};
use crate::audit;
use crate::config::{Config, Exposure, StoreConfig, per_address};
use crate::http::Part;
use crate::listener::Listener;
use crate::memory;
use crate::metrics::UPKEEP_EVERY;
use crate::open_secrets;
use crate::reload::Reloads;
use crate::shared::Shared;
use crate::store::{Embedded, StoreError};
use crate::uplink::Uplinks;
use doors::{Bounds, Door, Doors};
use lessor_files::{FileError, Token};
use lessor_tls::{Acceptor, ServerFiles, Tls, TlsError};
use looks::Looks;
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// How often to look for sessions and pools that no longer matter, and how many are looked at each time. A hundred
/// thousand pools take 20 s; the work takes about a hundredth of the allocator's time.
const SWEEP_EVERY: Duration = Duration::from_millis(100);
const SWEEP_STEPS: usize = 500;

/// Connections of operators that may be open at once: browsers, commands and Prometheus. They are counted apart, so
/// that nodes cannot keep operators out.
const ADMIN_CONNECTIONS_MAX: usize = 256;

/// Why an allocator cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its store cannot be used.
    #[error("store.path: {0}")]
    Store(#[from] StoreError),
    /// Its certificates cannot be used.
    #[error("server.tls: {0}")]
    Tls(TlsError),
    /// The certificates for operators cannot be used.
    #[error("admin.tls: {0}")]
    AdminTls(TlsError),
    /// Its tokens, or the keys of an identity provider, cannot be used.
    #[error("auth: {0}")]
    Auth(AccessError),
    /// Its audit log cannot be written.
    #[error("audit.path: {0}")]
    Audit(io::Error),
    /// A memory bound is configured, and the system does not tell how much memory the process takes.
    #[error(
        "server.memory_max is {0}: this system does not say how much memory a process takes, so leave it out"
    )]
    Memory(u64),
    /// The token that it shows to upstreams cannot be used.
    #[error("upstream_auth.token_file: {0}")]
    UpstreamToken(FileError),
    /// The certificates that it shows to upstreams cannot be used.
    #[error("upstream_tls: {0}")]
    UpstreamTls(TlsError),
}

/// The allocator, ready to serve.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    /// The configured certificates, once they were read.
    certificates: Option<Certificates>,
    /// The descriptors that this process may have open, if that bounds the connections.
    descriptors: Option<u64>,
}

impl Server {
    /// Makes a new life of the allocator. `fresh` states that no earlier life can have lent permits that are still
    /// being spent. Without it every limit begins in quarantine.
    pub fn new(config: Config, fresh: bool) -> Self {
        Server { shared: Arc::new(Shared::new(config, fresh)), certificates: None, descriptors: None }
    }

    /// Makes a life of the allocator that writes its grants to the store of `config`, if that names one, and resumes
    /// what an earlier life wrote there. `fresh` is as for [`Server::new`]. With a store that knows what was lent, it
    /// holds only for limits that are new to the store, and only if none of the limits in the store is gone from
    /// `config`. With a store that is lost it holds for none.
    ///
    /// # Errors
    /// If the store or the certificates cannot be used.
    pub fn open(config: Config, fresh: bool) -> Result<Self, OpenError> {
        let (certificates, access) = read_files(&config)?;
        let shared = match config.server.store.clone() {
            // Loans from a shared store are safe: the store counts each of them until its term is over.
            StoreConfig::Memory | StoreConfig::Shared(_) => Arc::new(Shared::new(config, fresh)),
            StoreConfig::Embedded { path } => {
                let path = path.unwrap_or_else(|| PathBuf::from(StoreConfig::FILE));
                Shared::open(config, fresh, &path)?
            }
        };
        if let Some(access) = access {
            shared.set_access(access);
        }
        shared.audit().check().map_err(OpenError::Audit)?;
        Ok(Server { shared, certificates: Some(certificates), descriptors: None })
    }

    /// Bounds connections so that they fit into the `descriptors` that this process may have open; `None` leaves the
    /// configured bounds.
    pub fn with_descriptors(self, descriptors: Option<u64>) -> Self {
        Server { descriptors, ..self }
    }

    /// Reads each file that `config` names, as [`Server::open`] does, and makes none. The store is not opened, because
    /// an allocator may be using it. Only a file in its place that is no store is refused.
    ///
    /// # Errors
    /// If one of the files cannot be used.
    pub fn check(config: &Config) -> Result<(), OpenError> {
        read_files(config)?;
        if let StoreConfig::Embedded { path: Some(path) } = &config.server.store {
            Embedded::refuse_foreign(path)?;
        }
        Ok(())
    }

    /// Returns the handle by which the watcher of the configuration file changes this allocator.
    pub fn reloads(&self) -> Reloads {
        Reloads::new(self.shared.clone())
    }

    /// Serves on `listener` until `shutdown`. Then it lends nothing more, finishes requests in flight, and returns
    /// within five seconds, whatever its peers do.
    ///
    /// # Errors
    /// If the listener has no address, or the certificates cannot be used.
    pub async fn run(
        self,
        listener: impl Into<Listener>,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        self.run_apart(listener, None, shutdown).await
    }

    /// Serves like [`Server::run`], with operators on `admin` if that is there: `listener` then serves only the
    /// requests of nodes.
    ///
    /// # Errors
    /// As [`Server::run`].
    pub async fn run_apart(
        mut self,
        listener: impl Into<Listener>,
        admin: Option<Listener>,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        if self.certificates.is_none() {
            self.certificates = Some(Certificates::load(self.shared.config()).map_err(io::Error::other)?);
        }
        let certificates = self.certificates.take().unwrap_or_default();
        if let (Some(auth), None) = (&self.shared.config().auth, self.shared.access()) {
            let store = &self.shared.config().server.store;
            self.shared.set_access(Access::load(auth, store).map_err(io::Error::other)?);
        }
        // Watched for as long as the server runs.
        let mut looks = Looks::default();
        let shared = || self.shared.clone();
        let (of_files, of_memory, of_access) = (shared(), shared(), shared());
        looks.spawn("files of secrets", move || open_secrets::watch(of_files.clone()));
        looks.spawn("memory", move || memory::watch(of_memory.clone()));
        if let Some(access) = self.shared.access() {
            access.begin().await;
            looks.spawn("tokens and keys", move || {
                let shared = of_access.clone();
                async move {
                    if let Some(access) = shared.access() {
                        access.watch().await;
                    }
                }
            });
        }
        for acceptor in [&certificates.nodes, &certificates.admin].into_iter().flatten() {
            let acceptor = acceptor.clone();
            looks.spawn("certificates", move || acceptor.clone().watch());
        }
        let mut doors = self.doors(listener.into(), admin, certificates)?;
        let uplinks = self.serve(&mut doors, shutdown).await;
        self.shared.stop();
        tracing::info!(connections = doors.count(), "stopping: nothing is lent any more");
        tokio::join!(doors.finish(), uplinks.finish(), looks.shutdown());
        let shared = self.shared.clone();
        if tokio::task::spawn_blocking(move || shared.close_store()).await.is_err() {
            tracing::error!("the store could not be closed");
        }
        tracing::info!("stopped");
        Ok(())
    }

    /// Opens the doors, and logs each of them.
    fn doors(
        &self,
        listener: Listener,
        admin: Option<Listener>,
        certificates: Certificates,
    ) -> io::Result<Doors> {
        let config = self.shared.config();
        let (address, metrics) = (listener.place()?, config.admin.as_ref().is_none_or(|admin| admin.metrics));
        let quarantined = self.shared.beside(|registry, now| registry.quarantined(now).len());
        let (limits, tls) = (config.limits.len(), certificates.nodes.is_some());
        tracing::info!(%address, tls, limits, quarantined, "listening");
        let mut exposures: Vec<Exposure> = config.exposure(&address).into_iter().collect();
        let part = if admin.is_some() { Part::Nodes { metrics: !metrics } } else { Part::Whole };
        let of_operators = if admin.is_some() { ADMIN_CONNECTIONS_MAX } else { 0 };
        let configured = (config.server.connections_max, config.server.connections_per_address_max);
        let (connections, per_address_max) = match self.descriptors {
            Some(descriptors) => {
                self.shared.standing().few_descriptors.bounds(descriptors, configured, of_operators)
            }
            None => configured,
        };
        let bounds = Bounds::new(connections, per_address_max, &address);
        let nodes = Door::new(&self.shared, listener, (part, certificates.nodes), bounds);
        let admin = match admin {
            None => None,
            Some(listener) => {
                let (address, tls) = (listener.place()?, certificates.admin.is_some());
                tracing::info!(%address, tls, "listening for operators");
                exposures.extend(config.admin_exposure(&address));
                let part = (Part::Admin { metrics }, certificates.admin);
                let connections = ADMIN_CONNECTIONS_MAX;
                let per_address = per_address(connections).min(config.server.connections_per_address_max);
                let bounds = Bounds::new(connections, per_address, &address);
                Some(Door::new(&self.shared, listener, part, bounds))
            }
        };
        for exposure in &exposures {
            tracing::warn!("{exposure}");
        }
        self.shared.set_exposures(exposures);
        Ok(Doors { nodes, admin })
    }

    async fn serve(&self, doors: &mut Doors, shutdown: impl Future<Output = ()>) -> Uplinks {
        let mut shutdown = pin!(shutdown);
        let mut sweep = ticks(SWEEP_EVERY);
        let mut upkeep = ticks(UPKEEP_EVERY);
        let mut uplinks = Uplinks::default();
        loop {
            self.shared.metrics().connections(doors.count());
            tokio::select! {
                () = &mut shutdown => return uplinks,
                _ = sweep.tick() => {
                    self.shared.beside(|registry, now| registry.look_round(now, SWEEP_STEPS));
                    self.shared.with(|registry, now| registry.sweep_retired(now, SWEEP_STEPS));
                    uplinks.keep_up(&self.shared);
                }
                _ = upkeep.tick() => self.shared.metrics().upkeep(),
                () = doors.next() => {}
            }
        }
    }
}

/// Ticks as often as `every` says. Ticks that were missed while the process was stopped are not made up for: all of them
/// at once would keep it from its peers.
pub(crate) fn ticks(every: Duration) -> Interval {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Reads the files that `config` names, except the store: certificates, tokens, keys. Checks that the file of the audit
/// log can be written, or, if it is absent, its folder.
fn read_files(config: &Config) -> Result<(Certificates, Option<Access>), OpenError> {
    if let Some(max) = config.server.memory_max.filter(|_| memory::resident().is_none()) {
        return Err(OpenError::Memory(max));
    }
    let certificates = Certificates::load(config)?;
    let access = config.auth.as_ref().map(|auth| Access::load(auth, &config.server.store));
    let access = access.transpose().map_err(OpenError::Auth)?;
    config.upstream_tls.as_ref().map_or(Ok(()), Tls::check).map_err(OpenError::UpstreamTls)?;
    let token = config.upstream_token.as_ref().map(|file| Token::file(file).shown());
    token.transpose().map_err(OpenError::UpstreamToken)?;
    config.audit.as_ref().map_or(Ok(()), |audit| audit::check(&audit.path)).map_err(OpenError::Audit)?;
    Ok((certificates, access))
}

/// TLS of the two listeners, where connections are encrypted.
#[derive(Debug, Default)]
struct Certificates {
    nodes: Option<Arc<Acceptor>>,
    admin: Option<Arc<Acceptor>>,
}

impl Certificates {
    fn load(config: &Config) -> Result<Self, OpenError> {
        let load = |files: &ServerFiles| Acceptor::load(files).map(Arc::new);
        let nodes = config.server.tls.as_ref().map(load).transpose().map_err(OpenError::Tls)?;
        let admin = config.admin.as_ref().and_then(|admin| admin.tls.as_ref());
        let admin = admin.map(load).transpose().map_err(OpenError::AdminTls)?;
        Ok(Certificates { nodes, admin })
    }
}
