//! Requests by `http://`, and by `https://` where this build speaks it. Both bound a request in time, keep connections, follow no
//! redirect and use no proxy.

#[cfg(feature = "tls")]
use super::Certificates;
use super::{ExchangeError, chain};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use lessor_protocol::trace::TRACEPARENT;
use reqwest::Url;
use std::ops::Deref;
use std::time::Duration;

/// How the body of a request is written.
const JSON: &str = "application/json";

/// Sends requests. Clones share connections.
#[derive(Clone, Debug)]
pub(super) enum Http {
    /// In clear.
    Plain(reqwest::Client),
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
    pub(super) fn plain(patience: Duration) -> reqwest::Result<Self> {
        let builder = reqwest::Client::builder().connect_timeout(patience).tcp_nodelay(true).no_proxy();
        builder.redirect(reqwest::redirect::Policy::none()).build().map(Http::Plain)
    }

    /// The same, encrypted.
    #[cfg(feature = "tls")]
    pub(super) fn encrypted(patience: Duration, certificates: &Certificates) -> Result<Self, ExchangeError> {
        let client = lessor_tls::HttpClient::try_new(patience, Some(certificates.tls.clone()));
        Ok(Http::Encrypted(client?))
    }

    /// Asks for what is at `url`.
    pub(super) async fn get(&self, url: Url, patience: Duration) -> Result<Response, ExchangeError> {
        match self {
            Http::Plain(client) => plain(client.get(url).timeout(patience)).await,
            #[cfg(feature = "tls")]
            Http::Encrypted(client) => {
                encrypted(client, http::Request::get(url.as_str()), vec![], patience).await
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
            Http::Plain(client) => {
                let mut request = client.post(url).timeout(patience).header(CONTENT_TYPE, JSON).body(body);
                if let Some(span) = span {
                    request = request.header(TRACEPARENT, span);
                }
                plain(request).await
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

async fn plain(request: reqwest::RequestBuilder) -> Result<Response, ExchangeError> {
    request.send().await.map(Response::Plain).map_err(|error| ExchangeError::Unreachable(chain(&error)))
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
