//! The connections of a server, each with its own task. The server hands them over as they are accepted, and owns
//! them: none outlives it, and none can hold it up.

#[cfg(test)]
mod tests;

use super::head_timer::HeadTimer;
use super::patience::Patience;
use crate::http;
use crate::shared::Shared;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use lessor_tls::{Acceptor, PeerName};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long requests that are in flight may take to finish once it stops. With what the process does besides, it
/// must be gone within five seconds of the signal.
const DRAIN_WAIT: Duration = Duration::from_secs(4);

/// How long the head of a request may take, and a connection may idle. Nodes at work say something every two
/// seconds at least; longer would let silent peers hold connections that others need.
const HEAD_WAIT: Duration = Duration::from_secs(10);

/// Bytes of a request's head, or of what is buffered of its body.
const BUFFER_MAX: usize = 64 << 10;

/// Requests at a time on one HTTP/2 connection. A node has one or two in flight.
const STREAMS_MAX: u32 = 64;

/// How often an HTTP/2 peer that says nothing is asked whether it is still there.
const PING_EVERY: Duration = Duration::from_secs(20);

/// The connections, each with its task.
pub(super) struct Peers {
    service: http::Service,
    builder: Builder<TokioExecutor>,
    /// What encrypts them, if they are encrypted.
    tls: Option<Arc<Acceptor>>,
    /// Tells connections to finish.
    graceful: GracefulShutdown,
    /// Tells handshakes to end: nothing was asked for in them yet.
    handshakes: watch::Sender<()>,
    tasks: JoinSet<()>,
}

impl Peers {
    /// None yet. All of them will ask `part` of `shared`, by `tls` if that is there.
    pub(super) fn new(shared: &Arc<Shared>, part: http::Part, tls: Option<Arc<Acceptor>>) -> Self {
        Peers {
            service: http::Service::new(shared.clone(), part),
            builder: builder(),
            tls,
            graceful: GracefulShutdown::new(),
            handshakes: watch::Sender::new(()),
            tasks: JoinSet::new(),
        }
    }

    /// Serves one more.
    pub(super) fn serve(&mut self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let (mut builder, service, watcher) =
            (self.builder.clone(), self.service.clone(), self.graceful.watcher());
        builder.http1().timer(HeadTimer::default());
        let Some(tls) = self.tls.clone() else {
            self.tasks.spawn(serve_peer(stream, builder, service, watcher, None));
            return;
        };
        let mut ends = self.handshakes.subscribe();
        self.tasks.spawn(async move {
            let shaken = tokio::select! {
                shaken = tls.accept(stream) => shaken,
                // An error means that there is no server any more.
                _ = ends.changed() => return,
            };
            match shaken {
                Ok((stream, name)) => serve_peer(stream, builder, service, watcher, name).await,
                Err(error) => tracing::debug!(%error, "a handshake came to nothing"),
            }
        });
    }

    /// Connections that are open, and those that have ended since [`Peers::ended`] was last polled.
    pub(super) fn count(&self) -> usize {
        self.tasks.len()
    }

    /// Waits until one has ended; `None` if there is none. Cancel-safe.
    pub(super) async fn ended(&mut self) -> Option<()> {
        let ended = self.tasks.join_next().await?;
        if let Err(error) = ended
            && error.is_panic()
        {
            tracing::error!(%error, "the task of a connection has panicked: this is a bug");
        }
        Some(())
    }

    /// Lets requests in flight finish, for a while, and ends the rest.
    pub(super) async fn finish(mut self) {
        self.handshakes.send_replace(());
        if timeout(DRAIN_WAIT, self.graceful.shutdown()).await.is_err() {
            tracing::info!("ending connections that did not finish by themselves");
        }
        self.tasks.shutdown().await;
    }
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    // Of header fields hyper takes a hundred at most. A bound of our own would cost each request two lists.
    builder.http1().header_read_timeout(HEAD_WAIT).max_buf_size(BUFFER_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(BUFFER_MAX as u32);
    builder
}

async fn serve_peer(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    builder: Builder<TokioExecutor>,
    service: http::Service,
    watcher: Watcher,
    name: Option<PeerName>,
) {
    if let Some(name) = &name {
        tracing::debug!(peer = %name, "a peer was let in by its certificate");
    }
    let spoke = Arc::new(Notify::new());
    let service = {
        let spoke = spoke.clone();
        service_fn(move |mut request: hyper::Request<Incoming>| {
            spoke.notify_one();
            if let Some(name) = &name {
                request.extensions_mut().insert(name.clone());
            }
            service.clone().answer(request)
        })
    };
    let connection = builder.serve_connection(TokioIo::new(Patience::new(stream)), service).into_owned();
    let mut connection = pin!(watcher.watch(connection));
    // The time-outs of hyper begin once it knows which HTTP this is: a peer that does not get that far is ours.
    let first = tokio::select! {
        result = &mut connection => Some(result),
        spoken = timeout(HEAD_WAIT, spoke.notified()) => match spoken {
            Ok(()) => None,
            Err(_) => return,
        },
    };
    let result = match first {
        Some(result) => result,
        None => connection.await,
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection ended early");
    }
}
