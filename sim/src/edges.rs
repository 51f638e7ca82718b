//! Instants at which a window of some calendar ends and another begins: nights on which clocks change, leap days, short
//! months. The generator draws from them, because a run of seconds would hardly ever meet one by chance.

use lessor_ledger::rule::{Calendar, Unit, Zone};

/// An instant, and the kind of windows that meet there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    unit: Unit,
    zone: &'static str,
    /// The day on which windows begin, for months.
    anchor_day: u64,
    /// Seconds since the Unix epoch.
    pub at: u64,
}

/// The edges that the generator draws from.
pub const EDGES: [Edge; 10] = [
    // The day of 23 hours in Berlin, 31 March 2024, ends; the day of 25 hours, 27 October, ends.
    edge(Unit::Day, "Europe/Berlin", 1_711_922_400),
    edge(Unit::Day, "Europe/Berlin", 1_730_070_000),
    // Santiago skips the midnight of 8 September 2024.
    edge(Unit::Day, "America/Santiago", 1_725_768_000),
    // In Havana the midnight of 3 November 2024 comes twice: the first time, and an hour later.
    edge(Unit::Day, "America/Havana", 1_730_606_400),
    edge(Unit::Day, "America/Havana", 1_730_610_000),
    // An hour comes twice in Auckland, on 7 April 2024.
    edge(Unit::Hour, "Pacific/Auckland", 1_712_412_000),
    // A minute of Kathmandu, and a week of UTC.
    edge(Unit::Minute, "Asia/Kathmandu", 1_700_000_040),
    edge(Unit::Week, "UTC", 1_704_067_200),
    // Months from the 31st on: 29 February 2024 begins one, and so does 30 April, an hour or two before UTC's midnight.
    Edge { anchor_day: 31, ..edge(Unit::Month, "Europe/Berlin", 1_709_161_200) },
    Edge { anchor_day: 31, ..edge(Unit::Month, "Europe/Berlin", 1_714_428_000) },
];

const fn edge(unit: Unit, zone: &'static str, at: u64) -> Edge {
    Edge { unit, zone, anchor_day: 1, at }
}

impl Edge {
    /// Returns the calendar whose windows meet at the edge.
    pub fn calendar(self) -> Calendar {
        let calendar = Calendar::new(self.unit, Zone::try_new(self.zone).expect("a zone"));
        if self.unit != Unit::Month {
            return calendar;
        }
        calendar.with_anchor_day(self.anchor_day).expect("1 to 31")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lessor_protocol::Moment;

    /// All edges but the second of two midnights in Havana, at which no window ends.
    #[test]
    fn windows_meet_at_every_edge() {
        let at = |edge: Edge| Moment::from_nanos(edge.at * 1_000_000_000);
        let before = |edge: Edge| Moment::from_nanos(edge.at * 1_000_000_000 - 1);
        let meets = |edge: &Edge| edge.calendar().end_after(before(*edge)) == at(*edge);
        let others: Vec<Edge> = EDGES.into_iter().filter(|edge| !meets(edge)).collect();
        assert_eq!(others, [EDGES[4]]);
    }
}
