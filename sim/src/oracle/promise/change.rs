//! What a rule promises after it is changed or topped up while leases are out: how much more windows may hold for a
//! while. The oracle says how much was out then, and until when.

use super::{Promise, holds, owes, stretched};
use crate::oracle::Instant;
use lessor_ledger::rule::{LeakyBucket, RefillStyle, TokenBucket};
use lessor_ledger::{CarryOver, Rule};
use lessor_protocol::moment::nanos;
use std::cmp::Reverse;

/// The longest lease, 2 s, on the slowest clock allowed, in nanoseconds.
const LEASE_MAX: u64 = 2_500_000_000;

impl Promise {
    /// Makes the promise of a rule that begins at `now`, when `out` permits are lent until `until` and calls for
    /// `flying` permits are in flight.
    pub(in crate::oracle) fn amid(
        now: Instant,
        rule: &Rule,
        (out, until): (u64, Instant),
        flying: u64,
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
            Promise::Interval { level, .. } => {
                *level = (*level).max(out);
                promise.begin(now, now.allocator.as_nanos());
            }
            Promise::Warming { bucket, .. } => bucket.hold_at_least(out, now.real),
            // Ongoing calls count, whichever node began them, and so do permits out, which may begin others.
            Promise::InFlight { in_flight, slack, .. } => {
                (*in_flight, slack.floor) = (flying, (until.real, flying + out));
            }
        }
        promise
    }

    /// Goes on by `rule` if its kind and period match; `out` permits are lent until `until`. Returns whether they do.
    pub(in crate::oracle) fn changes(
        &mut self,
        now: Instant,
        rule: &Rule,
        carry: CarryOver,
        out: u64,
        until: Instant,
        drift_ppm: u64,
    ) -> bool {
        self.room(now);
        match (self, rule) {
            (Promise::Sliding { kind, limit, margin, slack, spends, vendor, on_the_way }, rule)
                if window(rule).is_some_and(|(other, _, per, _)| other == *kind && per == spends.per) =>
            {
                let Some((_, to, _, way)) = window(rule) else { return false };
                *margin = way.max(*margin);
                let until = until.real + spends.per + *margin;
                // Spends that the vendor has not counted yet may be older than the window.
                let coming = on_the_way.iter().map(|Reverse((_, permits))| permits).sum::<u64>();
                let used = spends.used.max(vendor.used + coming);
                slack.carries(until, used, out, (*limit, to), carry);
                *limit = to;
            }
            (Promise::Fixed(windows), Rule::FixedWindow(rule)) => {
                return windows.changes(now, rule, carry, out, until);
            }
            // A limit whose flow changes begins anew, and rates of the old flow end by themselves.
            (old @ Promise::Bucket { name: "S4", .. }, Rule::LeakyBucket(flow)) => {
                let mut promise = Promise::new(rule, 0, 0);
                if let (Promise::Bucket { former, .. }, false) = (&mut promise, old.is_flow(flow)) {
                    *former = Some((until.allocator.as_nanos(), Box::new(old.clone())));
                    *old = promise;
                }
            }
            (
                Promise::Bucket { name: "S3", capacity, debt, refill, per, level, .. },
                Rule::TokenBucket(rule),
            ) if is_even(rule) && u128::from(nanos(rule.per())) == *per => {
                let (to, owes) = (u128::from(holds(rule)) * *per, u128::from(owes(rule)) * *per);
                // The room left for debt is kept, and grows by as much as the allowed debt does.
                let (red, black) = ((*level).min(*debt), level.saturating_sub(*debt));
                let black = carried(black, *per, (*capacity - *debt, to - owes), carry);
                let left = black + red + owes.saturating_sub(*debt);
                *level = left.min(to.max(u128::from(out) * *per));
                (*capacity, *debt, *refill) = (to, owes, rule.refill().into());
            }
            (Promise::Interval { capacity, refill, per, level, .. }, Rule::TokenBucket(rule))
                if rule.refill_style() == RefillStyle::Interval && stretched(rule, drift_ppm) == *per =>
            {
                let to = holds(rule);
                let left = carried(u128::from(*level), 1, (u128::from(*capacity), u128::from(to)), carry);
                *level = u64::try_from(left).unwrap_or(u64::MAX).min(to.max(out));
                (*capacity, *refill) = (to, rule.refill());
            }
            (Promise::Warming { bucket, warm_up, full_since }, Rule::TokenBucket(rule))
                if bucket.per() == nanos(rule.per()) =>
            {
                let Some(warms) = rule.warm_up() else { return false };
                let (level, from) = (u128::from(bucket.room(now.real)) + 1, u128::from(bucket.capacity()));
                let to = u128::from(rule.capacity());
                let left = carried(level, 1, (from, to), carry).min(to.max(out.into()));
                bucket.goes_on_by(rule, u64::try_from(left).unwrap_or(u64::MAX), out, now.real);
                (*warm_up, *full_since) = (warms, None);
            }
            // Ongoing calls count whatever the limit is now, and permits out may be spent.
            (Promise::InFlight { limit, in_flight, slack }, Rule::Concurrency(rule)) => {
                slack.floor = (until.real, *in_flight + out);
                *limit = rule.limit();
            }
            _ => return false,
        }
        true
    }

    /// Whether the promise is the steady flow of `rule`.
    fn is_flow(&self, rule: &LeakyBucket) -> bool {
        let per = u128::from(nanos(rule.per()));
        let (burst, gained) = (u128::from(rule.burst()) * per, u128::from(rule.refill()));
        matches!(self, Promise::Bucket { name: "S4", capacity, refill, per: every, former: None, .. }
            if (*capacity, *refill, *every) == (burst, gained, per))
    }

    /// Allows `permits` more, once.
    pub(in crate::oracle) fn allows(&mut self, now: Instant, permits: u64, drift_ppm: u128) {
        self.room(now);
        match self {
            Promise::Sliding { margin, slack, spends, .. } => {
                // Until a spend of now is no longer charged, on a slow clock; then until the leases that the top-up
                // allowed have ended; then until their spends have left the window.
                let charged =
                    u128::from(spends.per + *margin) * (1_000_000 + drift_ppm) / (1_000_000 - drift_ppm);
                let charged = charged as u64 / 100 * 101 + 1_000;
                slack.extra.push((now.real + charged + LEASE_MAX + spends.per + *margin, permits));
                slack.floor.1 += permits;
            }
            Promise::Fixed(windows) => windows.allows(now, permits),
            Promise::Bucket { per, level, .. } => *level += u128::from(permits) * *per,
            // Calls end by themselves.
            Promise::InFlight { .. } => {}
            Promise::Interval { level, .. } => *level += permits,
            Promise::Warming { bucket, .. } => bucket.top_up(permits),
        }
    }
}

/// Whether a bucket is refilled continuously, at one rate.
fn is_even(rule: &TokenBucket) -> bool {
    rule.refill_style() == RefillStyle::Greedy && rule.warm_up().is_none()
}

/// Returns what is left of `level`, in parts of a permit of which `permit` make one, when a bucket of `from` becomes
/// one of `to`.
fn carried(level: u128, permit: u128, (from, to): (u128, u128), carry: CarryOver) -> u128 {
    match carry {
        CarryOver::Proportional if to > from && from > 0 => (level / permit + 1) * to.div_ceil(from / permit),
        CarryOver::Additive if to > from => level + to - from,
        CarryOver::AsIs | CarryOver::Proportional | CarryOver::Additive | CarryOver::Reset => level,
    }
}

/// Returns kind, limit, length and margin of a rule that is a sliding window, or kept as one.
fn window(rule: &Rule) -> Option<(&'static str, u64, u64, u64)> {
    rule.sliding().map(|it| (rule.kind(), it.limit(), nanos(it.per()), nanos(it.margin())))
}

/// Permits that may be admitted beyond the limit for a while, because the limit was changed or topped up.
#[derive(Clone, Debug, Default)]
pub(in crate::oracle) struct Slack {
    /// Additional permits, each until an instant: top-ups, and what a change forgave.
    pub(super) extra: Vec<(u64, u64)>,
    /// Until when windows may hold the permits that were charged at a change, and how many.
    pub(super) floor: (u64, u64),
}

impl Slack {
    /// Returns the permits that a window may hold at `now`. That may be a while ago, for spends that the vendor counts
    /// late.
    pub(super) fn allows(&self, now: u64, limit: u64) -> u64 {
        let live = self.extra.iter().filter(|(until, _)| now < *until);
        let more = live.map(|(_, permits)| permits).sum::<u64>();
        let floor = if now < self.floor.0 { self.floor.1 } else { 0 };
        (limit + more).max(floor)
    }

    /// Records that `used` permits were spent in the window and `out` were lent when `from` became `to`, carried over
    /// by `carry`. Windows that end before `until` may hold them all.
    pub(super) fn carries(
        &mut self,
        until: u64,
        used: u64,
        out: u64,
        (from, to): (u64, u64),
        carry: CarryOver,
    ) {
        self.floor = (until, used + out);
        if carry == CarryOver::Proportional && to < from {
            let charged = (u128::from(used) * u128::from(to) / u128::from(from)) as u64;
            self.extra.push((until, used - charged));
        }
    }
}
