//! The allocator as a service: a function of a listener and of the moment to stop. Binaries and tests own both.
//! It spawns a task for each connection, and none of them outlives it.

mod head_timer;
mod patience;
mod peers;
#[cfg(test)]
mod tests;

use crate::config::{Config, StoreConfig};
use crate::metrics::UPKEEP_EVERY;
use crate::reload::Reloads;
use crate::shared::Shared;
use crate::store::StoreError;
use crate::uplink::Uplinks;
use lessor_tls::{Acceptor, Tls, TlsError};
use peers::Peers;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

/// How often to look for sessions and pools that no longer matter, and how many are looked at then. A hundred thousand pools
/// take 20 s; the allocator is busy with it for about a hundredth of its time.
const SWEEP_EVERY: Duration = Duration::from_millis(100);
const SWEEP_STEPS: usize = 500;

/// How long to wait when there are no files left for another connection. Others will close.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections that wait to be accepted: a fleet that is started at once, or that lost its allocator, comes at once. The system
/// may allow fewer (`net.core.somaxconn`); those beyond it try again after a second.
const BACKLOG: u32 = 4_096;

/// A listener at `address` for [`Server::run`].
///
/// # Errors
/// If nothing can listen there.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Connections of an earlier life may linger there.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Why an allocator cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Its certificates cannot be used.
    #[error("server.tls: {0}")]
    Tls(#[from] TlsError),
    /// The certificates that it shows to others cannot be used.
    #[error("upstream_tls: {0}")]
    UpstreamTls(TlsError),
}

/// The allocator, ready to serve.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    /// Of a configuration with `tls`, once that was read.
    tls: Option<Arc<Acceptor>>,
}

impl Server {
    /// A new life of the allocator. `fresh` states that no earlier life can have lent anything that is still
    /// being spent; without it every limit begins in quarantine.
    pub fn new(config: Config, fresh: bool) -> Self {
        Server { shared: Arc::new(Shared::new(config, fresh)), tls: None }
    }

    /// A life of the allocator that writes down what it lends to the store of `config`, if that names one, and goes on with
    /// what an earlier life has written there. `fresh` as for [`Server::new`]: then of that only what operators have decided.
    ///
    /// # Errors
    /// If the store or the certificates cannot be used.
    pub fn open(config: Config, fresh: bool) -> Result<Self, OpenError> {
        let tls = acceptor(&config)?;
        config.upstream_tls.as_ref().map_or(Ok(()), Tls::check).map_err(OpenError::UpstreamTls)?;
        let shared = match config.server.store.clone() {
            // What is leased from a shared store is in no danger: that counts it until its term is over.
            StoreConfig::Memory | StoreConfig::Shared(_) => Arc::new(Shared::new(config, fresh)),
            StoreConfig::Embedded { path } => {
                let path = path.unwrap_or_else(|| PathBuf::from(StoreConfig::FILE));
                Shared::open(config, fresh, &path)?
            }
        };
        Ok(Server { shared, tls })
    }

    /// The way to it for the watcher of its file.
    pub fn reloads(&self) -> Reloads {
        Reloads::new(self.shared.clone())
    }

    /// Serves on `listener` until `shutdown`. Then it lends no more, finishes what is in flight, and returns
    /// within five seconds, whatever its peers do.
    ///
    /// # Errors
    /// If the listener has no address, or the certificates cannot be used.
    pub async fn run(
        mut self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        let address = listener.local_addr()?;
        if self.tls.is_none() {
            self.tls = acceptor(self.shared.config()).map_err(io::Error::other)?;
        }
        // Certificates are looked at for as long as it serves.
        let mut looks = JoinSet::new();
        if let Some(tls) = &self.tls {
            looks.spawn(tls.clone().watch());
        }
        let quarantined = self.shared.beside(|registry, now| registry.quarantined(now).len());
        tracing::info!(%address, tls = self.tls.is_some(), limits = self.shared.config().limits.len(), quarantined, "listening");
        if let Some(exposure) = self.shared.config().server.exposure(address) {
            tracing::warn!("{exposure}");
            self.shared.is_exposed(exposure);
        }
        let mut peers = Peers::new(&self.shared, self.tls.clone());
        let uplinks = self.serve(&listener, &mut peers, shutdown).await;
        self.shared.stop();
        tracing::info!(connections = peers.count(), "stopping: nothing is lent any more");
        drop(listener);
        tokio::join!(peers.finish(), uplinks.finish(), looks.shutdown());
        let shared = self.shared.clone();
        if tokio::task::spawn_blocking(move || shared.close_store()).await.is_err() {
            tracing::error!("the store could not be closed");
        }
        tracing::info!("stopped");
        Ok(())
    }

    async fn serve(
        &self,
        listener: &TcpListener,
        peers: &mut Peers,
        shutdown: impl Future<Output = ()>,
    ) -> Uplinks {
        let mut shutdown = pin!(shutdown);
        let mut sweep = interval(SWEEP_EVERY);
        let mut upkeep = interval(UPKEEP_EVERY);
        let mut uplinks = Uplinks::default();
        let connections_max = self.shared.config().server.connections_max;
        loop {
            self.shared.metrics().connections(peers.count());
            tokio::select! {
                () = &mut shutdown => return uplinks,
                Some(()) = peers.ended() => {}
                _ = sweep.tick() => {
                    self.shared.beside(|registry, now| registry.look_round(now, SWEEP_STEPS));
                    self.shared.with(|registry, now| registry.sweep_retired(now, SWEEP_STEPS));
                    uplinks.keep_up(&self.shared);
                }
                _ = upkeep.tick() => self.shared.metrics().upkeep(),
                accepted = listener.accept(), if peers.count() < connections_max => match accepted {
                    Ok((stream, _)) => peers.serve(without_delay(stream)),
                    Err(error) => pause(&error).await,
                },
            }
        }
    }
}

/// What makes encrypted connections, if `config` says that they are.
fn acceptor(config: &Config) -> Result<Option<Arc<Acceptor>>, TlsError> {
    config.server.tls.as_ref().map(|files| Acceptor::load(files).map(Arc::new)).transpose()
}

/// Sends what it is given at once: answers are small, and a peer waits for each.
fn without_delay(stream: TcpStream) -> TcpStream {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot send without delay");
    }
    stream
}

/// Waits, if `error` is about us and not about one peer that gave up.
async fn pause(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if ![ConnectionAborted, ConnectionRefused, ConnectionReset].contains(&error.kind()) {
        tracing::warn!(%error, "cannot accept connections");
        sleep(ACCEPT_PAUSE).await;
    }
}
