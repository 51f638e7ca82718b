//! A throw-away authority with its certificates, for development and tests. It must sign nothing that matters: its key
//! lies beside its certificates.

use crate::file::TlsError;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Beginning of each authority's name. The beginning of its public key follows, so that no two are confused.
const NAME: &str = "Lessor development CA";

/// Default validity of certificates: long enough for a project, too short to be forgotten.
pub const VALID: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// How long before now certificates begin to be valid: the clocks of machines differ.
const BEFORE: Duration = Duration::from_secs(60 * 60);

/// The name in the client's certificate.
pub const CLIENT: &str = "spiffe://lessor.local/node";

/// A certificate authority.
#[derive(Debug)]
pub struct DevCa {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

/// The purpose of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A server at `localhost`, 127.0.0.1 and ::1.
    Server,
    /// A client with [`CLIENT`] as its name.
    Client,
}

/// A certificate and its key, in PEM form.
#[derive(Clone)]
pub struct Signed {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

impl DevCa {
    /// Makes a new authority.
    ///
    /// # Errors
    /// If the machine gives no random numbers.
    pub fn try_new() -> Result<Self, TlsError> {
        DevCa::of(KeyPair::generate().map_err(unfit)?)
    }

    /// Opens the authority in `folder`, or makes one there: `ca.crt` and `ca.key`. If only the key is there, writes the
    /// certificate again.
    ///
    /// # Errors
    /// If the folder or a file in it cannot be used, or its key is malformed.
    pub fn open(folder: &Path) -> Result<Self, TlsError> {
        fs::create_dir_all(folder).map_err(|error| TlsError::of(folder, error))?;
        let (file, certificate) = (folder.join("ca.key"), folder.join("ca.crt"));
        match fs::read_to_string(&file) {
            Ok(key) => {
                let wrong = |_| TlsError::of(&file, "this is no key of a development CA");
                let ca = DevCa::of(KeyPair::from_pem(&key).map_err(wrong)?)?;
                if !fs::exists(&certificate).map_err(|error| TlsError::of(&certificate, error))? {
                    write(&certificate, &ca.certificate)?;
                }
                Ok(ca)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let ca = DevCa::try_new()?;
                write(&file, &ca.issuer.key().serialize_pem())?;
                write(&certificate, &ca.certificate)?;
                Ok(ca)
            }
            Err(error) => Err(TlsError::of(&file, error)),
        }
    }

    fn of(key: KeyPair) -> Result<Self, TlsError> {
        let mut params = CertificateParams::default();
        let number: String =
            key.public_key_raw().iter().skip(1).take(4).map(|byte| format!("{byte:02x}")).collect();
        params.distinguished_name.push(DnType::CommonName, format!("{NAME} {number}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(unfit)?.pem();
        Ok(DevCa { issuer: Issuer::new(params, key), certificate })
    }

    /// The certificate of the authority, in PEM form.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Signs a new certificate that is valid for `valid` from now.
    ///
    /// # Errors
    /// If the machine gives no random numbers, or `valid` is beyond all calendars.
    pub fn sign(&self, purpose: Purpose, valid: Duration) -> Result<Signed, TlsError> {
        self.sign_until(purpose, now() + valid)
    }

    /// Signs a new certificate that is valid until `end`, which may be past.
    ///
    /// # Errors
    /// As [`DevCa::sign`].
    pub fn sign_until(&self, purpose: Purpose, end: SystemTime) -> Result<Signed, TlsError> {
        let mut params = CertificateParams::default();
        let (name, usage) = match purpose {
            Purpose::Server => ("localhost", ExtendedKeyUsagePurpose::ServerAuth),
            Purpose::Client => ("node", ExtendedKeyUsagePurpose::ClientAuth),
        };
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names = match purpose {
            Purpose::Server => vec![
                SanType::DnsName(name.try_into().map_err(unfit)?),
                SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)),
                SanType::IpAddress(IpAddr::V6(Ipv6Addr::LOCALHOST)),
            ],
            Purpose::Client => vec![SanType::URI(CLIENT.try_into().map_err(unfit)?)],
        };
        params.extended_key_usages = vec![usage];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.not_before = (end.min(now()) - BEFORE).into();
        params.not_after = end.into();
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(unfit)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(unfit)?;
        Ok(Signed { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

impl Signed {
    /// Writes `name.crt` and `name.key` into `folder`, each atomically. The key is for its owner alone.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, folder: &Path, name: &str) -> Result<(PathBuf, PathBuf), TlsError> {
        let files = (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")));
        write(&files.0, &self.certificate)?;
        write(&files.1, &self.key)?;
        Ok(files)
    }
}

/// Leaves the key out.
impl std::fmt::Debug for Signed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signed").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// Replaces `file` atomically, by one that only its owner can read.
fn write(file: &Path, text: &str) -> Result<(), TlsError> {
    let beside = file.with_extension("new");
    let written = || {
        // A file that an earlier process left behind may be open to others.
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        opened.write_all(text.as_bytes())?;
        opened.sync_all()?;
        fs::rename(&beside, file)
    };
    written().map_err(|error| TlsError::of(file, error))
}

#[expect(clippy::disallowed_methods, reason = "certificates hold by the calendar")]
fn now() -> SystemTime {
    SystemTime::now()
}

fn unfit(error: rcgen::Error) -> TlsError {
    TlsError::Unfit(format!("no certificate can be made: {error}"))
}
