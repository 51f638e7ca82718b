//! What a node has heard from its vendor, on the wire.

use super::is_zero;
use crate::PERMITS_MAX;
use crate::lease::millis_up;
use crate::observed::{ANNOUNCED_MAX, Announced, Left, Observed};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// [`Observed`] on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedBody {
    /// Rises with each answer of the vendor that said something.
    pub number: u64,
    /// Calls that the vendor refused since the session began.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub refused_total: u64,
    /// Rest of the time for which the vendor asked for a pause. 0: it refused, and named no time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// Permits that the vendor has left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<u64>,
    /// Set with `left`: how long the vendor will have no more than that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_lasts_ms: Option<u64>,
    /// Policies of the contract as the vendor states them. Those after the fourth are ignored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub announced: Vec<AnnouncedBody>,
}

/// [`Announced`] on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnnouncedBody {
    /// Permits of the policy.
    pub limit: u64,
    /// Window of the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_ms: Option<u64>,
}

impl ObservedBody {
    /// Creates the body of `observed`. Times are rounded up, so that a pause is never too short. A larger number than
    /// the wire carries becomes the largest: an allocator would refuse the whole ask for what a vendor said.
    pub fn of(observed: &Observed) -> Self {
        let number = |number: u64| number.min(PERMITS_MAX);
        let millis = |span: Duration| number(millis_up(span));
        let announced = observed.announced.iter().flatten().map(|announced| AnnouncedBody {
            limit: number(announced.limit),
            per_ms: announced.per.map(millis),
        });
        ObservedBody {
            number: number(observed.number),
            refused_total: number(observed.refused_total),
            wait_ms: observed.wait.map(millis),
            left: observed.left.map(|left| number(left.permits)),
            left_lasts_ms: observed.left.and_then(|left| left.lasts).map(millis),
            announced: announced.collect(),
        }
    }

    /// Returns what the node has heard.
    pub fn observed(&self) -> Observed {
        let mut announced = [None; ANNOUNCED_MAX];
        for (place, body) in announced.iter_mut().zip(&self.announced) {
            *place = Some(Announced { limit: body.limit, per: body.per_ms.map(Duration::from_millis) });
        }
        let lasts = self.left_lasts_ms.map(Duration::from_millis);
        Observed {
            number: self.number,
            refused_total: self.refused_total,
            wait: self.wait_ms.map(Duration::from_millis),
            left: self.left.map(|permits| Left { permits, lasts }),
            announced,
        }
    }

    /// Returns the field and value of the first number that is out of range.
    pub(super) fn out_of_range(&self) -> Option<(&'static str, u64)> {
        let numbers = [
            ("observed.number", self.number),
            ("observed.refused_total", self.refused_total),
            ("observed.wait_ms", self.wait_ms.unwrap_or(0)),
            ("observed.left", self.left.unwrap_or(0)),
            ("observed.left_lasts_ms", self.left_lasts_ms.unwrap_or(0)),
        ];
        let announced = self.announced.iter().flat_map(|announced| {
            [
                ("observed.announced.limit", announced.limit),
                ("observed.announced.per_ms", announced.per_ms.unwrap_or(0)),
            ]
        });
        numbers.into_iter().chain(announced).find(|&(_, value)| value > PERMITS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_heard_survives_the_wire_and_what_cannot_be_is_named() {
        let second = Duration::from_secs(1);
        let observed = Observed {
            number: 3,
            refused_total: 2,
            wait: Some(second),
            left: Some(Left { permits: 0, lasts: Some(30 * second) }),
            announced: [
                Some(Announced { limit: 50, per: Some(60 * second) }),
                Some(Announced { limit: 7, per: None }),
                None,
                None,
            ],
        };
        let body = ObservedBody::of(&observed);
        let text = serde_json::to_string(&body).expect("plain data");
        let back: ObservedBody = serde_json::from_str(&text).expect("what was written can be read");
        assert_eq!(back.observed(), observed);
        assert_eq!(body.out_of_range(), None);
        let huge = ObservedBody { announced: vec![AnnouncedBody { limit: 1 << 53, per_ms: None }], ..body };
        assert_eq!(huge.out_of_range(), Some(("observed.announced.limit", 1 << 53)));
    }

    /// The bug: a window of 10^15 s in a header of a vendor made an allocator refuse each ask of the node.
    #[test]
    fn no_word_of_a_vendor_makes_an_ask_invalid() {
        let longest = Duration::from_secs(10_u64.pow(15));
        let observed = Observed {
            number: u64::MAX,
            refused_total: u64::MAX,
            wait: Some(Duration::MAX),
            left: Some(Left { permits: u64::MAX, lasts: Some(Duration::MAX) }),
            announced: [Some(Announced { limit: u64::MAX, per: Some(longest) }); ANNOUNCED_MAX],
        };
        let body = ObservedBody::of(&observed);
        assert_eq!(body.out_of_range(), None);
        assert_eq!(body.announced[0], AnnouncedBody { limit: PERMITS_MAX, per_ms: Some(PERMITS_MAX) });
    }

    #[test]
    fn more_policies_than_fit_are_left_out() {
        let announced = (0..9).map(|limit| AnnouncedBody { limit, per_ms: None }).collect();
        let observed = ObservedBody { announced, ..ObservedBody::default() }.observed();
        assert_eq!(observed.announced.map(|it| it.map(|it| it.limit)), [Some(0), Some(1), Some(2), Some(3)]);
    }
}
