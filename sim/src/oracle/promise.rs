//! What each rule promises, kept by remembering every admission that still counts. It knows neither leases nor
//! sessions; the oracle does.

mod change;
mod windows;

use super::{Instant, Verdict, Violation};
use crate::warming::Warming;
use change::Slack;
use lessor_ledger::Rule;
use lessor_ledger::rule::{RefillStyle, TokenBucket, WarmUp};
use lessor_protocol::moment::nanos;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use windows::Windows;

/// A rule, kept by remembering the admissions that count.
#[derive(Clone, Debug)]
pub(super) enum Promise {
    /// A window that slides, as the allocator counts it and as a vendor does.
    Sliding {
        kind: &'static str,
        limit: u64,
        margin: u64,
        slack: Slack,
        spends: Window,
        vendor: Window,
        on_the_way: BinaryHeap<Reverse<(u64, u64)>>,
    },
    /// Windows that follow each other.
    Fixed(Windows),
    /// A single central bucket. Amounts are in parts of a permit, `per` of which make one.
    Bucket {
        name: &'static str,
        capacity: u128,
        /// The part of the capacity that is debt.
        debt: u128,
        refill: u128,
        per: u128,
        level: u128,
        real: u64,
        /// The steady flow that this bucket replaced, and until when, on the allocator's clock, its rates may go on.
        former: Option<(u64, Box<Promise>)>,
    },
    /// Calls that have begun and not ended, whichever process made them.
    InFlight { limit: u64, in_flight: u64, slack: Slack },
    /// A bucket that is refilled at instants of the allocator's clock, `per` nanoseconds apart.
    Interval { capacity: u64, refill: u64, per: u64, level: u64, next: u64 },
    /// A bucket that warms up. It is cold again once it was full, with nothing lent, for as long as that takes.
    Warming { bucket: Box<Warming>, warm_up: WarmUp, full_since: Option<u64> },
}

impl Promise {
    /// Makes the promise of `rule` without `less` permits, on clocks within `drift_ppm`.
    pub(super) fn new(rule: &Rule, less: u64, drift_ppm: u64) -> Self {
        match rule {
            Rule::SlidingWindow(it) | Rule::SlidingLog(it) => {
                Promise::sliding(rule.kind(), it.limit() - less, nanos(it.per()), nanos(it.margin()))
            }
            Rule::Concurrency(rule) => {
                Promise::InFlight { limit: rule.limit() - less, in_flight: 0, slack: Slack::default() }
            }
            Rule::FixedWindow(rule) => Promise::Fixed(Windows::new(rule, less)),
            Rule::TokenBucket(rule) => Promise::bucket(rule, less, drift_ppm),
            Rule::LeakyBucket(rule) => {
                let per = u128::from(nanos(rule.per()));
                let capacity = u128::from(rule.burst() - less) * per;
                let refill = rule.refill().into();
                Promise::Bucket {
                    name: "S4",
                    capacity,
                    debt: 0,
                    refill,
                    per,
                    level: capacity,
                    real: 0,
                    former: None,
                }
            }
        }
    }

    fn sliding(kind: &'static str, limit: u64, per: u64, margin: u64) -> Self {
        let window = Window::new(per);
        let (spends, vendor, slack) = (window.clone(), window, Slack::default());
        Promise::Sliding { kind, limit, margin, slack, spends, vendor, on_the_way: BinaryHeap::new() }
    }

    fn bucket(rule: &TokenBucket, less: u64, drift_ppm: u64) -> Self {
        let per = nanos(rule.per());
        if let (Some(warm_up), Some(bucket)) = (rule.warm_up(), Warming::new(rule, less, 0)) {
            return Promise::Warming { bucket: Box::new(bucket), warm_up, full_since: None };
        }
        let capacity = holds(rule) - less;
        match rule.refill_style() {
            RefillStyle::Greedy => {
                let (per, refill) = (u128::from(per), rule.refill().into());
                let (capacity, debt) = (u128::from(capacity) * per, u128::from(owes(rule)) * per);
                Promise::Bucket {
                    name: "S3",
                    capacity,
                    debt,
                    refill,
                    per,
                    level: capacity,
                    real: 0,
                    former: None,
                }
            }
            RefillStyle::Interval => {
                let per = stretched(rule, drift_ppm);
                Promise::Interval { capacity, refill: rule.refill(), per, level: capacity, next: 0 }
            }
        }
    }

    /// Returns the invariant that one permit too many breaks.
    fn name(&self) -> &'static str {
        match self {
            Promise::Sliding { .. } => "S1",
            Promise::Fixed(_) => "S2",
            Promise::Bucket { name, .. } => name,
            Promise::Interval { .. } | Promise::Warming { .. } => "S3",
            Promise::InFlight { .. } => "S5",
        }
    }

    /// Begins new books, with buckets that begin at `begins` on the allocator's clock.
    pub(super) fn begin(&mut self, now: Instant, begins: u64) {
        self.room(now);
        match self {
            Promise::Sliding { .. }
            | Promise::Fixed(_)
            | Promise::Bucket { .. }
            | Promise::InFlight { .. } => {}
            Promise::Interval { per, next, .. } => {
                // Refills up to now are in the level already.
                let times = now.allocator.as_nanos().saturating_sub(begins) / *per + 1;
                *next = begins + times * *per;
            }
            Promise::Warming { bucket, full_since, .. } => {
                bucket.freeze();
                *full_since = None;
            }
        }
    }

    /// Sets the next refill to `at`, after a gap of unknown length; others follow at intervals.
    pub(super) fn refill_at(&mut self, now: Instant, at: u64) {
        self.room(now);
        if let Promise::Interval { next, .. } = self {
            *next = at;
        }
    }

    /// Records that `permits` were lent.
    pub(super) fn lent(&mut self, now: Instant, permits: u64) {
        if let Promise::Fixed(windows) = self {
            windows.lent(now.allocator.as_nanos(), permits);
        }
    }

    /// Records that it is unknown which window is open, until the next grant opens one.
    pub(super) fn windows_unknown(&mut self) {
        if let Promise::Fixed(windows) = self {
            windows.unknown();
        }
    }

    /// Records that the pool can lend `available`, and whether nothing is lent (`all_home`).
    pub(super) fn seen(&mut self, now: Instant, available: u64, all_home: bool) {
        if let Promise::Warming { bucket, warm_up, full_since } = self {
            if !all_home || available < bucket.capacity() {
                *full_since = None;
                return;
            }
            let since = *full_since.get_or_insert(now.real);
            if now.real - since > nanos(warm_up.over()) {
                bucket.freeze();
            }
        }
    }

    pub(super) fn admit(&mut self, now: Instant, permits: u64, way: u64) -> Verdict {
        let room = self.room(now);
        let name = self.name();
        let over = |name, what: String| Err(Violation { is_over: true, name, what });
        if permits > room {
            return over(name, format!("{permits} admitted where {room} were left"));
        }
        match self {
            Promise::Sliding { limit, slack, spends, vendor, on_the_way, .. } => {
                spends.add(now.real, permits);
                on_the_way.push(Reverse((now.real + way, permits)));
                while let Some(&Reverse((real, permits))) = on_the_way.peek()
                    && real <= now.real
                {
                    on_the_way.pop();
                    vendor.add(real, permits);
                    if vendor.used > slack.allows(real, *limit) {
                        return over("S6", format!("the vendor counts {} at {real} ns", vendor.used));
                    }
                }
            }
            Promise::Fixed(windows) => {
                if !windows.spend(now.allocator.as_nanos(), permits) {
                    return over(name, format!("{permits} admitted while no window was open"));
                }
            }
            Promise::Bucket { former: Some((_, former)), .. } => former.admit(now, permits, way)?,
            Promise::Bucket { level, per, .. } => *level -= u128::from(permits) * *per,
            Promise::InFlight { in_flight, .. } => *in_flight += permits,
            Promise::Interval { level, .. } => *level -= permits,
            Promise::Warming { bucket, full_since, .. } => {
                bucket.give(permits);
                *full_since = None;
            }
        }
        Ok(())
    }

    /// Whether the promise caps calls in flight.
    pub(super) fn is_cap(&self) -> bool {
        matches!(self, Promise::InFlight { .. })
    }

    /// Records that a liar reported `permits` as spent.
    pub(super) fn lied(&mut self, now: Instant, permits: u64) {
        if let Promise::Warming { bucket, .. } = self {
            bucket.warm(permits, now.real);
        }
    }

    /// Records that a call of `permits` has ended.
    pub(super) fn land(&mut self, permits: u64) {
        if let Promise::InFlight { in_flight, .. } = self {
            *in_flight -= permits;
        }
    }

    pub(super) fn room(&mut self, now: Instant) -> u64 {
        match self {
            Promise::Sliding { limit, slack, spends, .. } => {
                spends.advance(now.real);
                slack.allows(now.real, *limit).saturating_sub(spends.used)
            }
            Promise::Fixed(windows) => windows.room(now.allocator.as_nanos()),
            Promise::Bucket { capacity, refill, per, level, real, former, .. } => {
                former.take_if(|(until, _)| *until <= now.allocator.as_nanos());
                if let Some((_, former)) = former {
                    return former.room(now);
                }
                // Permits above the capacity stay: those of a top-up, and those out when the bucket was made smaller.
                let full = (*level).max(*capacity);
                *level = (*level + u128::from(now.real - *real) * *refill).min(full);
                *real = now.real;
                u64::try_from(*level / *per).unwrap_or(u64::MAX)
            }
            Promise::InFlight { limit, in_flight, slack } => {
                slack.allows(now.real, *limit).saturating_sub(*in_flight)
            }
            Promise::Interval { capacity, refill, per, level, next } => {
                while *next <= now.allocator.as_nanos() {
                    *level = (*level + *refill).min((*level).max(*capacity));
                    *next += *per;
                }
                *level
            }
            Promise::Warming { bucket, .. } => bucket.room(now.real),
        }
    }
}

/// Returns the permits that a bucket gives at once. A full bucket with debt gives as much as a larger one.
fn holds(rule: &TokenBucket) -> u64 {
    rule.capacity() + owes(rule)
}

/// Returns how far the bucket may go into debt.
fn owes(rule: &TokenBucket) -> u64 {
    if rule.capacity() > 0 { rule.debt() } else { 0 }
}

/// Returns the nanoseconds between two refills on a clock that runs fast.
fn stretched(rule: &TokenBucket, drift_ppm: u64) -> u64 {
    let per = u128::from(nanos(rule.per()));
    let stretched = (per * u128::from(1_000_000 + drift_ppm)).div_ceil(1_000_000);
    u64::try_from(stretched).expect("366 days and a tenth")
}

/// Permits of the last `per` nanoseconds: those of `t − per` no longer count at `t`.
#[derive(Clone, Debug)]
pub(super) struct Window {
    per: u64,
    spends: VecDeque<(u64, u64)>,
    used: u64,
}

impl Window {
    fn new(per: u64) -> Self {
        Window { per, spends: VecDeque::new(), used: 0 }
    }

    fn advance(&mut self, real: u64) {
        while let Some(&(at, permits)) = self.spends.front()
            && at + self.per <= real
        {
            self.spends.pop_front();
            self.used -= permits;
        }
    }

    fn add(&mut self, real: u64, permits: u64) {
        self.advance(real);
        self.spends.push_back((real, permits));
        self.used += permits;
    }
}
