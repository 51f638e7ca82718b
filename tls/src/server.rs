//! The server side of TLS. Its files may change while it runs: each handshake uses those in force when it begins.

use crate::file::{self, TlsError};
use crate::peer_name::PeerName;
use crate::{provider, validity};
use lessor_files::{Look, Reloading};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::server::TlsStream;

/// Time-out of a handshake, which is two round trips and some milliseconds of arithmetic. A longer one would let silent
/// peers hold connections that others need.
pub const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);

/// Application protocols, by preference.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The files of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles {
    /// The certificate, followed by those that lead to its authority, in PEM form.
    pub certificate: PathBuf,
    /// Its private key, in PEM form and not encrypted.
    pub key: PathBuf,
    /// The authorities of peers, in PEM form. If there are any, a peer needs a certificate that one of them vouches
    /// for.
    pub client_ca: Option<PathBuf>,
}

/// What the certificate of a peer says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerCertificate {
    /// The name in it.
    pub name: Option<PeerName>,
    /// The moment after which it is no longer valid.
    pub end: Option<SystemTime>,
}

/// Encrypts accepted connections.
#[derive(Debug)]
pub struct Acceptor {
    config: Arc<Reloading<ServerConfig, TlsError>>,
}

impl Acceptor {
    /// Reads `files`. If every user of the machine can read the key, the log has a warning.
    ///
    /// # Errors
    /// If one of them cannot be used.
    pub fn load(files: &ServerFiles) -> Result<Self, TlsError> {
        let all = [Some(&files.certificate), Some(&files.key), files.client_ca.as_ref()];
        let all = all.into_iter().flatten().cloned().collect();
        let files = files.clone();
        let config = Reloading::load("certificates of a server", all, Box::new(move || config(&files)))?;
        Ok(Acceptor { config: Arc::new(config) })
    }

    /// Checks the files for changes. Blocks on the disk: not for a thread that others wait for.
    pub fn look(&self) -> Look<TlsError> {
        self.config.look()
    }

    /// Checks the files periodically, until it is dropped.
    pub async fn watch(self: Arc<Self>) {
        self.config.clone().watch().await;
    }

    /// Does the handshake with the peer on `stream`. Returns what its certificate says, too, if it had to show one.
    ///
    /// # Errors
    /// If the handshake fails, or takes longer than [`HANDSHAKE_WAIT`].
    pub async fn accept<S>(&self, stream: S) -> io::Result<(TlsStream<S>, PeerCertificate)>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let handshake = tokio_rustls::TlsAcceptor::from(self.config.current()).accept(stream);
        let stream = timeout(HANDSHAKE_WAIT, handshake).await??;
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let shown =
            PeerCertificate { name: shown.and_then(PeerName::of), end: shown.and_then(validity::end) };
        Ok((stream, shown))
    }
}

fn config(files: &ServerFiles) -> Result<ServerConfig, TlsError> {
    let (chain, key) = (file::certificates(&files.certificate)?, file::key(&files.key)?);
    lessor_files::warn_if_open(&files.key, "the key");
    let unfit = |error: rustls::Error| TlsError::Unfit(error.to_string());
    let builder = ServerConfig::builder_with_provider(provider());
    let builder = builder.with_safe_default_protocol_versions().map_err(unfit)?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(authorities) => {
            let roots = Arc::new(file::authorities(authorities)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| TlsError::of(authorities, error))?)
        }
    };
    let certified = builder.with_single_cert(chain, key);
    let mut config = certified.map_err(|error| {
        let (certificate, key) = (files.certificate.display(), files.key.display());
        TlsError::Unfit(format!("{key} is not the key of {certificate}: {error}"))
    })?;
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    if files.client_ca.is_some() {
        // A resumed session would not show its certificate again.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(config)
}
