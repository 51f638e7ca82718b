//! A client for the admin API of an allocator: one request, one answer, and any error in one line.

use super::AddressArgs;
use crate::failure::Failure;
use http::header::CONTENT_TYPE;
use http::request::Builder;
use http::{Method, Request, StatusCode};
use lessor_protocol::unix;
use lessor_tls::{HttpClient, HttpError};
use reqwest::Url;
use serde_json::Value;
use std::time::Duration;

/// Longest time that an answer may take. A preview of a thousand pools takes a few milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// Largest answer that is read, in bytes.
const BODY_MAX: usize = 64 << 20;

/// A client for one allocator.
#[derive(Debug)]
pub(crate) struct Server {
    http: HttpClient,
    /// Base of the request URLs.
    base: Url,
    /// Address of the allocator, for people.
    address: String,
    /// Query parameters of each request that decides something.
    said: Vec<(&'static str, String)>,
}

/// An answer of the allocator.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(super) status: StatusCode,
    pub(super) etag: Option<String>,
    pub(super) body: Value,
}

impl Server {
    /// Creates a client for the allocator that `args` name.
    ///
    /// # Errors
    /// If the address is invalid, or a certificate file cannot be used.
    pub(crate) fn try_new(args: &AddressArgs) -> Result<Self, Failure> {
        let url = &args.server;
        let wrong = |problem: String| Failure::Input(format!("--server is {:?}: {problem}", shown(url)));
        let socket = unix::socket(url).transpose().map_err(|problem| wrong(problem.to_owned()))?;
        // Every allocator accepts this host.
        let base = if socket.is_some() { "http://localhost/" } else { url };
        let form = || "use http://host:port, https://host:port, or unix: and the path of a socket".to_owned();
        // An address without a scheme is the usual mistake; the parser calls it a relative URL.
        let base = Url::parse(base)
            .map_err(|error| wrong(if url.contains("://") { error.to_string() } else { form() }))?;
        if !["http", "https"].contains(&base.scheme()) || base.cannot_be_a_base() {
            return Err(wrong(form()));
        }
        if !base.username().is_empty() || base.password().is_some() {
            return Err(wrong("an allocator asks for no user or password: leave them out".to_owned()));
        }
        let (http, address) = match socket {
            Some(path) => {
                (HttpClient::over_unix(&path, PATIENCE), format!("{}{}", unix::SCHEME, path.display()))
            }
            None => {
                let tls = (base.scheme() == "https").then(|| args.tls.tls()).transpose()?;
                let http = HttpClient::try_new(PATIENCE, tls)
                    .map_err(|error| Failure::Input(format!("TLS: {error}")))?;
                (http, base.as_str().trim_end_matches('/').to_owned())
            }
        };
        let http = http.with_token(args.token.token());
        let http = http.map_err(|error| Failure::Input(format!("token: {error}")))?;
        Ok(Server { http, base, address, said: vec![] })
    }

    /// Confirms decisions if `yes`, and adds `reason` to them.
    pub(super) fn deciding(mut self, yes: bool, reason: Option<&str>) -> Self {
        self.said.extend(yes.then(|| ("confirm", "true".to_owned())));
        self.said.extend(reason.map(|reason| ("reason", reason.to_owned())));
        self
    }

    /// Sends `method` for the limit and path in `steps`, with `query`, and with `condition` as `if-match`.
    pub(super) async fn ask(
        &self,
        method: Method,
        steps: &[&str],
        query: &[(&str, &str)],
        condition: Option<&str>,
        body: Option<&Value>,
    ) -> Result<Reply, Failure> {
        let mut url = self.url(&["v1", "limits"]);
        if let Ok(mut path) = url.path_segments_mut() {
            path.extend(steps);
        }
        let said = if method == Method::GET { &[][..] } else { &self.said };
        if !query.is_empty() || !said.is_empty() {
            url.query_pairs_mut().extend_pairs(query).extend_pairs(said);
        }
        let mut request = Request::builder().method(method).uri(url.as_str());
        if let Some(condition) = condition {
            request = request.header("if-match", condition);
        }
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        self.send(request, body.map(Value::to_string).unwrap_or_default()).await
    }

    /// Gets the path made of `steps`.
    pub(crate) async fn look(&self, steps: &[&str]) -> Result<Reply, Failure> {
        self.send(Request::get(self.url(steps).as_str()), String::new()).await
    }

    /// Returns its address.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    fn url(&self, steps: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(steps);
        }
        url
    }

    async fn send(&self, request: Builder, body: String) -> Result<Reply, Failure> {
        let unreachable = |error: HttpError| Failure::Run(format!("cannot ask {}: {error}", self.address));
        let request = request.body(body.into_bytes());
        let request =
            request.map_err(|error| Failure::Input(format!("cannot ask {}: {error}", self.address)))?;
        let mut response = self.http.send(request, PATIENCE).await.map_err(unreachable)?;
        let status = response.status();
        let etag = response.headers().get("etag").and_then(|etag| etag.to_str().ok()).map(str::to_owned);
        let mut read = vec![];
        while let Some(piece) = response.chunk().await.map_err(unreachable)? {
            read.extend_from_slice(&piece);
            if read.len() > BODY_MAX {
                return Err(Failure::Run(format!("the answer of {} is too large", self.address)));
            }
        }
        let body = serde_json::from_slice(&read).unwrap_or(Value::Null);
        Ok(Reply { status, etag, body })
    }
}

/// Returns `url`, which may be malformed, without anything that may be a secret: all that is before an `@`.
fn shown(url: &str) -> String {
    let (scheme, rest) = url.find("//").map_or(("", url), |at| url.split_at(at + 2));
    format!("{scheme}{}", rest.rsplit('@').next().unwrap_or_default())
}

impl Reply {
    /// Returns the body of a good answer. Client errors have exit code 2, all others 1.
    pub(crate) fn good(self) -> Result<Value, Failure> {
        if self.status.is_success() {
            return Ok(self.body);
        }
        let detail = self.body["detail"].as_str().unwrap_or("no reason was given");
        let detail = match self.body["code"].as_str() {
            Some("confirm_needed") => detail.replace("confirm=true", "--yes"),
            Some("not_found") => format!(
                "{detail}: operators may have an address of their own, see [admin] of the allocator's configuration"
            ),
            Some(_) | None => detail.to_owned(),
        };
        let said = format!("{detail} ({})", self.status.as_u16());
        Err(if self.status.is_client_error() { Failure::Input(said) } else { Failure::Run(said) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory as _, Parser};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        address: AddressArgs,
    }

    /// The bug: a password in the address was shown in errors and by `lessor status`.
    #[test]
    fn an_address_with_a_password_is_refused_and_the_password_is_not_shown() {
        let made = |url: &str| {
            let line = Line::try_parse_from(["lessor", "--server", url]).expect("any text");
            Server::try_new(&line.address)
                .map(|server| server.address().to_owned())
                .map_err(|e| e.to_string())
        };
        let refused =
            "--server is \"http://a:7400/x\": an allocator asks for no user or password: leave them out";
        assert_eq!(made("http://ops:secret@a:7400/x"), Err(refused.to_owned()));
        assert!(made("http://secret@a:7400").is_err());
        for url in [
            "ops:secret@a:7400",
            "http://ops:s@secret@a b",
            "ftp://ops:/secret@a",
            "secret@",
            "unix:s@secret@a",
        ] {
            let error = made(url).expect_err("a bad address");
            assert!(!error.contains("secret") && !error.contains("ops"), "{error}");
        }
        assert_eq!(made("http://a:7400/"), Ok("http://a:7400".to_owned()));
        for url in ["127.0.0.1:7400", "localhost:7400", "centre"] {
            let error = made(url).expect_err("no scheme");
            assert!(
                error.ends_with("use http://host:port, https://host:port, or unix: and the path of a socket"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_path_that_is_not_there_is_told_with_the_address_of_operators() {
        let body = serde_json::json!({ "code": "not_found", "detail": "there is nothing at this path" });
        let reply = Reply { status: StatusCode::NOT_FOUND, etag: None, body };
        let said = reply.good().expect_err("not there").to_string();
        assert!(
            said.starts_with("there is nothing at this path: ") && said.contains("see [admin] of"),
            "{said}"
        );
    }

    #[test]
    fn help_does_not_show_the_address_that_the_environment_holds() {
        let line = Line::command();
        let server = line.get_arguments().find(|arg| arg.get_id() == "server").expect("it is there");
        assert!(server.is_hide_env_values_set());
    }
}
