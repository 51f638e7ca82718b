//! HTTP to an upstream: one request, one answer, bounded in size and time.

use http::StatusCode;
use http::header::CONTENT_TYPE;
use lessor_protocol::foreign::excerpt;
use lessor_protocol::trace::{TRACEPARENT, traceparent};
use lessor_protocol::unix;
use lessor_protocol::wire::{LEASES_PATH, LeasesRequest, LeasesResponse};
use lessor_tls::{HttpClient, HttpError, Tls, Token};
use std::time::Duration;

/// Largest answer in bytes: as many entries as an exchange may have, each of the longest kind.
const BODY_MAX: usize = 4 << 20;

/// The base of requests over a Unix socket: a host that every allocator accepts.
const UNIX_BASE: &str = "http://localhost";

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum TransportError {
    #[error("not reached: {0}")]
    Unreachable(String),
    #[error("no answer in time")]
    TimedOut,
    #[error("status {status}: {excerpt}")]
    Status { status: u16, excerpt: String },
    #[error("invalid answer: {0}")]
    Invalid(String),
}

/// The connection to one upstream.
#[derive(Debug)]
pub(super) struct Transport {
    http: HttpClient,
    leases: String,
    timeout: Duration,
}

impl Transport {
    /// Makes the connection to the allocator at `upstream`: over `tls` for `https://`, or over its Unix socket.
    /// Requests show `token`.
    pub(super) fn try_new(
        upstream: &str,
        timeout: Duration,
        tls: Tls,
        token: Option<Token>,
    ) -> Result<Self, TransportError> {
        let unfit = |problem: &str| TransportError::Unreachable(excerpt(problem));
        let socket = unix::socket(upstream).transpose().map_err(unfit)?;
        let base = if socket.is_some() { UNIX_BASE } else { upstream };
        let http = match socket {
            Some(path) => Ok(HttpClient::over_unix(&path, timeout)),
            // A plain connection reads no certificate authorities: the machine may have none.
            None => HttpClient::try_new(timeout, upstream.starts_with("https:").then_some(tls)),
        };
        let http = http.and_then(|http| http.with_token(token));
        let http = http.map_err(|error| unfit(&error.to_string()))?;
        Ok(Transport { http, leases: format!("{base}{LEASES_PATH}"), timeout })
    }

    pub(super) async fn leases(&self, request: &LeasesRequest) -> Result<LeasesResponse, TransportError> {
        let invalid = |error: &dyn std::error::Error| TransportError::Invalid(excerpt(&error.to_string()));
        let mut asked = http::Request::post(&self.leases).header(CONTENT_TYPE, "application/json");
        if let Some(traceparent) = traceparent(&tracing::Span::current()) {
            asked = asked.header(TRACEPARENT, traceparent);
        }
        let body = serde_json::to_vec(request).map_err(|error| invalid(&error))?;
        let asked = asked.body(body).map_err(|error| invalid(&error))?;
        let mut response = self.http.send(asked, self.timeout).await.map_err(unreachable)?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            if body.len() + chunk.len() > BODY_MAX {
                return Err(TransportError::Invalid(format!("more than {BODY_MAX} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        if status != StatusCode::OK {
            let excerpt = excerpt(&String::from_utf8_lossy(&body));
            return Err(TransportError::Status { status: status.as_u16(), excerpt });
        }
        serde_json::from_slice(&body).map_err(|error| invalid(&error))
    }
}

fn unreachable(error: HttpError) -> TransportError {
    match error {
        HttpError::TimedOut => TransportError::TimedOut,
        HttpError::Failed(problem) => TransportError::Unreachable(excerpt(&problem)),
    }
}
