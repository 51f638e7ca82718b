//! Parses numbers and times of the command line, each within what can be simulated. The argument parser calls these
//! functions and puts the argument and the value before their messages.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// Nodes of a fleet that still fits in memory.
pub(super) const NODES: RangeInclusive<usize> = 1..=10_000;
/// Limits: with the most nodes, there are a million pairs of both.
pub(super) const LIMITS: RangeInclusive<usize> = 1..=100;
/// Seconds of a run: up to the longest window.
pub(super) const SECONDS: RangeInclusive<u64> = 1..=366 * 24 * 3_600;
/// Seeds: more results than an operator reads.
pub(super) const SEEDS: RangeInclusive<u64> = 1..=1_000_000;
/// First seeds, from which a million can be counted on without overflow.
pub(super) const SEED: RangeInclusive<u64> = 0..=u64::MAX - 1_000_000;
/// Threads: more than any machine has use for.
pub(super) const THREADS: RangeInclusive<usize> = 1..=1_024;
/// Calls per second: at most one each nanosecond.
pub(super) const DEMAND: RangeInclusive<f64> = 1e-6..=1e9;
/// Round trip in milliseconds: nothing, up to a minute.
pub(super) const RTT_MS: RangeInclusive<f64> = 0.0..=60_000.0;

/// Longest wait of a caller: as long as the longest run.
const PATIENCE_MAX: Duration = Duration::from_secs(366 * 24 * 3_600);

pub(super) fn patience(text: &str) -> Result<Duration, String> {
    let patience = humantime::parse_duration(text).ok().filter(|patience| *patience <= PATIENCE_MAX);
    patience.ok_or_else(|| "use a time with its unit, for example 200ms, at most 366days".to_owned())
}

/// Makes a parser of numbers in `range`.
pub(super) fn within<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Clone,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("use a number from {} to {}", range.start(), range.end()))
    }
}
