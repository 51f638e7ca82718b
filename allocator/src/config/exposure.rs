//! Whether an address that is listened on lets in any peer of another machine.

use super::{AdminConfig, ServerConfig};
use lessor_tls::ServerFiles;
use std::fmt;
use std::net::SocketAddr;

/// An address that other machines reach, where a peer needs no certificate. Its `Display` says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exposure {
    /// The section of the configuration that has the address.
    pub section: &'static str,
    address: SocketAddr,
    is_encrypted: bool,
    /// The operator has said `insecure = true`.
    pub is_accepted: bool,
}

impl ServerConfig {
    /// The exposure of a service for nodes at `address`; `None` if only this machine reaches it, or peers need a certificate.
    pub fn exposure(&self, address: SocketAddr) -> Option<Exposure> {
        exposure("server", address, self.tls.as_ref(), self.insecure)
    }
}

impl AdminConfig {
    /// The same of the service for operators.
    pub fn exposure(&self, address: SocketAddr) -> Option<Exposure> {
        exposure("admin", address, self.tls.as_ref(), self.insecure)
    }
}

fn exposure(
    section: &'static str,
    address: SocketAddr,
    tls: Option<&ServerFiles>,
    is_accepted: bool,
) -> Option<Exposure> {
    let is_mutual = tls.is_some_and(|files| files.client_ca.is_some());
    let is_exposed = !is_mutual && !address.ip().to_canonical().is_loopback();
    is_exposed.then_some(Exposure { section, address, is_encrypted: tls.is_some(), is_accepted })
}

impl fmt::Display for Exposure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Exposure { section, address, is_encrypted, .. } = self;
        let clear = if *is_encrypted { "" } else { " and is spoken in clear" };
        write!(f, "{section}.listen is {address}, which other machines reach: any of them is let in{clear}")
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    fn exposure(server: &str, address: &str) -> Option<(bool, String)> {
        let limit =
            "[[limit]]\nname = \"a\"\nrules = [{ kind = \"fixed_window\", limit = 1, per = \"1s\" }]\n";
        let config = Config::parse(&format!("[server]\n{server}\n{limit}")).expect("valid");
        assert_eq!(Config::parse(&config.to_string()), Ok(config.clone()));
        let exposure = config.server.exposure(address.parse().expect("an address"));
        exposure.map(|exposure| (exposure.is_accepted, exposure.to_string()))
    }

    #[test]
    fn what_other_machines_reach_needs_certificates_of_peers() {
        let tls = "tls = { certificate = \"a\", key = \"b\" }";
        let mutual = "tls = { certificate = \"a\", key = \"b\", client_ca = \"c\" }";
        for address in ["127.0.0.1:7400", "127.8.0.1:1", "[::1]:7400", "[::ffff:127.0.0.1]:1"] {
            assert_eq!(exposure("", address), None, "{address}");
        }
        for address in ["0.0.0.0:7400", "[::]:7400", "10.0.0.1:1", "[::ffff:10.0.0.1]:1", "169.254.1.1:1"] {
            assert_eq!(exposure(mutual, address), None, "{address}");
            let (is_accepted, said) = exposure("", address).expect("it is exposed");
            assert!(!is_accepted && said.contains(address) && said.contains("in clear"), "{said}");
            let (is_accepted, said) =
                exposure(&format!("insecure = true\n{tls}"), address).expect("it is exposed");
            assert!(is_accepted && !said.contains("in clear"), "{said}");
        }
    }
}
