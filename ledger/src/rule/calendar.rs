//! Windows that follow the calendar of a time zone: when each begins and ends. Fixed windows ask for the next boundary.
//! A calendar counts nothing and reads no clock.
//!
//! The local clock is put forward and back. A **day**, **week** or **month** begins at the first instant at which the
//! local date is that day or a later one, and only once. A day has 23 to 25 hours, a midnight that is skipped is the
//! instant of the skip, and of a midnight that comes twice the first one counts. An **hour** or **minute** begins each
//! time that the clock shows a full one, or skips past one: the hour that comes twice in autumn is two windows.

use super::{RuleError, Zone};
use jiff::civil::{Date, Weekday};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, ToSpan};
use lessor_protocol::Moment;
use std::time::Duration;

lessor_protocol::words! {
    /// The kinds of calendar windows.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Unit {
        /// From full minute to full minute.
        Minute = "minute",
        /// From full hour to full hour.
        Hour = "hour",
        /// From midnight to midnight.
        Day = "day",
        /// From a weekday to the same weekday of the next week.
        Week = "week",
        /// From a day of the month to the same day of the next month.
        Month = "month",
    }
}

/// Names of the days of a week in configuration, Monday first.
const WEEKDAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

/// Windows that follow a calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calendar {
    unit: Unit,
    zone: Zone,
    /// The day on which a month begins, 1 to 31, or a week, 1 (Monday) to 7. 1 for all other units.
    anchor_day: i8,
}

impl Calendar {
    /// Creates windows of `unit` in `zone`: months from their first day, weeks from Monday.
    pub fn new(unit: Unit, zone: Zone) -> Self {
        Calendar { unit, zone, anchor_day: 1 }
    }

    /// Begins months on day `day`, or on their last day if they have fewer.
    ///
    /// # Errors
    /// If `day` is not 1 to 31, or the windows are not months.
    pub fn with_anchor_day(self, day: u64) -> Result<Self, RuleError> {
        let wrong = |problem| Err(RuleError { field: "anchor_day", problem });
        match (self.unit, i8::try_from(day)) {
            (Unit::Month, Ok(anchor_day @ 1..=31)) => Ok(Calendar { anchor_day, ..self }),
            (Unit::Month, _) => wrong(format!("is {day}: use a day of the month, 1 to 31")),
            (Unit::Week, _) => wrong(format!("is {day}: use the name of a day, \"monday\" to \"sunday\"")),
            (Unit::Minute | Unit::Hour | Unit::Day, _) => wrong(self.has_none(&day.to_string())),
        }
    }

    /// Begins weeks on the day called `name`, `"monday"` to `"sunday"`.
    ///
    /// # Errors
    /// If there is no such day, or the windows are not weeks.
    pub fn with_anchor_weekday(self, name: &str) -> Result<Self, RuleError> {
        let wrong = |problem| Err(RuleError { field: "anchor_day", problem });
        match (self.unit, (1..).zip(WEEKDAYS).find(|(_, known)| *known == name)) {
            (Unit::Week, Some((anchor_day, _))) => Ok(Calendar { anchor_day, ..self }),
            (Unit::Week, None) => {
                wrong(format!("is {name:?}: use the name of a day, \"monday\" to \"sunday\""))
            }
            (Unit::Month, _) => wrong(format!("is {name:?}: use a day of the month, 1 to 31")),
            (Unit::Minute | Unit::Hour | Unit::Day, _) => wrong(self.has_none(&format!("{name:?}"))),
        }
    }

    fn has_none(&self, value: &str) -> String {
        format!("is {value}, which means nothing to calendar = {:?}: leave it out", self.unit.name())
    }

    /// Returns the unit of the windows.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// Returns the time zone whose clock the windows follow.
    pub fn zone(&self) -> Zone {
        self.zone
    }

    /// Returns the day on which months begin. `None` if the windows are not months.
    pub fn anchor_day(&self) -> Option<u64> {
        (self.unit == Unit::Month).then_some(self.anchor_day.unsigned_abs().into())
    }

    /// Returns the name of the day on which weeks begin. `None` if the windows are not weeks.
    pub fn anchor_weekday(&self) -> Option<&'static str> {
        let index = usize::from(self.anchor_day.unsigned_abs()) - 1;
        (self.unit == Unit::Week).then(|| WEEKDAYS[index])
    }

    /// Returns the length of a long window, with the clock put back by an hour. Rates are counted by it.
    pub const fn length(&self) -> Duration {
        const HOUR: u64 = 60 * 60;
        Duration::from_secs(match self.unit {
            Unit::Minute => 60,
            Unit::Hour => HOUR,
            Unit::Day => 25 * HOUR,
            Unit::Week => 7 * 24 * HOUR + HOUR,
            Unit::Month => 31 * 24 * HOUR + HOUR,
        })
    }

    /// Returns the longest that a window can be. Since 1970 clocks were put back by three hours at most, and by a
    /// multiple of half an hour. A shorter bound would free permits that still count.
    pub const fn longest(&self) -> Duration {
        const HOUR: u64 = 60 * 60;
        Duration::from_secs(match self.unit {
            Unit::Minute => 60,
            Unit::Hour => HOUR + HOUR / 2,
            Unit::Day => (24 + 3) * HOUR,
            Unit::Week => (7 * 24 + 3) * HOUR,
            Unit::Month => (31 * 24 + 3) * HOUR,
        })
    }

    /// Returns the offsets of the clock that the windows follow.
    fn clock(&self) -> &'static TimeZone {
        self.zone.rules()
    }

    /// Returns when the window that holds `at` ends and the next one begins. `at` counts nanoseconds since the Unix
    /// epoch.
    pub fn end_after(&self, at: Moment) -> Moment {
        let at = Timestamp::from_nanosecond(at.as_nanos().into()).expect("584 years fit");
        let end = match self.unit {
            Unit::Minute => self.full_after(at, 60),
            Unit::Hour => self.full_after(at, 60 * 60),
            Unit::Day | Unit::Week | Unit::Month => self.day_after(at),
        };
        Moment::from_nanos(u64::try_from(end.as_nanosecond()).unwrap_or(u64::MAX))
    }

    /// Returns the beginning of the first window of days, weeks or months that begins after `at`.
    fn day_after(&self, at: Timestamp) -> Timestamp {
        let today = self.clock().to_datetime(at).date();
        let mut day = self.anchor_from(today);
        // Once on most days, because today's beginning is over. Where the clock was put back past midnight, tomorrow's
        // is over, too.
        while self.begins(day) <= at {
            day = self.anchor_from(day.saturating_add(1.day()));
        }
        self.begins(day)
    }

    /// Returns the first day from `day` on, itself included, on which a window begins.
    fn anchor_from(&self, day: Date) -> Date {
        match self.unit {
            Unit::Month => {
                let clamped = |day: Date| {
                    let last = day.days_in_month();
                    day.first_of_month().saturating_add((self.anchor_day.min(last) - 1).days())
                };
                let anchor = clamped(day);
                if anchor >= day { anchor } else { clamped(day.first_of_month().saturating_add(1.month())) }
            }
            Unit::Week => {
                let from = Weekday::from_monday_one_offset(self.anchor_day).expect("1 to 7");
                day.saturating_add(day.weekday().until(from).days())
            }
            Unit::Minute | Unit::Hour | Unit::Day => day,
        }
    }

    /// Returns the first instant at which the local date is `day` or a later one.
    fn begins(&self, day: Date) -> Timestamp {
        let (zone, midnight) = (self.clock(), day.at(0, 0, 0, 0));
        let instant = |offset: jiff::tz::Offset| offset.to_timestamp(midnight).unwrap_or(Timestamp::MAX);
        match zone.to_ambiguous_timestamp(midnight).offset() {
            AmbiguousOffset::Unambiguous { offset } => instant(offset),
            AmbiguousOffset::Fold { before, .. } => instant(before),
            // By the old offset midnight is after the skip; by the new offset it is before.
            AmbiguousOffset::Gap { after, .. } => {
                let skip = zone.following(instant(after)).next();
                skip.map_or(Timestamp::MAX, |skip| skip.timestamp())
            }
        }
    }

    /// Returns the first instant after `at` at which the clock shows a multiple of `length` seconds, or skips past one.
    fn full_after(&self, at: Timestamp, length: i64) -> Timestamp {
        let zone = self.clock();
        let mut from = at;
        loop {
            let shown =
                |at: Timestamp, of: Timestamp| at.as_second() + i64::from(zone.to_offset(of).seconds());
            let full = from.as_second() + length - shown(from, from).rem_euclid(length);
            let full = Timestamp::from_second(full).unwrap_or(Timestamp::MAX);
            let change = zone.following(from).next().map(|change| change.timestamp());
            let Some(change) = change.filter(|change| *change <= full) else {
                return full;
            };
            // What the clock would have shown at the change, and what it shows.
            let (old, new) = (shown(change, from), shown(change, change));
            let skips = new.div_euclid(length) > (old - 1).div_euclid(length);
            if new.rem_euclid(length) == 0 || skips {
                return change;
            }
            from = change;
        }
    }
}

#[cfg(test)]
mod tests;
