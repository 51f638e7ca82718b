//! Finds the window of a calendar that holds an instant, from the local date and time. The oracle and the reference use
//! it. It computes no boundaries, and shares only the time zone database with the shipping code.

use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use lessor_ledger::rule::{Calendar, Unit};

/// The windows of a calendar, by local date and time.
#[derive(Clone, Debug)]
pub struct Civil {
    unit: Unit,
    zone: TimeZone,
    anchor_day: i8,
    from: Weekday,
}

/// What identifies a window: its day, and for shorter windows the hour, the minute and the offset too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    day: Date,
    time: (i8, i8, i32),
}

impl Civil {
    /// Makes the windows of `calendar`.
    pub fn new(calendar: &Calendar) -> Self {
        let from = match calendar.anchor_weekday() {
            Some("tuesday") => Weekday::Tuesday,
            Some("wednesday") => Weekday::Wednesday,
            Some("thursday") => Weekday::Thursday,
            Some("friday") => Weekday::Friday,
            Some("saturday") => Weekday::Saturday,
            Some("sunday") => Weekday::Sunday,
            _ => Weekday::Monday,
        };
        let anchor_day = calendar.anchor_day().unwrap_or(1);
        Civil {
            unit: calendar.unit(),
            zone: TimeZone::get(calendar.zone().name()).expect("a zone that was checked"),
            anchor_day: i8::try_from(anchor_day).expect("1 to 31"),
            from,
        }
    }

    /// Returns the window that holds `at`, in nanoseconds since the epoch. The answer is wrong where clocks change by
    /// less than an hour, or back past midnight.
    pub fn window(&self, at: u64) -> Label {
        let shown = Timestamp::from_nanosecond(at.into()).expect("584 years").to_zoned(self.zone.clone());
        let day = shown.date();
        let offset = shown.offset().seconds();
        match self.unit {
            Unit::Minute => Label { day, time: (shown.hour(), shown.minute(), offset) },
            Unit::Hour => Label { day, time: (shown.hour(), 0, offset) },
            Unit::Day => Label { day, time: (0, 0, 0) },
            Unit::Week => Label { day: day - self.from.until(day.weekday()).days(), time: (0, 0, 0) },
            Unit::Month => {
                let has_begun = day.day() >= self.anchor_day.min(day.days_in_month());
                let month = if has_begun { day } else { day - 1.month() };
                Label { day: month.first_of_month(), time: (0, 0, 0) }
            }
        }
    }

    /// Returns the first instant after `at` that lies in another window. Steps forward, then bisects.
    pub(crate) fn edge_after(&self, at: u64) -> u64 {
        let label = self.window(at);
        // Windows of days or longer: zones change by a quarter of an hour at least.
        let step = 1_000_000_000 * if matches!(self.unit, Unit::Minute | Unit::Hour) { 30 } else { 15 * 60 };
        let (mut inside, mut outside) = (at, at + step);
        while self.window(outside) == label {
            (inside, outside) = (outside, outside + step);
        }
        while outside - inside > 1 {
            let middle = inside + (outside - inside) / 2;
            if self.window(middle) == label { inside = middle } else { outside = middle }
        }
        outside
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lessor_ledger::rule::Zone;
    use lessor_protocol::Moment;
    use std::time::Duration;

    /// The shipping boundaries are where labels change, and nowhere else.
    #[test]
    fn labels_change_where_windows_end() {
        for zone in ["UTC", "Europe/Berlin", "America/Santiago", "Pacific/Auckland", "Asia/Kathmandu"] {
            for unit in Unit::ALL {
                let zone = Zone::try_new(zone).expect("a zone");
                let calendar = Calendar::new(unit, zone);
                let calendar = match unit {
                    Unit::Month => calendar.with_anchor_day(31).expect("a day"),
                    Unit::Week => calendar.with_anchor_weekday("thursday").expect("a day"),
                    Unit::Minute | Unit::Hour | Unit::Day => calendar,
                };
                let civil = Civil::new(&calendar);
                // Through 2024, in odd steps.
                let mut at = Moment::from_nanos(1_704_067_200_123_456_789);
                for _ in 0..1_000 {
                    let end = calendar.end_after(at);
                    let label = |at: Moment| civil.window(at.as_nanos());
                    assert_eq!(label(at), label(end.before(Duration::from_nanos(1))), "{calendar:?} {at:?}");
                    assert_ne!(label(at), label(end), "{calendar:?} {at:?}");
                    at = at + Duration::from_secs(31_633);
                }
            }
        }
    }
}
