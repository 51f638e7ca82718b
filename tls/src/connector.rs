//! Makes the connections of an HTTP client: plain, encrypted with the certificates in force, or over a Unix socket.

use crate::client::Encryptor;
use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use std::io::{self, IoSlice};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
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

    async fn connect(mut self, uri: Uri) -> Result<TokioIo<Stream>, Problem> {
        if let Some(path) = &self.socket {
            return Ok(TokioIo::new(Stream(Box::new(UnixStream::connect(path).await?))));
        }
        let is_encrypted = uri.scheme_str() == Some("https");
        let name = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        let stream = self.plain.call(uri).await?.into_inner();
        if !is_encrypted {
            return Ok(TokioIo::new(Stream(Box::new(stream))));
        }
        let tls = self.tls.ok_or("this client is not set up for TLS")?;
        let stream = tls.connect(&name, stream).await?;
        Ok(TokioIo::new(Stream(Box::new(stream))))
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
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

/// A byte stream.
trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Wire for S {}

/// A connection, encrypted or not.
pub(crate) struct Stream(Box<dyn Wire>);

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
