//! What a server tells its own callers of a limit: `RateLimit`, `RateLimit-Policy` and `Retry-After`, made of how the limit
//! stands here. It decides nothing, and knows of the fleet only what the last answer said.

use crate::limit::Limit;
use crate::refusal::Refusal;
use crate::sighting::{RATELIMIT, RATELIMIT_POLICY};
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, StatusCode};
use lessor_protocol::PERMITS_MAX;
use std::time::Duration;

impl Limit {
    /// How the limit stands, in the fields of `draft-ietf-httpapi-ratelimit-headers-11`: `RateLimit-Policy: "name";q=100` and
    /// `RateLimit: "name";r=7`.
    ///
    /// `q` is the most that one call can ever take, left out until the allocator has told it; `r` is what this process
    /// holds, so at least that much can be had. A `refusal` adds `Retry-After`, and `t`, in whole seconds, rounded up.
    pub fn headers(&self, refusal: Option<&Refusal>) -> HeaderMap {
        let (name, ceiling) = (self.name(), self.pool().ceiling());
        let mut headers = HeaderMap::with_capacity(3);
        if ceiling < PERMITS_MAX {
            headers.insert(RATELIMIT_POLICY, value(format!("\"{name}\";q={ceiling}")));
        }
        let wait = refusal.and_then(Refusal::retry_after).map(seconds_up);
        let left = if refusal.is_some() { 0 } else { self.available() };
        let lasts = wait.map_or_else(String::new, |seconds| format!(";t={seconds}"));
        headers.insert(RATELIMIT, value(format!("\"{name}\";r={left}{lasts}")));
        if let Some(seconds) = wait {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        headers
    }
}

impl Refusal {
    /// The status that says so: 429 where there were too many calls, 503 where nobody knows.
    pub fn status(&self) -> StatusCode {
        match self {
            Refusal::Empty { .. } | Refusal::Paused { .. } | Refusal::TooLarge { .. } => {
                StatusCode::TOO_MANY_REQUESTS
            }
            Refusal::Unavailable | Refusal::Closed => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// Whole seconds, and never too few; 1 at least, for 0 says "at once".
fn seconds_up(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000_000)).unwrap_or(u64::MAX).max(1)
}

fn value(text: String) -> HeaderValue {
    // A handle of a name that no limit can have may hold anything; it refuses every call.
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("\"\";r=0"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::Shared;
    use crate::ticks::Ticks;
    use crate::{HeaderNames, HotClock, Sighting};
    use std::sync::Arc;

    fn limit(name: &str) -> Limit {
        let shared = Arc::new(Shared::new(Ticks::try_new(HotClock::default()).expect("no thread is needed")));
        Limit::new(shared.pool(name, None), shared)
    }

    fn said(headers: &HeaderMap, name: &str) -> Option<String> {
        headers.get(name).map(|value| value.to_str().expect("text").to_owned())
    }

    #[test]
    fn a_refusal_says_when_to_come_back_in_whole_seconds() {
        let limit = limit("vendor/rest");
        for (millis, seconds) in [(0, 1), (1, 1), (1_000, 1), (1_001, 2), (59_999, 60)] {
            let refusal = Refusal::Empty { retry_after: Duration::from_millis(millis) };
            let headers = limit.headers(Some(&refusal));
            assert_eq!(said(&headers, "retry-after"), Some(seconds.to_string()), "{millis} ms");
            assert_eq!(said(&headers, "ratelimit"), Some(format!("\"vendor/rest\";r=0;t={seconds}")));
            let read = Sighting::read(refusal.status(), &headers, &HeaderNames::none());
            assert_eq!(
                (read.refused, read.wait),
                (true, Some(Duration::from_secs(seconds))),
                "by our own reader"
            );
        }
    }

    #[test]
    fn what_no_waiting_changes_says_nothing_of_a_wait() {
        let headers = limit("a").headers(Some(&Refusal::TooLarge { limit: 5 }));
        assert_eq!(said(&headers, "retry-after"), None);
        assert_eq!(said(&headers, "ratelimit"), Some("\"a\";r=0".to_owned()));
        assert_eq!(Refusal::Unavailable.status(), StatusCode::SERVICE_UNAVAILABLE);
    }

    #[test]
    fn what_was_never_told_is_left_out_and_no_name_does_harm() {
        assert_eq!(said(&limit("a").headers(None), "ratelimit-policy"), None);
        assert_eq!(said(&limit("a").headers(None), "ratelimit"), Some("\"a\";r=0".to_owned()));
        assert_eq!(said(&limit("no\nname").headers(None), "ratelimit"), Some("\"\";r=0".to_owned()));
    }
}
