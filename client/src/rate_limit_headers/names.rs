//! The names of a vendor's older headers: three headers with one number each.

use http::HeaderName;
use std::borrow::Cow;

/// The three headers of one vendor: the limit, the calls left, and the end of the window.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trio {
    /// Calls allowed in a window.
    pub limit: HeaderName,
    /// Calls left in the window.
    pub remaining: HeaderName,
    /// When the window ends: in seconds from now, or since 1970.
    pub reset: HeaderName,
}

/// The names of older headers that are read besides `RateLimit` and `RateLimit-Policy`. The first family found in an
/// answer counts.
///
/// The default knows the families of `RateLimit-Limit`, `X-RateLimit-Limit` and `X-Rate-Limit-Limit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderNames(Cow<'static, [Trio]>);

const fn trio(limit: &'static str, remaining: &'static str, reset: &'static str) -> Trio {
    Trio {
        limit: HeaderName::from_static(limit),
        remaining: HeaderName::from_static(remaining),
        reset: HeaderName::from_static(reset),
    }
}

/// The names of older drafts, those of many large vendors, and a rarer variant.
static KNOWN: [Trio; 3] = [
    trio("ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"),
    trio("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"),
    trio("x-rate-limit-limit", "x-rate-limit-remaining", "x-rate-limit-reset"),
];

impl HeaderNames {
    /// Returns no names: only the fields of the draft are read.
    pub fn none() -> Self {
        HeaderNames(Cow::Borrowed(&[]))
    }

    /// Adds the headers of one vendor, before all others.
    #[must_use]
    pub fn with(mut self, limit: HeaderName, remaining: HeaderName, reset: HeaderName) -> Self {
        self.0.to_mut().insert(0, Trio { limit, remaining, reset });
        self
    }

    pub(super) fn trios(&self) -> &[Trio] {
        &self.0
    }

    /// The default names, in a constant.
    pub(crate) const fn known() -> Self {
        HeaderNames(Cow::Borrowed(&KNOWN))
    }
}

impl Default for HeaderNames {
    fn default() -> Self {
        Self::known()
    }
}
