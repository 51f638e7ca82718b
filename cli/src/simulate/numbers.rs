//! Numbers and times on the command line, each within what can be simulated. The argument parser calls these and names the
//! argument and the value before what they say.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// A fleet that still fits in memory.
const NODES: RangeInclusive<usize> = 1..=10_000;
/// With as many nodes as there may be, a million pairs of both.
const LIMITS: RangeInclusive<usize> = 1..=100;
/// As long as the longest window.
const SECONDS: RangeInclusive<u64> = 1..=366 * 24 * 3_600;
/// More results than an operator reads.
const SEEDS: RangeInclusive<u64> = 1..=1_000_000;
/// Seeds may be anything from which so many can be counted on.
const SEED: RangeInclusive<u64> = 0..=u64::MAX - 1_000_000;
/// More than any machine has use for.
const THREADS: RangeInclusive<usize> = 1..=1_024;
/// At most a call each nanosecond.
const DEMAND: RangeInclusive<f64> = 1e-6..=1e9;
/// Nothing, or a minute.
const RTT_MS: RangeInclusive<f64> = 0.0..=60_000.0;

/// As long as the longest run.
const PATIENCE_MAX: Duration = Duration::from_secs(366 * 24 * 3_600);

pub(super) fn nodes(text: &str) -> Result<usize, String> {
    within(text, NODES)
}

pub(super) fn limits(text: &str) -> Result<usize, String> {
    within(text, LIMITS)
}

pub(super) fn seconds(text: &str) -> Result<u64, String> {
    within(text, SECONDS)
}

pub(super) fn seed(text: &str) -> Result<u64, String> {
    within(text, SEED)
}

pub(super) fn seeds(text: &str) -> Result<u64, String> {
    within(text, SEEDS)
}

pub(super) fn threads(text: &str) -> Result<usize, String> {
    within(text, THREADS)
}

pub(super) fn demand(text: &str) -> Result<f64, String> {
    within(text, DEMAND)
}

pub(super) fn rtt_ms(text: &str) -> Result<f64, String> {
    within(text, RTT_MS)
}

pub(super) fn patience(text: &str) -> Result<Duration, String> {
    let patience = humantime::parse_duration(text).ok().filter(|patience| *patience <= PATIENCE_MAX);
    patience.ok_or_else(|| "use a time with its unit, for example 200ms, at most 366days".to_owned())
}

fn within<T>(text: &str, range: RangeInclusive<T>) -> Result<T, String>
where
    T: FromStr + PartialOrd + std::fmt::Display,
{
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("use a number from {} to {}", range.start(), range.end()))
}
