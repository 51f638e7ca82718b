//! TLS of Lessor, for both sides: certificates and keys from files that may change, the handshakes, and an HTTP client.
//!
//! One provider of cryptography, `ring`, is named wherever a connection is configured. None is installed for the
//! process, so a program that links this crate keeps its own choice.
//!
//! In reading order: `file` (reads the files), `peer_name` and `validity` (the name in a certificate, and its end), `server`,
//! `client` and `http`.
//! The feature `dev-ca` adds `dev_ca`, which makes throw-away certificates. No error, log or `Debug` has any part of a
//! key.

mod client;
mod connector;
#[cfg(feature = "dev-ca")]
pub mod dev_ca;
mod file;
mod http;
mod peer_name;
mod server;
#[cfg(all(test, feature = "dev-ca"))]
mod tests;
mod validity;

pub use client::{Encryptor, Tls};
pub use file::TlsError;
pub use http::{HttpClient, HttpError, Response};
pub use lessor_files::Token;
pub use peer_name::PeerName;
pub use server::{Acceptor, HANDSHAKE_WAIT, PeerCertificate, ServerFiles};

use std::sync::Arc;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};

/// The cryptography of all connections.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
