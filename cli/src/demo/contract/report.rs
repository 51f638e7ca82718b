//! The report of the contract demo, as one table for people or one JSON object for machines.

use super::Agreed;
use super::judge::Seen;
use super::shift::{Restored, Shifted};
use crate::demo::latency::Took;
use crate::demo::line::Count;
use crate::demo::rotation::Rotated;
use crate::demo::table::{percent, rounded};
use lessor_sim::evenness::Even;
use serde::Serialize;
use std::fmt;

/// The whole report.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    /// One for each limit of the contract.
    pub(crate) limits: Vec<LimitReport>,
    /// Time of a local decision over all nodes, each of which sleeps between two batches.
    pub(crate) batches: Took,
    /// Time of a local decision in a loop without a pause.
    pub(crate) hot_loop: Took,
    /// Exchanges with the allocator for every 1,000 calls that were tried, admitted and refused together.
    #[serde(serialize_with = "rounded")]
    pub(crate) exchanges_per_1000_calls: f64,
    /// Permits still lent out after all nodes had left.
    pub(crate) stranded: u64,
    /// How the fleet followed a change of the contract by the vendor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) vendor_change: Option<Shifted>,
    /// Number of times an allocator was killed.
    pub(crate) kills: u64,
    /// Failures while certificates and tokens were renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rotated: Option<Rotated>,
    /// The longest time in which the vendor admitted no call, from the first one to the end.
    pub(crate) longest_gap_ms: u64,
    /// Node processes.
    pub(crate) nodes: usize,
    /// Duration of the run in seconds.
    #[serde(serialize_with = "rounded")]
    pub(crate) seconds: f64,
}

/// The report of one limit.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LimitReport {
    name: &'static str,
    limit: u64,
    window_s: u64,
    /// Calls that the nodes admitted.
    admitted: u64,
    /// Calls that the nodes refused. A refused push counts on both limits: either may have been the reason.
    refused: u64,
    /// Calls that the vendor turned away because of this limit.
    vendor_429: u64,
    /// The most calls that arrived at the vendor in any window, admitted or not.
    max_in_any_window: u64,
    /// Calls that the vendor admitted after the first window, as a share of those it could have admitted.
    #[serde(serialize_with = "rounded")]
    utilisation: Option<f64>,
    /// How evenly the limit was used, if the demo ran for more than three windows.
    #[serde(skip_serializing_if = "Option::is_none")]
    even: Option<Evenly>,
}

/// Calls admitted in a second after three windows, and in a window, as shares of the average.
#[derive(Clone, Copy, Debug, Serialize)]
struct Evenly {
    #[serde(serialize_with = "rounded")]
    slowest_second: f64,
    #[serde(serialize_with = "rounded")]
    fastest_second: f64,
    /// Median deviation of a second from the average.
    #[serde(serialize_with = "rounded")]
    median_off: f64,
    /// The least of the first three windows, and of the later ones.
    #[serde(serialize_with = "rounded")]
    least_of_first_windows: f64,
    #[serde(serialize_with = "rounded")]
    least_of_later_windows: f64,
}

impl LimitReport {
    /// Adds how evenly the limit was used.
    pub(crate) fn evenly(self, even: Option<Even>) -> Self {
        let even = even.map(|even| Evenly {
            slowest_second: even.seconds.0,
            fastest_second: even.seconds.1,
            median_off: even.off,
            least_of_first_windows: even.windows.0,
            least_of_later_windows: even.windows.1,
        });
        LimitReport { even, ..self }
    }

    /// Combines the counts of the nodes with those of the vendor.
    pub(crate) fn new(agreed: Agreed, count: Count, seen: Seen, utilisation: Option<f64>) -> Self {
        LimitReport {
            name: agreed.name,
            limit: agreed.limit,
            window_s: agreed.window.as_secs(),
            admitted: count.admitted,
            refused: count.refused,
            vendor_429: seen.too_many,
            max_in_any_window: seen.most,
            utilisation,
            even: None,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<16} {:>14} {:>9} {:>9} {:>11} {:>18} {:>12}",
            "limit", "contract", "admitted", "refused", "vendor 429s", "most in any window", "utilisation"
        )?;
        for limit in &self.limits {
            writeln!(
                f,
                "{:<16} {:>14} {:>9} {:>9} {:>11} {:>18} {:>12}",
                limit.name,
                format!("{} per {} s", limit.limit, limit.window_s),
                limit.admitted,
                limit.refused,
                limit.vendor_429,
                limit.max_in_any_window,
                limit.utilisation.map_or_else(|| "-".to_owned(), percent),
            )?;
        }
        writeln!(f)?;
        for LimitReport { name, even, .. } in &self.limits {
            let Some(even) = even else { continue };
            let (slowest, fastest) = (percent(even.slowest_second), percent(even.fastest_second));
            let (first, later) = (percent(even.least_of_first_windows), percent(even.least_of_later_windows));
            let off = percent(even.median_off);
            writeln!(
                f,
                "{name:<16} after three windows {slowest} to {fastest} of the average in each second, median deviation {off}"
            )?;
            writeln!(
                f,
                "                 at least {first} used of each of the first three windows, {later} of each later one"
            )?;
        }
        for (name, took) in [("in batches", self.batches), ("in a hot loop", self.hot_loop)] {
            let Took { try_acquire_ns: calls, clock_ns: clock } = took;
            writeln!(f, "try_acquire      {calls}, {name}; two clock readings alone {clock}")?;
        }
        writeln!(f, "exchanges        {:.1} per 1,000 calls", self.exchanges_per_1000_calls)?;
        writeln!(f, "stranded         {} permits after all nodes had left", self.stranded)?;
        if let Some(change) = &self.vendor_change {
            let seconds =
                |after: Option<f64>| after.map_or_else(|| "-".to_owned(), |after| format!("{after:.1} s"));
            let followed = change.followed_ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1} ms"));
            let Shifted { at_s, limit, vendor_429, most_429_of_a_node: most, room_after_s: room, .. } =
                change;
            writeln!(
                f,
                "vendor change    after {at_s:.0} s to {limit} calls: {vendor_429} calls refused, at most {most} of one node"
            )?;
            writeln!(
                f,
                "                 followed within {followed}; the vendor has room after {room:.1} s, used after {}, {} used at the end",
                seconds(change.resumed_after_s),
                percent(change.used_at_the_end)
            )?;
            if let Some(Restored { at_s, limit, vendor_429, whole_after_s, used_at_the_end }) =
                change.restored
            {
                writeln!(
                    f,
                    "                 after {at_s:.0} s {limit} calls again: {vendor_429} refused; used whole after {}, {} used at the end",
                    seconds(whole_after_s),
                    percent(used_at_the_end)
                )?;
            }
        }
        if let Some(rotated) = self.rotated {
            let Rotated { rotations, new_clients, new_clients_failed, tokens_refused, .. } = rotated;
            let Rotated { exchanges_failed, calls_refused, .. } = rotated;
            writeln!(
                f,
                "rotations        {rotations} of certificates and token: {calls_refused} calls refused and {exchanges_failed} exchanges failed because of them"
            )?;
            writeln!(
                f,
                "                 {tokens_refused} old tokens refused and replaced; {new_clients_failed} of {new_clients} new clients failed"
            )?;
        }
        writeln!(
            f,
            "longest gap      {} ms without a call at the vendor{}",
            self.longest_gap_ms,
            killed(self.kills)
        )?;
        write!(f, "ran              {} nodes for {:.0} s", self.nodes, self.seconds)
    }
}

/// Says how often an allocator was killed, if it was.
fn killed(kills: u64) -> String {
    match kills {
        0 => String::new(),
        1 => "; an allocator was killed once".to_owned(),
        kills => format!("; an allocator was killed {kills} times"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::REST;
    use super::*;
    use crate::demo::latency::Percentiles;

    fn took(p50: u64) -> Took {
        let percentiles = |p50| Percentiles { p50, p99: 300, p999: 900 };
        Took { try_acquire_ns: percentiles(p50), clock_ns: percentiles(p50 - 10) }
    }

    fn report(utilisation: Option<f64>) -> Report {
        let count = Count { admitted: 10, refused: 2 };
        Report {
            limits: vec![LimitReport::new(REST, count, Seen::default(), utilisation)],
            batches: took(90),
            hot_loop: took(50),
            exchanges_per_1000_calls: 12.345_678,
            stranded: 0,
            vendor_change: None,
            kills: 11,
            rotated: None,
            longest_gap_ms: 523,
            nodes: 8,
            seconds: 60.000_4,
        }
    }

    #[test]
    fn machines_get_exactly_these_names() {
        let json = serde_json::to_string(&report(Some(0.987_654_3))).expect("plain data");
        let expected = concat!(
            r#"{"limits":[{"name":"vendor/rest","limit":9000,"window_s":30,"admitted":10,"refused":2,"#,
            r#""vendor_429":0,"max_in_any_window":0,"utilisation":0.9877}],"#,
            r#""batches":{"try_acquire_ns":{"p50":90,"p99":300,"p999":900},"#,
            r#""clock_ns":{"p50":80,"p99":300,"p999":900}},"#,
            r#""hot_loop":{"try_acquire_ns":{"p50":50,"p99":300,"p999":900},"#,
            r#""clock_ns":{"p50":40,"p99":300,"p999":900}},"exchanges_per_1000_calls":12.3457,"#,
            r#""stranded":0,"kills":11,"longest_gap_ms":523,"nodes":8,"seconds":60.0004}"#,
        );
        assert_eq!(json, expected);
    }

    #[test]
    fn a_run_of_more_than_three_windows_says_how_even_it_was() {
        let mut long = report(None);
        let even = Even { seconds: (0.9, 1.1), off: 0.02, windows: (0.981, 0.985) };
        long.limits = vec![long.limits.remove(0).evenly(Some(even))];
        let json = serde_json::to_value(&long).expect("plain data");
        assert_eq!(json["limits"][0]["even"]["fastest_second"], 1.1);
        assert!(long.to_string().contains("after three windows 90.0 % to 110.0 % of the average"), "{long}");
    }

    #[test]
    fn people_are_told_how_often_the_allocator_was_killed() {
        let text = |kills| Report { kills, ..report(None) }.to_string();
        assert!(text(11).contains(
            "longest gap      523 ms without a call at the vendor; an allocator was killed 11 times\n"
        ));
        assert!(text(0).contains("523 ms without a call at the vendor\n"));
    }

    #[test]
    fn people_are_told_what_failed_for_a_rotation() {
        let rotated = Rotated { rotations: 9, calls_refused: 2, exchanges_failed: 3, ..Rotated::default() };
        let text = Report { rotated: Some(rotated), ..report(None) }.to_string();
        let words = "rotations        9 of certificates and token: 2 calls refused and 3 exchanges failed because of them\n";
        assert!(text.contains(words), "{text}");
        assert!(!report(None).to_string().contains("rotations"));
    }

    #[test]
    fn a_run_without_a_second_window_has_no_utilisation() {
        let json = serde_json::to_value(report(None)).expect("plain data");
        assert!(json["limits"][0]["utilisation"].is_null());
        assert!(report(None).to_string().lines().nth(1).is_some_and(|line| line.ends_with(" -")));
    }
}
