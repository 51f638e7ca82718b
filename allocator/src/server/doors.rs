//! The addresses that a server listens on: one for nodes, and maybe one for operators. Each has connections of its own.

use super::peers::Peers;
use crate::config::Listen;
use crate::http::Part;
use crate::listener::{Accepted, Listener};
use crate::shared::Shared;
use lessor_tls::Acceptor;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::sleep;

/// How long to wait when there are no files left for another connection. Others will close.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long to wait when all places are taken, before a look at those that may make room.
const FULL_PAUSE: Duration = Duration::from_millis(100);

/// An address that is listened on.
pub(super) struct Door {
    listener: Listener,
    peers: Peers,
    connections_max: usize,
    /// It has come where all places were taken, and one is made free for it.
    waiting: Option<Accepted>,
    /// For the count of those that were closed at once.
    shared: Arc<Shared>,
}

/// Connections that are open at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) connections: usize,
    /// Of one address.
    pub(super) per_address: usize,
}

impl Bounds {
    /// At `listen`. All peers of a Unix socket have one address: the bound of all is the bound of each then.
    pub(super) fn new(connections: usize, per_address: usize, listen: &Listen) -> Self {
        Bounds { connections, per_address: if listen.is_unix() { connections } else { per_address } }
    }
}

/// All of them.
pub(super) struct Doors {
    pub(super) nodes: Door,
    pub(super) admin: Option<Door>,
}

impl Door {
    /// Serves a part of `shared`, by certificates if there are any.
    pub(super) fn new(
        shared: &Arc<Shared>,
        listener: Listener,
        (part, tls): (Part, Option<Arc<Acceptor>>),
        bounds: Bounds,
    ) -> Self {
        let peers = Peers::new(shared, part, tls, bounds.per_address);
        Door { listener, peers, connections_max: bounds.connections, waiting: None, shared: shared.clone() }
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
                // It is served as soon as its place is free.
                Ok(accepted) if is_full => {
                    self.waiting = Some(accepted);
                    self.peers.make_room();
                }
                Ok(accepted) => self.accept(accepted),
                Err(error) => pause(&error).await,
            },
            // Some have had their time by then.
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
            tracing::debug!(%address, "a connection too many of this address");
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
