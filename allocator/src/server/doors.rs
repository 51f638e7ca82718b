//! The addresses that a server listens on: one for nodes, and maybe one for operators. Each has its own connections.

use super::peers::Peers;
use crate::config::Listen;
use crate::http::Part;
use crate::listener::{Accepted, Listener};
use crate::shared::Shared;
use lessor_protocol::{CLOCK, Moment};
use lessor_tls::Acceptor;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::sleep;

/// Pause when the process has no files left for another connection. Others will close.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Shortest time between two lines of the log about connections that cannot be accepted.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// Pause when all places are taken, before the next look for a connection that may make room.
const FULL_PAUSE: Duration = Duration::from_millis(100);

/// A listener with its connections.
pub(super) struct Door {
    listener: Listener,
    peers: Peers,
    connections_max: usize,
    /// The connection that came while all places were taken, and for which one is being freed.
    waiting: Option<Accepted>,
    /// When the log last said that connections cannot be accepted.
    told: Option<Moment>,
    /// For the count of connections that were closed at once.
    shared: Arc<Shared>,
}

/// Bounds of connections that may be open at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) connections: usize,
    /// Connections of one address.
    pub(super) per_address: usize,
}

impl Bounds {
    /// Makes the bounds at `listen`. All peers of a Unix socket have one address, so only the bound of all applies
    /// there.
    pub(super) fn new(connections: usize, per_address: usize, listen: &Listen) -> Self {
        Bounds { connections, per_address: if listen.is_unix() { connections } else { per_address } }
    }
}

/// The doors of a server.
pub(super) struct Doors {
    pub(super) nodes: Door,
    pub(super) admin: Option<Door>,
}

impl Door {
    /// Opens a door to `part` of `shared`, with TLS if `tls` is there.
    pub(super) fn new(
        shared: &Arc<Shared>,
        listener: Listener,
        (part, tls): (Part, Option<Arc<Acceptor>>),
        bounds: Bounds,
    ) -> Self {
        let peers = Peers::new(shared, part, tls, bounds.per_address);
        Door {
            listener,
            peers,
            connections_max: bounds.connections,
            waiting: None,
            told: None,
            shared: shared.clone(),
        }
    }

    /// Waits until a connection has come or ended. Cancel-safe.
    async fn next(&mut self) {
        let is_full = self.peers.count() >= self.connections_max;
        if let Some(waiting) = self.waiting.take_if(|_| !is_full) {
            return self.accept(waiting);
        }
        let is_open = self.waiting.is_none() && (!is_full || self.peers.can_make_room());
        tokio::select! {
            Some(()) = self.peers.ended() => {}
            accepted = self.listener.accept(), if is_open => match accepted {
                // The connection is served as soon as its place is free.
                Ok(accepted) if is_full => {
                    self.waiting = Some(accepted);
                    self.peers.make_room();
                }
                Ok(accepted) => self.accept(accepted),
                Err(error) => self.pause(&error).await,
            },
            // By then another connection may have had its time to prove an identity.
            () = sleep(FULL_PAUSE), if !is_open => {}
        }
    }

    fn accept(&mut self, accepted: Accepted) {
        let address = accepted.address();
        let is_served = match accepted {
            Accepted::Tcp(stream, _) => self.peers.serve(without_delay(stream), address),
            Accepted::Unix(stream) => self.peers.serve(stream, address),
        };
        if !is_served {
            self.shared.metrics().connection_refused();
            tracing::debug!(%address, "this address has too many connections");
        }
    }

    /// Waits, unless `error` only says that one peer gave up.
    async fn pause(&mut self, error: &io::Error) {
        use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
        if ![ConnectionAborted, ConnectionRefused, ConnectionReset].contains(&error.kind()) {
            let now = CLOCK.now();
            if self.told.is_none_or(|told| now.since(told) >= TOLD_EVERY) {
                self.told = Some(now);
                tracing::warn!(%error, "cannot accept connections");
            }
            sleep(ACCEPT_PAUSE).await;
        }
    }

    async fn finish(self) {
        drop(self.listener);
        self.peers.finish().await;
    }
}

impl Doors {
    /// Waits until a connection has come or ended. Cancel-safe.
    pub(super) async fn next(&mut self) {
        match &mut self.admin {
            None => self.nodes.next().await,
            Some(admin) => tokio::select! {
                () = self.nodes.next() => {}
                () = admin.next() => {}
            },
        }
    }

    /// Connections that are open.
    pub(super) fn count(&self) -> usize {
        self.nodes.peers.count() + self.admin.as_ref().map_or(0, |admin| admin.peers.count())
    }

    /// Lets requests in flight finish, for a while, and ends the rest.
    pub(super) async fn finish(self) {
        let admin = async {
            if let Some(admin) = self.admin {
                admin.finish().await;
            }
        };
        tokio::join!(self.nodes.finish(), admin);
    }
}

/// Turns off Nagle's algorithm: answers are small, and a peer waits for each.
fn without_delay(stream: TcpStream) -> TcpStream {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot send without delay");
    }
    stream
}
