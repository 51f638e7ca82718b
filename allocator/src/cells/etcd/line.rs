//! A connection to one member, with one request at a time. The error of a failed request says whether anything may have
//! been done.

use super::Shared;
use super::gateway::{AUTHENTICATE, Authenticate, Authenticated, Refused, STATUS, Status};
use crate::cells::url::Address;
use crate::cells::{CellsError, Password};
use axum::body::{Body, Bytes, to_bytes};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use lessor_protocol::foreign::{causes, excerpt};
use serde::de::DeserializeOwned;
use std::error::Error;
use std::fmt::Display;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The oldest supported version.
const OLDEST: (u32, u32) = (3, 4);

/// Largest answer without cells, in bytes.
const SMALL_MAX: usize = 64 << 10;

/// Error codes of members, as in gRPC.
const INVALID_ARGUMENT: u32 = 3;
const PERMISSION_DENIED: u32 = 7;
const UNAUTHENTICATED: u32 = 16;

/// Refusals with the code of a bad argument that mean a missing token: none was sent, or rights were changed since it
/// was given.
const NO_TOKEN: [&str; 2] = ["user name is empty", "revision of auth store is old"];

/// A connection. Dropping it ends the task that reads and writes, so that the connection is closed whatever it waits
/// for.
pub(super) struct Line {
    sender: SendRequest<Body>,
    driver: JoinHandle<hyper::Result<()>>,
    host: HeaderValue,
    /// The token of the user, once the member required one. It is not used on other connections: a member that is
    /// behind the one that gave it keeps its caller waiting.
    token: Option<HeaderValue>,
    /// Index of its host in the URL.
    pub(super) endpoint: usize,
    /// The cluster that the member belongs to.
    pub(super) cluster: u64,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Why a request has no good answer.
pub(super) enum Broken {
    /// The connection was closed before anything was sent; the text says why.
    NotSent(String),
    /// The member requires a token. Nothing was done.
    NotLetIn(String),
    /// The member refused for another reason. Nothing was done.
    Refused(CellsError),
    /// It is unknown whether the request was or will be done.
    Lost(String),
}

impl From<Broken> for CellsError {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::NotSent(why) => CellsError::Unreachable(why),
            Broken::NotLetIn(why) => CellsError::Unreachable(format!("not let in: {why}")),
            Broken::Refused(error) => error,
            Broken::Lost(why) => CellsError::Unreachable(why),
        }
    }
}

impl Line {
    /// Whether the connection ended by itself.
    pub(super) fn is_over(&self) -> bool {
        self.driver.is_finished() || self.sender.is_closed()
    }

    /// Connects to the host with this index, and checks that it is a usable member, within `patience`; `late` is the
    /// error if it takes longer.
    pub(super) async fn open(
        shared: &Shared,
        endpoint: usize,
        patience: Duration,
        late: CellsError,
    ) -> Result<Self, CellsError> {
        let address = &shared.place.hosts[endpoint];
        let opened = timeout(patience, Line::open_at(shared, address, endpoint)).await;
        opened.map_err(|_| late).flatten().map_err(|error| at(error, address))
    }

    async fn open_at(shared: &Shared, address: &Address, endpoint: usize) -> Result<Self, CellsError> {
        let cannot = |error: &dyn Display| CellsError::Unreachable(excerpt(&error.to_string()));
        let stream = TcpStream::connect((address.host.as_str(), address.port)).await;
        let stream = stream.map_err(|error| cannot(&error))?;
        stream.set_nodelay(true).map_err(|error| cannot(&error))?;
        let (sender, driver) = match &shared.tls {
            Some(encryptor) => {
                let stream = encryptor.connect(&address.host, stream).await;
                over(stream.map_err(|error| cannot(&error))?).await
            }
            None => over(stream).await,
        }
        .map_err(|error| cannot(&error))?;
        let host = HeaderValue::from_str(&address.to_string()).map_err(|error| cannot(&error))?;
        let mut line = Line { sender, driver, host, token: None, endpoint, cluster: 0 };
        let status = match line.ask(shared, STATUS, Bytes::from_static(b"{}"), SMALL_MAX).await {
            Err(Broken::NotSent(why)) => return Err(line.ended(why).await),
            answer => answer?,
        };
        line.cluster = check(&parsed(&status)?)?;
        Ok(line)
    }

    /// Returns why the connection ended before anything was sent, as the member does if it requires another
    /// certificate. The reason is the connection's, or else `why`.
    async fn ended(&mut self, why: String) -> CellsError {
        CellsError::Unreachable(match (&mut self.driver).await {
            Ok(Err(error)) => causes(&error),
            Ok(Ok(())) | Err(_) => why,
        })
    }

    /// Sends `body`, and returns an answer of at most `limit` bytes. If the member requires a token, signs in and sends
    /// it again.
    pub(super) async fn ask(
        &mut self,
        shared: &Shared,
        path: &'static str,
        body: Bytes,
        limit: usize,
    ) -> Result<Bytes, Broken> {
        match self.post(path, body.clone(), limit).await {
            Err(Broken::NotLetIn(why)) => match &shared.place.user {
                Some(user) => {
                    self.sign_in(user, shared.password()).await?;
                    self.post(path, body, limit).await
                }
                None => Err(Broken::NotLetIn(format!("{why}; the URL names no user"))),
            },
            answer => answer,
        }
    }

    /// Gets a token for further requests.
    async fn sign_in(&mut self, name: &str, password: Option<&Password>) -> Result<(), Broken> {
        self.token = None;
        let password = match password {
            Some(password) => password.reveal().await,
            None => String::new(),
        };
        let told = Authenticate { name, password: &password };
        let told = serde_json::to_vec(&told).map_err(|error| Broken::Lost(error.to_string()))?;
        let answer = match self.post(AUTHENTICATE, told.into(), SMALL_MAX).await {
            Err(Broken::Refused(CellsError::Unfit(why))) => return Err(Broken::NotLetIn(why)),
            answer => answer?,
        };
        // The answer is not shown: there may be a token in it.
        let strange = || Broken::Lost("the answer to the sign-in has no token".to_owned());
        let Authenticated { token } = serde_json::from_slice(&answer).map_err(|_| strange())?;
        let mut token = HeaderValue::from_str(&token).map_err(|_| strange())?;
        token.set_sensitive(true);
        self.token = Some(token);
        Ok(())
    }

    async fn post(&mut self, path: &'static str, body: Bytes, limit: usize) -> Result<Bytes, Broken> {
        let mut request = Request::post(path).header(HOST, self.host.clone());
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token.clone());
        }
        let request = request.header(CONTENT_TYPE, "application/json").body(Body::from(body));
        let request = request.map_err(|error| Broken::Lost(error.to_string()))?;
        self.sender.ready().await.map_err(|error| Broken::NotSent(causes(&error)))?;
        let response = match self.sender.try_send_request(request).await {
            Ok(response) => response,
            // The request is returned if it was not begun.
            Err(error) if error.message().is_some() => return Err(Broken::NotSent(causes(error.error()))),
            Err(error) => return Err(lost(error.into_error())),
        };
        let status = response.status();
        let body = to_bytes(Body::new(response.into_body()), limit).await.map_err(lost)?;
        if status == StatusCode::OK { Ok(body) } else { Err(refused(status, &body)) }
    }
}

fn lost(error: impl Error) -> Broken {
    Broken::Lost(causes(&error))
}

async fn over<S>(stream: S) -> hyper::Result<(SendRequest<Body>, JoinHandle<hyper::Result<()>>)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    Ok((sender, tokio::spawn(connection)))
}

/// Beginning of the gateway's error, which is no JSON, about a certificate that names a user where users have
/// passwords.
const COMMON_NAME: &[u8] = b"CommonName of client";

/// Returns what a failed answer means.
fn refused(status: StatusCode, body: &[u8]) -> Broken {
    let Ok(Refused { text, code }) = serde_json::from_slice(body) else {
        return match status {
            StatusCode::NOT_FOUND => Broken::Refused(CellsError::Unfit(
                "there is no /v3: etcd 3.4 or later is needed, with enable-grpc-gateway".to_owned(),
            )),
            StatusCode::BAD_REQUEST if body.starts_with(COMMON_NAME) => Broken::Refused(CellsError::Unfit(
                "sslcert: the certificate has a common name (CN): etcd with authentication needs one without"
                    .to_owned(),
            )),
            _ => Broken::Lost(format!("HTTP {status}")),
        };
    };
    let text = excerpt(&text);
    match code {
        UNAUTHENTICATED => Broken::NotLetIn(text),
        INVALID_ARGUMENT if NO_TOKEN.iter().any(|refusal| text.contains(refusal)) => Broken::NotLetIn(text),
        PERMISSION_DENIED => Broken::Refused(CellsError::Unfit(format!(
            "{text}: the user must be allowed to read and write all keys that begin with the prefix"
        ))),
        INVALID_ARGUMENT => Broken::Refused(CellsError::Unfit(match &*text {
            text if text.contains("too large") => format!("max-request-bytes is less than 1.5 MiB: {text}"),
            text if text.contains("too many operations") => format!("max-txn-ops is less than 128: {text}"),
            text => text.to_owned(),
        })),
        // This includes a full disk: the request may have been done before such an error.
        _ => Broken::Lost(text),
    }
}

/// Parses the answer of a member.
pub(super) fn parsed<T: DeserializeOwned>(answer: &[u8]) -> Result<T, CellsError> {
    serde_json::from_slice(answer)
        .map_err(|error| CellsError::Unreachable(excerpt(&format!("an answer that cannot be read: {error}"))))
}

/// Checks that a member is usable, and returns its cluster.
fn check(status: &Status) -> Result<u64, CellsError> {
    let mut parts = status.version.split('.').map(|part| part.parse::<u32>().ok());
    let version = parts.next().flatten().zip(parts.next().flatten());
    if version.is_none_or(|version| version < OLDEST) {
        let (found, (major, minor)) = (excerpt(&status.version), OLDEST);
        return Err(CellsError::Unfit(format!(
            "etcdserver is {found:?}: {major}.{minor} or later is needed"
        )));
    }
    if let Some(alarm) = status.errors.iter().find(|error| error.contains("alarm:")) {
        return Err(CellsError::Unfit(format!("an alarm is raised: {}", excerpt(alarm.trim()))));
    }
    if status.is_learner {
        return Err(CellsError::Unreachable("it is a learner".to_owned()));
    }
    if status.leader == 0 {
        return Err(CellsError::Unreachable("it knows of no leader".to_owned()));
    }
    Ok(status.header.cluster_id)
}

/// Adds the member to `error`.
pub(super) fn at(error: CellsError, server: &Address) -> CellsError {
    match error {
        CellsError::Unreachable(why) => CellsError::Unreachable(format!("{server}: {why}")),
        // The text begins with the setting.
        CellsError::Unfit(why) => CellsError::Unfit(format!("{why} ({server})")),
        CellsError::NotDurable(_) | CellsError::Moved { .. } | CellsError::Invalid(_) => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(status: &str) -> Result<u64, String> {
        let status = format!(r#"{{"header":{{"cluster_id":"7"}},{status}}}"#);
        check(&parsed(status.as_bytes()).expect("it can be read")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_member_that_cannot_be_used_says_why() {
        assert_eq!(checked(r#""version":"3.4.0","leader":"1""#), Ok(7));
        assert_eq!(checked(r#""version":"3.10.1","leader":"1","errors":["of no importance"]"#), Ok(7));
        assert_eq!(checked(r#""version":"4.0.0-rc.1","leader":"1""#), Ok(7));
        for (status, why) in [
            (r#""version":"3.3.27","leader":"1""#, "etcdserver is \"3.3.27\": 3.4 or later"),
            (r#""version":"2.9","leader":"1""#, "etcdserver is \"2.9\": 3.4 or later"),
            (r#""version":"?","leader":"1""#, "etcdserver is \"?\": 3.4 or later"),
            (r#""leader":"1""#, "etcdserver is \"\": 3.4 or later"),
            (r#""version":"3.4.1","errors":["etcdserver: no leader"]"#, "no leader"),
            (r#""version":"3.5.1","leader":"1","isLearner":true"#, "learner"),
            (r#""version":"3.5.1","leader":"1","errors":["memberID:7 alarm:NOSPACE "]"#, "alarm:NOSPACE"),
        ] {
            let error = checked(status).expect_err(status);
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_refusal_says_nothing_was_done_only_where_that_is_known() {
        let said = |status, text: &str, code| {
            let body = format!(r#"{{"error":"etcdserver: {text}","message":"","code":{code}}}"#);
            refused(StatusCode::from_u16(status).expect("a status"), body.as_bytes())
        };
        for (text, code) in
            [("invalid auth token", 16), ("user name is empty", 3), ("revision of auth store is old", 3)]
        {
            assert!(matches!(said(400, text, code), Broken::NotLetIn(_)), "{text}");
        }
        for (text, code, setting) in [
            ("request is too large", 3, "max-request-bytes"),
            ("too many operations in txn request", 3, "max-txn-ops"),
            ("permission denied", 7, "the user"),
        ] {
            let broken = said(400, text, code);
            assert!(
                matches!(&broken, Broken::Refused(CellsError::Unfit(why)) if why.contains(setting)),
                "{text}"
            );
        }
        for (text, code) in
            [("mvcc: database space exceeded", 8), ("request timed out", 14), ("no leader", 14)]
        {
            assert!(matches!(said(503, text, code), Broken::Lost(_)), "{text}");
        }
        assert!(matches!(
            refused(StatusCode::NOT_FOUND, b"Not Found"),
            Broken::Refused(CellsError::Unfit(_))
        ));
        assert!(matches!(refused(StatusCode::BAD_GATEWAY, b"<html>"), Broken::Lost(_)));
    }
}
