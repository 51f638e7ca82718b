//! The end of a certificate's validity. The library that checks certificates does not tell it.

use std::time::{Duration, SystemTime};
use tokio_rustls::rustls::pki_types::CertificateDer;

/// Tags of DER: the optional version of a certificate, and the two forms of a time.
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Returns the moment after which `certificate` is no longer valid; `None` if it cannot be read.
pub(crate) fn end(certificate: &CertificateDer<'_>) -> Option<SystemTime> {
    let (_, signed, _) = element(certificate)?;
    let (_, mut fields, _) = element(signed)?;
    if let (VERSION, _, rest) = element(fields)? {
        fields = rest;
    }
    // The serial number, the algorithm and the issuer come first.
    for _ in 0..3 {
        (_, _, fields) = element(fields)?;
    }
    let (_, validity, _) = element(fields)?;
    let (_, _, after_begin) = element(validity)?;
    let (tag, text, _) = element(after_begin)?;
    time(tag, std::str::from_utf8(text).ok()?)
}

/// Splits the first element of DER from `bytes`: its tag, its content, and the rest.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        // Some bytes of length follow, of which no certificate needs more than four.
        0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

/// Reads a time of X.509, such as `491231235959Z` or `20500101000000Z`.
fn time(tag: u8, text: &str) -> Option<SystemTime> {
    let number = |text: &str| text.parse::<u64>().ok();
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            // Years of two digits are those from 1950 to 2049.
            (number(year).map(|year| if year < 50 { 2_000 + year } else { 1_900 + year })?, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (number(year)?, rest)
        }
        _ => return None,
    };
    let part = |index: usize| number(rest.get(2 * index..2 * index + 2)?);
    let (month, day) = (part(0)?, part(1)?);
    let seconds = (part(2)? * 60 + part(3)?) * 60 + part(4)?;
    let is_date = (1..=12).contains(&month) && (1..=31).contains(&day) && rest.get(10..) == Some("Z");
    // Nothing is valid until a moment before the epoch, and still in use.
    let days = days(year, month, day).filter(|_| is_date)?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(days * 86_400 + seconds))
}

/// Returns the days from 1970-01-01 to a date of the Gregorian calendar.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    // Years begin in March here, so that a leap day is the last day of its year.
    let year = if month > 2 { year } else { year.checked_sub(1)? };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let since_year_0 = 365 * year + year / 4 - year / 100 + year / 400 + of_year;
    since_year_0.checked_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_certificates_are_read() {
        let seconds = |tag, text| {
            time(tag, text).map(|time| time.duration_since(SystemTime::UNIX_EPOCH).expect("later").as_secs())
        };
        for (tag, text, expected) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (GENERALIZED_TIME, "20500101000000Z", Some(2_524_608_000)),
            (UTC_TIME, "240229120000Z", Some(1_709_208_000)),
            (UTC_TIME, "240301000000Z", Some(1_709_251_200)),
            (GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799)),
            (UTC_TIME, "500101000000Z", None),
            (UTC_TIME, "241301000000Z", None),
            (UTC_TIME, "240100000000Z", None),
            (UTC_TIME, "2401010000Z", None),
            (UTC_TIME, "240101000000", None),
            (GENERALIZED_TIME, "2050010100000é", None),
            (UTC_TIME, "", None),
            (0x02, "240101000000Z", None),
        ] {
            assert_eq!(seconds(tag, text), expected, "{text}");
        }
    }

    /// The bug to prevent: a length that leads beyond the end, which only a broken check lets come here.
    #[test]
    fn what_is_no_certificate_has_no_end() {
        for bytes in
            [&[][..], &[0x30], &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff], &[0x30, 0x80], &[0x30, 2, 0x30, 5]]
        {
            assert_eq!(end(&CertificateDer::from(bytes)), None, "{bytes:?}");
        }
    }
}
