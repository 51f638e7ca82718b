//! The headers that a server sends its own callers about a limit: `RateLimit`, `RateLimit-Policy` and `Retry-After`.
//! They show how the limit stands in this process, and of the fleet only what the last answer of the allocator said.

use crate::limit::Limit;
use crate::rate_limit_headers::{RATELIMIT, RATELIMIT_POLICY};
use crate::refusal::Refusal;
use crate::slot::SLOT_MAX;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, StatusCode};
use lessor_holder::timing::LOOK_AGAIN;
use std::time::Duration;

impl Limit {
    /// Returns headers that show how the limit stands, in the fields of `draft-ietf-httpapi-ratelimit-headers-11`:
    /// `RateLimit-Policy: "name";q=100;w=60` and `RateLimit: "name";r=7`.
    ///
    /// `q` is the most that one call can ever take, and `w` the window, in seconds, of the rule that sets it. Both are
    /// left out until the allocator has told them. `r` is what the allocator had left at its last answer plus what this
    /// process holds; if the allocator does not tell, it is only the latter. A `refusal` makes `r` zero. It adds `t`
    /// where the time is known and, for each 429 and 503, `Retry-After`; both are in whole seconds, rounded up.
    pub fn headers(&self, refusal: Option<&Refusal>) -> HeaderMap {
        let (name, ceiling) = (self.name(), self.pool().ceiling());
        let mut headers = HeaderMap::with_capacity(3);
        if ceiling < SLOT_MAX {
            let window = self.pool().window().map(seconds_up);
            let window = window.map_or_else(String::new, |seconds| format!(";w={seconds}"));
            headers.insert(RATELIMIT_POLICY, value(format!("\"{name}\";q={ceiling}{window}")));
        }
        let left = match refusal {
            Some(_) => 0,
            None => self.available().saturating_add(self.pool().reported_left().unwrap_or(0)).min(ceiling),
        };
        let lasts = refusal.and_then(Refusal::retry_after).map(seconds_up);
        let lasts = lasts.map_or_else(String::new, |seconds| format!(";t={seconds}"));
        headers.insert(RATELIMIT, value(format!("\"{name}\";r={left}{lasts}")));
        if let Some(wait) = refusal.and_then(Refusal::worth_waiting) {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds_up(wait)));
        }
        headers
    }
}

impl Refusal {
    /// Returns the HTTP status for the refusal: 429 where there were too many calls, 503 where the limit cannot lend
    /// for another reason, 400 for an invalid key.
    pub fn status(&self) -> StatusCode {
        match self {
            Refusal::Empty { .. } | Refusal::Paused { .. } | Refusal::TooLarge { .. } => {
                StatusCode::TOO_MANY_REQUESTS
            }
            Refusal::BadKey => StatusCode::BAD_REQUEST,
            Refusal::Quarantine { .. }
            | Refusal::Unreachable { .. }
            | Refusal::UnknownLimit
            | Refusal::Full { .. }
            | Refusal::Closed => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Returns when to try again or, where no time is known, when an operator may have changed something; `None` where
    /// only the caller can change the outcome.
    fn worth_waiting(&self) -> Option<Duration> {
        let is_the_callers = matches!(self, Refusal::BadKey);
        (!is_the_callers).then(|| self.retry_after().unwrap_or(LOOK_AGAIN))
    }
}

/// Rounds up to whole seconds, at least 1: a 0 would say "at once".
fn seconds_up(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000_000)).unwrap_or(u64::MAX).max(1)
}

fn value(text: String) -> HeaderValue {
    // The name of a handle that refuses every call may hold any characters.
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("\"\";r=0"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::Shared;
    use crate::ticks::Ticks;
    use crate::{HeaderNames, HotClock, RateLimitHeaders};
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
            let read = RateLimitHeaders::read(refusal.status(), &headers, &HeaderNames::none());
            assert_eq!(
                (read.refused, read.wait),
                (true, Some(Duration::from_secs(seconds))),
                "by our own reader"
            );
        }
    }

    #[test]
    fn each_429_and_503_says_when_to_come_back_and_only_a_known_time_is_told_as_one() {
        let wait = Duration::from_secs(3);
        let known = [Refusal::Unreachable { retry_after: wait }, Refusal::Quarantine { retry_after: wait }];
        let unknown = [Refusal::TooLarge { limit: 5 }, Refusal::UnknownLimit, Refusal::Closed];
        for (refusal, status) in known.iter().chain(&unknown).zip([503, 503, 429, 503, 503]) {
            let headers = limit("a").headers(Some(refusal));
            let is_known = known.contains(refusal);
            assert_eq!(refusal.status().as_u16(), status, "{refusal}");
            assert_eq!(said(&headers, "retry-after"), Some(if is_known { "3" } else { "5" }.to_owned()));
            let expected = if is_known { "\"a\";r=0;t=3" } else { "\"a\";r=0" };
            assert_eq!(said(&headers, "ratelimit"), Some(expected.to_owned()), "{refusal}");
        }
        let headers = limit("a").headers(Some(&Refusal::BadKey));
        assert_eq!((Refusal::BadKey.status().as_u16(), said(&headers, "retry-after")), (400, None));
    }

    #[test]
    fn what_is_left_is_what_the_allocator_said_and_what_is_held() {
        let limit = limit("a");
        limit.pool().answered(Some(7), Some(59_001), false);
        limit.pool().set_standing(crate::local_pool::Standing {
            condition: crate::local_pool::Condition::Good,
            ceiling: 10,
            chance: lessor_protocol::Moment::ORIGIN,
            rtt: Duration::ZERO,
        });
        let headers = limit.headers(None);
        assert_eq!(said(&headers, "ratelimit"), Some("\"a\";r=7".to_owned()));
        assert_eq!(said(&headers, "ratelimit-policy"), Some("\"a\";q=10;w=60".to_owned()));
    }

    /// The bug: `q=4294967295`, the most that any lease may hold, which an allocator sends that knows no lower ceiling.
    #[test]
    fn what_any_lease_may_hold_is_no_quota() {
        let limit = limit("a");
        for (ceiling, policy) in [(SLOT_MAX, None), (SLOT_MAX - 1, Some("\"a\";q=4294967294".to_owned()))] {
            limit.pool().set_standing(crate::local_pool::Standing {
                condition: crate::local_pool::Condition::Good,
                ceiling,
                chance: lessor_protocol::Moment::ORIGIN,
                rtt: Duration::ZERO,
            });
            assert_eq!(said(&limit.headers(None), "ratelimit-policy"), policy);
        }
    }

    #[test]
    fn what_was_never_told_is_left_out_and_no_name_does_harm() {
        assert_eq!(said(&limit("a").headers(None), "ratelimit-policy"), None);
        assert_eq!(said(&limit("a").headers(None), "ratelimit"), Some("\"a\";r=0".to_owned()));
        assert_eq!(said(&limit("no\nname").headers(None), "ratelimit"), Some("\"\";r=0".to_owned()));
    }
}
