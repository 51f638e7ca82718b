//! An HTTP/1.1 client for `http://`, `https://`, or a Unix socket. It keeps connections alive, follows no redirect,
//! uses no proxy, and bounds each request in time.

use crate::client::{Encryptor, Tls};
use crate::connector::Connector;
use crate::file::TlsError;
use http::header::{AUTHORIZATION, InvalidHeaderValue};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use lessor_files::Token;
use std::error::Error;
use std::io;
use std::iter::successors;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// Why there is no answer, or no rest of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// It did not come in time.
    #[error("no answer in time")]
    TimedOut,
    /// There was no connection, or it broke. The text comes from this machine and its libraries.
    #[error("{0}")]
    Failed(String),
}

/// Sends requests. Clones share connections.
#[derive(Clone, Debug)]
pub struct HttpClient {
    client: Arc<Client<Connector, Full<Bytes>>>,
    token: Option<Token>,
}

impl HttpClient {
    /// Makes a client that connects within `patience`. Without `tls`, `https://` is refused.
    ///
    /// # Errors
    /// If a file of `tls` cannot be used.
    pub fn try_new(patience: Duration, tls: Option<Tls>) -> Result<Self, TlsError> {
        Ok(HttpClient::by(Connector::new(tls.map(Encryptor::load).transpose()?, patience)))
    }

    /// Makes a client of the server on the Unix socket at `path`, which speaks `http://`. The host of a request is
    /// sent, but not used to connect.
    pub fn over_unix(path: &Path, patience: Duration) -> Self {
        HttpClient::by(Connector::over_unix(path, patience))
    }

    fn by(connector: Connector) -> Self {
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new());
        HttpClient { client: Arc::new(builder.build(connector)), token: None }
    }

    /// Shows `token` with each request. After a refusal (401) the token is read again. If it is another one, or was just
    /// read, the request is sent once more: the refused one has changed nothing.
    ///
    /// # Errors
    /// If there is no token.
    pub fn with_token(self, token: Option<Token>) -> Result<Self, TlsError> {
        token.as_ref().map(Token::shown).transpose()?;
        Ok(HttpClient { token, ..self })
    }

    /// Sends `request`, and returns the answer. All of the answer must come within `patience`.
    ///
    /// # Errors
    /// If no answer comes.
    ///
    /// # Cancel safety
    /// Dropping the future ends the request; the server may have done what it asks for.
    pub async fn send(&self, request: Request<Vec<u8>>, patience: Duration) -> Result<Response, HttpError> {
        let ends = Box::pin(sleep(patience));
        let mut request = request.map(Bytes::from);
        let Some(token) = &self.token else { return self.send_once(request, ends).await };
        let mut showing = token.show(patience).map_err(|error| HttpError::Failed(error.to_string()))?;
        show(&mut request, showing.text());
        let mut answer = self.send_once(request.clone(), ends).await?;
        while answer.status == StatusCode::UNAUTHORIZED && showing.goes_on().await {
            show(&mut request, showing.text());
            answer = self.send_once(request.clone(), answer.ends).await?;
        }
        Ok(answer)
    }

    async fn send_once(
        &self,
        request: Request<Bytes>,
        mut ends: Pin<Box<Sleep>>,
    ) -> Result<Response, HttpError> {
        let answer = tokio::select! {
            answer = self.client.request(request.map(Full::new)) => answer,
            () = &mut ends => return Err(HttpError::TimedOut),
        };
        let (head, body) = answer.map_err(|error| HttpError::Failed(with_causes(&error)))?.into_parts();
        Ok(Response { status: head.status, headers: head.headers, body, ends })
    }
}

/// Makes the header that shows `token`. It is marked as sensitive, which keeps it out of logs and header tables.
///
/// # Errors
/// If `token` has a character that no header can have.
fn bearer(token: &str) -> Result<HeaderValue, InvalidHeaderValue> {
    let mut value = HeaderValue::try_from(format!("Bearer {token}"))?;
    value.set_sensitive(true);
    Ok(value)
}

fn show(request: &mut Request<Bytes>, token: &str) {
    // A token from its source has only characters of headers.
    if let Ok(value) = bearer(token) {
        request.headers_mut().insert(AUTHORIZATION, value);
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

    /// Returns the next piece of the body; `None` at its end.
    ///
    /// # Errors
    /// If the connection breaks, or the time of the request is over.
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
            // A frame without data holds trailers.
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }
}

/// Hint for a peer that answers a handshake with something else.
const NO_TLS: &str = " (the other side may not speak TLS: is it http://?)";

/// Hint for a peer whose answer to a plain request cannot be parsed.
const MAY_BE_TLS: &str = " (the other side may speak TLS: is it https://?)";

/// Formats `error` with its causes in one line, and with a hint if probably only one side speaks TLS.
fn with_causes(error: &(dyn Error + 'static)) -> String {
    let errors = || successors(Some(error), |&error| error.source());
    let said: Vec<String> = errors().map(ToString::to_string).collect();
    said.join(": ") + errors().find_map(hint).unwrap_or_default()
}

fn hint(error: &(dyn Error + 'static)) -> Option<&'static str> {
    let inner = error.downcast_ref::<io::Error>().and_then(|error| error.get_ref());
    let tls =
        inner.and_then(|error| error.downcast_ref::<tokio_rustls::rustls::Error>()).or(error.downcast_ref());
    if matches!(tls, Some(tokio_rustls::rustls::Error::InvalidMessage(_))) {
        return Some(NO_TLS);
    }
    error.downcast_ref::<hyper::Error>().filter(|error| error.is_parse()).map(|_| MAY_BE_TLS)
}
