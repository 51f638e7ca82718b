//! A rule kept the slow way: every spend is remembered with the real instant at which it happened. It is shorter than
//! the code that it judges, and was written without looking at that.

use crate::civil::Civil;
use crate::warming::Warming;
use lessor_ledger::Rule;
use lessor_ledger::rule::{FixedWindow, RefillStyle, TokenBucket, Windows};
use lessor_protocol::moment::nanos;

/// One admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spend {
    /// Real time in nanoseconds.
    pub real: u64,
    /// What the allocator's clock shows then, in nanoseconds.
    pub allocator: u64,
    /// Permits.
    pub permits: u64,
}

/// Returns the first breach of `rule` in `spends`, which are in order of time, in words.
///
/// When windows of first use opened and when intervals began is unknown, so the check is of what holds in any case.
/// [`opened_breach`] knows the former, and the oracle of the simulator both.
pub fn breach(rule: &Rule, spends: &[Spend]) -> Option<String> {
    match rule {
        // Of calls in flight, as if each took the longest time.
        Rule::SlidingWindow(_) | Rule::SlidingLog(_) | Rule::Concurrency(_) => {
            in_any(rule.ceiling(), nanos(rule.period()), spends, |spend| spend.real)
        }
        Rule::FixedWindow(rule) => fixed_breach(rule, spends),
        Rule::LeakyBucket(rule) => too_fast(spends, rule.burst(), rule.refill(), nanos(rule.per())),
        Rule::TokenBucket(rule) => bucket_breach(rule, spends).or_else(|| warming_breach(rule, spends)),
    }
}

/// Returns the first breach of the first-use windows of `rule`, where `grants` were lent and `spends` spent.
pub fn opened_breach(rule: &FixedWindow, grants: &[Spend], spends: &[Spend]) -> Option<String> {
    let per = nanos(rule.per());
    let mut opened: Vec<u64> = vec![];
    for grant in grants.iter().filter(|grant| grant.permits > 0) {
        if opened.last().is_none_or(|last| last + per <= grant.allocator) {
            opened.push(grant.allocator);
        }
    }
    let mut used = vec![0; opened.len()];
    for spend in spends {
        let last = opened.partition_point(|opened| *opened <= spend.allocator).checked_sub(1);
        let Some(window) = last.filter(|last| spend.allocator < opened[*last] + per) else {
            return Some(format!("{} at {} ns, when no window was open", spend.permits, spend.allocator));
        };
        used[window] += spend.permits;
        if used[window] > rule.limit() {
            return Some(format!(
                "{} of {} in the window from {}",
                used[window],
                rule.limit(),
                opened[window]
            ));
        }
    }
    None
}

/// Finds more than `limit` permits in any `[t, t+per)` of the clock that `shows` reads.
fn in_any(limit: u64, per: u64, spends: &[Spend], shows: impl Fn(&Spend) -> u64) -> Option<String> {
    for (i, first) in spends.iter().enumerate() {
        let rest = &spends[i..];
        let end = shows(first) + per;
        let within = &rest[..rest.partition_point(|spend| shows(spend) < end)];
        let used: u64 = within.iter().map(|spend| spend.permits).sum();
        if used > limit {
            return Some(format!("{used} of {limit} in the window from {} ns", shows(first)));
        }
    }
    None
}

fn fixed_breach(rule: &FixedWindow, spends: &[Spend]) -> Option<String> {
    let over = |window: &[Spend]| {
        let used: u64 = window.iter().map(|spend| spend.permits).sum();
        let first = window[0].allocator;
        (used > rule.limit())
            .then(|| format!("{used} of {} in the window that holds {first} ns", rule.limit()))
    };
    match rule.windows() {
        Windows::Epoch { per } => {
            let window = |spend: &Spend| spend.allocator / nanos(per);
            spends.chunk_by(|a, b| window(a) == window(b)).find_map(over)
        }
        Windows::Calendar(calendar) => {
            let civil = Civil::new(&calendar);
            let window = |spend: &Spend| civil.window(spend.allocator);
            spends.chunk_by(|a, b| window(a) == window(b)).find_map(over)
        }
        // No interval meets more than two windows.
        Windows::FirstUse { per } => in_any(2 * rule.limit(), nanos(per), spends, |spend| spend.allocator),
    }
}

fn bucket_breach(rule: &TokenBucket, spends: &[Spend]) -> Option<String> {
    let holds = rule.capacity() + rule.debt();
    match rule.refill_style() {
        RefillStyle::Greedy => too_fast(spends, holds, rule.refill(), nanos(rule.per())),
        // Any time span meets at most one refill more than the intervals it contains.
        RefillStyle::Interval => too_fast(spends, holds + rule.refill(), rule.refill(), nanos(rule.per())),
    }
}

/// Finds more than `burst + refill·T/per` permits from one spend to a later one, compared in parts of 1/per of a
/// permit.
fn too_fast(spends: &[Spend], burst: u64, refill: u64, per: u64) -> Option<String> {
    for (i, first) in spends.iter().enumerate() {
        let mut used = 0;
        for last in &spends[i..] {
            used += last.permits;
            let span = u128::from(last.real - first.real);
            let most = u128::from(burst) * u128::from(per) + u128::from(refill) * span;
            if u128::from(used) * u128::from(per) > most {
                return Some(format!("{used} in {span} ns from {} ns", first.real));
            }
        }
    }
    None
}

fn warming_breach(rule: &TokenBucket, spends: &[Spend]) -> Option<String> {
    let mut bucket = Warming::new(rule, 0, spends.first()?.real)?;
    spends.iter().find_map(|spend| {
        let room = bucket.room(spend.real);
        bucket.give(spend.permits);
        let (permits, at) = (spend.permits, spend.real);
        (permits > room).then(|| format!("{permits} at {at} ns, where a cold bucket has {room}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lessor_ledger::rule::{Calendar, LeakyBucket, SlidingWindow, Unit, WarmUp, Zone};
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
        let log = Rule::SlidingLog(SlidingWindow::try_new(2, per, Duration::ZERO).expect("valid"));
        assert!(breach(&log, &spends(&[0, 98, 99])).is_some());
    }

    #[test]
    fn it_finds_what_breaks_a_day_of_its_zone() {
        // Midnight of 31 March 2024 in Berlin is at 23:00 UTC, and the next one 23 hours later.
        let midnight = 1_711_839_600_000_000_000;
        let hour = 3_600_000_000_000;
        let berlin = Zone::try_new("Europe/Berlin").expect("a zone");
        let days = Windows::Calendar(Calendar::new(Unit::Day, berlin));
        let rule = Rule::FixedWindow(FixedWindow::of(2, days).expect("valid"));
        let next = midnight + 23 * hour;
        assert_eq!(breach(&rule, &spends(&[midnight - 1, midnight, next - 1, next, next + 1])), None);
        assert!(breach(&rule, &spends(&[midnight, midnight + hour, next - 1])).is_some());
    }

    #[test]
    fn it_finds_what_breaks_a_window_that_was_opened() {
        let per = Duration::from_millis(100);
        let rule = FixedWindow::of(2, Windows::FirstUse { per }).expect("valid");
        let ms = 1_000_000;
        let grants = spends(&[30 * ms, 90 * ms, 140 * ms]);
        let judge = |times: &[u64]| opened_breach(&rule, &grants, &spends(times));
        assert_eq!(judge(&[31 * ms, 129 * ms, 140 * ms, 239 * ms]), None);
        assert!(judge(&[31 * ms, 32 * ms, 129 * ms]).is_some());
        assert!(judge(&[130 * ms]).is_some(), "the window is over, and no other is open");
        assert!(breach(&Rule::FixedWindow(rule), &spends(&[0, 0, 0, 0, 99 * ms])).is_some());
    }

    #[test]
    fn it_finds_what_breaks_the_options_of_a_bucket() {
        let per = Duration::from_nanos(100);
        let bucket = TokenBucket::try_new(2, 1, per, 2).expect("valid");
        let red = Rule::TokenBucket(bucket.with_debt(1).expect("valid"));
        assert_eq!(breach(&red, &spends(&[0, 0, 0, 100])), None);
        assert!(breach(&red, &spends(&[0, 0, 0, 99])).is_some());
        let style = bucket.with_refill_style(RefillStyle::Interval).expect("valid");
        assert_eq!(breach(&Rule::TokenBucket(style), &spends(&[0, 0, 1, 100])), None);
        assert!(breach(&Rule::TokenBucket(style), &spends(&[0, 0, 1, 98])).is_some());
        let warm_up = WarmUp::try_new(1_000 * per, 3).expect("valid");
        let cold = Rule::TokenBucket(bucket.with_warm_up(warm_up).expect("valid"));
        assert_eq!(breach(&cold, &spends(&[0, 0, 300, 600])), None);
        assert!(breach(&cold, &spends(&[0, 0, 290])).is_some());
    }
}
