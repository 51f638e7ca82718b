//! Parses lists of structured fields (RFC 9651), as far as `RateLimit` and `RateLimit-Policy` need them: items that are
//! strings or tokens, with parameters. Allocates nothing.

use lessor_protocol::PERMITS_MAX;
use std::time::Duration;

/// The unit of calls in the draft, and the default of a policy that names no unit.
const CALLS: &str = "requests";

/// Most digits of an integer.
const DIGITS_MAX: usize = 15;

/// One item of a list: the text of its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item<'a> {
    parameters: &'a str,
}

/// Iterates over the items of the list `text`, and ends with `None` at the first malformed one.
pub(super) fn items(text: &str) -> impl Iterator<Item = Option<Item<'_>>> {
    let mut rest = Some(text.trim_matches([' ', '\t']));
    std::iter::from_fn(move || {
        let text = rest.take()?;
        let Some((item, after)) = item(text) else { return Some(None) };
        let after = after.trim_start_matches([' ', '\t']);
        rest = match after.strip_prefix(',') {
            // A comma at the end is malformed: the empty text is no item.
            Some(more) => Some(more.trim_start_matches([' ', '\t'])),
            None if after.is_empty() => None,
            None => return Some(None),
        };
        Some(Some(item))
    })
}

impl<'a> Item<'a> {
    /// Returns the value of the parameter `name` if it is a number that is not negative. The last of several counts.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        let value = self.value(name)?;
        let is_number =
            (1..=DIGITS_MAX).contains(&value.len()) && value.bytes().all(|byte| byte.is_ascii_digit());
        value.parse().ok().filter(|number| is_number && *number <= PERMITS_MAX)
    }

    /// Whether the item counts calls.
    pub(super) fn is_of_calls(&self) -> bool {
        self.value("qu").is_none_or(|unit| unit.trim_matches('"') == CALLS)
    }

    fn value(&self, name: &str) -> Option<&'a str> {
        let (mut rest, mut found) = (self.parameters, None);
        while let Some((key, value, after)) = parameter(rest) {
            if key == name {
                found = Some(value);
            }
            rest = after;
        }
        found
    }
}

/// Splits `text` into its first item and the rest.
fn item(text: &str) -> Option<(Item<'_>, &str)> {
    let (_, after) = bare(text)?;
    let mut rest = after;
    while let Some((_, _, after)) = parameter(rest) {
        rest = after;
    }
    let parameters = &after[..after.len() - rest.len()];
    // A parameter is left that cannot be read.
    let is_whole = !rest.starts_with(';');
    is_whole.then_some((Item { parameters }, rest))
}

/// Splits `text` into the name and the value of its first parameter, and the rest.
fn parameter(text: &str) -> Option<(&str, &str, &str)> {
    let text = text.strip_prefix(';')?.trim_start_matches(' ');
    if !text.starts_with(|first: char| first.is_ascii_lowercase() || first == '*') {
        return None;
    }
    let is_key = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.*".contains(c);
    let (key, rest) = text.split_at(text.find(|c| !is_key(c)).unwrap_or(text.len()));
    match rest.strip_prefix('=') {
        None => Some((key, "", rest)),
        Some(value) => bare(value).map(|(value, after)| (key, value, after)),
    }
}

/// Splits `text` into the string, token, bytes, number or boolean at its beginning, and the rest.
fn bare(text: &str) -> Option<(&str, &str)> {
    let first = text.chars().next()?;
    let end = match first {
        '"' => string_end(text)?,
        ':' => 2 + text[1..].find(':')?,
        '?' if text.len() >= 2 && ["?0", "?1"].contains(&&text[..2]) => 2,
        '-' | '0'..='9' => {
            text.find(|c: char| !(c == '-' || c == '.' || c.is_ascii_digit())).unwrap_or(text.len())
        }
        'A'..='Z' | 'a'..='z' | '*' => {
            let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~:/".contains(c);
            text.find(|c| !is_token(c)).unwrap_or(text.len())
        }
        _ => return None,
    };
    Some(text.split_at(end))
}

/// Index after the end of the string at the beginning of `text`.
fn string_end(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return Some(at + 1),
            b' '..=b'~' => {}
            _ => return None,
        }
    }
    None
}

/// Parses a time with units, such as `6m0s`, `1.5s` or `20ms`, or seconds with a fraction.
pub(super) fn span(text: &str) -> Option<Duration> {
    let (mut rest, mut sum) = (text, Duration::ZERO);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (whole, after) = rest.split_at(digits);
        let (part, after) = match after.strip_prefix('.') {
            None => ("", after),
            Some(after) => after.split_at(after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len())),
        };
        let unit_end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let nanos: u64 = match unit {
            "h" => 3_600_000_000_000,
            "m" => 60_000_000_000,
            "s" | "" => 1_000_000_000,
            "ms" => 1_000_000,
            "us" | "µs" => 1_000,
            "ns" => 1,
            _ => return None,
        };
        let whole = whole.parse::<u64>().ok()?.checked_mul(nanos)?;
        // Nine digits are a billionth of an hour: further digits add nothing.
        let digits = &part[..part.len().min(9)];
        let tenths = 10u128.pow(u32::try_from(digits.len()).ok()?);
        let part = if digits.is_empty() {
            0
        } else {
            u128::from(digits.parse::<u64>().ok()?) * u128::from(nanos) / tenths
        };
        sum = sum.checked_add(Duration::from_nanos(whole.checked_add(u64::try_from(part).ok()?)?))?;
        rest = after;
    }
    (!text.is_empty()).then_some(sum)
}
