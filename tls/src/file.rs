//! Certificates and keys as files: read whole, within a bound, and told apart by their marks in the file system. An error names
//! the file and shows nothing of what a key file holds.

use std::fs::{Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The largest file, in bytes. All roots of a machine together take about a quarter of it.
const FILE_MAX: u64 = 1 << 20;

/// Opens without waiting, as a pipe would make the reader do (`O_NONBLOCK` of Linux).
const NONBLOCK: i32 = 0o4000;

/// Users other than the owner and its group may read.
const OTHERS_READ: u32 = 0o004;

/// Why there is no TLS with these files. It names the file, and nothing that is secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be used.
    #[error("{}: {problem}", file.display())]
    File {
        /// Which one.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The machine has no root certificates.
    #[error("this machine has no root certificates: name a file with those of your own authority")]
    NoRoots,
    /// The files are good, and do not go together.
    #[error("{0}")]
    Unfit(String),
}

impl TlsError {
    pub(crate) fn of(file: &Path, problem: impl ToString) -> Self {
        TlsError::File { file: file.to_owned(), problem: problem.to_string() }
    }
}

/// What tells two states of a file apart without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// The mark of what `path` leads to now; `None` if it cannot be seen.
pub(crate) fn mark(path: &Path) -> Option<Mark> {
    let of = |data: Metadata| Mark {
        device: data.dev(),
        inode: data.ino(),
        length: data.len(),
        modified: (data.mtime(), data.mtime_nsec()),
        changed: (data.ctime(), data.ctime_nsec()),
    };
    std::fs::metadata(path).ok().map(of)
}

/// The certificates in `file`, at least one.
pub(crate) fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = bytes(file)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let read =
        read.map_err(|_| TlsError::of(file, "this is no certificate in PEM form, or not all of one"))?;
    if read.is_empty() {
        return Err(TlsError::of(file, "there is no certificate in PEM form in it"));
    }
    Ok(read)
}

/// The key in `file`.
pub(crate) fn key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    // What the parser says may hold a line of the key.
    let wrong = |_| TlsError::of(file, "there is no private key in PEM form in it that is not encrypted");
    PrivateKeyDer::from_pem_slice(&bytes(file)?).map_err(wrong)
}

/// Whether others than the owner of `file` and its group may read it.
pub(crate) fn is_open_to_all(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|data| data.mode() & OTHERS_READ != 0)
}

/// The authorities in `file`.
pub(crate) fn authorities(file: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|error| TlsError::of(file, error))?;
    }
    Ok(roots)
}

/// The authorities that this machine trusts.
pub(crate) fn authorities_of_machine() -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() { Err(TlsError::NoRoots) } else { Ok(roots) }
}

fn bytes(file: &Path) -> Result<Vec<u8>, TlsError> {
    let read = || {
        let opened = OpenOptions::new().read(true).custom_flags(NONBLOCK).open(file)?;
        if !opened.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
        }
        let mut bytes = vec![];
        opened.take(FILE_MAX + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|error| TlsError::of(file, format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(TlsError::of(file, format!("it is larger than {} MiB", FILE_MAX >> 20)));
    }
    Ok(bytes)
}
