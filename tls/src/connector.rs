//! Makes the connections of an HTTP client: plain, encrypted with the certificates in force, or over a Unix socket.

use crate::client::Encryptor;
use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::time::timeout;
use tower_service::Service;

type Problem = Box<dyn std::error::Error + Send + Sync>;

/// Connects to the host of a URI.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    plain: HttpConnector,
    tls: Option<Encryptor>,
    /// The Unix socket to connect to, whatever the URI names.
    socket: Option<Arc<Path>>,
    patience: Duration,
}

impl Connector {
    /// Makes connections within `patience`, handshakes included. Without `tls`, `https://` is refused.
    pub(crate) fn new(tls: Option<Encryptor>, patience: Duration) -> Self {
        let mut plain = HttpConnector::new();
        plain.set_nodelay(true);
        plain.enforce_http(false);
        plain.set_connect_timeout(Some(patience));
        Connector { plain, tls, socket: None, patience }
    }

    /// Makes plain connections to the Unix socket at `path`.
    pub(crate) fn over_unix(path: &Path, patience: Duration) -> Self {
        Connector { socket: Some(path.into()), ..Connector::new(None, patience) }
    }

    async fn connect(mut self, uri: Uri) -> Result<TokioIo<Box<dyn Stream>>, Problem> {
        if let Some(path) = &self.socket {
            return Ok(TokioIo::new(Box::new(UnixStream::connect(path).await?)));
        }
        let is_encrypted = uri.scheme_str() == Some("https");
        let name = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        let stream = self.plain.call(uri).await?.into_inner();
        if !is_encrypted {
            return Ok(TokioIo::new(Box::new(stream)));
        }
        let tls = self.tls.ok_or("this client is not set up for TLS")?;
        let stream = tls.connect(&name, stream).await?;
        Ok(TokioIo::new(Box::new(stream)))
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Box<dyn Stream>>;
    type Error = Problem;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Problem>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Problem>> {
        self.plain.poll_ready(cx).map_err(Problem::from)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        let patience = self.patience;
        Box::pin(async move {
            timeout(patience, connector.connect(uri)).await.map_err(|_| "no connection in time")?
        })
    }
}

/// A connection, encrypted or not.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Connection for Box<dyn Stream> {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}
