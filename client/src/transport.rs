//! HTTP to the allocator. It sends one body and reads one bounded body back. It retries only after a refused token:
//! the background task decides what follows a failure.

mod http;

use ::http::header::CONTENT_TYPE;
use ::http::{Method, Request, StatusCode, request};
use http::Http;
pub(crate) use http::Response;
use lessor_files::{FileError, Token};
use lessor_protocol::foreign::excerpt;
use lessor_protocol::push::{EVENTS_PATH, LISTENER_MARK};
use lessor_protocol::trace::{TRACEPARENT, traceparent};
use lessor_protocol::unix;
use lessor_protocol::wire::{LEASES_PATH, LeasesRequest, LeasesResponse, LeaveRequest};
use std::sync::Arc;
use std::time::Duration;

/// Largest answer that is read, in bytes. A thousand grants take a third of a megabyte.
const BODY_MAX: usize = 4 << 20;

/// The content type of request bodies.
const JSON: &str = "application/json";

/// Longest time for which one stream of events is read before another one is begun.
const STREAM_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The URL of requests over a Unix socket: a host that every allocator accepts.
const UNIX_BASE: &str = "http://localhost/";

/// Why an exchange failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// The address is not one of an allocator.
    #[error("cannot connect to {url:?}: {reason}")]
    Address {
        /// The address that was given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// There was no connection, or no answer in time.
    #[error("the allocator could not be reached: {0}")]
    Unreachable(String),
    /// The answer's status is not 200.
    #[error("the allocator at {allocator} answered {status}{}", after_colon(.excerpt))]
    Status {
        /// The address of the allocator.
        allocator: Arc<str>,
        /// The HTTP status.
        status: u16,
        /// The beginning of the answer. May be empty.
        excerpt: String,
    },
    /// The body of the answer could not be read as one.
    #[error("the allocator's answer is unusable: {0}")]
    Rubbish(String),
    /// The certificates cannot be used.
    #[cfg(feature = "tls")]
    #[error("TLS: {0}")]
    Tls(#[from] lessor_tls::TlsError),
    /// The token could not be read.
    #[error("token: {0}")]
    Token(FileError),
    /// The client was built outside a tokio runtime.
    #[error("a client needs a tokio runtime with time and IO enabled to refill its leases")]
    NoRuntime,
    /// The system gives no thread for a blocking client's background task, or for a [`crate::HotClock::Tick`].
    #[error("cannot start a thread for the client's background task or clock: {0}")]
    NoThread(String),
}

impl ExchangeError {
    /// Whether an allocator is there, and turned this client away: it is not known, may not do this, or asks too often.
    pub(crate) fn is_denial(&self) -> bool {
        matches!(self, ExchangeError::Status { status: 401 | 403 | 429, .. })
    }
}

/// The connection to one allocator.
#[derive(Clone, Debug)]
pub(crate) struct Transport {
    http: Http,
    base: reqwest::Url,
    name: Arc<str>,
    timeout: Duration,
}

/// The token that identifies this client, and the TLS options if this build supports TLS.
#[derive(Clone, Debug, Default)]
pub(crate) struct Credentials {
    pub(crate) token: Option<Token>,
    #[cfg(feature = "tls")]
    pub(crate) tls: lessor_tls::Tls,
}

impl Transport {
    pub(crate) fn try_new(
        url: &str,
        timeout: Duration,
        credentials: &Credentials,
    ) -> Result<Self, ExchangeError> {
        let address = |reason: String| ExchangeError::Address { url: shown(url), reason };
        credentials.token.as_ref().map(Token::shown).transpose().map_err(ExchangeError::Token)?;
        if let Some(socket) = unix::socket(url) {
            let path = socket.map_err(|reason| address(reason.to_owned()))?;
            let http = Http::plain(Some(&path), timeout, credentials);
            let http = http.map_err(|error| address(error.to_string()))?;
            let base = reqwest::Url::parse(UNIX_BASE).expect("a constant");
            let name = format!("{}{}", unix::SCHEME, path.display()).into();
            return Ok(Transport { http, base, name, timeout });
        }
        let base = reqwest::Url::parse(url).map_err(|error| address(error.to_string()))?;
        let is_encrypted = base.scheme() == "https";
        if !(is_encrypted || base.scheme() == "http") || base.cannot_be_a_base() {
            return Err(address(
                "use http://host:port, https://host:port, or unix: and the path of a socket".to_owned(),
            ));
        }
        if !base.username().is_empty() || base.password().is_some() {
            return Err(address("an allocator asks for no user or password: leave them out".to_owned()));
        }
        let http = match is_encrypted {
            false => Http::plain(None, timeout, credentials).map_err(|error| address(error.to_string()))?,
            #[cfg(feature = "tls")]
            true => Http::encrypted(timeout, credentials)?,
            #[cfg(not(feature = "tls"))]
            true => {
                return Err(address(
                    "this build speaks no TLS: turn on the feature tls of the crate lessor".to_owned(),
                ));
            }
        };
        let name = base.origin().ascii_serialization().into();
        Ok(Transport { http, base, name, timeout })
    }

    /// The address as `http://host:port`, `https://host:port` or `unix:/path`, without anything that may be a secret.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(crate) async fn leases(&self, request: &LeasesRequest) -> Result<LeasesResponse, ExchangeError> {
        let body = self.post(LEASES_PATH, request).await?;
        // Serde's error message contains an unexpected value in full.
        serde_json::from_slice(&body).map_err(|error| self.rubbish(&excerpt(&error.to_string())))
    }

    pub(crate) async fn leave(&self, node: &str, request: &LeaveRequest) -> Result<(), ExchangeError> {
        // A node's name may contain slashes and colons, which a path segment escapes.
        let mut path = reqwest::Url::parse("http://x/v1/nodes").expect("a constant");
        path.path_segments_mut().expect("http has a path").push(node).push("leave");
        self.post(path.path(), request).await.map(|_| ())
    }

    /// Opens the endless stream of the allocator's events.
    pub(crate) async fn events(&self) -> Result<Response, ExchangeError> {
        let (name, value) = LISTENER_MARK;
        let request = self.request(Method::GET, EVENTS_PATH).header(name, value);
        let sent = self.http.send(request, vec![], STREAM_MAX).await;
        let response = sent.map_err(|error| self.named(error))?;
        match response.status() {
            StatusCode::OK => Ok(response),
            // The body is of no use, and may be of any length.
            status => Err(self.status(status, String::new())),
        }
    }

    /// Adds the address of the allocator to `error`: the host in a request over a Unix socket means nothing.
    fn named(&self, error: ExchangeError) -> ExchangeError {
        let ExchangeError::Unreachable(why) = error else { return error };
        self.unreachable(&why)
    }

    /// Returns the error of an exchange to which the allocator gave no answer.
    pub(crate) fn unreachable(&self, why: &str) -> ExchangeError {
        ExchangeError::Unreachable(format!("{}: {why}", self.name))
    }

    /// Returns the error of an answer of the allocator that is of no use.
    pub(crate) fn rubbish(&self, why: &str) -> ExchangeError {
        ExchangeError::Rubbish(format!("{}: {why}", self.name))
    }

    fn status(&self, status: StatusCode, excerpt: String) -> ExchangeError {
        ExchangeError::Status { allocator: self.name.clone(), status: status.as_u16(), excerpt }
    }

    /// Begins a request for `path`, which comes after the path of the address.
    fn request(&self, method: Method, path: &str) -> request::Builder {
        let mut url = self.base.clone();
        url.set_path(&format!("{}{path}", self.base.path().trim_end_matches('/')));
        Request::builder().method(method).uri(url.as_str())
    }

    /// Posts `body` as JSON to `path`, as a part of the current trace.
    async fn post<T: serde::Serialize>(&self, path: &str, body: &T) -> Result<Vec<u8>, ExchangeError> {
        let body = serde_json::to_vec(body).map_err(|error| self.rubbish(&error.to_string()))?;
        let mut request = self.request(Method::POST, path).header(CONTENT_TYPE, JSON);
        if let Some(span) = traceparent(&tracing::Span::current()) {
            request = request.header(TRACEPARENT, span);
        }
        let sent = self.http.send(request, body, self.timeout).await;
        let mut response = sent.map_err(|error| self.named(error))?;
        let status = response.status();
        let mut read = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.named(error))? {
            if read.len() + chunk.len() > BODY_MAX {
                return Err(self.rubbish(&format!("more than {BODY_MAX} bytes")));
            }
            read.extend_from_slice(&chunk);
        }
        if status != StatusCode::OK {
            let excerpt = excerpt(&String::from_utf8_lossy(&read));
            return Err(self.status(status, excerpt));
        }
        Ok(read)
    }
}

fn after_colon(excerpt: &str) -> String {
    if excerpt.is_empty() { String::new() } else { format!(": {excerpt}") }
}

/// Returns `url`, which may be malformed, without anything that may be a secret: all that is before an `@`.
pub(crate) fn shown(url: &str) -> String {
    let (scheme, rest) = url.find("//").map_or(("", url), |at| url.split_at(at + 2));
    let open = rest.rfind('@').map_or(rest, |at| &rest[at + 1..]);
    excerpt(&format!("{scheme}{open}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_hand;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    #[test]
    fn an_address_that_cannot_be_spoken_to_is_refused_with_a_reason() {
        let error = |url: &str| {
            Transport::try_new(url, Duration::from_secs(1), &Credentials::default())
                .map(|_| ())
                .map_err(|e| e.to_string())
        };
        assert_eq!(
            error("localhost:7400"),
            Err("cannot connect to \"localhost:7400\": use http://host:port, https://host:port, or unix: and the path of a socket".to_owned())
        );
        assert!(error("").is_err());
        #[cfg(not(feature = "tls"))]
        assert!(error("https://a:1").is_err_and(|error| error.contains("this build speaks no TLS")));
        #[cfg(feature = "tls")]
        assert!(error("https://a:1").is_ok());
        assert!(error("http://127.0.0.1:7400/behind/a/proxy").is_ok());
        assert!(error("unix:run/a.sock").is_err_and(|error| error.contains("begins with /")));
    }

    #[test]
    fn an_error_shows_nothing_that_may_be_a_secret() {
        for url in [
            "https://ops:se/cret@a:1/x",
            "http://ops:se@cret@a b:1",
            "ops:secret@a:7400",
            "http://ops:secret@a:7400/x?y",
        ] {
            let error = Transport::try_new(url, Duration::from_secs(1), &Credentials::default())
                .map(|_| ())
                .expect_err("a bad address");
            assert!(!error.to_string().contains("cret"), "{error}");
        }
        assert_eq!(&**by_hand::transport("http://a:7400/x?y").name(), "http://a:7400");
        assert_eq!(&**by_hand::transport("unix:///run/a.sock").name(), "unix:/run/a.sock");
    }

    #[tokio::test]
    async fn a_request_has_these_headers_and_no_others() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let host = listener.local_addr().expect("the listener is bound");
        let credentials = Credentials { token: Some(Token::new("secret")), ..Credentials::default() };
        let there = Transport::try_new(&format!("http://{host}/a/?b"), Duration::from_secs(5), &credentials);
        let there = there.expect("a good address");
        let asked = async |end: &[u8]| {
            let (mut stream, _) = listener.accept().await.expect("the transport connects");
            let mut asked = vec![];
            while !asked.ends_with(end) {
                assert_ne!(stream.read_buf(&mut asked).await.expect("a request"), 0);
            }
            let asked = String::from_utf8(asked).expect("text");
            let (head, body) = asked.split_once("\r\n\r\n").expect("a head");
            let mut lines: Vec<String> = head.lines().map(str::to_owned).collect();
            lines[1..].sort();
            (lines, body.len())
        };
        let leave = LeaveRequest { session: 1, seq: 1, spent: vec![] };
        let (_, (posted, length)) = tokio::join!(there.leave("a/b", &leave), asked(b"}"));
        let (_, (got, _)) = tokio::join!(there.events(), asked(b"\r\n\r\n"));
        let (all, token) = ("accept: */*", "authorization: Bearer secret");
        let (host, length) = (format!("host: {host}"), format!("content-length: {length}"));
        let post = "POST /a/v1/nodes/a%2Fb/leave?b HTTP/1.1";
        assert_eq!(posted, [post, all, token, &length, "content-type: application/json", &host]);
        let get = "GET /a/v1/events?b HTTP/1.1";
        assert_eq!(got, [get, all, token, &host, "sec-lessor-listener: node"]);
    }

    /// The bug: errors of requests over a socket named `http://localhost/` as the address.
    #[tokio::test]
    async fn an_allocator_that_is_not_reached_is_named_as_it_was_given() {
        for url in ["unix:/no/such.sock", "http://127.0.0.1:1"] {
            let there = by_hand::transport(url);
            let errors = [
                there.events().await.map(|_| ()).expect_err("no allocator listens there"),
                there
                    .leave("a", &LeaveRequest { session: 1, seq: 1, spent: vec![] })
                    .await
                    .expect_err("no allocator listens there"),
            ];
            for error in errors.map(|error| error.to_string()) {
                assert!(error.contains(&format!("reached: {url}: ")), "{error}");
                assert!(!error.contains("localhost"), "{error}");
            }
        }
    }

    /// The bug: the error of an answer that broke off or was too long, and the status of an endless one, named no
    /// allocator.
    #[tokio::test]
    async fn an_allocator_whose_answer_is_of_no_use_is_named() {
        let long = format!("200 OK\r\nconnection: close\r\n\r\n{}", " ".repeat(BODY_MAX + 1));
        for (answer, said) in [
            (&*long, "the allocator's answer is unusable: {url}: more than"),
            ("200 OK\r\ncontent-length: 9\r\n\r\n{", "the allocator could not be reached: {url}: "),
            ("404 Not Found\r\ncontent-length: 0\r\n\r\n", "the allocator at {url} answered 404"),
            ("404 Not Found\r\ncontent-length: 2\r\n\r\nno", "the allocator at {url} answered 404: no"),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let url = format!("http://{}", listener.local_addr().expect("the listener is bound"));
            let answers = async {
                let (mut stream, _) = listener.accept().await.expect("the transport connects");
                let mut asked = vec![];
                while !asked.ends_with(b"}") {
                    assert_ne!(stream.read_buf(&mut asked).await.expect("a request"), 0);
                }
                stream.write_all(format!("HTTP/1.1 {answer}").as_bytes()).await.expect("it is read");
            };
            let there = by_hand::transport(&url);
            let leave = LeaveRequest { session: 1, seq: 1, spent: vec![] };
            let (error, ()) = tokio::join!(there.leave("a", &leave), answers);
            let error = error.expect_err("it is no good answer").to_string();
            assert!(error.starts_with(&said.replace("{url}", &url)), "{error}");
            assert!(!error.ends_with(": ") && error.matches(&url).count() == 1, "{error}");
        }
    }
}
