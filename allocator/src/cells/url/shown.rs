//! Shows the URL of a store without secrets. The text can be parsed again.

use super::{Address, Place, PostgresPlace, StoreUrl};
use lessor_tls::Tls;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;
use tokio_postgres::config::{
    ChannelBinding, Config, Host, LoadBalanceHosts, SslNegotiation, TargetSessionAttrs,
};

/// The options after the question mark: names and values.
type Given = Vec<(&'static str, String)>;

/// Default port of PostgreSQL.
const POSTGRES_PORT: u16 = 5432;

/// Words of `target_session_attrs` and `channel_binding`, without the default.
const ATTRS: [(TargetSessionAttrs, &str); 2] =
    [(TargetSessionAttrs::ReadWrite, "read-write"), (TargetSessionAttrs::ReadOnly, "read-only")];
const BINDINGS: [(ChannelBinding, &str); 2] =
    [(ChannelBinding::Disable, "disable"), (ChannelBinding::Require, "require")];

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
                let mut servers = named(&place.config);
                if servers.is_empty() {
                    let addresses = place.config.get_hostaddrs().iter().enumerate();
                    let shown = |(index, address): (usize, &IpAddr)| {
                        host_and_port(&address.to_string(), port(&place.config, index))
                    };
                    servers = addresses.map(shown).collect();
                }
                f.write_str(&postgres(&place.config, &servers))
            }
        }
    }
}

impl StoreUrl {
    /// Formats the URL without its password. Two URLs have the same text if they differ in their passwords at most, or
    /// in how the same is written.
    pub fn without_password(&self) -> String {
        let user = match &self.place {
            Place::Memory => None,
            Place::Redis(place) => place.user.as_deref(),
            Place::Etcd(place) => place.user.as_deref(),
            Place::Postgres(place) => place.config.get_user(),
        };
        self.with_user(user)
    }

    /// Formats the URL without user and password.
    pub(crate) fn without_user(&self) -> String {
        self.with_user(None)
    }

    fn with_user(&self, user: Option<&str>) -> String {
        match &self.place {
            Place::Memory => self.to_string(),
            Place::Redis(_) | Place::Etcd(_) => with(&self.to_string(), user, &of_tls(self.tls())),
            Place::Postgres(place) => {
                with(&postgres(&place.config, &named(&place.config)), user, &of_postgres(place))
            }
        }
    }
}

/// Puts `user` before the servers of the URL `short`, and `options` at its end.
fn with(short: &str, user: Option<&str>, options: &[(&str, String)]) -> String {
    let user = user.map(|user| format!("{}@", escaped(user.as_bytes()))).unwrap_or_default();
    let mut shown = short.replacen("//", &format!("//{user}"), 1);
    for (name, value) in options {
        shown.push(if shown.contains('?') { '&' } else { '?' });
        shown.push_str(&format!("{name}={value}"));
    }
    shown
}

/// Returns the options that name the files of `tls`. Their values are not percent-encoded.
fn of_tls(tls: Option<&Tls>) -> Given {
    let (certificate, key) = tls.and_then(Tls::certificate_files).unzip();
    let files = [("sslrootcert", tls.and_then(Tls::ca_file)), ("sslcert", certificate), ("sslkey", key)];
    files.into_iter().filter_map(|(name, file)| Some((name, file?.display().to_string()))).collect()
}

/// Returns `sslmode`, and each other option that differs from its default. With TLS, certificate and name of the server
/// are always checked.
fn of_postgres(place: &PostgresPlace) -> Given {
    let (config, default) = (&place.config, Config::new());
    let mode = if place.tls.is_some() { "verify-full" } else { "disable" };
    let mut all = vec![("sslmode", mode.to_owned())];
    all.extend(of_tls(place.tls.as_ref()));
    let addresses = config.get_hostaddrs();
    if !addresses.is_empty() {
        all.push(("hostaddr", list(addresses.iter())));
        if config.get_hosts().is_empty() {
            all.push(("port", list((0..addresses.len()).map(|index| port(config, index)))));
        }
    }
    let text = |text: &str| escaped(text.as_bytes());
    let seconds = |span: Duration| span.as_secs().to_string();
    let idle = Some(config.get_keepalives_idle()).filter(|idle| *idle != default.get_keepalives_idle());
    let others = [
        ("options", config.get_options().map(text)),
        ("application_name", config.get_application_name().map(text)),
        ("sslnegotiation", word(config.get_ssl_negotiation(), &[(SslNegotiation::Direct, "direct")])),
        ("connect_timeout", config.get_connect_timeout().copied().map(seconds)),
        ("tcp_user_timeout", config.get_tcp_user_timeout().copied().map(seconds)),
        ("keepalives", (!config.get_keepalives()).then(|| "0".to_owned())),
        ("keepalives_idle", idle.map(seconds)),
        ("keepalives_interval", config.get_keepalives_interval().map(seconds)),
        ("keepalives_retries", config.get_keepalives_retries().map(|retries| retries.to_string())),
        ("target_session_attrs", word(config.get_target_session_attrs(), &ATTRS)),
        ("channel_binding", word(config.get_channel_binding(), &BINDINGS)),
        (
            "load_balance_hosts",
            word(config.get_load_balance_hosts(), &[(LoadBalanceHosts::Random, "random")]),
        ),
    ];
    all.extend(others.into_iter().filter_map(|(name, value)| Some((name, value?))));
    all
}

/// Returns the word for `value`; `None` if none of `words` is for it.
fn word<T: PartialEq>(value: T, words: &[(T, &str)]) -> Option<String> {
    words.iter().find(|(known, _)| *known == value).map(|(_, word)| (*word).to_owned())
}

fn list(all: impl Iterator<Item: ToString>) -> String {
    all.map(|one| one.to_string()).collect::<Vec<_>>().join(",")
}

/// Formats the URL of a PostgreSQL at `servers`.
fn postgres(config: &Config, servers: &[String]) -> String {
    let database = config.get_dbname().unwrap_or_default();
    format!("postgres://{}/{}", servers.join(","), escaped(database.as_bytes()))
}

/// Formats the servers that have names, with their ports. A Unix socket is shown as its folder.
fn named(config: &Config) -> Vec<String> {
    let hosts = config.get_hosts().iter().enumerate();
    let shown = |(index, host): (usize, &Host)| match host {
        Host::Tcp(host) => host_and_port(&escaped_but(host.as_bytes(), b":"), port(config, index)),
        #[cfg(unix)]
        Host::Unix(path) => host_and_port(&escaped(path.as_os_str().as_encoded_bytes()), port(config, index)),
    };
    hosts.map(shown).collect()
}

/// Returns the port of the server at `index`.
fn port(config: &Config, index: usize) -> u16 {
    let ports = config.get_ports();
    ports.get(index).or(ports.first()).copied().unwrap_or(POSTGRES_PORT)
}

/// Percent-encodes `text` as a part of a URL.
fn escaped(text: &[u8]) -> String {
    escaped_but(text, b"")
}

/// Percent-encodes `text` as a part of a URL in which the bytes `kept` stand for themselves.
fn escaped_but(text: &[u8], kept: &[u8]) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte) || kept.contains(byte);
    let shown = |byte: &u8| match is_plain(byte) {
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
