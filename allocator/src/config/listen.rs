//! Where a server listens, as an operator writes it: an address, or a Unix socket.

use super::LISTEN;
use lessor_protocol::unix;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Where a server listens. Its `Display` can be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// An IP address and a port; port 0 is any free one.
    Address(SocketAddr),
    /// The path of a Unix socket. Only this machine reaches it, and only users that its mode lets in.
    Unix(PathBuf),
}

impl Listen {
    /// Whether this is a Unix socket.
    pub(crate) fn is_unix(&self) -> bool {
        matches!(self, Listen::Unix(_))
    }

    /// Whether a server here would collide with one at `other`.
    pub(super) fn is_taken_by(&self, other: &Listen) -> bool {
        let is_any_port = matches!(self, Listen::Address(address) if address.port() == 0);
        self == other && !is_any_port
    }

    /// # Errors
    /// If `section` has certificates, as `is_encrypted` says, and this is a Unix socket. Its traffic leaves no machine,
    /// and is not encrypted.
    pub fn check_tls(&self, section: &str, is_encrypted: bool) -> Result<(), String> {
        match self {
            Listen::Unix(_) if is_encrypted => Err(format!(
                "{section}.tls is set, and {section}.listen is {self}: a Unix socket is not encrypted, leave tls \
                 out there"
            )),
            Listen::Unix(_) | Listen::Address(_) => Ok(()),
        }
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = unix::socket(text) {
            return path.map(Listen::Unix).map_err(str::to_owned);
        }
        let wrong = || {
            format!("use an IP address and a port, for example {LISTEN:?}, or unix: and the path of a socket")
        };
        text.parse().map(Listen::Address).map_err(|_| wrong())
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Address(address) => write!(f, "{address}"),
            Listen::Unix(path) => write!(f, "{}{}", unix::SCHEME, path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::samples::LIMIT;

    #[test]
    fn a_unix_socket_is_said_where_an_address_is_and_printed_as_it_is_meant() {
        let text = format!(
            "[server]\nlisten = \"unix:/run/a \\\"b.sock\"\n[admin]\nlisten = \"unix:///run/admin.sock\"\n{LIMIT}"
        );
        let config = Config::parse(&text).expect("valid");
        assert_eq!(config.server.listen, Listen::Unix("/run/a \"b.sock".into()));
        let admin = config.admin.as_ref().map(|admin| admin.listen.to_string());
        assert_eq!(admin.as_deref(), Some("unix:/run/admin.sock"));
        assert_eq!(Config::parse(&config.to_string()), Ok(config.clone()));
        // Only this machine reaches Unix sockets.
        assert_eq!(config.exposure(&config.server.listen), None);
        assert_eq!(config.admin.as_ref().and_then(|admin| config.admin_exposure(&admin.listen)), None);
    }

    #[test]
    fn what_is_no_unix_socket_is_refused_with_its_value() {
        let tls = "tls = { certificate = \"a\", key = \"b\" }";
        for (sections, said) in [
            (
                "[server]\nlisten = \"unix:a.sock\"",
                "server.listen is \"unix:a.sock\": the path of a Unix socket begins with /",
            ),
            ("[admin]\nlisten = \"unix:\"", "admin.listen is \"unix:\": the path"),
            (
                "[server]\nlisten = \"/run/a.sock\"",
                "server.listen is \"/run/a.sock\": use an IP address and a port",
            ),
            (
                "[server]\nlisten = \"unix:/a\"\n[admin]\nlisten = \"unix:///a\"",
                "admin.listen is unix:/a, as server.listen is",
            ),
            (
                &format!("[server]\nlisten = \"unix:/a\"\n{tls}"),
                "server.tls is set, and server.listen is unix:/a",
            ),
            (
                &format!("[admin]\nlisten = \"unix:/a\"\n{tls}"),
                "admin.tls is set, and admin.listen is unix:/a",
            ),
        ] {
            let error = Config::parse(&format!("{sections}\n{LIMIT}")).expect_err("it is wrong");
            assert!(error.problem().starts_with(said), "{sections}: {error}");
        }
    }
}
