//! `GET /v1/events`: what happens to limits, as server-sent events, until the listener goes or the server stops. One
//! event at a time is on its way to a listener; the rest waits in [`crate::events`], as far as it fits.

use super::problem::Problem;
use crate::access::Visitor;
use crate::audit::Origin;
use crate::events::{Full, Listener};
use crate::shared::Shared;
use axum::Extension;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use lessor_access::Rights;
use lessor_protocol::push::Event;
use std::convert::Infallible;
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// Silence after which a listener is told that the allocator is still there. After a longer silence, proxies between
/// the two take the connection for dead. A shorter time only costs.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Shortest life of a stream, after which its listener begins another: none is held for ever. Each stream ends up to
/// [`AGE_SPREAD`] steps of [`AGE_STEP`] later than the one before, so that the streams of a fleet do not all end at
/// once.
const AGE_MIN: Duration = Duration::from_secs(3_000);
const AGE_STEP: Duration = Duration::from_secs(10);
const AGE_SPREAD: usize = 60;

/// `GET /v1/events`
pub(super) async fn listen(
    State(shared): State<Arc<Shared>>,
    visitor: Visitor,
    origin: Option<Extension<Origin>>,
) -> Result<Response, Problem> {
    visitor.needs(&shared, "lease or read", Rights::may_hear)?;
    let address = origin.and_then(|Extension(origin)| origin.address);
    let listener = shared.events().listen(address, visitor.owner()).map_err(full)?;
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    let steps = u32::try_from(listener.number() % AGE_SPREAD).unwrap_or_default();
    let ends = Box::pin(sleep(AGE_MIN + AGE_STEP * steps));
    let first = Listening { listener, visitor, shared, ends };
    let body = Body::new(EventStream { next: Some(Box::pin(next(first, ": listening\n\n"))) });
    Ok((headers, body).into_response())
}

fn full(full: Full) -> Problem {
    let (bound, what) = match full {
        Full::All(bound) => (bound, "in all"),
        Full::Address(bound) => (bound, "of this address"),
        Full::Identity(bound) => (bound, "of this identity"),
    };
    let detail =
        format!("{bound} connections {what} listen, the maximum: ask as usual, answers say the same");
    Problem::unavailable("listeners_full", detail)
}

/// A listener with its rights, for as long as its stream lasts.
struct Listening {
    listener: Listener,
    visitor: Visitor,
    shared: Arc<Shared>,
    ends: Pin<Box<Sleep>>,
}

type Next = Pin<Box<dyn Future<Output = Option<(Listening, String)>> + Send>>;

/// The body of a listener's answer: events and heartbeats.
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
        let Some((listening, text)) = ready!(next_piece.as_mut().poll(cx)) else {
            self.next = None;
            return Poll::Ready(None);
        };
        self.next = Some(Box::pin(next(listening, "")));
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(text)))))
    }
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream").finish_non_exhaustive()
    }
}

/// Returns `first` if it is not empty, else the next event that the listener may hear, or a heartbeat. Returns `None`
/// when the server stops, when the stream has reached its age, and when the listener's token is no longer valid.
async fn next(mut listening: Listening, first: &'static str) -> Option<(Listening, String)> {
    if !first.is_empty() {
        return Some((listening, first.to_owned()));
    }
    // It goes on through events that the listener may not hear.
    let mut silence = pin!(sleep(HEARTBEAT));
    loop {
        let event = tokio::select! {
            event = listening.listener.next() => Some(event?),
            () = silence.as_mut() => None,
            () = listening.shared.stopped() => return None,
            () = listening.ends.as_mut() => return None,
        };
        if let Some(access) = listening.shared.access() {
            listening.visitor = access.again(&listening.visitor)?;
        }
        let text = match event {
            Some(event) if !may_hear(&listening.visitor, &event) => continue,
            Some(event) => {
                let data = serde_json::to_string(&event).expect("an event is plain data");
                format!("event: limit\ndata: {data}\n\n")
            }
            None => ":\n\n".to_owned(),
        };
        return Some((listening, text));
    }
}

/// Whether `visitor` may hear of `event`: it may lease from or read the event's limit, or the event is about no single
/// limit.
pub(super) fn may_hear(visitor: &Visitor, event: &Event) -> bool {
    event.limit.as_ref().is_none_or(|limit| visitor.may(|rights| rights.may_hear_of(limit)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Access, Shown};
    use crate::samples;
    use lessor_access::{Tokens, calendar};
    use lessor_protocol::push::Kind;
    use tokio::time::{advance, timeout};

    /// The bug: each of them began the silence anew, and the listener took the allocator for gone.
    #[tokio::test(start_paused = true)]
    async fn events_that_a_listener_may_not_hear_put_off_no_heartbeat() {
        let (mut tokens, folder) = (Tokens::default(), tempfile::tempdir().expect("a folder"));
        let made = tokens.add("ops", None, calendar(), &[7; 36]).expect("room");
        let file = folder.path().join("tokens.toml");
        std::fs::write(&file, tokens.to_string()).expect("written");
        let role = "[[role]]\nname = \"r\"\nidentities = [\"token:ops\"]\nread = [\"a\"]\n";
        let limits = samples::limits(&[("a", 1), ("b", 1)]);
        let config = samples::config(&format!("[auth]\ntokens = {file:?}\n{role}{limits}"));
        let access =
            Access::load(config.auth.as_ref().expect("it is said"), &config.server.store).expect("good");
        let shown = Shown { token: Some(made.text.reveal()), peer: None };
        let visitor = access.visitor(shown, Origin::default()).expect("it is there");
        let shared = Arc::new(Shared::new(config, true));
        let listener = shared.events().listen(None, visitor.owner()).expect("room");
        let ends = Box::pin(sleep(AGE_MIN));
        let listening = Listening { listener, visitor, shared: shared.clone(), ends };
        let told = async {
            advance(HEARTBEAT - Duration::from_secs(1)).await;
            shared.tell(&Event::of(Kind::Changed, "b"));
        };
        let (heard, ()) =
            tokio::join!(timeout(HEARTBEAT + Duration::from_secs(1), next(listening, "")), told);
        let (listening, text) = heard.expect("in time").expect("it goes on");
        assert_eq!(text, ":\n\n");
        shared.tell(&Event::of(Kind::Changed, "a"));
        let (_, text) = next(listening, "").await.expect("it goes on");
        assert!(text.contains("\"a\""), "{text}");
    }
}
