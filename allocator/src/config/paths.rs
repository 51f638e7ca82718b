//! Relative paths in a configuration: they count from the folder of its file, whatever the working directory is.

use super::auth::TokensAt;
use super::raw::{RawAudit, RawAuth, RawConfig, RawServerTls, RawTls, RawUpstreamAuth};
use crate::cells::files_in;
use std::path::Path;

/// Puts `folder` before each relative path in `raw`. An address that is a Unix socket has an absolute path anyway.
pub(super) fn place(raw: &mut RawConfig, folder: &Path) {
    let mut paths = vec![];
    let of_admin = raw.admin.as_mut().and_then(|admin| admin.tls.as_mut());
    for RawServerTls { certificate, key, client_ca } in raw.server.tls.as_mut().into_iter().chain(of_admin) {
        paths.extend([Some(certificate), Some(key), client_ca.as_mut()]);
    }
    if let Some(RawTls { ca, certificate, key }) = &mut raw.upstream_tls {
        paths.extend([ca.as_mut(), certificate.as_mut(), key.as_mut()]);
    }
    if let Some(RawUpstreamAuth { token_file }) = &mut raw.upstream_auth {
        paths.push(Some(token_file));
    }
    if let Some(RawAuth { tokens, jwt, exchanges_per_second_max: _ }) = &mut raw.auth {
        paths.push(tokens.as_mut().filter(|tokens| *tokens != TokensAt::STORE));
        paths.push(jwt.as_mut().map(|jwt| &mut jwt.keys));
    }
    if let Some(RawAudit { path, bytes_max: _, files_max: _ }) = &mut raw.audit {
        paths.push(Some(path));
    }
    paths.extend([raw.store.path.as_mut(), raw.store.password_file.as_mut()]);
    // An empty path is left for its check.
    for path in paths.into_iter().flatten().filter(|path| !path.is_empty()) {
        *path = folder.join(&*path).display().to_string();
    }
    if let Some(url) = &mut raw.store.url {
        *url = files_in(url, folder);
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use crate::samples::LIMIT;
    use std::path::Path;

    /// The bug: a unit of systemd, whose working directory is /, did not find the files beside its configuration.
    #[test]
    fn relative_paths_count_from_the_folder_of_the_file() {
        let settings = |folder: &str| {
            format!(
                "[server]\ntls = {{ certificate = \"{folder}s.crt\", key = \"{folder}s.key\", client_ca = \"{folder}c.crt\" }}\n\
                 [admin]\nlisten = \"127.0.0.1:1\"\ntls = {{ certificate = \"{folder}a.crt\", key = \"{folder}a.key\" }}\n\
                 [upstream_tls]\nca = \"{folder}u.crt\"\ncertificate = \"{folder}n.crt\"\nkey = \"{folder}n.key\"\n\
                 [upstream_auth]\ntoken_file = \"{folder}u.token\"\n\
                 [auth]\ntokens = \"{folder}tokens.toml\"\n\
                 jwt = {{ keys = \"{folder}jwks.json\", issuer = \"i\", audience = \"a\" }}\n\
                 [[role]]\nname = \"r\"\nidentities = [\"token:a\"]\nread = [\"*\"]\n\
                 [audit]\npath = \"{folder}audit.jsonl\"\n[store]\npath = \"{folder}books.redb\"\n{LIMIT}"
            )
        };
        let absolute = Config::parse(&settings("/etc/lessor/")).expect("valid");
        for (from, folder) in [("/etc/lessor", ""), ("/etc", "lessor/"), ("/elsewhere", "/etc/lessor/")] {
            assert_eq!(Config::parse_in(&settings(folder), Path::new(from)), Ok(absolute.clone()), "{from}");
        }
        let password = |file: &str| {
            format!("[store]\nkind = \"redis\"\nurl = \"redis://h\"\npassword_file = \"{file}\"\n{LIMIT}")
        };
        let placed = Config::parse_in(&password("word"), Path::new("/run"));
        assert_eq!(placed, Config::parse(&password("/run/word")));
        let shared = "[store]\nkind = \"etcd\"\nurl = \"etcd://h\"\n[auth]\ntokens = \"store\"\n\
                      [[role]]\nname = \"r\"\nidentities = [\"token:a\"]\nread = [\"*\"]\n";
        let shared = Config::parse_in(&format!("{shared}{LIMIT}"), Path::new("/run")).expect("valid");
        assert_eq!(shared.auth.expect("there is one").tokens.expect("there are some").file(), None);
        let url = "url = \"rediss://:p@h?cluster=true&sslrootcert=no.crt\"";
        let error =
            Config::parse_in(&format!("[store]\nkind = \"redis\"\n{url}\n{LIMIT}"), Path::new("/nowhere"));
        let error = error.expect_err("the file is missing").to_string();
        assert!(error.contains("sslrootcert: /nowhere/no.crt: cannot be read"), "{error}");
        let empty = Config::parse_in(&format!("[audit]\npath = \"\"\n{LIMIT}"), Path::new("/run"));
        assert!(empty.expect_err("no file").to_string().contains("audit.path is \"\""));
    }
}
