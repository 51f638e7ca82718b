//! Files of certificates and keys, raw → checked. No file is read here: a configuration is checked on other machines,
//! too.

use super::raw::{RawServerTls, RawTls};
use lessor_tls::{ServerFiles, Tls};
use std::path::PathBuf;

/// Checks the files of a server.
pub(super) fn server(section: &str, raw: &RawServerTls) -> Result<ServerFiles, String> {
    let file = |key: &str, name: &str| file(&format!("{section}.tls.{key}"), name);
    Ok(ServerFiles {
        certificate: file("certificate", &raw.certificate)?,
        key: file("key", &raw.key)?,
        client_ca: raw.client_ca.as_deref().map(|name| file("client_ca", name)).transpose()?,
    })
}

/// Checks the files of a client of upstreams.
pub(super) fn upstream(raw: &RawTls) -> Result<Tls, String> {
    let file = |key: &str, name: &Option<String>| {
        name.as_deref().map(|name| file(&format!("upstream_tls.{key}"), name)).transpose()
    };
    let tls = match file("ca", &raw.ca)? {
        Some(ca) => Tls::new().ca(ca),
        None => Tls::new(),
    };
    match (file("certificate", &raw.certificate)?, file("key", &raw.key)?) {
        (None, None) => Ok(tls),
        (Some(certificate), Some(key)) => Ok(tls.certificate(certificate, key)),
        (Some(_), None) => {
            Err("upstream_tls.certificate is set without upstream_tls.key: set both".to_owned())
        }
        (None, Some(_)) => {
            Err("upstream_tls.key is set without upstream_tls.certificate: set both".to_owned())
        }
    }
}

fn file(key: &str, name: &str) -> Result<PathBuf, String> {
    match name {
        "" => Err(format!("{key} is \"\": name a file in PEM form")),
        name => Ok(PathBuf::from(name)),
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use crate::samples::LIMIT;

    #[test]
    fn what_is_printed_of_the_files_means_the_same() {
        for more in ["", ", client_ca = \"ca.crt\""] {
            let tls = format!("tls = {{ certificate = \"a b.crt\", key = \"/etc/a.key\"{more} }}");
            let config = Config::parse(&format!("[server]\n{tls}\n{LIMIT}")).expect("valid");
            assert!(config.server.tls.is_some());
            assert_eq!(Config::parse(&config.to_string()), Ok(config));
        }
    }

    #[test]
    fn what_upstreams_are_shown_is_printed_as_it_is_meant() {
        for tls in [
            "",
            "ca = \"a\"",
            "certificate = \"a\"\nkey = \"b\"",
            "ca = \"c\"\ncertificate = \"a\"\nkey = \"b\"",
        ] {
            let config = Config::parse(&format!("[upstream_tls]\n{tls}\n{LIMIT}")).expect("valid");
            assert!(config.upstream_tls.is_some());
            assert_eq!(Config::parse(&config.to_string()), Ok(config));
        }
        for (tls, said) in [
            ("key = \"a\"", "upstream_tls.key is set without upstream_tls.certificate"),
            ("certificate = \"a\"", "upstream_tls.certificate is set without upstream_tls.key"),
            ("ca = \"\"", "upstream_tls.ca is \"\""),
        ] {
            let error = Config::parse(&format!("[upstream_tls]\n{tls}\n{LIMIT}")).expect_err("it is wrong");
            assert_eq!((error.line(), error.problem().starts_with(said)), (2, true), "{error}");
        }
    }

    #[test]
    fn what_is_wrong_names_its_line_and_its_key() {
        for (tls, line, said) in [
            ("tls = { certificate = \"a.crt\" }", 2, "server.tls.key is missing"),
            ("tls = { key = \"a.key\" }", 2, "server.tls.certificate is missing"),
            ("\ntls = { certificate = \"\", key = \"a\" }", 3, "server.tls.certificate is \"\""),
            ("tls = { certificate = 7, key = \"a\" }", 2, "server.tls.certificate"),
            ("tls = true", 2, "server.tls"),
            ("tls = { certificate = \"a\", key = \"a\", ca = \"b\" }", 2, "unknown field `ca`"),
        ] {
            let error = Config::parse(&format!("[server]\n{tls}\n{LIMIT}")).expect_err("it is wrong");
            assert_eq!(error.line(), line, "{error}");
            assert!(error.problem().contains(said), "{error}");
        }
    }
}
