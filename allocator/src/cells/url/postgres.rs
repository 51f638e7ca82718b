//! The URL of a PostgreSQL: its hosts, and the settings of a connection.

use super::options::{Options, tls};
use super::{HOSTS_MAX, UrlError};
use lessor_tls::Tls;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// The hosts of one database, and how to connect to them.
#[derive(Clone)]
pub(in crate::cells) struct PostgresPlace {
    /// The settings with all hosts.
    pub(in crate::cells) config: Config,
    /// The settings with each host alone, at least one.
    pub(in crate::cells) hosts: Vec<Config>,
    pub(in crate::cells) tls: Option<Tls>,
}

/// Parses the part of a URL after its scheme.
pub(super) fn place(rest: &str) -> Result<PostgresPlace, UrlError> {
    // An `@` in the option would be taken for the one before the host, and the rest for a host, which is shown.
    if rest.contains("password=") {
        return Err(UrlError(
            "a password cannot be an option of the URL: write it before the host, or into a file of its own"
                .to_owned(),
        ));
    }
    // Without `//` the parser reads another form of address, and quotes it in errors.
    if !rest.starts_with("//") {
        return Err(UrlError("not a postgres URL: its scheme ends with ://".to_owned()));
    }
    let mut options = Options::of(rest);
    // The parser would end the password at the first `@`, and show the rest of it as a host and a database.
    if options.rest.matches('@').count() > 1 {
        return Err(UrlError("an @ in the password of a postgres URL is written as %40".to_owned()));
    }
    // The parser would take all before the `@` for the user, who is shown, though it has options, with a password maybe.
    if let Some((before, _)) = options.rest[2..].split_once('@')
        && before.split(':').next().is_some_and(|user| user.contains(['/', '?', '#']))
    {
        return Err(UrlError("an @ in an option of a postgres URL is written as %40".to_owned()));
    }
    let mode = options.take("sslmode");
    let is_encrypted = match mode.as_deref() {
        None | Some("disable") => false,
        Some("require" | "verify-ca" | "verify-full") => true,
        Some(_) => {
            return Err(UrlError("sslmode is disable, require, verify-ca or verify-full".to_owned()));
        }
    };
    let tls = tls(&mut options, is_encrypted, "sslmode=require, verify-ca or verify-full")?;
    let wrong = |what: &str| UrlError(format!("not a postgres URL: {what}"));
    let url = format!("postgres:{}", options.whole());
    let mut config = url.parse::<Config>().map_err(|error| {
        // The parser quotes the name of an unknown option, which may be a piece of a password.
        let said = error.into_source().map(|source| source.to_string());
        let named = said.filter(|said| said.starts_with("invalid value for option"));
        wrong(&named.unwrap_or_else(|| "it cannot be read, or has an unknown option".to_owned()))
    })?;
    config.ssl_mode(if is_encrypted { SslMode::Require } else { SslMode::Disable });
    let (names, addresses) = (config.get_hosts().len(), config.get_hostaddrs().len());
    let count = names.max(addresses);
    if count == 0 {
        return Err(wrong("it has no host"));
    }
    if count > HOSTS_MAX {
        return Err(UrlError(format!("a postgres URL has at most {HOSTS_MAX} hosts")));
    }
    let is_fit = |part: usize, least: usize| part <= least || part == count;
    if !is_fit(names, 0) || !is_fit(addresses, 0) || !is_fit(config.get_ports().len(), 1) {
        return Err(wrong("it needs as many addresses and ports as hosts"));
    }
    let hosts = (0..count).map(|index| with_host(&config, index)).collect();
    Ok(PostgresPlace { config, hosts, tls })
}

/// Returns `config` with only the host at `index`.
fn with_host(config: &Config, index: usize) -> Config {
    let mut one = Config::new();
    match config.get_hosts().get(index) {
        Some(Host::Tcp(host)) => _ = one.host(host),
        #[cfg(unix)]
        Some(Host::Unix(path)) => _ = one.host_path(path),
        None => {}
    }
    config.get_hostaddrs().get(index).map(|address| one.hostaddr(*address));
    let ports = config.get_ports();
    ports.get(index).or(ports.first()).map(|port| one.port(*port));
    config.get_user().map(|user| one.user(user));
    config.get_password().map(|password| one.password(password));
    config.get_dbname().map(|name| one.dbname(name));
    config.get_options().map(|options| one.options(options));
    config.get_application_name().map(|name| one.application_name(name));
    config.get_connect_timeout().map(|timeout| one.connect_timeout(*timeout));
    config.get_tcp_user_timeout().map(|timeout| one.tcp_user_timeout(*timeout));
    config.get_keepalives_interval().map(|interval| one.keepalives_interval(interval));
    config.get_keepalives_retries().map(|retries| one.keepalives_retries(retries));
    one.keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        .ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .target_session_attrs(config.get_target_session_attrs())
        .channel_binding(config.get_channel_binding())
        .load_balance_hosts(config.get_load_balance_hosts());
    one
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_host_alone_every_setting_is_kept() {
        let options = "application_name=a&options=-c%20b&sslmode=require&sslnegotiation=direct&connect_timeout=3\
                       &tcp_user_timeout=4&keepalives=0&keepalives_idle=5&keepalives_interval=6\
                       &keepalives_retries=7&target_session_attrs=read-write&channel_binding=require\
                       &load_balance_hosts=random";
        let of =
            |hosts: &str| place(&format!("//u:p@{hosts}/d?{options}")).unwrap_or_else(|_| panic!("{hosts}"));
        let several = of("a:1,%2Frun,c:3");
        let alone = ["a:1", "%2Frun", "c:3"].map(|host| of(host).config);
        assert!(several.hosts == alone);
        let by_address = place("///d?hostaddr=127.0.0.1,::1&port=7").unwrap_or_else(|_| panic!("by address"));
        assert_eq!(by_address.hosts.len(), 2);
        for wrong in ["//a,b,c/d?hostaddr=::1,::2", "//a/d?port=1,2"] {
            assert!(place(wrong).is_err(), "{wrong}");
        }
    }
}
