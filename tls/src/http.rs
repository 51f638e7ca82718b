//! HTTP/1.1 to a server by `http://` or `https://`. It keeps connections, follows no redirect, uses no proxy, and bounds each
//! request in time.

use crate::client::Tls;
use crate::connector::Connector;
use crate::file::TlsError;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// Why there is no answer, or no more of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// It did not come in time.
    #[error("no answer in time")]
    TimedOut,
    /// No connection, or it broke. The text is of this machine and of libraries.
    #[error("{0}")]
    Failed(String),
}

/// Sends requests. Clones share connections.
#[derive(Clone, Debug)]
pub struct HttpClient {
    client: Arc<Client<Connector, Full<Bytes>>>,
}

impl HttpClient {
    /// A client whose connections are there within `patience`, or not at all. Without `tls` it speaks `http://` alone.
    ///
    /// # Errors
    /// If a file of `tls` cannot be used.
    pub fn try_new(patience: Duration, tls: Option<Tls>) -> Result<Self, TlsError> {
        let connector = Connector::new(tls.map(Tls::load).transpose()?, patience);
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new());
        Ok(HttpClient { client: Arc::new(builder.build(connector)) })
    }

    /// The answer to `request`, all of which must be there within `patience`.
    ///
    /// # Errors
    /// If none comes.
    ///
    /// # Cancel safety
    /// Dropping the future ends the request; the server may have done what it asks for.
    pub async fn send(&self, request: Request<Vec<u8>>, patience: Duration) -> Result<Response, HttpError> {
        let mut ends = Box::pin(sleep(patience));
        let request = request.map(|body| Full::new(body.into()));
        let answer = tokio::select! {
            answer = self.client.request(request) => answer,
            () = &mut ends => return Err(HttpError::TimedOut),
        };
        let (head, body) = answer.map_err(|error| HttpError::Failed(with_causes(&error)))?.into_parts();
        Ok(Response { status: head.status, headers: head.headers, body, ends })
    }
}

/// An answer whose body is still to come.
#[derive(Debug)]
pub struct Response {
    status: StatusCode,
    headers: HeaderMap,
    body: Incoming,
    ends: Pin<Box<Sleep>>,
}

impl Response {
    /// Its status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Its headers.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The next piece of the body; `None` at its end.
    ///
    /// # Errors
    /// If the connection breaks, or it is too late.
    ///
    /// # Cancel safety
    /// Cancel-safe: no piece is lost.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, HttpError> {
        loop {
            let frame = tokio::select! {
                frame = self.body.frame() => frame,
                () = &mut self.ends => return Err(HttpError::TimedOut),
            };
            let Some(frame) = frame.transpose().map_err(|error| HttpError::Failed(with_causes(&error)))?
            else {
                return Ok(None);
            };
            // What is no data is a trailer.
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }
}

/// `error` with what caused it, in one line.
fn with_causes(error: &dyn Error) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        said = format!("{said}: {error}");
        cause = error.source();
    }
    said
}
