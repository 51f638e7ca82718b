//! What a rule promises once it is changed or topped up while leases are out: how much more windows may hold for a while.
//! The oracle tells it how much was out then, and until when.

use super::Promise;
use crate::sim::oracle::Instant;
use lessor_protocol::moment::nanos;
use lessor_protocol::{Carry, Rule};
use std::cmp::Reverse;

/// The longest lease, 2 s, on clocks that run as slow as any may.
const LEASE_MAX: u64 = 2_500_000_000;

impl Promise {
    /// One for a rule that comes to be at `now`, when `out` permits are lent until `until`.
    pub(in crate::sim::oracle) fn amid(
        now: Instant,
        rule: &Rule,
        out: u64,
        until: Instant,
        drift_ppm: u64,
    ) -> Self {
        let mut promise = Promise::new(rule, 0, drift_ppm);
        match &mut promise {
            Promise::Sliding { slack, spends, .. } => slack.floor = (until.real + spends.per, out),
            Promise::Fixed(windows) => windows.amid(now, out, until),
            Promise::Bucket { level, per, real, .. } => {
                *level = (*level).max(u128::from(out) * *per);
                *real = now.real;
            }
            // Not drawn.
            Promise::Interval { .. } | Promise::Warming { .. } | Promise::InFlight { .. } => {}
        }
        promise
    }

    /// Goes on by `rule` if it is of the same kind and period; `out` permits are lent until `until`.
    pub(in crate::sim::oracle) fn changes(
        &mut self,
        now: Instant,
        rule: &Rule,
        carry: Carry,
        out: u64,
        until: Instant,
    ) -> bool {
        self.room(now);
        match (self, rule) {
            (Promise::Sliding { kind, limit, margin, slack, spends, vendor, on_the_way }, rule)
                if window(rule).is_some_and(|(other, _, per, _)| other == *kind && per == spends.per) =>
            {
                let Some((_, to, _, way)) = window(rule) else { return false };
                *margin = way.max(*margin);
                let until = until.real + spends.per + *margin;
                // What the vendor has not counted yet may be older than the window.
                let coming = on_the_way.iter().map(|Reverse((_, permits))| permits).sum::<u64>();
                let used = spends.used.max(vendor.used + coming);
                slack.carries(until, used, out, (*limit, to), carry);
                *limit = to;
            }
            (Promise::Fixed(windows), Rule::FixedWindow(rule)) => {
                return windows.changes(rule, carry, out, until);
            }
            (Promise::Bucket { name, capacity, refill, per, level, .. }, rule)
                if bucket(rule).is_some_and(|(kind, _, _, every)| kind == *name && every == *per) =>
            {
                let Some((_, permits, gained, _)) = bucket(rule) else { return false };
                let to = permits * *per;
                *level = match carry {
                    Carry::Proportional if to > *capacity && *capacity > 0 => {
                        (*level / *per + 1) * to.div_ceil(*capacity / *per)
                    }
                    Carry::Additive if to > *capacity => *level + to - *capacity,
                    Carry::AsIs | Carry::Proportional | Carry::Additive | Carry::Reset => *level,
                };
                *level = (*level).min(to.max(u128::from(out) * *per));
                (*capacity, *refill) = (to, gained);
            }
            // A call that goes on counts, whatever the limit is now; what was lent may be spent.
            (Promise::InFlight { limit, in_flight, slack }, Rule::Concurrency(rule)) => {
                slack.floor = (until.real, *in_flight + out);
                *limit = rule.limit();
            }
            _ => return false,
        }
        true
    }

    /// `permits` more, once.
    pub(in crate::sim::oracle) fn allows(&mut self, now: Instant, permits: u64, drift_ppm: u128) {
        self.room(now);
        match self {
            Promise::Sliding { margin, slack, spends, .. } => {
                // As long as a spend is charged, on a clock that runs slow; then until the leases that it allowed have
                // ended; and then until what they were spent for has left the window.
                let charged =
                    u128::from(spends.per + *margin) * (1_000_000 + drift_ppm) / (1_000_000 - drift_ppm);
                let charged = charged as u64 / 100 * 101 + 1_000;
                slack.extra.push((now.real + charged + LEASE_MAX + spends.per + *margin, permits));
                slack.floor.1 += permits;
            }
            Promise::Fixed(windows) => windows.allows(now, permits),
            Promise::Bucket { per, level, .. } => *level += u128::from(permits) * *per,
            // Calls come back by themselves.
            Promise::InFlight { .. } => {}
            // Not drawn.
            Promise::Interval { .. } | Promise::Warming { .. } => {}
        }
    }
}

/// Of a rule that is a bucket: its name here, what it holds and gains, and in how many nanoseconds.
fn bucket(rule: &Rule) -> Option<(&'static str, u128, u128, u128)> {
    match rule {
        Rule::TokenBucket(rule) => {
            Some(("S3", rule.capacity().into(), rule.refill().into(), nanos(rule.per()).into()))
        }
        Rule::LeakyBucket(rule) => {
            Some(("S4", rule.burst().into(), rule.refill().into(), nanos(rule.per()).into()))
        }
        Rule::SlidingWindow(_) | Rule::SlidingLog(_) | Rule::FixedWindow(_) | Rule::Concurrency(_) => None,
    }
}

/// Of a rule that is a sliding window, or kept as one: its kind, limit, length and margin.
fn window(rule: &Rule) -> Option<(&'static str, u64, u64, u64)> {
    match rule {
        Rule::SlidingWindow(it) => Some((rule.kind(), it.limit(), nanos(it.per()), nanos(it.margin()))),
        Rule::SlidingLog(it) => Some((rule.kind(), it.limit(), nanos(it.per()), nanos(it.margin()))),
        Rule::Concurrency(_) | Rule::FixedWindow(_) | Rule::TokenBucket(_) | Rule::LeakyBucket(_) => None,
    }
}

/// The end of the window that holds `at`, on the allocator's clock.
pub(super) fn edge_after(at: Instant, per: u64) -> u64 {
    (at.allocator.as_nanos() / per + 1) * per
}

/// What may be admitted beyond the limit for a while, because the limit was changed or topped up.
#[derive(Clone, Debug, Default)]
pub(in crate::sim::oracle) struct Slack {
    /// Permits on top, each until an instant: top-ups, and what a change forgave.
    pub(super) extra: Vec<(u64, u64)>,
    /// What was charged when a limit was lowered, and until when windows may see that much.
    pub(super) floor: (u64, u64),
}

impl Slack {
    /// At `now`, which may be a while ago: what a vendor counts late was admitted then.
    pub(super) fn allows(&self, now: u64, limit: u64) -> u64 {
        let live = self.extra.iter().filter(|(until, _)| now < *until);
        let more = live.map(|(_, permits)| permits).sum::<u64>();
        let floor = if now < self.floor.0 { self.floor.1 } else { 0 };
        (limit + more).max(floor)
    }

    /// `used` permits were spent in the window and `out` were lent when `from` became `to`, carried over by `carry`: so
    /// much may a window hold that ends before `until`.
    pub(super) fn carries(&mut self, until: u64, used: u64, out: u64, (from, to): (u64, u64), carry: Carry) {
        self.floor = (until, used + out);
        if carry == Carry::Proportional && to < from {
            let charged = (u128::from(used) * u128::from(to) / u128::from(from)) as u64;
            self.extra.push((until, used - charged));
        }
    }
}
