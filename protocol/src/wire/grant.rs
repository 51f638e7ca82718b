//! The answer of an allocator to one ask, on the wire, with the safe share of a session.

use super::{ErrorBody, RateBody, is_zero};
use crate::exchange::{Answer, Grant, InFlight, Rate, Refusal, RefusalReason};
use crate::fallback::Fallback;
use crate::lease::{millis_down, millis_up};
use crate::safe_share::SafeShare;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// [`Answer`] on the wire, or an error about one ask. Names have the type `N`, see [`super::AskBody`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound(deserialize = "N: Deserialize<'de>"))]
pub struct GrantBody<N = String> {
    /// The limit that was asked for.
    pub limit: N,
    /// The key that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<N>,
    /// New permits.
    pub permits: u64,
    /// Permits held before that were extended.
    #[serde(default)]
    pub held: u64,
    /// How long the whole lease lasts, counted from the first sending of the ask.
    pub term_ms: u64,
    /// Time for which a node keeps a supply; the term if it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub horizon_ms: Option<u64>,
    /// The most permits that one call can ever take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<u64>,
    /// Least time until the next ask for more.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ask_after_ms: u64,
    /// Time until the pool has a permit again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Set if the limit has a steady flow: the part of it that is lent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateBody>,
    /// The longest that a call may take, where the limit caps calls in flight: asks must say `running` from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_ms: Option<u64>,
    /// Set with `longest_ms` where a permit may be spent again when its call ends: the most to have in hand and in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<u64>,
    /// Whether the limit is in shadow mode: calls that would be refused pass, and are counted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shadow: bool,
    /// What to do about the limit while no allocator answers.
    #[serde(default, skip_serializing_if = "Fallback::is_closed")]
    pub fallback: Fallback,
    /// With [`Fallback::SafeShare`]: the share of this session, if there was one left for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safe: Option<SafeShareBody>,
    /// Permits that the pool has left after this grant. For display only. Absent if the allocator leases the limit
    /// itself, has no permits, and does not know yet whether there are more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<u64>,
    /// The window of the rule with the lowest limit, if that rule has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_ms: Option<u64>,
    /// Set on a refusal: permits held stay as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusalReason>,
    /// Set if this ask was not understood or not believed. Nothing changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Box<ErrorBody>>,
}

impl GrantBody {
    /// Creates the body of `answer` for `limit` and `key`. Waits are rounded up, the term down.
    pub fn of(limit: &str, key: Option<&str>, answer: Answer) -> Self {
        GrantBody::answering(limit.to_owned(), key.map(str::to_owned), answer)
    }

    /// Creates the body of an error about an ask for `limit` and `key`.
    pub fn wrong(limit: &str, key: Option<&str>, error: ErrorBody) -> Self {
        GrantBody::rejecting(limit.to_owned(), key.map(str::to_owned), error)
    }
}

impl<N: Default> GrantBody<N> {
    /// [`GrantBody::of`] with names of any type.
    pub fn answering(limit: N, key: Option<N>, answer: Answer) -> Self {
        let mut body = GrantBody { limit, key, ..GrantBody::default() };
        match answer {
            Answer::Grant(grant) => {
                body.permits = grant.permits;
                body.held = grant.kept;
                body.term_ms = millis_down(grant.term);
                body.horizon_ms = Some(millis_up(grant.horizon));
                body.ceiling = Some(grant.ceiling);
                body.ask_after_ms = millis_up(grant.ask_after);
                body.retry_after_ms = grant.retry_after.map(millis_up);
                body.rate = RateBody::of_rate(grant.rate);
                body.longest_ms = grant.in_flight.map(|cap| millis_up(cap.longest));
                body.hold = grant.in_flight.and_then(|cap| cap.hold);
            }
            Answer::Refusal(refusal) => {
                body.retry_after_ms = Some(millis_up(refusal.retry_after));
                body.refused = Some(refusal.reason);
            }
        }
        body
    }

    /// [`GrantBody::wrong`] with names of any type.
    pub fn rejecting(limit: N, key: Option<N>, error: ErrorBody) -> Self {
        GrantBody { limit, key, error: Some(Box::new(error)), ..GrantBody::default() }
    }
}

impl<N> GrantBody<N> {
    /// Converts the names with `rename`.
    pub fn renamed<M>(self, rename: impl Fn(N) -> M) -> GrantBody<M> {
        GrantBody {
            limit: rename(self.limit),
            key: self.key.map(rename),
            permits: self.permits,
            held: self.held,
            term_ms: self.term_ms,
            horizon_ms: self.horizon_ms,
            ceiling: self.ceiling,
            ask_after_ms: self.ask_after_ms,
            retry_after_ms: self.retry_after_ms,
            rate: self.rate,
            longest_ms: self.longest_ms,
            hold: self.hold,
            shadow: self.shadow,
            fallback: self.fallback,
            safe: self.safe,
            left: self.left,
            window_ms: self.window_ms,
            refused: self.refused,
            error: self.error,
        }
    }

    /// Returns the answer.
    ///
    /// # Errors
    /// What the allocator found wrong with the ask.
    pub fn answer(&self) -> Result<Answer, &ErrorBody> {
        if let Some(error) = &self.error {
            return Err(error);
        }
        let retry_after = self.retry_after_ms.map(Duration::from_millis);
        Ok(match self.refused {
            None => Answer::Grant(Grant {
                kept: self.held,
                permits: self.permits,
                term: Duration::from_millis(self.term_ms),
                horizon: Duration::from_millis(self.horizon_ms.unwrap_or(self.term_ms)),
                ceiling: self.ceiling.unwrap_or(crate::PERMITS_MAX),
                ask_after: Duration::from_millis(self.ask_after_ms),
                retry_after,
                rate: self.rate.map_or(Rate::Free, RateBody::rate),
                in_flight: self
                    .longest_ms
                    .map(|longest| InFlight { longest: Duration::from_millis(longest), hold: self.hold }),
            }),
            Some(reason) => Answer::Refusal(Refusal { reason, retry_after: retry_after.unwrap_or_default() }),
        })
    }
}

/// [`SafeShare`] on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SafeShareBody {
    /// Permits that may be spent in each span.
    pub permits: u64,
    /// Length of the span.
    pub span_ms: u64,
    /// How long the share lasts, from the first sending of the ask.
    pub lasts_ms: u64,
}

impl SafeShareBody {
    /// Creates the body of `share`. Its span is rounded up, and its duration down.
    pub fn of(share: SafeShare) -> Self {
        let lasts_ms = u64::try_from(share.lasts.as_millis()).unwrap_or(u64::MAX);
        SafeShareBody { permits: share.permits, span_ms: millis_up(share.span), lasts_ms }
    }

    /// Returns the share.
    pub fn share(self) -> SafeShare {
        SafeShare {
            permits: self.permits,
            span: Duration::from_millis(self.span_ms),
            lasts: Duration::from_millis(self.lasts_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_survives_the_wire() {
        let second = Duration::from_secs(1);
        let share = SafeShare { permits: 6, span: 30 * second, lasts: 600 * second };
        let text = serde_json::to_string(&SafeShareBody::of(share)).expect("plain data");
        assert_eq!(text, r#"{"permits":6,"span_ms":30000,"lasts_ms":600000}"#);
        let back: SafeShareBody = serde_json::from_str(&text).expect("our own text");
        assert_eq!(back.share(), share);
    }
}
