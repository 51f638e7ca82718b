//! The safe share of a session, on the wire.

use crate::lease::millis_up;
use crate::safe_share::SafeShare;
use serde::{Deserialize, Serialize};
use std::time::Duration;

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
