//! Shows the URL of a store without secrets. The text can be parsed again.

use super::{Address, Place, StoreUrl};
use std::fmt;
use tokio_postgres::config::{Config, Host};

/// Default port of PostgreSQL.
const POSTGRES_PORT: u16 = 5432;

/// Shows where the store is, from the parsed parts: no user, no password, no options.
impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Memory => f.write_str("memory:"),
            Place::Redis(place) => {
                let scheme = if place.tls.is_some() { "rediss" } else { "redis" };
                let hosts = place.hosts.iter().map(Address::to_string).collect::<Vec<_>>().join(",");
                match place.is_cluster {
                    true => write!(f, "{scheme}://{hosts}/?cluster=true"),
                    false => write!(f, "{scheme}://{hosts}/{}", place.db),
                }
            }
            Place::Etcd(place) => write!(f, "{place}"),
            Place::Postgres(place) => {
                let database = place.config.get_dbname().unwrap_or_default();
                write!(f, "postgres://{}/{}", hosts(&place.config), escaped(database.as_bytes()))
            }
        }
    }
}

/// Formats the servers with their ports: names, or else addresses. A Unix socket is shown as its folder.
fn hosts(config: &Config) -> String {
    let ports = config.get_ports();
    let port = |index: usize| ports.get(index).or(ports.first()).copied().unwrap_or(POSTGRES_PORT);
    let named = config.get_hosts().iter().enumerate().map(|(index, host)| match host {
        Host::Tcp(host) if host.contains(':') => host_and_port(host, port(index)),
        Host::Tcp(host) => host_and_port(&escaped(host.as_bytes()), port(index)),
        #[cfg(unix)]
        Host::Unix(path) => host_and_port(&escaped(path.as_os_str().as_encoded_bytes()), port(index)),
    });
    let mut shown: Vec<String> = named.collect();
    if shown.is_empty() {
        let addresses = config.get_hostaddrs().iter().enumerate();
        shown = addresses.map(|(index, host)| host_and_port(&host.to_string(), port(index))).collect();
    }
    shown.join(",")
}

/// Percent-encodes `text` as a part of a URL.
fn escaped(text: &[u8]) -> String {
    let shown = |byte: &u8| match byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
        true => char::from(*byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.iter().map(shown).collect()
}

pub(super) fn host_and_port(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}
