//! Finds addresses that let in any peer of another machine, or on which others can read the traffic.

use super::{Config, Listen};
use lessor_tls::ServerFiles;
use std::fmt;
use std::net::SocketAddr;

/// An address that other machines reach, where peers prove no identity, or prove it in clear. Its `Display` says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exposure {
    /// The section of the configuration that has the address.
    pub section: &'static str,
    address: SocketAddr,
    is_encrypted: bool,
    is_authenticated: bool,
    /// Whether the operator has said `insecure = true`, or peers prove an identity.
    pub is_accepted: bool,
}

impl Config {
    /// Returns the exposure of the service for nodes at `listen`. `None` if only this machine reaches it, or if its
    /// traffic is encrypted and peers prove their identity.
    pub fn exposure(&self, listen: &Listen) -> Option<Exposure> {
        self.exposed("server", listen, self.server.tls.as_ref(), self.server.insecure)
    }

    /// Returns the exposure of the service for operators.
    pub fn admin_exposure(&self, listen: &Listen) -> Option<Exposure> {
        let admin = self.admin.as_ref()?;
        self.exposed("admin", listen, admin.tls.as_ref(), admin.insecure)
    }

    fn exposed(
        &self,
        section: &'static str,
        listen: &Listen,
        tls: Option<&ServerFiles>,
        is_insecure: bool,
    ) -> Option<Exposure> {
        let Listen::Address(address) = *listen else { return None };
        let (is_encrypted, is_authenticated) = (tls.is_some(), self.auth.is_some());
        let is_mutual = tls.is_some_and(|files| files.client_ca.is_some());
        let is_closed = is_mutual || (is_encrypted && is_authenticated);
        let is_accepted = is_insecure || is_authenticated;
        let exposure = Exposure { section, address, is_encrypted, is_authenticated, is_accepted };
        (!is_closed && !address.ip().to_canonical().is_loopback()).then_some(exposure)
    }
}

impl fmt::Display for Exposure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Exposure { section, address, is_encrypted, is_authenticated, .. } = self;
        if *is_authenticated {
            return write!(
                f,
                "{section}.listen is {address}, which other machines reach: tokens are sent to it in clear, set tls"
            );
        }
        let clear = if *is_encrypted { "" } else { " and is spoken in clear" };
        write!(f, "{section}.listen is {address}, which other machines reach: any of them is let in{clear}")
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use crate::samples::LIMIT;

    fn exposure(server: &str, address: &str) -> Option<(bool, String)> {
        let config = Config::parse(&format!("[server]\n{server}\n{LIMIT}")).expect("valid");
        assert_eq!(Config::parse(&config.to_string()), Ok(config.clone()));
        let exposure = config.exposure(&address.parse().expect("an address"));
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

    #[test]
    fn identities_close_an_address_and_tokens_in_clear_are_a_warning() {
        let auth =
            "[auth]\ntokens = \"t\"\n[[role]]\nname = \"r\"\nidentities = [\"token:a\"]\nread = [\"*\"]\n";
        let exposure = |server: &str| {
            let config = Config::parse(&format!("[server]\n{server}\n{auth}{LIMIT}")).expect("valid");
            config.exposure(&"10.0.0.1:7400".parse().expect("an address"))
        };
        let clear = exposure("").expect("tokens can be read on the way");
        assert!(clear.is_accepted && clear.to_string().contains("tokens are sent to it in clear"));
        assert_eq!(exposure("tls = { certificate = \"a\", key = \"b\" }"), None);
    }
}
