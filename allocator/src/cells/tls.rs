//! TLS to a store, with files that the URL names. The store's certificate is always checked, by the authorities of a
//! file or of the machine.

use super::CellsError;
use lessor_protocol::foreign::excerpt;
use lessor_tls::{Encryptor, Tls, TlsError};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::client;

/// Loads the files of `tls` for connections. The files are checked again before each connection.
///
/// # Errors
/// If a file cannot be used. The error names the option and the file.
pub(super) fn encryptor(tls: &Tls) -> Result<Encryptor, CellsError> {
    Encryptor::load(tls.clone()).map_err(|error| {
        let option = match &error {
            TlsError::File(error) if Some(error.file.as_path()) == tls.ca_file() => "sslrootcert",
            TlsError::File(error) => match tls.certificate_files() {
                Some((_, key)) if error.file == key => "sslkey",
                Some(_) | None => "sslcert",
            },
            TlsError::NoRoots => "sslrootcert",
            TlsError::Unfit(_) => "sslkey",
        };
        CellsError::Invalid(format!("{option}: {}", excerpt(&error.to_string())))
    })
}

/// TLS for `tokio_postgres`, which begins each connection without it.
#[derive(Clone)]
pub(super) struct MakeTls(pub(super) Encryptor);

pub(super) struct Handshake {
    encryptor: Encryptor,
    host: String,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for MakeTls {
    type Stream = Encrypted<S>;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Handshake> {
        Ok(Handshake { encryptor: self.0.clone(), host: host.to_owned() })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Handshake {
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move { Ok(Encrypted(self.encryptor.connect(&self.host, stream).await?)) })
    }
}

pub(super) struct Encrypted<S>(client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
