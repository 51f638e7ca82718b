//! The client side of TLS: the authorities that it trusts, and the certificate that it shows.

use crate::file::{self, TlsError};
use crate::provider;
use lessor_files::Reloading;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig};

/// TLS of a client. By default it trusts the authorities of this machine, and shows no certificate. Files are checked
/// again before each new connection. If they are broken then, the last good ones stay in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    ca: Option<PathBuf>,
    certificate: Option<(PathBuf, PathBuf)>,
}

impl Tls {
    /// Trusts the authorities of this machine, and shows no certificate.
    pub fn new() -> Self {
        Tls::default()
    }

    /// Trusts only the authorities in `file`, in PEM form.
    #[must_use]
    pub fn ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.ca = Some(file.into());
        self
    }

    /// Shows the certificate in `certificate`, with those that lead to its authority, to servers that ask for one.
    /// `key` has its private key. Both are in PEM form, and the key is not encrypted.
    #[must_use]
    pub fn certificate(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.certificate = Some((certificate.into(), key.into()));
        self
    }

    /// The file of authorities, if one was named.
    pub fn ca_file(&self) -> Option<&Path> {
        self.ca.as_deref()
    }

    /// The files of the certificate and of its key, if they were named.
    pub fn certificate_files(&self) -> Option<(&Path, &Path)> {
        self.certificate.as_ref().map(|(certificate, key)| (certificate.as_path(), key.as_path()))
    }

    /// Reads the files once.
    ///
    /// # Errors
    /// If one of them cannot be used, or they do not fit together.
    pub fn check(&self) -> Result<(), TlsError> {
        config(self).map(|_| ())
    }
}

/// Encrypts connections to servers. Its files are checked again before each handshake. If they are broken then, the
/// last good ones stay in force. Clones share what was read.
#[derive(Clone, Debug)]
pub struct Encryptor {
    config: Arc<Reloading<ClientConfig, TlsError>>,
}

impl Encryptor {
    /// Reads the files of `tls`. If every user of the machine can read the key, the log has a warning.
    ///
    /// # Errors
    /// If one of them cannot be used, or they do not fit together.
    pub fn load(tls: Tls) -> Result<Self, TlsError> {
        let (certificate, key) = tls.certificate.clone().unzip();
        let files = [tls.ca.clone(), certificate, key].into_iter().flatten().collect();
        let config = Reloading::load("certificates of a client", files, Box::new(move || config(&tls)))?;
        Ok(Encryptor { config: Arc::new(config) })
    }

    /// Does the handshake with the server on `stream`. Its certificate must be valid for `host`: a name, or an address
    /// without brackets. The caller must bound the time.
    ///
    /// # Errors
    /// If `host` is malformed, or the handshake fails.
    ///
    /// # Cancel safety
    /// Dropping the future closes the stream.
    pub async fn connect<S>(&self, host: &str, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let config = self.config.clone();
        // Disks may be slow; other connections do not wait for them.
        let config = tokio::task::spawn_blocking(move || {
            config.look_at_once();
            config.current()
        });
        let config = config.await.map_err(io::Error::other)?;
        TlsConnector::from(config).connect(name, stream).await
    }
}

fn config(tls: &Tls) -> Result<ClientConfig, TlsError> {
    let roots = match &tls.ca {
        Some(file) => file::authorities(file)?,
        None => file::authorities_of_machine()?,
    };
    let unfit = |error: rustls::Error| TlsError::Unfit(error.to_string());
    let builder = ClientConfig::builder_with_provider(provider());
    let builder = builder.with_safe_default_protocol_versions().map_err(unfit)?.with_root_certificates(roots);
    let Some((certificate, key)) = &tls.certificate else {
        return Ok(builder.with_no_client_auth());
    };
    lessor_files::warn_if_open(key, "the key");
    builder.with_client_auth_cert(file::certificates(certificate)?, file::key(key)?).map_err(|error| {
        TlsError::Unfit(format!("{} is not the key of {}: {error}", key.display(), certificate.display()))
    })
}
