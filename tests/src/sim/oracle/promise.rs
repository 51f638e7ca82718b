//! What each rule promises, kept by remembering every admission that still counts. The oracle asks it; it knows neither
//! leases nor sessions.

use super::{Instant, Verdict, Wrong};
use lessor_protocol::Rule;
use lessor_protocol::moment::nanos;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A rule, kept by remembering what counts.
#[derive(Clone, Debug)]
pub(super) enum Promise {
    Sliding {
        limit: u64,
        spends: Window,
        vendor: Window,
        on_the_way: BinaryHeap<Reverse<(u64, u64)>>,
    },
    Fixed {
        limit: u64,
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
            Rule::SlidingWindow(rule) => Promise::window(rule.limit() - less, nanos(rule.per())),
            // Every call takes as long as it may.
            Rule::Concurrency(rule) => Promise::window(rule.limit() - less, nanos(rule.longest())),
            Rule::FixedWindow(rule) => {
                Promise::Fixed { limit: rule.limit() - less, per: nanos(rule.per()), window: 0, used: 0 }
            }
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

    fn window(limit: u64, per: u64) -> Self {
        let window = Window { per, spends: VecDeque::new(), used: 0 };
        let (spends, vendor) = (window.clone(), window);
        Promise::Sliding { limit, spends, vendor, on_the_way: BinaryHeap::new() }
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
            Promise::Sliding { limit, spends, vendor, on_the_way } => {
                spends.add(now.real, permits);
                on_the_way.push(Reverse((now.real + way, permits)));
                while let Some(&Reverse((real, permits))) = on_the_way.peek()
                    && real <= now.real
                {
                    on_the_way.pop();
                    vendor.add(real, permits);
                    if vendor.used > *limit {
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
            Promise::Sliding { limit, spends, .. } => {
                spends.advance(now.real);
                limit.saturating_sub(spends.used)
            }
            Promise::Fixed { limit, per, window, used } => {
                let current = now.allocator.as_nanos() / *per;
                if current != *window {
                    (*window, *used) = (current, 0);
                }
                limit.saturating_sub(*used)
            }
            Promise::Bucket { capacity, refill, per, level, real, .. } => {
                *level = (*level + u128::from(now.real - *real) * *refill).min(*capacity);
                *real = now.real;
                u64::try_from(*level / *per).unwrap_or(u64::MAX)
            }
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
