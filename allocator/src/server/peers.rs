//! The connections of a server, each with its own task. The server hands them over as they are accepted, and owns them:
//! none outlives it, and none can hold it up.

#[cfg(test)]
mod tests;

use super::connection::{self, Peer, Serving};
use super::first_head::FirstHeads;
use super::head_timer::HeadTimer;
use super::unproven::{Proven, Unproven};
use crate::addresses::{Address, Addresses};
use crate::http;
use crate::shared::Shared;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use lessor_tls::{Acceptor, PeerCertificate};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long requests in flight may take to finish once the server stops. With its other work, the process must be gone
/// within five seconds of the signal.
const DRAIN_WAIT: Duration = Duration::from_secs(4);

/// How long the head of a request may take, and how long a connection may idle. Nodes at work send a request at least
/// every two seconds. A longer wait would let silent peers hold connections that others need.
pub(super) const HEAD_WAIT: Duration = Duration::from_secs(10);

/// Most bytes of a request's head, and of the buffered part of its body.
const BUFFER_MAX: usize = 64 << 10;

/// Most concurrent requests on one HTTP/2 connection. A node has one or two in flight.
const STREAMS_MAX: u32 = 64;

/// How often a silent HTTP/2 peer is pinged.
const PING_EVERY: Duration = Duration::from_secs(20);

/// One in this many of an address's connections may be in its handshake. Before a handshake ends, nothing is known of
/// the peer, and it costs arithmetic. A fleet behind one address that connects at once has to retry.
const HANDSHAKE_PART: usize = 4;

/// The connections, each with its task.
pub(super) struct Peers {
    service: http::Service,
    builder: Builder<TokioExecutor>,
    /// The acceptor of TLS connections, if they are encrypted.
    tls: Option<Arc<Acceptor>>,
    /// Connections of each address.
    addresses: Addresses,
    /// Connections of each address that are in their handshake.
    handshakes: Addresses,
    heads: FirstHeads,
    /// Tells connections to finish, and handshakes to end.
    stops: watch::Sender<()>,
    tasks: JoinSet<u64>,
    unproven: Unproven,
}

impl Peers {
    /// Makes an empty set. Its connections ask `part` of `shared`, over `tls` if that is there, and at most
    /// `per_address` are of one address.
    pub(super) fn new(
        shared: &Arc<Shared>,
        part: http::Part,
        tls: Option<Arc<Acceptor>>,
        per_address: usize,
    ) -> Self {
        let config = shared.config();
        let files = match part {
            http::Part::Admin { .. } => config.admin.as_ref().and_then(|admin| admin.tls.as_ref()),
            http::Part::Whole | http::Part::Nodes { .. } => config.server.tls.as_ref(),
        };
        let asks = config.auth.is_some() || files.is_some_and(|files| files.client_ca.is_some());
        Peers {
            service: http::Service::new(shared.clone(), part),
            builder: builder(),
            tls,
            addresses: Addresses::new(per_address),
            handshakes: Addresses::new((per_address / HANDSHAKE_PART).max(1)),
            heads: FirstHeads::new(),
            stops: watch::Sender::new(()),
            tasks: JoinSet::new(),
            unproven: Unproven::new(asks),
        }
    }

    /// Serves a connection from `address`. It is closed at once if that address has too many connections or handshakes.
    /// Returns whether it is served.
    pub(super) fn serve(
        &mut self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        address: Address,
    ) -> bool {
        let Some(place) = self.addresses.place(address) else { return false };
        let (mut builder, service) = (self.builder.clone(), self.service.clone());
        builder.http1().timer(HeadTimer::default());
        let (heads, stops) = (self.heads.clone(), self.stops.subscribe());
        let serving = Serving { service, builder, heads, stops };
        let (number, proven) = (self.unproven.number(), Proven::default());
        let peer = Peer { address, certificate: PeerCertificate::default(), proven: proven.clone() };
        let task = if let Some(tls) = self.tls.clone() {
            let Some(handshake) = self.handshakes.place(address) else { return false };
            let mut ends = self.stops.subscribe();
            self.tasks.spawn(async move {
                let _place = place;
                let shaken = tokio::select! {
                    shaken = tls.accept(stream) => shaken,
                    // A handshake has asked for nothing yet. An error means that the server is gone.
                    _ = ends.changed() => return number,
                };
                drop(handshake);
                match shaken {
                    Ok((stream, certificate)) => {
                        certificate.name.iter().for_each(|_| peer.proven.set());
                        connection::serve(stream, serving, Peer { certificate, ..peer }).await;
                    }
                    Err(error) => tracing::debug!(%error, "a TLS handshake failed"),
                }
                number
            })
        } else {
            self.tasks.spawn(async move {
                let _place = place;
                connection::serve(stream, serving, peer).await;
                number
            })
        };
        self.unproven.begin(number, proven, task);
        true
    }

    /// Connections that are open, and those that have ended since [`Peers::ended`] was last polled.
    pub(super) fn count(&self) -> usize {
        self.tasks.len()
    }

    /// Whether ending a connection whose peer has proven no identity would make room.
    pub(super) fn can_make_room(&mut self) -> bool {
        self.unproven.can_make_room()
    }

    /// Ends the oldest connection whose peer has proven no identity.
    pub(super) fn make_room(&mut self) {
        self.unproven.make_room();
    }

    /// Waits until a connection has ended; `None` if there is none. Cancel-safe.
    pub(super) async fn ended(&mut self) -> Option<()> {
        let ended = self.tasks.join_next().await?;
        self.unproven.end(ended.as_ref().ok().copied());
        if let Err(error) = ended
            && error.is_panic()
        {
            tracing::error!(%error, "the task of a connection has panicked: this is a bug");
        }
        Some(())
    }

    /// Lets requests in flight finish, for a while, and ends the rest.
    pub(super) async fn finish(mut self) {
        self.stops.send_replace(());
        if timeout(DRAIN_WAIT, async { while self.ended().await.is_some() {} }).await.is_err() {
            tracing::info!("ending connections that did not finish by themselves");
        }
        self.tasks.shutdown().await;
    }
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    // Hyper takes at most a hundred header fields. A bound of our own would cost each request two allocations.
    builder.http1().header_read_timeout(HEAD_WAIT).max_buf_size(BUFFER_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(BUFFER_MAX as u32);
    builder
}
