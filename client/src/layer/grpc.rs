//! How a gRPC call is refused. gRPC clients accept no HTTP status but 200, and take a 429 for a missing server. The
//! outcome of a call is in `grpc-status`, which for an answer without a body stands in the head.

use crate::limit::Limit;
use crate::refusal::Refusal;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use std::fmt::Write;

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// When to try again, in milliseconds. Clients that retry by themselves use it.
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// `INVALID_ARGUMENT`, `RESOURCE_EXHAUSTED` and `UNAVAILABLE`.
const INVALID: u64 = 3;
const EXHAUSTED: u64 = 8;
const UNAVAILABLE: u64 = 14;

/// Whether a request with these headers is a gRPC call. gRPC-Web does not count: its answers differ.
pub(super) fn is_call(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.strip_prefix("application/grpc").is_some_and(|rest| rest.is_empty() || rest.starts_with(['+', ';']))
}

/// Makes the answer to a refused call, with an empty `body`.
pub(super) fn refused<R>(body: R, limit: &Limit, refusal: &Refusal) -> Response<R> {
    let status = match refusal {
        Refusal::Empty { .. } | Refusal::Paused { .. } | Refusal::TooLarge { .. } => EXHAUSTED,
        Refusal::BadKey => INVALID,
        Refusal::Quarantine { .. }
        | Refusal::Unreachable { .. }
        | Refusal::UnknownLimit
        | Refusal::Full { .. }
        | Refusal::Closed => UNAVAILABLE,
    };
    let mut response = Response::new(body);
    *response.headers_mut() = limit.headers(Some(refusal));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(STATUS, HeaderValue::from(status));
    headers.insert(MESSAGE, escaped(&refusal.to_string()));
    if let Some(wait) = refusal.retry_after() {
        let millis = wait.as_nanos().div_ceil(1_000_000).min(i64::MAX as u128);
        headers.insert(PUSHBACK, HeaderValue::from(u64::try_from(millis).expect("just cut")));
    }
    response
}

/// Escapes a message as gRPC requires: bytes that are not printable ASCII, and `%` itself, become `%` and two digits.
fn escaped(message: &str) -> HeaderValue {
    let mut text = String::with_capacity(message.len());
    for byte in message.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => text.push(char::from(byte)),
            _ => write!(text, "%{byte:02X}").expect("a string takes all"),
        }
    }
    HeaderValue::from_str(&text).expect("printable ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_known_by_its_content_type() {
        let is = |kind: &'static str| {
            is_call(&HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]))
        };
        for kind in ["application/grpc", "application/grpc+proto", "application/grpc;x=y"] {
            assert!(is(kind), "{kind}");
        }
        for kind in ["application/json", "application/grpc-web", "application/grpc-web+proto", "grpc", ""] {
            assert!(!is(kind), "{kind}");
        }
        assert!(!is_call(&HeaderMap::new()));
    }

    #[test]
    fn a_message_is_ascii_whatever_it_says() {
        assert_eq!(escaped("100 % in 1.5µs\n"), "100 %25 in 1.5%C2%B5s%0A");
    }
}
