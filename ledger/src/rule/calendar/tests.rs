//! Boundaries worked out by hand, where clocks are put forward and back, and months have too few days.

use super::*;

fn calendar(unit: Unit, zone: &str) -> Calendar {
    Calendar::new(unit, Zone::try_new(zone).expect("a zone"))
}

fn moment(text: &str) -> Moment {
    let timestamp: Timestamp = text.parse().expect("an instant");
    Moment::from_nanos(u64::try_from(timestamp.as_nanosecond()).expect("after 1970"))
}

/// Asserts that `expected` are boundaries of `calendar` in a row. Each must end the window that begins at the one
/// before, also as seen from the nanosecond before its end.
#[track_caller]
fn boundaries(calendar: Calendar, expected: &[&str]) {
    for pair in expected.windows(2) {
        let (begins, ends) = (moment(pair[0]), moment(pair[1]));
        assert_eq!(calendar.end_after(begins), ends, "after {}", pair[0]);
        assert_eq!(calendar.end_after(ends.before(Duration::from_nanos(1))), ends, "just before {}", pair[1]);
    }
}

#[test]
fn a_day_in_berlin_has_23_hours_in_spring_and_25_in_autumn() {
    let days = calendar(Unit::Day, "Europe/Berlin");
    // Midnight is 23:00 UTC in winter and 22:00 in summer; clocks change at 01:00 UTC on 31 March and 27 October.
    boundaries(days, &["2024-03-29T23:00Z", "2024-03-30T23:00Z", "2024-03-31T22:00Z", "2024-04-01T22:00Z"]);
    boundaries(days, &["2024-10-25T22:00Z", "2024-10-26T22:00Z", "2024-10-27T23:00Z", "2024-10-28T23:00Z"]);
}

#[test]
fn in_the_south_spring_is_in_october() {
    // Auckland is 12 h ahead in winter and 13 h in summer; clocks change at 14:00 UTC on 6 April and 28 September.
    let days = calendar(Unit::Day, "Pacific/Auckland");
    boundaries(days, &["2024-04-05T11:00Z", "2024-04-06T11:00Z", "2024-04-07T12:00Z", "2024-04-08T12:00Z"]);
    boundaries(days, &["2024-09-27T12:00Z", "2024-09-28T12:00Z", "2024-09-29T11:00Z", "2024-09-30T11:00Z"]);
}

#[test]
fn a_midnight_that_is_skipped_is_the_instant_of_the_skip() {
    // Santiago, 4 h behind, goes from 24:00 of 7 September 2024 to 01:00 of the 8th, 3 h behind.
    let days = calendar(Unit::Day, "America/Santiago");
    boundaries(days, &["2024-09-07T04:00Z", "2024-09-08T04:00Z", "2024-09-09T03:00Z"]);
    // And back at 24:00 of 6 April, to 23:00 of the same day: midnight is reached once, an hour later.
    boundaries(days, &["2024-04-06T03:00Z", "2024-04-07T04:00Z", "2024-04-08T04:00Z"]);
}

#[test]
fn of_a_midnight_that_comes_twice_the_first_one_counts() {
    // Havana, 4 h behind, goes back from 01:00 of 3 November 2024 to 00:00 of the same day, 5 h behind.
    let days = calendar(Unit::Day, "America/Havana");
    boundaries(days, &["2024-11-02T04:00Z", "2024-11-03T04:00Z", "2024-11-04T05:00Z"]);
    // St. John's went back from 00:01 of 29 October 2006, 2.5 h behind, to 23:01 of the 28th: the 29th had begun.
    let days = calendar(Unit::Day, "America/St_Johns");
    boundaries(days, &["2006-10-28T02:30Z", "2006-10-29T02:30Z", "2006-10-30T03:30Z"]);
    assert_eq!(
        days.end_after(moment("2006-10-29T03:00Z")),
        moment("2006-10-30T03:30Z"),
        "it shows 23:30 again"
    );
}

#[test]
fn a_day_that_never_was_is_no_window() {
    // Apia went from 24:00 of 29 December 2011, 10 h behind, to 00:00 of the 31st, 14 h ahead.
    let days = calendar(Unit::Day, "Pacific/Apia");
    boundaries(days, &["2011-12-29T10:00Z", "2011-12-30T10:00Z", "2011-12-31T10:00Z"]);
}

#[test]
fn a_month_begins_on_its_last_day_if_it_lacks_the_anchor() {
    let months = calendar(Unit::Month, "UTC").with_anchor_day(31).expect("a day");
    let mut expected =
        vec!["2023-12-31T00:00Z", "2024-01-31T00:00Z", "2024-02-29T00:00Z", "2024-03-31T00:00Z"];
    expected.extend(["2024-04-30T00:00Z", "2024-05-31T00:00Z"]);
    boundaries(months, &expected);
    boundaries(months, &["2023-01-31T00:00Z", "2023-02-28T00:00Z", "2023-03-31T00:00Z"]);
    let leap = calendar(Unit::Month, "UTC").with_anchor_day(29).expect("a day");
    boundaries(leap, &["2024-02-29T00:00Z", "2024-03-29T00:00Z"]);
    boundaries(leap, &["2100-01-29T00:00Z", "2100-02-28T00:00Z", "2100-03-29T00:00Z"]);
    let first = calendar(Unit::Month, "UTC");
    boundaries(first, &["2023-12-01T00:00Z", "2024-01-01T00:00Z", "2024-02-01T00:00Z", "2024-03-01T00:00Z"]);
}

#[test]
fn a_month_follows_the_clock_of_its_zone() {
    let months = calendar(Unit::Month, "Europe/Berlin").with_anchor_day(5).expect("a day");
    boundaries(months, &["2024-03-04T23:00Z", "2024-04-04T22:00Z", "2024-05-04T22:00Z"]);
    boundaries(months, &["2024-10-04T22:00Z", "2024-11-04T23:00Z"]);
}

#[test]
fn a_week_begins_on_the_day_that_it_is_said_to() {
    // 1 January 2024 was a Monday.
    let weeks = calendar(Unit::Week, "UTC");
    boundaries(weeks, &["2024-01-01T00:00Z", "2024-01-08T00:00Z", "2024-01-15T00:00Z"]);
    let sundays = calendar(Unit::Week, "Europe/Berlin").with_anchor_weekday("sunday").expect("a day");
    // The Sunday on which the clock changes begins at midnight like any other.
    boundaries(sundays, &["2024-03-23T23:00Z", "2024-03-30T23:00Z", "2024-04-06T22:00Z"]);
    assert_eq!(sundays.end_after(moment("2024-04-01T12:00Z")), moment("2024-04-06T22:00Z"));
}

#[test]
fn an_hour_that_comes_twice_is_two_windows() {
    let hours = calendar(Unit::Hour, "Europe/Berlin");
    let autumn = ["2024-10-26T23:00Z", "2024-10-27T00:00Z", "2024-10-27T01:00Z", "2024-10-27T02:00Z"];
    boundaries(hours, &autumn);
    boundaries(hours, &["2024-03-31T00:00Z", "2024-03-31T01:00Z", "2024-03-31T02:00Z"]);
    // Full hours of Kolkata are half past UTC's.
    boundaries(calendar(Unit::Hour, "Asia/Kolkata"), &["2024-01-01T00:30Z", "2024-01-01T01:30Z"]);
}

#[test]
fn half_an_hour_of_change_makes_one_hour_shorter_and_another_longer() {
    // Lord Howe Island goes from 02:00 to 01:30 on 7 April 2024 (15:00 UTC) and from 02:00 to 02:30 on 6 October.
    let hours = calendar(Unit::Hour, "Australia/Lord_Howe");
    boundaries(hours, &["2024-04-06T14:00Z", "2024-04-06T15:30Z", "2024-04-06T16:30Z"]);
    boundaries(hours, &["2024-10-05T14:30Z", "2024-10-05T15:30Z", "2024-10-05T16:00Z", "2024-10-05T17:00Z"]);
}

#[test]
fn minutes_are_minutes() {
    let minutes = calendar(Unit::Minute, "Europe/Berlin");
    boundaries(minutes, &["2024-10-27T00:59Z", "2024-10-27T01:00Z", "2024-10-27T01:01Z"]);
    assert_eq!(minutes.end_after(moment("2024-10-27T00:59:59.5Z")), moment("2024-10-27T01:00Z"));
}

#[test]
fn there_is_always_a_next_boundary() {
    for unit in Unit::ALL {
        for zone in ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia", "Antarctica/Troll"] {
            let calendar = calendar(unit, zone);
            // Every three days and a bit from 1970 to 2100, and the end of time.
            let instants = (0..16_000).map(|step| Moment::from_nanos(step * 259_211_000_000_000));
            for at in instants.chain([Moment::NEVER]) {
                let end = calendar.end_after(at);
                let length = end.since(at);
                assert!(end > at || at == Moment::NEVER, "{calendar:?} at {at:?}");
                assert!(length <= calendar.longest(), "{calendar:?} at {at:?}: {length:?}");
            }
        }
    }
}

/// The bug: only clocks that are put back by an hour were thought of.
#[test]
fn no_window_is_longer_than_is_said() {
    // The clock of Lord Howe is put back by half an hour, and the clock of Troll by two hours.
    boundaries(calendar(Unit::Hour, "Australia/Lord_Howe"), &["2024-04-06T14:00Z", "2024-04-06T15:30Z"]);
    boundaries(calendar(Unit::Day, "Antarctica/Troll"), &["2024-10-26T22:00Z", "2024-10-28T00:00Z"]);
    let zones = ["Australia/Lord_Howe", "Antarctica/Troll", "Antarctica/Casey", "Asia/Pyongyang"];
    let (from, to) = (moment("2006-01-01T00:00Z"), moment("2026-01-01T00:00Z"));
    for zone in zones.into_iter().chain(["America/Caracas", "Africa/Casablanca", "Pacific/Apia"]) {
        for unit in [Unit::Hour, Unit::Day, Unit::Week, Unit::Month] {
            let calendar = calendar(unit, zone);
            let mut begins = from;
            while begins < to {
                let ends = calendar.end_after(begins);
                // The first window began before the search did.
                assert!(ends.since(begins) <= calendar.longest(), "{calendar:?} at {begins:?}: {ends:?}");
                begins = ends;
            }
        }
    }
}

#[test]
fn an_anchor_that_makes_no_sense_is_refused_with_its_value() {
    let text = |error: RuleError| error.to_string();
    let wrong = |unit, day| calendar(unit, "UTC").with_anchor_day(day).map_err(text).expect_err("refused");
    assert_eq!(wrong(Unit::Month, 0), "anchor_day is 0: use a day of the month, 1 to 31");
    assert_eq!(wrong(Unit::Month, 32), "anchor_day is 32: use a day of the month, 1 to 31");
    assert_eq!(wrong(Unit::Week, 3), "anchor_day is 3: use the name of a day, \"monday\" to \"sunday\"");
    assert_eq!(
        wrong(Unit::Day, 3),
        "anchor_day is 3, which means nothing to calendar = \"day\": leave it out"
    );
    let wrong =
        |unit, day| calendar(unit, "UTC").with_anchor_weekday(day).map_err(text).expect_err("refused");
    assert_eq!(
        wrong(Unit::Week, "Mon"),
        "anchor_day is \"Mon\": use the name of a day, \"monday\" to \"sunday\""
    );
    assert_eq!(wrong(Unit::Month, "monday"), "anchor_day is \"monday\": use a day of the month, 1 to 31");
    assert_eq!(
        wrong(Unit::Hour, "monday"),
        "anchor_day is \"monday\", which means nothing to calendar = \"hour\": leave it out"
    );
}
