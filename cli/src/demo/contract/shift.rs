//! How soon a fleet followed when the vendor changed the contract without notice, and how it came back. The judge
//! reports every arrival after the change; nothing is decided here.

use crate::demo::table::rounded;
use lessor_protocol::Moment;
use serde::Serialize;
use std::time::Duration;

/// The part of a contract that counts as all of it, in percent. The margin between the two counts, and calls on their
/// way, leave one or two percent unused.
const WHOLE_PERCENT: u64 = 97;

/// Observations since the change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shift {
    /// When the contract changed.
    at: Moment,
    /// The calls that the vendor admits in a window from then on.
    limit: u64,
    /// When the window first had room again.
    room: Moment,
    /// Calls that were refused, and the first and last refusal before a call was admitted.
    refused: u64,
    first_refused: Option<Moment>,
    last_refused: Option<Moment>,
    /// The first admitted call.
    resumed: Option<Moment>,
    back: Option<Back>,
}

/// Observations since the first contract was restored.
#[derive(Clone, Copy, Debug)]
struct Back {
    at: Moment,
    /// The calls that the vendor admits in a window again.
    limit: u64,
    /// Calls in the window that ended when the contract was restored.
    before: u64,
    refused: u64,
    /// When a window first held as good as all calls.
    whole: Option<Moment>,
}

impl Shift {
    /// Starts observing: from `at` on `limit` calls fit in a window, which has room for one at `room`.
    pub(super) fn new(at: Moment, limit: u64, room: Moment) -> Self {
        Shift {
            at,
            limit,
            room,
            refused: 0,
            first_refused: None,
            last_refused: None,
            resumed: None,
            back: None,
        }
    }

    /// Records that from `at` on `limit` calls fit in a window again; the one that ends then holds `in_window`.
    pub(super) fn restore(&mut self, at: Moment, limit: u64, in_window: u64) {
        self.back = Some(Back { at, limit, before: in_window, refused: 0, whole: None });
    }

    /// Records that a call arrived, and whether it was admitted; with it the window holds `in_window`.
    pub(super) fn arrived(&mut self, now: Moment, admitted: bool, in_window: u64) {
        if let Some(back) = &mut self.back {
            back.refused += u64::from(!admitted);
            if in_window * 100 >= back.limit * WHOLE_PERCENT {
                back.whole.get_or_insert(now);
            }
            return;
        }
        if admitted {
            self.resumed.get_or_insert(now);
            return;
        }
        self.refused += 1;
        if self.resumed.is_none() {
            self.first_refused.get_or_insert(now);
            self.last_refused = Some(now);
        }
    }

    /// Returns the report. `most_of_a_node` is the most refusals that one of `nodes` saw, and the last window holds
    /// `in_window` calls.
    pub(super) fn report(&self, start: Moment, nodes: usize, most_of_a_node: u64, in_window: u64) -> Shifted {
        let seconds = |span: Duration| span.as_secs_f64();
        let restored = self.back.map(|back| Restored {
            at_s: seconds(back.at.since(start)),
            limit: back.limit,
            vendor_429: back.refused,
            whole_after_s: back.whole.map(|whole| seconds(whole.since(back.at))),
            used_at_the_end: in_window as f64 / back.limit.max(1) as f64,
        });
        let in_window = self.back.map_or(in_window, |back| back.before);
        let followed = self.first_refused.zip(self.last_refused).map(|(first, last)| last.since(first));
        Shifted {
            at_s: seconds(self.at.since(start)),
            limit: self.limit,
            vendor_429: self.refused,
            vendor_429_per_node: self.refused as f64 / nodes.max(1) as f64,
            most_429_of_a_node: most_of_a_node,
            followed_ms: followed.map(|span| 1_000.0 * seconds(span)),
            room_after_s: seconds(self.room.since(self.at)),
            resumed_after_s: self.resumed.map(|resumed| seconds(resumed.since(self.at))),
            used_at_the_end: in_window as f64 / self.limit.max(1) as f64,
            restored,
        }
    }
}

/// The report of a [`Shift`], for people and machines.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Shifted {
    /// When the vendor changed the contract, since the start.
    #[serde(serialize_with = "rounded")]
    pub(crate) at_s: f64,
    /// Calls that the vendor admits in a window from then on.
    pub(crate) limit: u64,
    /// Calls that the vendor refused since.
    pub(crate) vendor_429: u64,
    /// Refused calls per node on average.
    #[serde(serialize_with = "rounded")]
    pub(crate) vendor_429_per_node: f64,
    /// The most refused calls of any node.
    pub(crate) most_429_of_a_node: u64,
    /// Time from the first refusal to the last before a call was admitted: as long as the fleet took to follow.
    #[serde(serialize_with = "rounded")]
    pub(crate) followed_ms: Option<f64>,
    /// Time from the change until the new contract had room for a call: calls admitted before still counted.
    #[serde(serialize_with = "rounded")]
    pub(crate) room_after_s: f64,
    /// Time from the change until the vendor admitted the next call.
    #[serde(serialize_with = "rounded")]
    pub(crate) resumed_after_s: Option<f64>,
    /// Calls in the last window of the run, or before the contract was restored, as a share of the new contract.
    #[serde(serialize_with = "rounded")]
    pub(crate) used_at_the_end: f64,
    /// How the fleet came back to the first contract, if it was restored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) restored: Option<Restored>,
}

/// How the fleet came back to the first contract.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Restored {
    /// When the contract was restored, since the start.
    #[serde(serialize_with = "rounded")]
    pub(crate) at_s: f64,
    /// The calls that the vendor admits in a window again.
    pub(crate) limit: u64,
    /// Calls that the vendor refused since.
    pub(crate) vendor_429: u64,
    /// Time from then until a window first held as good as all calls.
    #[serde(serialize_with = "rounded")]
    pub(crate) whole_after_s: Option<f64>,
    /// Calls in the last window of the run, as a share of the contract.
    #[serde(serialize_with = "rounded")]
    pub(crate) used_at_the_end: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(report: &Shifted) -> String {
        serde_json::to_string(report).expect("plain data")
    }

    #[test]
    fn a_change_is_followed_when_the_last_call_was_refused_before_one_is_admitted_again() {
        let at = |millis| Moment::ORIGIN + Duration::from_millis(millis);
        let mut shift = Shift::new(at(20_000), 4_500, at(35_000));
        for (millis, admitted) in
            [(20_010, false), (20_013, false), (35_200, true), (40_000, false), (41_000, true)]
        {
            shift.arrived(at(millis), admitted, 4_410);
        }
        let report = shift.report(at(0), 2, 2, 4_410);
        assert_eq!(
            json(&report),
            concat!(
                r#"{"at_s":20.0,"limit":4500,"vendor_429":3,"vendor_429_per_node":1.5,"most_429_of_a_node":2,"#,
                r#""followed_ms":3.0,"room_after_s":15.0,"resumed_after_s":15.2,"used_at_the_end":0.98}"#
            )
        );
    }

    #[test]
    fn a_contract_is_used_whole_again_once_a_window_holds_as_good_as_all_of_it() {
        let at = |millis| Moment::ORIGIN + Duration::from_millis(millis);
        let mut shift = Shift::new(at(10_000), 4_500, at(10_000));
        shift.arrived(at(11_000), true, 4_400);
        shift.restore(at(40_000), 9_000, 4_410);
        let calls =
            [(50_000, true, 4_500), (75_000, true, 8_729), (76_000, false, 8_730), (80_000, true, 8_000)];
        for (millis, admitted, in_window) in calls {
            shift.arrived(at(millis), admitted, in_window);
        }
        let json = json(&shift.report(at(0), 2, 0, 8_910));
        let end = concat!(
            r#""used_at_the_end":0.98,"restored":{"at_s":40.0,"limit":9000,"vendor_429":1,"whole_after_s":36.0,"#,
            r#""used_at_the_end":0.99}}"#
        );
        assert!(json.ends_with(end), "{json}");
        assert!(json.contains(r#""vendor_429":0,"#), "before that none was refused: {json}");
    }
}
