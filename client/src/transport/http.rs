//! Requests by `http://`, and by `https://` if this build supports TLS. Both have a time limit, keep connections,
//! follow no redirect and use no proxy.

use super::{Credentials, ExchangeError};
use http::StatusCode;
use lessor_files::Token;
use lessor_protocol::foreign::causes;
use reqwest::RequestBuilder;
use std::ops::Deref;
use std::path::Path;
use std::time::Duration;

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
    /// Makes an unencrypted client. Connecting takes at most `patience`. With `socket` it connects to the Unix socket
    /// there, whatever the host of a URL is.
    pub(super) fn plain(
        socket: Option<&Path>,
        patience: Duration,
        credentials: &Credentials,
    ) -> reqwest::Result<Self> {
        let builder = reqwest::Client::builder().connect_timeout(patience).tcp_nodelay(true).no_proxy();
        let mut builder = builder.redirect(reqwest::redirect::Policy::none());
        if let Some(path) = socket {
            builder = builder.unix_socket(path);
        }
        Ok(Http::Plain(builder.build()?, credentials.token.clone()))
    }

    /// As [`Http::plain`], encrypted.
    #[cfg(feature = "tls")]
    pub(super) fn encrypted(patience: Duration, credentials: &Credentials) -> Result<Self, ExchangeError> {
        let client = lessor_tls::HttpClient::try_new(patience, Some(credentials.tls.clone()));
        Ok(Http::Encrypted(client?.with_token(credentials.token.clone())?))
    }

    /// Sends `request` with `body`. All of the answer must come within `patience`.
    pub(super) async fn send(
        &self,
        request: http::request::Builder,
        body: Vec<u8>,
        patience: Duration,
    ) -> Result<Response, ExchangeError> {
        let request = request.body(body).map_err(|error| ExchangeError::Unreachable(causes(&error)))?;
        match self {
            Http::Plain(client, token) => {
                let request = request.try_into().map_err(broken)?;
                let request = RequestBuilder::from_parts(client.clone(), request).timeout(patience);
                plain(request, token.as_ref(), patience).await
            }
            #[cfg(feature = "tls")]
            Http::Encrypted(client) => {
                client.send(request, patience).await.map(Response::Encrypted).map_err(unreachable)
            }
        }
    }
}

/// Sends `request` with `token`, and once more whenever the allocator refuses the token and there is one to show next: a
/// request refused for its token has changed nothing.
async fn plain(
    request: RequestBuilder,
    token: Option<&Token>,
    patience: Duration,
) -> Result<Response, ExchangeError> {
    let Some(token) = token else { return send_once(request).await };
    let mut showing = token.show(patience).map_err(ExchangeError::Token)?;
    let mut again = request.try_clone();
    let mut answer = send_once(request.bearer_auth(showing.text())).await?;
    while let Some(request) = again.take_if(|_| answer.status() == StatusCode::UNAUTHORIZED)
        && showing.goes_on().await
    {
        again = request.try_clone();
        answer = send_once(request.bearer_auth(showing.text())).await?;
    }
    Ok(answer)
}

async fn send_once(request: RequestBuilder) -> Result<Response, ExchangeError> {
    request.send().await.map(Response::Plain).map_err(broken)
}

fn broken(error: reqwest::Error) -> ExchangeError {
    ExchangeError::Unreachable(causes(&error.without_url()))
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
            Response::Plain(response) => response.chunk().await.map_err(broken),
            #[cfg(feature = "tls")]
            Response::Encrypted(response) => response.chunk().await.map_err(unreachable),
        }
    }
}
