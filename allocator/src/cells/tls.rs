//! TLS to a store, with files that the URL names. The store's certificate is always checked, by the authorities of a
//! file or of the machine.

use super::CellsError;
use lessor_protocol::foreign::excerpt;
use lessor_tls::{Encryptor, Tls, TlsError};
use std::io;
use std::pin::Pin;
use tokio::io::{AsyncRead, AsyncWrite};
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
    type Stream = Box<dyn Encrypted>;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Handshake> {
        Ok(Handshake { encryptor: self.0.clone(), host: host.to_owned() })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Handshake {
    type Stream = Box<dyn Encrypted>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Stream>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let stream: Box<dyn Encrypted> = Box::new(self.encryptor.connect(&self.host, stream).await?);
            Ok(stream)
        })
    }
}

/// An encrypted stream.
pub(super) trait Encrypted: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Encrypted for client::TlsStream<S> {}

impl TlsStream for Box<dyn Encrypted> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}
