//! Dates as HTTP writes them, `Sun, 06 Nov 1994 08:49:37 GMT`, as seconds since 1970. Only their differences are used.

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Returns the seconds since 1970 of the date `text`; `None` if it is no such date, or before 1970.
pub(super) fn seconds(text: &str) -> Option<u64> {
    let (_, text) = text.split_once(", ")?;
    let mut words = text.split(' ');
    let day = number(words.next()?, 2, 1..=31)?;
    let month = words.next()?;
    let month = MONTHS.iter().position(|name| *name == month)? as u64;
    let year = number(words.next()?, 4, 1970..=9999)?;
    let mut clock = words.next()?.split(':');
    let (hour, minute) = (number(clock.next()?, 2, 0..=23)?, number(clock.next()?, 2, 0..=59)?);
    // 60 is a leap second.
    let second = number(clock.next()?, 2, 0..=60)?;
    let is_whole = clock.next().is_none() && words.next() == Some("GMT") && words.next().is_none();
    is_whole.then_some(((days(year, month) + day - 1) * 24 + hour) * 3_600 + minute * 60 + second)
}

fn number(text: &str, digits: usize, range: std::ops::RangeInclusive<u64>) -> Option<u64> {
    let is_number = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| is_number && range.contains(number))
}

/// Days from the beginning of 1970 to the first of `month`, which counts from 0, in `year`.
fn days(year: u64, month: u64) -> u64 {
    const BEFORE: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    let leap_day = u64::from(is_leap && month > 1);
    (year - 1970) * 365 + leaps(year - 1) - leaps(1969) + BEFORE[month as usize] + leap_day
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn dates_are_read_as_they_are_written_on_the_wire() {
        for (text, expected) in [
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777)),
            ("Tue, 29 Feb 2000 23:59:59 GMT", Some(951_868_799)),
            ("Wed, 01 Mar 2000 00:00:00 GMT", Some(951_868_800)),
            ("Sun, 01 Mar 2026 12:00:00 GMT", Some(1_772_366_400)),
            ("Sun, 06 Nov 1994 08:49:37 UTC", None),
            ("Sun, 06 Nov 1994 08:49 GMT", None),
            ("Sunday, 06-Nov-94 08:49:37 GMT", None),
            ("Sun, 06 Nov 1994 +8:49:37 GMT", None),
            ("", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }
}
