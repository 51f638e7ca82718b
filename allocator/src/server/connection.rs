//! One connection from its first byte to its end. It ends by itself, at its peer's wish, when the server stops, or
//! because its peer exceeds a bound.

use super::budget::{Budget, Found, LOOK_EVERY};
use super::first_head::FirstHeads;
use super::frames::Frames;
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
use lessor_access::calendar;
use lessor_tls::PeerCertificate;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

/// How long a connection that was asked to end may take to finish requests in flight, while the server goes on.
const LAST_WAIT: Duration = Duration::from_secs(10);

/// Age at which a connection is asked to end, in steps. None is held for ever, and what its peer proved at its begin is
/// not believed for ever. Its client opens another. After each step the calendar is read, because time passes on it, and
/// on no timer, while the machine is suspended.
const AGE_STEP: Duration = Duration::from_secs(60);
const AGE_STEPS: u32 = 60;

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
    /// What its certificate says, if it had to show one.
    pub(super) certificate: PeerCertificate,
    /// Set once the peer has proven an identity.
    pub(super) proven: Proven,
}

/// Serves `stream` until it ends.
pub(super) async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    serving: Serving,
    peer: Peer,
) {
    let PeerCertificate { name, end } = peer.certificate.clone();
    if let Some(name) = &name {
        tracing::debug!(peer = %name, "a peer was let in by its certificate");
    }
    let Serving { service, builder, heads, mut stops } = serving;
    let service = service.of_peer(peer.address, peer.proven.clone());
    let (spoke, budget) = (Arc::new(Notify::new()), Arc::new(Budget::default()));
    let whole = Arc::<AtomicBool>::default();
    let first = heads.begin(peer.address, whole.clone());
    let stream = TokioIo::new(Frames::new(stream, budget.clone(), first));
    let service = {
        let (spoke, budget) = (spoke.clone(), budget.clone());
        service_fn(move |mut request: Request<Incoming>| {
            spoke.notify_one();
            // The flag guards no other memory.
            whole.store(true, Relaxed);
            // HTTP/1 has one answer at a time, whose write is already bounded.
            let begun = (request.version() == Version::HTTP_2).then(|| budget.begin());
            if let Some(name) = &name {
                request.extensions_mut().insert(name.clone());
            }
            service.answer(request, |response| match begun {
                None => response,
                Some(begun) => begun.answer(response),
            })
        })
    };
    let mut connection = pin!(builder.serve_connection(stream, service).into_owned());
    // The time-outs of hyper begin once it knows the version of HTTP. The alarm bounds peers that do not get that far.
    let mut alarm = pin!(sleep(HEAD_WAIT));
    let mut life = pin!(life(|| end.map(|end| end.duration_since(calendar()).unwrap_or_default())));
    let mut last = pin!(sleep(LAST_WAIT));
    let (mut is_silent, mut ends, mut is_old, mut server_stops) = (true, false, false, false);
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
            () = life.as_mut(), if !is_old => {
                is_old = true;
                connection.as_mut().graceful_shutdown();
                last.set(sleep(LAST_WAIT));
            }
            () = last.as_mut(), if is_old => return,
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

/// Waits until a connection has reached its age, or `valid` has come to an end: the time for which the certificate of
/// its peer is valid, if there is one.
async fn life(valid: impl Fn() -> Option<Duration>) {
    for _ in 0..AGE_STEPS {
        let step = valid().map_or(AGE_STEP, |left| left.min(AGE_STEP));
        if step.is_zero() {
            return;
        }
        sleep(step).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::pin::Pin;
    use tokio::time::timeout;

    #[tokio::test(start_paused = true)]
    async fn a_connection_lives_for_an_hour_or_as_long_as_its_certificate() {
        let second = Duration::from_secs(1);
        let lasts = async |life: Pin<&mut dyn Future<Output = ()>>, span: Duration| {
            let mut life = life;
            let is_early = timeout(span - second, life.as_mut()).await.is_ok();
            !is_early && timeout(2 * second, life).await.is_ok()
        };
        assert!(lasts(pin!(life(|| None)), 3_600 * second).await);
        assert!(lasts(pin!(life(|| Some(90 * 86_400 * second))), 3_600 * second).await);
        let left = Cell::new(150 * second);
        let passing = || Some(left.replace(left.get().saturating_sub(AGE_STEP)));
        assert!(lasts(pin!(life(passing)), 150 * second).await);
        // Suspended for an hour in the second step.
        let mut spans = [150, 90, 0].into_iter().map(|seconds| seconds * second);
        let spans = std::cell::RefCell::new(&mut spans);
        assert!(lasts(pin!(life(|| spans.borrow_mut().next())), 120 * second).await);
        life(|| Some(Duration::ZERO)).await;
    }
}
