//! Requests by `http://`, and by `https://` where this build speaks it. Both bound a request in time, keep connections, follow no
//! redirect and use no proxy.

use super::{Credentials, ExchangeError, chain};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use lessor_files::Token;
use lessor_protocol::trace::TRACEPARENT;
use reqwest::Url;
use std::ops::Deref;
use std::path::Path;
use std::time::Duration;

/// How the body of a request is written.
const JSON: &str = "application/json";

/// Sends requests. Clones share connections.
#[derive(Clone, Debug)]
pub(super) enum Http {
    /// In clear.
    Plain(reqwest::Client, Option<Token>),
    /// Encrypted.
    #[cfg(feature = "tls")]
    Encrypted(lessor_tls::HttpClient),
}

/// An answer whose body is still to come.
#[derive(Debug)]
pub(crate) enum Response {
    /// In clear.
    Plain(reqwest::Response),
    /// Encrypted.
    #[cfg(feature = "tls")]
    Encrypted(lessor_tls::Response),
}

impl Http {
    /// In clear. A connection is there within `patience`, or not at all.
    pub(super) fn plain(patience: Duration, credentials: &Credentials) -> reqwest::Result<Self> {
        let builder = reqwest::Client::builder().connect_timeout(patience).tcp_nodelay(true).no_proxy();
        let client = builder.redirect(reqwest::redirect::Policy::none()).build();
        client.map(|client| Http::Plain(client, credentials.token.clone()))
    }

    /// The same over the Unix socket at `path`, whatever the host of a URL is.
    pub(super) fn over_unix(
        path: &Path,
        patience: Duration,
        credentials: &Credentials,
    ) -> reqwest::Result<Self> {
        let builder = reqwest::Client::builder().connect_timeout(patience).unix_socket(path).no_proxy();
        let client = builder.redirect(reqwest::redirect::Policy::none()).build();
        client.map(|client| Http::Plain(client, credentials.token.clone()))
    }

    /// The same, encrypted.
    #[cfg(feature = "tls")]
    pub(super) fn encrypted(patience: Duration, credentials: &Credentials) -> Result<Self, ExchangeError> {
        let client = lessor_tls::HttpClient::try_new(patience, Some(credentials.tls.clone()));
        Ok(Http::Encrypted(client?.with_token(credentials.token.clone())?))
    }

    /// Asks for what is at `url`, and says `header`.
    pub(super) async fn get(
        &self,
        url: Url,
        (name, value): (&str, &str),
        patience: Duration,
    ) -> Result<Response, ExchangeError> {
        match self {
            Http::Plain(client, token) => {
                let request = client.get(url).timeout(patience).header(name, value);
                plain(request, token.as_ref()).await
            }
            #[cfg(feature = "tls")]
            Http::Encrypted(client) => {
                let request = http::Request::get(url.as_str()).header(name, value);
                encrypted(client, request, vec![], patience).await
            }
        }
    }

    /// Sends `body`, which is JSON, to `url`; what becomes of it is a part of `span`.
    pub(super) async fn post(
        &self,
        url: Url,
        body: Vec<u8>,
        span: Option<String>,
        patience: Duration,
    ) -> Result<Response, ExchangeError> {
        match self {
            Http::Plain(client, token) => {
                let mut request = client.post(url).timeout(patience).header(CONTENT_TYPE, JSON).body(body);
                if let Some(span) = span {
                    request = request.header(TRACEPARENT, span);
                }
                plain(request, token.as_ref()).await
            }
            #[cfg(feature = "tls")]
            Http::Encrypted(client) => {
                let mut request = http::Request::post(url.as_str()).header(CONTENT_TYPE, JSON);
                if let Some(span) = span {
                    request = request.header(TRACEPARENT, span);
                }
                encrypted(client, request, body, patience).await
            }
        }
    }
}

/// Sends `request` with `token`. Once that is refused it is read again; if there is another one then, the request is sent once more:
/// what is refused so has changed nothing.
async fn plain(request: reqwest::RequestBuilder, token: Option<&Token>) -> Result<Response, ExchangeError> {
    let Some(token) = token else { return send(request).await };
    let shown = token.shown().map_err(ExchangeError::Token)?;
    let again = request.try_clone();
    let answer = send(request.bearer_auth(&shown)).await?;
    if answer.status() != StatusCode::UNAUTHORIZED {
        return Ok(answer);
    }
    let token = token.clone();
    // A disk may take its time.
    let other = tokio::task::spawn_blocking(move || token.after(&shown)).await.unwrap_or_default();
    match again.zip(other) {
        Some((request, token)) => send(request.bearer_auth(token)).await,
        None => Ok(answer),
    }
}

async fn send(request: reqwest::RequestBuilder) -> Result<Response, ExchangeError> {
    let sent = request.send().await.map(Response::Plain);
    sent.map_err(|error| ExchangeError::Unreachable(chain(&error.without_url())))
}

#[cfg(feature = "tls")]
async fn encrypted(
    client: &lessor_tls::HttpClient,
    request: http::request::Builder,
    body: Vec<u8>,
    patience: Duration,
) -> Result<Response, ExchangeError> {
    let request = request.body(body).map_err(|error| ExchangeError::Unreachable(chain(&error)))?;
    client.send(request, patience).await.map(Response::Encrypted).map_err(unreachable)
}

#[cfg(feature = "tls")]
fn unreachable(error: lessor_tls::HttpError) -> ExchangeError {
    ExchangeError::Unreachable(chain(&error))
}

/// Some bytes of a body.
pub(crate) trait Piece: Deref<Target = [u8]> + IntoIterator<Item = u8> {}

impl<B: Deref<Target = [u8]> + IntoIterator<Item = u8>> Piece for B {}

impl Response {
    /// Its status.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Response::Plain(response) => response.status(),
            #[cfg(feature = "tls")]
            Response::Encrypted(response) => response.status(),
        }
    }

    /// The next piece of the body; `None` at its end. Cancel-safe.
    pub(crate) async fn chunk(&mut self) -> Result<Option<impl Piece + use<>>, ExchangeError> {
        match self {
            Response::Plain(response) => {
                response.chunk().await.map_err(|error| ExchangeError::Unreachable(chain(&error)))
            }
            #[cfg(feature = "tls")]
            Response::Encrypted(response) => response.chunk().await.map_err(unreachable),
        }
    }
}
