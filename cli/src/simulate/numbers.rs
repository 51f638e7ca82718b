//! Parses numbers and times of the command line, each within what can be simulated. The argument parser calls these
//! functions and puts the argument and the value before their messages.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// Nodes of a fleet that still fits in memory.
const NODES: RangeInclusive<usize> = 1..=10_000;
/// Limits: with the most nodes, there are a million pairs of both.
const LIMITS: RangeInclusive<usize> = 1..=100;
/// Seconds of a run: up to the longest window.
const SECONDS: RangeInclusive<u64> = 1..=366 * 24 * 3_600;
/// Seeds: more results than an operator reads.
const SEEDS: RangeInclusive<u64> = 1..=1_000_000;
/// First seeds, from which a million can be counted on without overflow.
const SEED: RangeInclusive<u64> = 0..=u64::MAX - 1_000_000;
/// Threads: more than any machine has use for.
const THREADS: RangeInclusive<usize> = 1..=1_024;
/// Calls per second: at most one each nanosecond.
const DEMAND: RangeInclusive<f64> = 1e-6..=1e9;
/// Round trip in milliseconds: nothing, up to a minute.
const RTT_MS: RangeInclusive<f64> = 0.0..=60_000.0;

/// Longest wait of a caller: as long as the longest run.
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
