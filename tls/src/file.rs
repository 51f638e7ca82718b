//! Certificates and keys in PEM files. An error names the file, and shows nothing of a key.

use lessor_files::FileError;
use std::path::Path;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Largest file, in bytes. All roots of a machine together take about a quarter of it.
const FILE_MAX: u64 = 1 << 20;

/// Why these files cannot be used for TLS. It names the file, and nothing that is secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The machine has no root certificates.
    #[error("this machine has no root certificates: name a file with those of your own authority")]
    NoRoots,
    /// The files are good, but do not fit together.
    #[error("{0}")]
    Unfit(String),
}

impl TlsError {
    pub(crate) fn of(file: &Path, problem: impl ToString) -> Self {
        TlsError::File(FileError::of(file, problem))
    }
}

/// Reads the certificates in `file`, at least one.
pub(crate) fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = bytes(file)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let read =
        read.map_err(|_| TlsError::of(file, "this is no certificate in PEM form, or it is cut short"))?;
    if read.is_empty() {
        return Err(TlsError::of(file, "there is no certificate in PEM form in it"));
    }
    Ok(read)
}

/// Reads the key in `file`.
pub(crate) fn key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    // The parser's error may quote a line of the key.
    let wrong = |_| TlsError::of(file, "it has no unencrypted private key in PEM form");
    PrivateKeyDer::from_pem_slice(&bytes(file)?).map_err(wrong)
}

/// Reads the authorities in `file`.
pub(crate) fn authorities(file: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|error| TlsError::of(file, error))?;
    }
    Ok(roots)
}

/// Reads the authorities that this machine trusts.
pub(crate) fn authorities_of_machine() -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() { Err(TlsError::NoRoots) } else { Ok(roots) }
}

fn bytes(file: &Path) -> Result<Vec<u8>, TlsError> {
    Ok(lessor_files::read(file, FILE_MAX)?)
}
