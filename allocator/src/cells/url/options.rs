//! The options after the question mark of a URL, and those of TLS.

use super::UrlError;
use lessor_tls::Tls;
use std::path::Path;

/// The options of TLS, as errors name them.
pub(super) const OF_TLS: &str = "sslrootcert, sslcert and sslkey";

/// A URL and the options after its question mark. A question mark before the last `@` belongs to a password.
pub(super) struct Options<'a> {
    pub(super) rest: &'a str,
    pub(super) given: Vec<&'a str>,
}

impl<'a> Options<'a> {
    pub(super) fn of(url: &'a str) -> Self {
        let host = url.rfind('@').unwrap_or(0);
        match url[host..].find('?') {
            Some(at) => {
                let given = url[host + at + 1..].split('&').filter(|option| !option.is_empty());
                Options { rest: &url[..host + at], given: given.collect() }
            }
            None => Options { rest: url, given: vec![] },
        }
    }

    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        let is_it = |option: &&str| option.split_once('=').is_some_and(|(known, _)| known == name);
        let at = self.given.iter().position(is_it)?;
        self.given.remove(at).split_once('=').map(|(_, value)| value.to_owned())
    }

    pub(super) fn whole(&self) -> String {
        match self.given.is_empty() {
            true => self.rest.to_owned(),
            false => format!("{}?{}", self.rest, self.given.join("&")),
        }
    }
}

/// Returns `url` with the files of TLS in `folder`, where it names them by relative paths.
pub(crate) fn files_in(url: &str, folder: &Path) -> String {
    let mut options = Options::of(url);
    let placed: Vec<String> = options.given.iter().map(|option| placed(option, folder)).collect();
    options.given = placed.iter().map(String::as_str).collect();
    options.whole()
}

fn placed(option: &str, folder: &Path) -> String {
    match option.split_once('=') {
        Some((name @ ("sslrootcert" | "sslcert" | "sslkey"), file)) if !file.is_empty() => {
            format!("{name}={}", folder.join(file).display())
        }
        Some(_) | None => option.to_owned(),
    }
}

/// Takes the options of TLS; `None` if the URL uses none. `needs` names what TLS needs in the URL.
///
/// # Errors
/// If an option is there without TLS, is empty, or lacks its counterpart.
pub(super) fn tls(
    options: &mut Options<'_>,
    is_encrypted: bool,
    needs: &str,
) -> Result<Option<Tls>, UrlError> {
    let mut take = |name: &'static str| match options.take(name) {
        Some(_) if !is_encrypted => Err(UrlError(format!("{name} needs {needs}"))),
        Some(file) if file.is_empty() => Err(UrlError(format!("{name} is empty: name a file"))),
        file => Ok(file),
    };
    let (ca, certificate, key) = (take("sslrootcert")?, take("sslcert")?, take("sslkey")?);
    let tls = ca.into_iter().fold(Tls::new(), Tls::ca);
    let tls = match (certificate, key) {
        (Some(certificate), Some(key)) => tls.certificate(certificate, key),
        (None, None) => tls,
        (Some(_), None) => return Err(UrlError("sslcert needs sslkey, the file of its key".to_owned())),
        (None, Some(_)) => {
            return Err(UrlError("sslkey needs sslcert, the file of its certificate".to_owned()));
        }
    };
    Ok(is_encrypted.then_some(tls))
}
