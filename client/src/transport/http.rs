//! Requests by `http://`, and by `https://` if this build supports TLS. Both have a time limit, keep connections,
//! follow no redirect and use no proxy.

use super::{Credentials, ExchangeError};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use lessor_files::Token;
use lessor_protocol::foreign::causes;
use lessor_protocol::trace::TRACEPARENT;
use reqwest::Url;
use std::ops::Deref;
use std::path::Path;
use std::time::Duration;

/// The content type of request bodies.
const JSON: &str = "application/json";

/// An HTTP client. Clones share connections.
#[derive(Clone, Debug)]
pub(super) enum Http {
    /// Unencrypted.
    Plain(reqwest::Client, Option<Token>),
    /// Encrypted.
    #[cfg(feature = "tls")]
    Encrypted(lessor_tls::HttpClient),
}

/// An answer whose body is still to come.
#[derive(Debug)]
pub(crate) enum Response {
    /// Unencrypted.
    Plain(reqwest::Response),
    /// Encrypted.
    #[cfg(feature = "tls")]
    Encrypted(lessor_tls::Response),
}

impl Http {
    /// Makes an unencrypted client. Connecting takes at most `patience`.
    pub(super) fn plain(patience: Duration, credentials: &Credentials) -> reqwest::Result<Self> {
        let builder = reqwest::Client::builder().connect_timeout(patience).tcp_nodelay(true).no_proxy();
        let client = builder.redirect(reqwest::redirect::Policy::none()).build();
        client.map(|client| Http::Plain(client, credentials.token.clone()))
    }

    /// As [`Http::plain`], over the Unix socket at `path`, whatever the host of a URL is.
    pub(super) fn over_unix(
        path: &Path,
        patience: Duration,
        credentials: &Credentials,
    ) -> reqwest::Result<Self> {
        let builder = reqwest::Client::builder().connect_timeout(patience).unix_socket(path).no_proxy();
        let client = builder.redirect(reqwest::redirect::Policy::none()).build();
        client.map(|client| Http::Plain(client, credentials.token.clone()))
    }

    /// As [`Http::plain`], encrypted.
    #[cfg(feature = "tls")]
    pub(super) fn encrypted(patience: Duration, credentials: &Credentials) -> Result<Self, ExchangeError> {
        let client = lessor_tls::HttpClient::try_new(patience, Some(credentials.tls.clone()));
        Ok(Http::Encrypted(client?.with_token(credentials.token.clone())?))
    }

    /// Sends a GET request to `url` with one more header.
    pub(super) async fn get(
        &self,
        url: Url,
        (name, value): (&str, &str),
        patience: Duration,
    ) -> Result<Response, ExchangeError> {
        match self {
            Http::Plain(client, token) => {
                let request = client.get(url).timeout(patience).header(name, value);
                plain(request, token.as_ref(), patience).await
            }
            #[cfg(feature = "tls")]
            Http::Encrypted(client) => {
                let request = http::Request::get(url.as_str()).header(name, value);
                encrypted(client, request, vec![], patience).await
            }
        }
    }

    /// Posts the JSON `body` to `url`, as a part of the trace `span`.
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
                plain(request, token.as_ref(), patience).await
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

/// Sends `request` with `token`, and once more whenever the allocator refuses the token and there is one to show next: a
/// request refused for its token has changed nothing.
async fn plain(
    request: reqwest::RequestBuilder,
    token: Option<&Token>,
    patience: Duration,
) -> Result<Response, ExchangeError> {
    let Some(token) = token else { return send(request).await };
    let mut showing = token.show(patience).map_err(ExchangeError::Token)?;
    let mut again = request.try_clone();
    let mut answer = send(request.bearer_auth(showing.text())).await?;
    while let Some(request) = again.take_if(|_| answer.status() == StatusCode::UNAUTHORIZED)
        && showing.goes_on().await
    {
        again = request.try_clone();
        answer = send(request.bearer_auth(showing.text())).await?;
    }
    Ok(answer)
}

async fn send(request: reqwest::RequestBuilder) -> Result<Response, ExchangeError> {
    let sent = request.send().await.map(Response::Plain);
    sent.map_err(|error| ExchangeError::Unreachable(causes(&error.without_url())))
}

#[cfg(feature = "tls")]
async fn encrypted(
    client: &lessor_tls::HttpClient,
    request: http::request::Builder,
    body: Vec<u8>,
    patience: Duration,
) -> Result<Response, ExchangeError> {
    let request = request.body(body).map_err(|error| ExchangeError::Unreachable(causes(&error)))?;
    client.send(request, patience).await.map(Response::Encrypted).map_err(unreachable)
}

#[cfg(feature = "tls")]
fn unreachable(error: lessor_tls::HttpError) -> ExchangeError {
    ExchangeError::Unreachable(causes(&error))
}

/// A chunk of a body.
pub(crate) trait Piece: Deref<Target = [u8]> + IntoIterator<Item = u8, IntoIter: Send> {}

impl<B: Deref<Target = [u8]> + IntoIterator<Item = u8, IntoIter: Send>> Piece for B {}

impl Response {
    /// The status of the answer.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Response::Plain(response) => response.status(),
            #[cfg(feature = "tls")]
            Response::Encrypted(response) => response.status(),
        }
    }

    /// Returns the next chunk of the body; `None` at its end. Cancel-safe.
    pub(crate) async fn chunk(&mut self) -> Result<Option<impl Piece + use<>>, ExchangeError> {
        match self {
            Response::Plain(response) => {
                let chunk = response.chunk().await;
                chunk.map_err(|error| ExchangeError::Unreachable(causes(&error.without_url())))
            }
            #[cfg(feature = "tls")]
            Response::Encrypted(response) => response.chunk().await.map_err(unreachable),
        }
    }
}
