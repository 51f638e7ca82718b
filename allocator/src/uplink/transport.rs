//! The way to an upstream: one request, one answer, bounded in size and time.

use lessor_protocol::trace::{TRACEPARENT, traceparent};
use lessor_protocol::wire::{LEASES_PATH, LeasesRequest, LeasesResponse};
use std::error::Error;
use std::time::Duration;

/// More is no answer: as many entries as an exchange may have, each as long as it may be.
const BODY_MAX: usize = 4 << 20;

/// Characters that are shown of a text that another program wrote.
const EXCERPT_MAX: usize = 200;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum TransportError {
    #[error("not reached: {0}")]
    Unreachable(String),
    #[error("no answer in time")]
    TimedOut,
    #[error("status {status}: {excerpt}")]
    Status { status: u16, excerpt: String },
    #[error("no answer that could be: {0}")]
    Invalid(String),
}

/// The way to one upstream.
#[derive(Debug)]
pub(super) struct Transport {
    http: reqwest::Client,
    leases: String,
}

impl Transport {
    pub(super) fn try_new(upstream: &str, timeout: Duration) -> Result<Self, TransportError> {
        let http = reqwest::Client::builder()
            .timeout(timeout)
            .connect_timeout(timeout)
            .tcp_nodelay(true)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(unreachable)?;
        Ok(Transport { http, leases: format!("{upstream}{LEASES_PATH}") })
    }

    pub(super) async fn leases(&self, request: &LeasesRequest) -> Result<LeasesResponse, TransportError> {
        let mut asked = self.http.post(&self.leases).json(request);
        if let Some(traceparent) = traceparent(&tracing::Span::current()) {
            asked = asked.header(TRACEPARENT, traceparent);
        }
        let mut response = asked.send().await.map_err(unreachable)?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            if body.len() + chunk.len() > BODY_MAX {
                return Err(TransportError::Invalid(format!("more than {BODY_MAX} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        if status != reqwest::StatusCode::OK {
            let excerpt = excerpt(&String::from_utf8_lossy(&body));
            return Err(TransportError::Status { status: status.as_u16(), excerpt });
        }
        serde_json::from_slice(&body).map_err(|error| TransportError::Invalid(excerpt(&error.to_string())))
    }
}

/// An error and what caused it, in one line.
fn unreachable(error: reqwest::Error) -> TransportError {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    TransportError::Unreachable(excerpt(&text))
}

/// The beginning of a text that another program wrote, harmless in a log line.
pub(super) fn excerpt(text: &str) -> String {
    text.chars().take(EXCERPT_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
