//! The URL of a store, as an operator writes it. A password in it is never shown.

mod etcd;
mod options;
mod postgres;
mod shown;

pub(super) use self::etcd::EtcdPlace;
pub(super) use self::postgres::PostgresPlace;

pub(crate) use self::options::files_in;
use self::options::{OF_TLS, Options, tls};
use super::Password;
use lessor_protocol::foreign::excerpt;
use lessor_tls::Tls;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};
use std::fmt;
use std::str::FromStr;

/// The URL of a store: `redis://`, `rediss://`, `postgres://`, `postgresql://`, `etcd://`, `etcds://`, or `memory:` for
/// cells that only this process sees and that end with it.
#[derive(Clone)]
pub struct StoreUrl {
    /// The text as written, secrets included.
    text: String,
    pub(super) place: Place,
}

lessor_protocol::words! {
    /// The kind of a store.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum StoreKind {
        /// In this process.
        Memory = "memory",
        /// Redis or Valkey.
        Redis = "redis",
        /// PostgreSQL.
        Postgres = "postgres",
        /// etcd.
        Etcd = "etcd",
    }
}

#[derive(Clone)]
pub(super) enum Place {
    Memory,
    Redis(RedisPlace),
    Postgres(Box<PostgresPlace>),
    Etcd(EtcdPlace),
}

#[derive(Clone)]
pub(super) struct RedisPlace {
    /// The server, or the servers of a cluster that are asked first. At least one.
    pub(super) hosts: Vec<Address>,
    pub(super) is_cluster: bool,
    pub(super) db: i64,
    pub(super) user: Option<String>,
    pub(super) password: Option<Password>,
    pub(super) tls: Option<Tls>,
}

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown::host_and_port(&self.host, self.port))
    }
}

impl RedisPlace {
    /// Returns the server, if it is a single one.
    pub(super) fn first(&self) -> &Address {
        self.hosts.first().expect("a URL names at least one")
    }
}

/// Why a text is no URL of a store. The text is not shown, because it may have a password in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UrlError(String);

/// Most hosts of one store in a URL. If one is down, the next one is asked.
const HOSTS_MAX: usize = 32;

const SCHEMES: &str = "redis://, rediss://, postgres://, postgresql://, etcd:// or etcds://";

impl StoreUrl {
    /// Returns the kind of the store.
    pub fn kind(&self) -> StoreKind {
        match self.place {
            Place::Memory => StoreKind::Memory,
            Place::Redis(_) => StoreKind::Redis,
            Place::Postgres(_) => StoreKind::Postgres,
            Place::Etcd(_) => StoreKind::Etcd,
        }
    }

    /// Whether it is a cluster: several servers, each of which can fail alone.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(&self.place, Place::Redis(place) if place.is_cluster)
    }

    /// Whether the URL has a password.
    pub fn has_password(&self) -> bool {
        match &self.place {
            Place::Memory => false,
            Place::Redis(place) => place.password.is_some(),
            Place::Postgres(place) => place.config.get_password().is_some(),
            Place::Etcd(place) => place.password.is_some(),
        }
    }

    /// Whether the URL has the user of a Redis or an etcd without a password: such a user has no effect, and is often a
    /// password in a wrong place.
    pub(crate) fn has_user_alone(&self) -> bool {
        match &self.place {
            Place::Memory | Place::Postgres(_) => false,
            Place::Redis(place) => place.user.is_some() && place.password.is_none(),
            Place::Etcd(place) => place.user.is_some() && place.password.is_none(),
        }
    }

    /// Returns the files of TLS, if connections are encrypted.
    pub(crate) fn tls(&self) -> Option<&Tls> {
        match &self.place {
            Place::Memory => None,
            Place::Redis(place) => place.tls.as_ref(),
            Place::Postgres(place) => place.tls.as_ref(),
            Place::Etcd(place) => place.tls.as_ref(),
        }
    }

    /// Whether the store has a clock to ask for the time: all but etcd have one.
    pub fn has_clock(&self) -> bool {
        !matches!(self.place, Place::Etcd(_))
    }
}

impl FromStr for StoreUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        // Parsers quote whatever they do not know.
        let place = place(text).map_err(|UrlError(problem)| {
            let hint = if has_bad_port(text) { PORTS } else { "" };
            UrlError(format!("{}{hint}", excerpt(&problem)))
        })?;
        Ok(StoreUrl { text: text.to_owned(), place })
    }
}

const PORTS: &str = ": a port is a number from 1 to 65535";

/// Whether a host in `text` is followed by a number that is no port.
fn has_bad_port(text: &str) -> bool {
    let rest = text.split_once("//").map_or("", |(_, rest)| rest);
    let hosts = rest.rsplit_once('@').map_or(rest, |(_, hosts)| hosts);
    let hosts = hosts.split(['/', '?', '#']).next().unwrap_or_default();
    let ports = hosts.split(',').filter_map(|host| host.rsplit_once(':')).map(|(_, port)| port);
    let mut numbers = ports.filter(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()));
    numbers.any(|port| port.parse::<u16>().map_or(true, |port| port == 0))
}

fn place(text: &str) -> Result<Place, UrlError> {
    Ok(match text.split_once(':') {
        Some(("memory", "")) => Place::Memory,
        Some(("redis", rest)) => Place::Redis(redis(rest, false)?),
        Some(("rediss", rest)) => Place::Redis(redis(rest, true)?),
        Some(("postgres" | "postgresql", rest)) => Place::Postgres(Box::new(postgres::place(rest)?)),
        Some(("etcd", rest)) => Place::Etcd(etcd::place(rest, false)?),
        Some(("etcds", rest)) => Place::Etcd(etcd::place(rest, true)?),
        _ => return Err(UrlError(format!("the URL of a store begins with {SCHEMES}"))),
    })
}

fn redis(rest: &str, is_encrypted: bool) -> Result<RedisPlace, UrlError> {
    let mut options = Options::of(rest);
    let tls = tls(&mut options, is_encrypted, "rediss://, which has TLS")?;
    let is_cluster = match options.take("cluster").as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(UrlError("cluster is true or false".to_owned())),
    };
    if !options.given.is_empty() {
        return Err(UrlError(format!("the only options of a redis URL are cluster, {OF_TLS}")));
    }
    // Each host is parsed with the rest of the URL.
    let rest = options.rest;
    let host = rest.rfind('@').map_or_else(|| if rest.starts_with("//") { 2 } else { 0 }, |at| at + 1);
    let user = &rest[..host];
    // The parser would end the host at each of these, and show the part of the password before it as the host.
    if user.strip_prefix("//").unwrap_or(user).contains(['/', '?', '#']) {
        return Err(UrlError(
            "a /, ? or # in the password of a redis URL is written as %2F, %3F or %23".to_owned(),
        ));
    }
    let end = rest[host..].find('/').map_or(rest.len(), |end| host + end);
    let hosts = rest[host..end].split(',').map(|name| one_redis(user, name, &rest[end..]));
    let infos = hosts.take(HOSTS_MAX + 1).collect::<Result<Vec<_>, _>>()?;
    if infos.len() > 1 && !is_cluster {
        return Err(UrlError("several hosts need a cluster: add ?cluster=true".to_owned()));
    }
    if infos.len() > HOSTS_MAX {
        return Err(UrlError(format!("a redis URL has at most {HOSTS_MAX} hosts")));
    }
    let settings = infos[0].1.redis_settings();
    if is_cluster && settings.db() != 0 {
        return Err(UrlError("a cluster has only database 0".to_owned()));
    }
    Ok(RedisPlace {
        db: settings.db(),
        user: settings.username().map(str::to_owned),
        password: settings.password().map(Password::new),
        tls,
        is_cluster,
        hosts: infos.into_iter().map(|(address, _)| address).collect(),
    })
}

/// Parses a URL of one host: `before` has the user, and `after` the database.
fn one_redis(before: &str, host: &str, after: &str) -> Result<(Address, ConnectionInfo), UrlError> {
    let info = format!("redis:{before}{host}{after}").into_connection_info().map_err(|error| {
        let problem = error.detail().map_or_else(|| error.to_string(), str::to_owned);
        UrlError(format!("not a redis URL: {problem}"))
    })?;
    let ConnectionAddr::Tcp(host, port) = info.addr() else { return Err(no_host()) };
    if host.is_empty() {
        return Err(no_host());
    }
    Ok((Address { host: host.clone(), port: *port }, info))
}

fn no_host() -> UrlError {
    UrlError("not a redis URL: it has no host".to_owned())
}

impl PartialEq for StoreUrl {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for StoreUrl {}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_url_shows_a_password() {
        for (text, shown) in [
            ("redis://h", "redis://h:6379/0"),
            ("redis://:s3cret@h:7/2", "redis://h:7/2"),
            ("rediss://u:s3cret@[::1]", "rediss://[::1]:6379/0"),
            ("rediss://u:s3cret@h?sslrootcert=/ca.pem", "rediss://h:6379/0"),
            ("redis://h/0?cluster=false", "redis://h:6379/0"),
            ("redis://h?cluster=true", "redis://h:6379/?cluster=true"),
            (
                "rediss://u:s3,cret@a:1,b,[::1]:3/?cluster=true&sslrootcert=/ca.pem",
                "rediss://a:1,b:6379,[::1]:3/?cluster=true",
            ),
            ("postgres://u:s3cret@h/d?sslmode=require", "postgres://h:5432/d"),
            ("postgresql://u:s3?cr/et@h:1,i:2/d", "postgres://h:1,i:2/d"),
            ("postgres://h/d?user=u", "postgres://h:5432/d"),
            ("postgres://u:s3cret@/d?host=/run/postgresql", "postgres://%2Frun%2Fpostgresql:5432/d"),
            ("postgres://u:s3cret@%2Frun%2Fa%20b:7,h/d%2Fe", "postgres://%2Frun%2Fa%20b:7,h:5432/d%2Fe"),
            ("postgres://u:s3cret@/d?hostaddr=127.0.0.1&port=7", "postgres://127.0.0.1:7/d"),
            ("etcd://h", "etcd://h:2379"),
            ("etcd://h:7/", "etcd://h:7"),
            ("etcd://u:s3c,ret@a:1,b-c.d,[::1]:3/", "etcd://a:1,b-c.d:2379,[::1]:3"),
            ("etcds://u:s3%40cr/et@[::1]?sslrootcert=/ca.pem", "etcds://[::1]:2379"),
            ("etcds://h?sslkey=/s3.key&sslcert=/s3.crt", "etcds://h:2379"),
            ("rediss://h?cluster=true&sslcert=/s3.crt&sslkey=/s3.key", "rediss://h:6379/?cluster=true"),
            ("postgres://u@h/d?sslcert=/s3.crt&sslmode=verify-full&sslkey=/s3.key", "postgres://h:5432/d"),
            ("memory:", "memory:"),
        ] {
            let url: StoreUrl = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(
                (url.to_string(), format!("{url:?}")),
                (shown.to_owned(), format!("StoreUrl({shown})"))
            );
            // The bug: the shown URL of a Unix socket could not be parsed.
            let again: StoreUrl = shown.parse().unwrap_or_else(|error| panic!("{shown}: {error}"));
            assert_eq!(again.to_string(), shown);
        }
    }

    /// The bug: user and options were left out, and URLs that differ only there counted as equal.
    #[test]
    fn without_its_password_a_url_means_the_same() {
        let files = "sslrootcert=/ca.pem&sslcert=/n.crt&sslkey=/n.key";
        let set = "application_name=a%20%26b&options=-c%20x%3Dy&sslnegotiation=direct&connect_timeout=3\
                   &tcp_user_timeout=4&keepalives=0&keepalives_idle=5&keepalives_interval=6\
                   &keepalives_retries=7&target_session_attrs=read-write&channel_binding=require\
                   &load_balance_hosts=random";
        for (text, shown) in [
            ("memory:".to_owned(), "memory:".to_owned()),
            ("redis://:s3cret@h".to_owned(), "redis://h:6379/0".to_owned()),
            ("redis://u%40:s3cret@h:7/2".to_owned(), "redis://u%40@h:7/2".to_owned()),
            (format!("rediss://u:s3cret@h?{files}"), format!("rediss://u@h:6379/0?{files}")),
            (
                format!("rediss://u:s3cret@a,b/?cluster=true&{files}"),
                format!("rediss://u@a:6379,b:6379/?cluster=true&{files}"),
            ),
            ("etcd://u:s3cret@a,b".to_owned(), "etcd://u@a:2379,b:2379".to_owned()),
            (format!("etcds://u%2F:s3cret@a?{files}"), format!("etcds://u%2F@a:2379?{files}")),
            ("postgres://h/d".to_owned(), "postgres://h:5432/d?sslmode=disable".to_owned()),
            (
                format!("postgres://u%40:s3cret@[::1],%2Frun/d?sslmode=require&{files}"),
                format!("postgres://u%40@[::1]:5432,%2Frun:5432/d?sslmode=verify-full&{files}"),
            ),
            (
                "postgres://u:s3cret@/d?hostaddr=127.0.0.1,::1&port=7".to_owned(),
                "postgres://u@/d?sslmode=disable&hostaddr=127.0.0.1,::1&port=7,7".to_owned(),
            ),
            (
                format!("postgres://u:s3cret@a:1,b:2/d?hostaddr=::1,::2&{set}"),
                "postgres://u@a:1,b:2/d?sslmode=disable&hostaddr=::1,::2&options=-c%20x%3Dy\
                 &application_name=a%20%26b&sslnegotiation=direct&connect_timeout=3&tcp_user_timeout=4&keepalives=0\
                 &keepalives_idle=5&keepalives_interval=6&keepalives_retries=7&target_session_attrs=read-write\
                 &channel_binding=require&load_balance_hosts=random"
                    .to_owned(),
            ),
        ] {
            let url: StoreUrl = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(url.without_password(), shown, "{text}");
            let again: StoreUrl = shown.parse().unwrap_or_else(|error| panic!("{shown}: {error}"));
            assert_eq!((again.without_password(), again.has_password()), (shown, false), "{text}");
            if let (Place::Postgres(was), Place::Postgres(is)) = (url.place, again.place) {
                let settings = |place: &PostgresPlace| {
                    let mut hosts = place.hosts.clone();
                    hosts.iter_mut().for_each(|host| _ = host.password(""));
                    hosts
                };
                assert!(settings(&was) == settings(&is) && was.tls == is.tls, "{text}: {:?}", is.config);
            }
        }
    }

    #[test]
    fn what_is_no_url_of_a_store_is_refused_without_being_shown() {
        for text in [
            "s3cret",
            "http://u:s3cret@h",
            "memory:s3cret",
            "redis://",
            "redis:s3cret",
            "redis://:s3cret@h/x",
            "redis://:s3/cret@h",
            // Found by the fuzzer: a piece of such a password was taken for the host, and shown.
            "redis://:a@s3?cret@h",
            "redis://u:7?s3cret@h",
            "redis://u:7/0#s3cret@h",
            "redis://:s3cret@h?ssl=yes",
            "redis://:s3cret@h?sslrootcert=/ca.pem",
            "redis://:s3cret@h,i",
            "redis://:s3cret@h,i/1?cluster=true",
            "redis://:s3cret@h,/?cluster=true",
            "redis://:s3cret@h?cluster=s3",
            "postgres://",
            "postgres://u:s3cret@h:x/d",
            "postgres://u:word@s3/cret@h/d",
            "postgres:/u:s3cret@h/d?sslm",
            // Found by the fuzzer: such an option was quoted with its line breaks.
            "postgres://u:s3cret@h/d?a\nlessor: well\r=1",
            "postgres://u:s3cret@h/d?sslmode=prefer",
            "postgres://u:s3cret@h/d?sslrootcert=/ca.pem",
            "postgres://u:s3cret@h/d?port=x",
            // Found by the fuzzer: the name of any such option was quoted.
            "postgres://u@h/d?s3cret=1",
            "postgres://h/d?application_name=a&s3cret&port=1",
            "postgres://h/d?user=u&password=a@s3cret",
            // A piece of the password was taken for the user, who is shown.
            "postgres://h/d?passwd=s3cret@b",
            "postgres://s3cret/d@h",
            "etcd://",
            "etcd:s3cret",
            "etcd://u:s3cret@",
            "etcd://:s3cret@h",
            "etcd://u:s3%zzcret@h",
            "etcd://u:s3%ffcret@h",
            "etcd://u:s3cret@h:0",
            "etcd://u:s3cret@h:99999",
            "etcd://u:s3cret@h,",
            "etcd://u:s3cret@h/s3",
            "etcd://u:s3cret@[h]",
            "etcd://u:s3cret@h s3",
            "etcd://u:s3cret@h?cluster=true",
            "etcd://u:s3cret@h?sslrootcert=/ca.pem",
            "etcds://u:s3cret@h?sslkey=/s3.key",
            "redis://u:s3cret@h?sslcert=/s3.crt&sslkey=/s3.key",
            "rediss://u:s3cret@h?sslcert=/s3.crt",
            "rediss://u:s3cret@h?sslcert=/s3.crt&sslkey=",
            "rediss://u:s3cret@h?sslrootcert=",
            "postgres://u:s3cret@h/d?sslcert=/s3.crt&sslkey=/s3.key",
            "postgres://u:s3cret@h/d?sslmode=require&sslkey=/s3.key",
        ] {
            let error = text.parse::<StoreUrl>().expect_err(text).to_string();
            assert!(!error.contains("s3") && !error.contains(char::is_control), "{text}: {error}");
        }
    }

    #[test]
    fn a_port_that_is_none_is_named_and_nothing_else() {
        let hint = |text: &str| text.parse::<StoreUrl>().expect_err(text).to_string().contains("1 to 65535");
        for text in
            ["redis://:s3cret@h:70000/x", "postgres://u:99999@h:70000/d", "etcd://h,i:0", "redis://h:65536"]
        {
            assert!(hint(text), "{text}");
        }
        for text in ["redis://:99999@h/x", "redis://h:7/x", "postgres://u:s3cret@h:x/d"] {
            assert!(!hint(text), "{text}");
        }
    }
}
