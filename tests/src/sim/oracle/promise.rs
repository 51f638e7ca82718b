//! What each rule promises, kept by remembering every admission that still counts. The oracle asks it; it knows neither
//! leases nor sessions.

use super::{Instant, Verdict, Wrong};
use lessor_protocol::moment::nanos;
use lessor_protocol::{Carry, Rule};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A rule, kept by remembering what counts.
#[derive(Clone, Debug)]
pub(super) enum Promise {
    Sliding {
        limit: u64,
        margin: u64,
        /// Whether it stands for calls in flight.
        is_of_calls: bool,
        slack: Slack,
        spends: Window,
        vendor: Window,
        on_the_way: BinaryHeap<Reverse<(u64, u64)>>,
    },
    Fixed {
        limit: u64,
        slack: Slack,
        per: u64,
        window: u64,
        used: u64,
    },
    /// A single central bucket, in parts of a permit: `per` to one.
    Bucket {
        name: &'static str,
        capacity: u128,
        refill: u128,
        per: u128,
        level: u128,
        real: u64,
    },
}

impl Promise {
    pub(super) fn new(rule: &Rule, less: u64) -> Self {
        match rule {
            Rule::SlidingWindow(rule) => {
                Promise::window(rule.limit() - less, nanos(rule.per()), nanos(rule.margin()), false)
            }
            // Every call takes as long as it may.
            Rule::Concurrency(rule) => Promise::window(rule.limit() - less, nanos(rule.longest()), 0, true),
            Rule::FixedWindow(rule) => Promise::Fixed {
                limit: rule.limit() - less,
                slack: Slack::default(),
                per: nanos(rule.per()),
                window: 0,
                used: 0,
            },
            Rule::TokenBucket(rule) => {
                let per = u128::from(nanos(rule.per()));
                let capacity = u128::from(rule.capacity() - less) * per;
                let refill = rule.refill().into();
                Promise::Bucket { name: "S3", capacity, refill, per, level: capacity, real: 0 }
            }
            Rule::LeakyBucket(rule) => {
                let per = u128::from(nanos(rule.per()));
                let capacity = u128::from(rule.burst() - less) * per;
                let refill = rule.refill().into();
                Promise::Bucket { name: "S4", capacity, refill, per, level: capacity, real: 0 }
            }
        }
    }

    /// One for a rule that comes to be at `now`, when `out` permits are lent until `until`.
    pub(super) fn amid(now: Instant, rule: &Rule, out: u64, until: Instant) -> Self {
        let mut promise = Promise::new(rule, 0);
        match &mut promise {
            Promise::Sliding { slack, spends, .. } => slack.floor = (until.real + spends.per, out),
            Promise::Fixed { slack, per, window, .. } => {
                *window = now.allocator.as_nanos() / *per;
                slack.floor = (edge_after(until, *per), out);
            }
            Promise::Bucket { level, per, real, .. } => {
                *level = (*level).max(u128::from(out) * *per);
                *real = now.real;
            }
        }
        promise
    }

    /// Goes on by `rule` if it is of the same kind and period; `out` permits are lent until `until`.
    pub(super) fn changes(
        &mut self,
        now: Instant,
        rule: &Rule,
        carry: Carry,
        out: u64,
        until: Instant,
    ) -> bool {
        self.room(now);
        match (self, rule) {
            (
                Promise::Sliding { limit, margin, is_of_calls: false, slack, spends, vendor, on_the_way },
                Rule::SlidingWindow(rule),
            ) if spends.per == nanos(rule.per()) => {
                *margin = nanos(rule.margin()).max(*margin);
                let until = until.real + spends.per + *margin;
                // What the vendor has not counted yet may be older than the window.
                let coming = on_the_way.iter().map(|Reverse((_, permits))| permits).sum::<u64>();
                let used = spends.used.max(vendor.used + coming);
                slack.carries(until, used, out, (*limit, rule.limit()), carry);
                *limit = rule.limit();
            }
            (Promise::Sliding { limit, is_of_calls: true, slack, spends, .. }, Rule::Concurrency(rule))
                if spends.per == nanos(rule.longest()) =>
            {
                let until = until.real + spends.per;
                slack.carries(until, spends.used, out, (*limit, rule.limit()), Carry::AsIs);
                *limit = rule.limit();
            }
            (Promise::Fixed { limit, slack, per, used, .. }, Rule::FixedWindow(rule))
                if *per == nanos(rule.per()) =>
            {
                let until = edge_after(until, *per);
                slack.carries(until, *used, out, (*limit, rule.limit()), carry);
                *limit = rule.limit();
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
            _ => return false,
        }
        true
    }

    /// `permits` more, once.
    pub(super) fn allows(&mut self, now: Instant, permits: u64, drift_ppm: u128) {
        self.room(now);
        match self {
            // Calls in flight come back by themselves.
            Promise::Sliding { is_of_calls: true, .. } => {}
            Promise::Sliding { margin, slack, spends, .. } => {
                // As long as a spend is charged, on a clock that runs slow, and then until it has left the window.
                let charged =
                    u128::from(spends.per + *margin) * (1_000_000 + drift_ppm) / (1_000_000 - drift_ppm);
                let charged = charged as u64 / 100 * 101 + 1_000;
                slack.extra.push((now.real + charged + spends.per + *margin, permits));
                slack.floor.1 += permits;
            }
            Promise::Fixed { slack, per, .. } => {
                slack.extra.push((edge_after(now, *per), permits));
                slack.floor.1 += permits;
            }
            Promise::Bucket { per, level, .. } => *level += u128::from(permits) * *per,
        }
    }

    fn window(limit: u64, per: u64, margin: u64, is_of_calls: bool) -> Self {
        let window = Window { per, spends: VecDeque::new(), used: 0 };
        let (spends, vendor) = (window.clone(), window);
        let slack = Slack::default();
        let on_the_way = BinaryHeap::new();
        Promise::Sliding { limit, margin, is_of_calls, slack, spends, vendor, on_the_way }
    }

    /// The invariant that is broken by one permit too many.
    fn name(&self) -> &'static str {
        match self {
            Promise::Sliding { .. } => "S1",
            Promise::Fixed { .. } => "S2",
            Promise::Bucket { name, .. } => name,
        }
    }

    pub(super) fn admit(&mut self, now: Instant, permits: u64, way: u64) -> Verdict {
        let room = self.room(now);
        let name = self.name();
        let over = |name, what: String| Err(Wrong { is_over: true, name, what });
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
            Promise::Fixed { used, .. } => *used += permits,
            Promise::Bucket { level, per, .. } => *level -= u128::from(permits) * *per,
        }
        Ok(())
    }

    pub(super) fn room(&mut self, now: Instant) -> u64 {
        match self {
            Promise::Sliding { limit, slack, spends, .. } => {
                spends.advance(now.real);
                slack.allows(now.real, *limit).saturating_sub(spends.used)
            }
            Promise::Fixed { limit, slack, per, window, used } => {
                let current = now.allocator.as_nanos() / *per;
                if current != *window {
                    (*window, *used) = (current, 0);
                }
                slack.allows(now.allocator.as_nanos(), *limit).saturating_sub(*used)
            }
            Promise::Bucket { capacity, refill, per, level, real, .. } => {
                // What it was topped up with stays, and so does what was out when it was made smaller.
                let full = (*level).max(*capacity);
                *level = (*level + u128::from(now.real - *real) * *refill).min(full);
                *real = now.real;
                u64::try_from(*level / *per).unwrap_or(u64::MAX)
            }
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
        Rule::SlidingWindow(_) | Rule::FixedWindow(_) | Rule::Concurrency(_) => None,
    }
}

/// The end of the window that holds `at`, on the allocator's clock.
fn edge_after(at: Instant, per: u64) -> u64 {
    (at.allocator.as_nanos() / per + 1) * per
}

/// What may be admitted beyond the limit for a while, because the limit was changed or topped up.
#[derive(Clone, Debug, Default)]
pub(super) struct Slack {
    /// Permits on top, each until an instant: top-ups, and what a change forgave.
    extra: Vec<(u64, u64)>,
    /// What was charged when a limit was lowered, and until when windows may see that much.
    floor: (u64, u64),
}

impl Slack {
    /// At `now`, which may be a while ago: what a vendor counts late was admitted then.
    fn allows(&self, now: u64, limit: u64) -> u64 {
        let live = self.extra.iter().filter(|(until, _)| now < *until);
        let more = live.map(|(_, permits)| permits).sum::<u64>();
        let floor = if now < self.floor.0 { self.floor.1 } else { 0 };
        (limit + more).max(floor)
    }

    /// `used` permits were spent in the window and `out` were lent when `from` became `to`, carried over by `carry`: so
    /// much may a window hold that ends before `until`.
    fn carries(&mut self, until: u64, used: u64, out: u64, (from, to): (u64, u64), carry: Carry) {
        self.floor = (until, used + out);
        if carry == Carry::Proportional && to < from {
            let charged = (u128::from(used) * u128::from(to) / u128::from(from)) as u64;
            self.extra.push((until, used - charged));
        }
    }
}

/// What happened in the last `per` nanoseconds: at `t` exactly, what happened at `t − per` counts no more.
#[derive(Clone, Debug)]
pub(super) struct Window {
    per: u64,
    spends: VecDeque<(u64, u64)>,
    used: u64,
}

impl Window {
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
