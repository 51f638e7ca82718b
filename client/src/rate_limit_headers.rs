//! Reads a vendor's own count off the status and headers of one answer. Callers may read an answer themselves, and
//! [`crate::Limit::observe`] does. What follows from an answer is for the allocator to decide.

mod date;
mod fields;
mod names;
#[cfg(test)]
mod tests;

pub use names::{HeaderNames, Trio};

use fields::{Item, items};
use http::header::{AGE, DATE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, StatusCode};
use lessor_protocol::observed::ANNOUNCED_MAX;
use lessor_protocol::{Announced, Left, PERMITS_MAX};
use std::time::Duration;

/// The fields of the IETF draft (`draft-ietf-httpapi-ratelimit-headers-11`), with [`RATELIMIT_POLICY`].
pub(crate) const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
/// See [`RATELIMIT`].
pub(crate) const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Numbers from here on are seconds since 1970 rather than a number of seconds to wait: this is three years.
const EPOCH_FROM: u64 = 100_000_000;

/// What one answer of a vendor says about its own count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RateLimitHeaders {
    /// Whether the vendor refuses the call because there were too many, and asks for a pause.
    pub refused: bool,
    /// Length of that pause, if the vendor names one.
    pub wait: Option<Duration>,
    /// Permits that the vendor has left, and for how long.
    pub left: Option<Left>,
    /// The limits that the vendor announces as the contract.
    pub announced: [Option<Announced>; ANNOUNCED_MAX],
}

impl RateLimitHeaders {
    /// Makes the refusal of a vendor that had too many calls and asks for a pause of `wait`. For vendors that do not
    /// speak HTTP.
    pub fn refused(wait: Option<Duration>) -> Self {
        RateLimitHeaders { refused: true, wait, ..RateLimitHeaders::default() }
    }

    /// Reads `status` and `headers`, where the older headers may have other `names`. Allocates nothing.
    ///
    /// A refusal is a 429, or a 503 that says when to come back. `RateLimit` and `RateLimit-Policy` go before the older
    /// headers. A malformed field is ignored whole, as the draft requires. An instant is used only together with the
    /// vendor's own `Date`, so that no local clock decides. An answer out of a cache says nothing.
    pub fn read(status: StatusCode, headers: &HeaderMap, names: &HeaderNames) -> Self {
        let is_old = number(headers, &AGE).is_some_and(|age| age > 0);
        if headers.is_empty() && status != StatusCode::TOO_MANY_REQUESTS || is_old {
            return RateLimitHeaders::default();
        }
        let mut said = RateLimitHeaders::default();
        said.read_draft(headers);
        if said.left.is_none() {
            names.trios().iter().any(|trio| said.read_trio(headers, trio));
        }
        let wait = retry_after(headers);
        said.refused = match status {
            StatusCode::TOO_MANY_REQUESTS => true,
            StatusCode::SERVICE_UNAVAILABLE => wait.is_some(),
            _ => false,
        };
        if said.refused {
            let used_up = said.left.filter(|left| left.permits == 0);
            said.wait = wait.or(used_up.and_then(|left| left.lasts));
        }
        said
    }

    /// Whether the answer says nothing.
    pub fn is_empty(&self) -> bool {
        *self == RateLimitHeaders::default()
    }

    /// Reads the fields of the draft: the policy with the least left, and all announced policies.
    fn read_draft(&mut self, headers: &HeaderMap) {
        let is_counted = |item: &Item<'_>| item.is_of_calls();
        if let Some(read) = list(headers, &RATELIMIT) {
            let left = read.filter(is_counted).filter_map(|item| {
                Some(Left { permits: item.number("r")?, lasts: item.number("t").map(Duration::from_secs) })
            });
            self.left = left.min_by_key(|left| left.permits);
        }
        if let Some(read) = list(headers, &RATELIMIT_POLICY) {
            let policies = read.filter(is_counted).filter_map(|item| {
                // A window without length is malformed.
                let per = item.number("w").filter(|seconds| *seconds > 0).map(Duration::from_secs);
                Some(Announced { limit: item.number("q")?, per })
            });
            self.announced.iter_mut().zip(policies).for_each(|(place, policy)| *place = Some(policy));
        }
    }

    /// Reads the older headers, one number each. Returns whether there are any.
    fn read_trio(&mut self, headers: &HeaderMap, trio: &Trio) -> bool {
        let (limit, left) = (number(headers, &trio.limit), number(headers, &trio.remaining));
        if let Some(permits) = left {
            self.left = Some(Left {
                permits,
                lasts: text(headers, &trio.reset).and_then(|text| reset(text, headers)),
            });
        }
        if let Some(limit) = limit
            && self.announced[0].is_none()
        {
            self.announced[0] = Some(Announced { limit, per: None });
        }
        left.is_some() || limit.is_some()
    }
}

/// The items of all fields named `name`; `None` if there is no such field or one is malformed.
fn list<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<impl Iterator<Item = Item<'a>>> {
    let texts = || headers.get_all(name).iter().map(|value| value.to_str().unwrap_or("?"));
    let is_good = texts().next().is_some() && texts().all(|text| items(text).all(|item| item.is_some()));
    is_good.then(|| texts().flat_map(|text| items(text).flatten()))
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// The number that a header begins with: some vendors append the window, or a list of policies.
fn number(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    let text = text(headers, name)?;
    let first = text.split([',', ';']).next().unwrap_or_default().trim();
    let is_number = !first.is_empty() && first.bytes().all(|byte| byte.is_ascii_digit());
    first.parse().ok().filter(|number| is_number && *number <= PERMITS_MAX)
}

/// How long to leave the vendor alone, by its `Retry-After`.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = text(headers, &RETRY_AFTER)?;
    match number(headers, &RETRY_AFTER) {
        Some(seconds) => Some(Duration::from_secs(seconds)),
        None => until(date::seconds(text)?, headers),
    }
}

/// Reads a reset in any of its forms: seconds to go, a time with units, perhaps with a fraction, or an instant.
fn reset(text: &str, headers: &HeaderMap) -> Option<Duration> {
    let whole: Option<u64> = text.parse().ok();
    match whole {
        Some(seconds) if seconds < EPOCH_FROM => Some(Duration::from_secs(seconds)),
        // Some vendors send milliseconds.
        Some(instant) if instant >= 1_000 * EPOCH_FROM => until(instant / 1_000, headers),
        Some(instant) => until(instant, headers),
        None => fields::span(text),
    }
}

/// Time until `instant`, by the vendor's own clock.
fn until(instant: u64, headers: &HeaderMap) -> Option<Duration> {
    let now = date::seconds(text(headers, &DATE)?)?;
    Some(Duration::from_secs(instant.saturating_sub(now)))
}
