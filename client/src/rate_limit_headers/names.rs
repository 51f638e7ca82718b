//! What vendors call the older kind of headers: three of them, one number each.

use http::HeaderName;
use std::borrow::Cow;

/// Three headers of one vendor: the limit, what is left of it, and when that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trio {
    /// How many calls there may be in a window.
    pub limit: HeaderName,
    /// How many are left.
    pub remaining: HeaderName,
    /// When the window is over: in so many seconds, or so many since 1970.
    pub reset: HeaderName,
}

/// The names that are looked for beside `RateLimit` and `RateLimit-Policy`; the first family that is there counts.
///
/// The default knows `RateLimit-Limit`, `X-RateLimit-Limit` and `X-Rate-Limit-Limit` with their like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderNames(Cow<'static, [Trio]>);

const fn trio(limit: &'static str, remaining: &'static str, reset: &'static str) -> Trio {
    Trio {
        limit: HeaderName::from_static(limit),
        remaining: HeaderName::from_static(remaining),
        reset: HeaderName::from_static(reset),
    }
}

/// As older drafts had them, as many large vendors write them, and as some others do.
static KNOWN: [Trio; 3] = [
    trio("ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"),
    trio("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"),
    trio("x-rate-limit-limit", "x-rate-limit-remaining", "x-rate-limit-reset"),
];

impl HeaderNames {
    /// No names but those of the draft.
    pub fn none() -> Self {
        HeaderNames(Cow::Borrowed(&[]))
    }

    /// And these, before all others.
    #[must_use]
    pub fn with(mut self, limit: HeaderName, remaining: HeaderName, reset: HeaderName) -> Self {
        self.0.to_mut().insert(0, Trio { limit, remaining, reset });
        self
    }

    pub(super) fn trios(&self) -> &[Trio] {
        &self.0
    }

    /// The default, without making it.
    pub(crate) const fn known() -> Self {
        HeaderNames(Cow::Borrowed(&KNOWN))
    }
}

impl Default for HeaderNames {
    fn default() -> Self {
        Self::known()
    }
}
