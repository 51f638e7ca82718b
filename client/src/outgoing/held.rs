//! Keeps the permits of a request in use: by the request until it is answered, then by the answer until it has been
//! read.

use crate::guard::Guard;
use http_body::{Body as HttpBody, Frame, SizeHint};
use reqwest::{Body, Response, ResponseBuilderExt};
use reqwest_middleware::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The guards of a request without an answer. The vendor may still work on a request that is given up, so dropped
/// guards count for as long as a call may take.
#[derive(Default)]
pub(super) struct Unanswered(Vec<Guard>);

impl Unanswered {
    /// Adds permits that the request begins to use.
    pub(super) fn add(&mut self, guards: Vec<Guard>) {
        self.0.extend(guards);
    }

    /// Returns the response, and the guards that its body is to hold. Hands all permits back if the request never
    /// reached the vendor.
    ///
    /// # Errors
    /// The error of `answer`.
    pub(super) fn end(mut self, answer: Result<Response, Error>) -> Result<(Response, Vec<Guard>), Error> {
        let response = answer.inspect_err(|error| {
            if was_not_sent(error) {
                self.0.clear();
            }
        })?;
        Ok((response, std::mem::take(&mut self.0)))
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.0.drain(..).for_each(Guard::forget);
    }
}

/// Whether a request failed before it could reach a vendor.
fn was_not_sent(error: &Error) -> bool {
    matches!(error, Error::Reqwest(error) if error.is_connect() || error.is_builder())
}

/// A body, and the guards that it holds until its end.
struct Held {
    body: Body,
    guards: Vec<Guard>,
}

/// Returns `response` with a body that drops `guards` at its end.
pub(super) fn until_read(response: Response, mut guards: Vec<Guard>) -> Response {
    guards.retain(Guard::counts);
    if guards.is_empty() {
        return response;
    }
    let url = response.url().clone();
    let (mut parts, body) = http::Response::<Body>::from(response).into_parts();
    // The only way to keep the URL in a rebuilt response.
    let named = http::Response::builder().url(url).body(()).expect("nothing of it can be wrong");
    parts.extensions.extend(named.into_parts().0.extensions);
    let mut held = Held { body, guards };
    held.end_if_read();
    http::Response::from_parts(parts, Body::wrap(held)).into()
}

impl Held {
    /// Ends the call if nothing is left to read.
    fn end_if_read(&mut self) {
        if self.body.is_end_stream() {
            self.guards.clear();
        }
    }
}

impl HttpBody for Held {
    type Data = <Body as HttpBody>::Data;
    type Error = reqwest::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Pending => {}
            Poll::Ready(Some(Ok(_))) => self.end_if_read(),
            Poll::Ready(Some(Err(_)) | None) => self.guards.clear(),
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
