//! The name in a peer's certificate. It is read only after a handshake in which an authority vouched for the
//! certificate.

use std::fmt;
use std::sync::Arc;
use tokio_rustls::rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// Longest name, in bytes: no SPIFFE id is longer.
const NAME_MAX: usize = 2_048;

/// The name of a peer: the first SPIFFE id of its certificate, or else the first DNS name. Visible ASCII, at most 2048
/// bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerName(Arc<str>);

impl PeerName {
    /// Returns the name in `certificate`; `None` if it has no name of either kind.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = EndEntityCert::try_from(certificate).ok()?;
        let is_shown =
            |name: &&str| name.len() <= NAME_MAX && name.bytes().all(|byte| byte.is_ascii_graphic());
        let spiffe =
            certificate.valid_uri_names().filter(is_shown).find(|name| name.starts_with("spiffe://"));
        let name = spiffe.or_else(|| certificate.valid_dns_names().find(is_shown))?;
        Some(PeerName(name.into()))
    }

    /// The name as it is in the certificate.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
