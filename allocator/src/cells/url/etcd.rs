//! The URL of an etcd: its members, and the user.

use super::options::{OF_TLS, Options, tls};
use super::{Address, HOSTS_MAX, UrlError};
use crate::cells::Password;
use lessor_tls::Tls;
use std::fmt;
use std::net::Ipv6Addr;

/// Default port of etcd.
const PORT: u16 = 2379;

/// The members of one etcd, and the user.
#[derive(Clone)]
pub(in crate::cells) struct EtcdPlace {
    /// At least one.
    pub(in crate::cells) hosts: Vec<Address>,
    /// The user; `None` sends no credentials.
    pub(in crate::cells) user: Option<String>,
    pub(in crate::cells) password: Option<Password>,
    pub(in crate::cells) tls: Option<Tls>,
}

/// Parses the part of a URL after its scheme.
pub(super) fn place(rest: &str, is_encrypted: bool) -> Result<EtcdPlace, UrlError> {
    let mut options = Options::of(rest);
    let tls = tls(&mut options, is_encrypted, "etcds://, which has TLS")?;
    if !options.given.is_empty() {
        return Err(UrlError(format!("the only options of an etcd URL are {OF_TLS}")));
    }
    let rest = options.rest.strip_prefix("//").ok_or_else(|| wrong("its scheme ends with ://"))?;
    let (who, hosts) = rest.rsplit_once('@').map_or((None, rest), |(who, hosts)| (Some(who), hosts));
    let (user, password) = match who {
        Some(who) => self::who(who)?,
        None => (None, None),
    };
    // A path would mean nothing.
    let hosts = hosts.strip_suffix('/').unwrap_or(hosts);
    let hosts: Vec<Address> = hosts.split(',').take(HOSTS_MAX + 1).map(host).collect::<Result<_, _>>()?;
    if hosts.len() > HOSTS_MAX {
        return Err(UrlError(format!("an etcd URL has at most {HOSTS_MAX} hosts")));
    }
    Ok(EtcdPlace { hosts, user, password, tls })
}

fn wrong(what: &str) -> UrlError {
    UrlError(format!("not an etcd URL: {what}"))
}

/// Parses the user, and the password if there is one.
fn who(text: &str) -> Result<(Option<String>, Option<Password>), UrlError> {
    let (user, password) = text.split_once(':').map_or((text, None), |(user, word)| (user, Some(word)));
    let user = decoded(user)?;
    if user.is_empty() {
        return Err(wrong("it has no user before the @"));
    }
    Ok((Some(user), password.map(decoded).transpose()?.map(Password::new)))
}

/// Decodes percent-encoding: `%40` stands for `@`.
fn decoded(text: &str) -> Result<String, UrlError> {
    let bad = || wrong("% is followed by two hexadecimal digits, of UTF-8");
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('%');
    bytes.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        let digits = part.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let digits = digits.ok_or_else(bad)?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| bad())?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

/// Parses one of the hosts between commas.
fn host(text: &str) -> Result<Address, UrlError> {
    let bad = || wrong("each host is a name or an address, with :PORT if it is not 2379");
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or_else(bad)?;
            host.parse::<Ipv6Addr>().map_err(|_| bad())?;
            (host, port)
        }
        None => {
            let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
            let is_in_names = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
            if host.is_empty() || !host.chars().all(is_in_names) {
                return Err(bad());
            }
            (host, port)
        }
    };
    let port = match port.strip_prefix(':') {
        Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or_else(bad)?,
        None if port.is_empty() => PORT,
        None => return Err(bad()),
    };
    Ok(Address { host: host.to_owned(), port })
}

/// Shows no user, no password and no options.
impl fmt::Display for EtcdPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "etcds" } else { "etcd" };
        let hosts: Vec<String> = self.hosts.iter().map(Address::to_string).collect();
        write!(f, "{scheme}://{}", hosts.join(","))
    }
}
