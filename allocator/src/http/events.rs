//! `GET /v1/events`: what happens to limits, as server-sent events, until the listener goes or the server stops. One
//! event at a time is on its way to a listener; what it has not taken yet waits in [`crate::events`], as far as it fits.

use super::problem::Problem;
use crate::access::Visitor;
use crate::events::Listener;
use crate::shared::Shared;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use lessor_access::Rights;
use lessor_protocol::push::Event;
use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::timeout;

/// A listener that hears nothing for so long is told that the allocator is still there. After a longer silence, proxies
/// between the two take the connection for dead. A shorter time only costs.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// `GET /v1/events`
pub(super) async fn listen(State(shared): State<Arc<Shared>>, visitor: Visitor) -> Result<Response, Problem> {
    visitor.needs(&shared, "lease or read", Rights::may_hear)?;
    let Some(listener) = shared.events().listen() else {
        let detail = "as many listen as may: ask as usual, everything is heard that way too";
        return Err(Problem::unavailable("listeners_full", detail));
    };
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    let body =
        Body::new(EventStream { next: Some(Box::pin(next((listener, visitor), shared, ": listening\n\n"))) });
    Ok((headers, body).into_response())
}

/// One that listens, with what it may hear.
type Ear = (Listener, Visitor);

type Next = Pin<Box<dyn Future<Output = Option<(Ear, Arc<Shared>, String)>> + Send>>;

/// The body of a listener's answer: events, and signs of life.
struct EventStream {
    /// The next piece; `None` at the end.
    next: Option<Next>,
}

impl HttpBody for EventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(next_piece) = &mut self.next else { return Poll::Ready(None) };
        let Some((ear, shared, text)) = ready!(next_piece.as_mut().poll(cx)) else {
            self.next = None;
            return Poll::Ready(None);
        };
        self.next = Some(Box::pin(next(ear, shared, "")));
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(text)))))
    }
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream").finish_non_exhaustive()
    }
}

/// `first`, or else the next event that may be heard, or a sign of life. `None` when the server stops, as a stream must not hold it
/// up, and when the token of the listener is not good any more.
async fn next(
    (mut listener, mut visitor): Ear,
    shared: Arc<Shared>,
    first: &'static str,
) -> Option<(Ear, Arc<Shared>, String)> {
    if !first.is_empty() {
        return Some(((listener, visitor), shared, first.to_owned()));
    }
    loop {
        let event = tokio::select! {
            event = timeout(HEARTBEAT, listener.next()) => event,
            () = shared.stopped() => return None,
        };
        if let Some(access) = shared.access() {
            visitor = access.again(&visitor)?;
        }
        let text = match event {
            Ok(Some(event)) if !may_hear(&visitor, &event) => continue,
            Ok(Some(event)) => {
                let data = serde_json::to_string(&event).expect("an event is plain data");
                format!("event: limit\ndata: {data}\n\n")
            }
            Ok(None) => return None,
            Err(_) => ":\n\n".to_owned(),
        };
        return Some(((listener, visitor), shared, text));
    }
}

/// Whether `event` may be told to `visitor`: it is about a limit that it may lease from or look at, or about all.
pub(super) fn may_hear(visitor: &Visitor, event: &Event) -> bool {
    event.limit.as_ref().is_none_or(|limit| visitor.may(|rights| rights.may_hear_of(limit)))
}
