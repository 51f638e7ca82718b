//! One connection from its first byte to its end. It ends by itself, at its peer's wish, when the server stops, or
//! because its peer exceeds a bound.

use super::budget::{Budget, Found, LOOK_EVERY};
use super::first_head::{FirstHeads, Whole};
use super::frames::Frames;
use super::patience::Patience;
use super::peers::HEAD_WAIT;
use super::unproven::Proven;
use crate::addresses::Address;
use crate::http;
use axum::http::Version;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use lessor_tls::PeerName;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

/// How long a connection that was asked to end may take to finish requests in flight, while the server goes on.
const LAST_WAIT: Duration = Duration::from_secs(10);

/// Everything that a connection is served with.
pub(super) struct Serving {
    pub(super) service: http::Service,
    pub(super) builder: Builder<TokioExecutor>,
    /// Counts bytes that peers send before their first request is whole.
    pub(super) heads: FirstHeads,
    /// Changes when the server stops.
    pub(super) stops: watch::Receiver<()>,
}

/// The peer of a connection.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) address: Address,
    /// The name in its certificate, if it had to show one.
    pub(super) name: Option<PeerName>,
    /// Set once the peer has proven an identity.
    pub(super) proven: Proven,
}

/// Serves `stream` until it ends.
pub(super) async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    serving: Serving,
    peer: Peer,
) {
    if let Some(name) = &peer.name {
        tracing::debug!(peer = %name, "a peer was let in by its certificate");
    }
    let Serving { service, builder, heads, mut stops } = serving;
    let service = service.of_peer(peer.address, peer.proven.clone());
    let (spoke, budget) = (Arc::new(Notify::new()), Arc::new(Budget::default()));
    let whole = Whole::default();
    let first = heads.begin(peer.address, whole.clone());
    let stream = TokioIo::new(Frames::new(Patience::new(stream), budget.clone(), first));
    let service = {
        let (spoke, budget) = (spoke.clone(), budget.clone());
        service_fn(move |mut request: Request<Incoming>| {
            spoke.notify_one();
            whole.set();
            // HTTP/1 has one answer at a time, whose write is already bounded.
            let begun = (request.version() == Version::HTTP_2).then(|| budget.begin());
            if let Some(name) = &peer.name {
                request.extensions_mut().insert(name.clone());
            }
            let answer = service.clone().answer(request);
            async move {
                let response = answer.await?;
                Ok::<_, std::convert::Infallible>(match begun {
                    None => response,
                    Some(begun) => begun.answer(response),
                })
            }
        })
    };
    let mut connection = pin!(builder.serve_connection(stream, service).into_owned());
    // The time-outs of hyper begin once it knows the version of HTTP. The alarm bounds peers that do not get that far.
    let mut alarm = pin!(sleep(HEAD_WAIT));
    let (mut is_silent, mut ends, mut server_stops) = (true, false, false);
    loop {
        tokio::select! {
            result = connection.as_mut() => {
                if let Err(error) = result {
                    tracing::debug!(%error, "a connection ended early");
                }
                return;
            }
            // An error means that the server is gone.
            _ = stops.changed(), if !server_stops => {
                server_stops = true;
                connection.as_mut().graceful_shutdown();
            }
            () = spoke.notified(), if is_silent => {
                is_silent = false;
                alarm.set(sleep(LOOK_EVERY));
            }
            () = alarm.as_mut(), if is_silent || budget.is_used() => match budget.look() {
                _ if is_silent => return,
                Found::Unread => return tracing::debug!("a peer does not read its answers"),
                Found::Done if ends => return,
                Found::Done => {
                    ends = true;
                    connection.as_mut().graceful_shutdown();
                    alarm.set(sleep(LAST_WAIT));
                }
                Found::Fine => alarm.set(sleep(LOOK_EVERY)),
            },
        }
    }
}
