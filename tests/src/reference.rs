//! A rule kept the slow way: every spend is remembered, with the real instant it happened at. Shorter than what it
//! judges, and written without looking at it.

use lessor_protocol::Rule;
use lessor_protocol::moment::nanos;
use std::time::Duration;

/// One admission: when, in nanoseconds of real time and of the allocator's clock, and how many permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spend {
    /// Real time.
    pub real: u64,
    /// What the allocator's clock showed then.
    pub allocator: u64,
    /// Permits.
    pub permits: u64,
}

/// The first breach of `rule` in `spends`, which are in the order of time, in words.
pub fn breach(rule: &Rule, spends: &[Spend]) -> Option<String> {
    let sum = |part: &[Spend]| part.iter().map(|spend| spend.permits).sum::<u64>();
    let in_any = |rest: &[Spend], limit: u64, per: Duration| {
        let first = rest[0].real;
        let used = sum(&rest[..rest.partition_point(|spend| spend.real < first + nanos(per))]);
        (used > limit).then(|| format!("{used} of {limit} in the window from {first} ns"))
    };
    for (i, first) in spends.iter().enumerate() {
        let rest = &spends[i..];
        match rule {
            Rule::SlidingWindow(rule) => {
                if let Some(breach) = in_any(rest, rule.limit(), rule.per()) {
                    return Some(breach);
                }
            }
            Rule::Concurrency(rule) => {
                // As if each call took as long as it may.
                if let Some(breach) = in_any(rest, rule.limit(), rule.longest()) {
                    return Some(breach);
                }
            }
            Rule::FixedWindow(rule) => {
                let window = first.allocator / nanos(rule.per());
                let within = |spend: &&Spend| spend.allocator / nanos(rule.per()) == window;
                let used: u64 = rest.iter().filter(within).map(|spend| spend.permits).sum();
                if used > rule.limit() {
                    return Some(format!("{used} of {} in window {window}", rule.limit()));
                }
            }
            Rule::TokenBucket(rule) => {
                let too_fast = too_fast(rest, rule.capacity(), rule.refill(), nanos(rule.per()));
                if too_fast.is_some() {
                    return too_fast;
                }
            }
            Rule::LeakyBucket(rule) => {
                let too_fast = too_fast(rest, rule.burst(), rule.refill(), nanos(rule.per()));
                if too_fast.is_some() {
                    return too_fast;
                }
            }
        }
    }
    None
}

/// From the first spend to each later one: at most `burst + refill·T/per`, compared in parts of 1/per of a permit.
fn too_fast(spends: &[Spend], burst: u64, refill: u64, per: u64) -> Option<String> {
    let from = spends.first()?.real;
    let mut used = 0;
    for last in spends {
        used += last.permits;
        let span = u128::from(last.real - from);
        let most = u128::from(burst) * u128::from(per) + u128::from(refill) * span;
        if u128::from(used) * u128::from(per) > most {
            return Some(format!("{used} in {span} ns from {from} ns"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use lessor_protocol::rule::{FixedWindow, LeakyBucket, SlidingWindow, TokenBucket};
    use std::time::Duration;

    fn spends(times: &[u64]) -> Vec<Spend> {
        times.iter().map(|&at| Spend { real: at, allocator: at, permits: 1 }).collect()
    }

    #[test]
    fn it_finds_what_breaks_each_rule_and_nothing_else() {
        let per = Duration::from_nanos(100);
        let sliding = Rule::SlidingWindow(SlidingWindow::try_new(2, per, Duration::ZERO).expect("valid"));
        assert_eq!(breach(&sliding, &spends(&[0, 99, 100, 199])), None);
        assert!(breach(&sliding, &spends(&[0, 98, 99])).is_some());
        let bucket = Rule::TokenBucket(TokenBucket::try_new(2, 1, per, 2).expect("valid"));
        assert_eq!(breach(&bucket, &spends(&[0, 0, 100, 200])), None);
        assert!(breach(&bucket, &spends(&[0, 0, 99])).is_some());
        let leaky = Rule::LeakyBucket(LeakyBucket::try_new(1, 3, per).expect("valid"));
        assert_eq!(breach(&leaky, &spends(&[0, 34, 68, 102])), None);
        assert!(breach(&leaky, &spends(&[0, 33])).is_some());
        let fixed = Rule::FixedWindow(FixedWindow::try_new(2, Duration::from_millis(100)).expect("valid"));
        let ms = 1_000_000;
        assert_eq!(breach(&fixed, &spends(&[98 * ms, 99 * ms, 100 * ms, 101 * ms])), None);
        assert!(breach(&fixed, &spends(&[0, 50 * ms, 99 * ms])).is_some());
    }
}
