//! The rate lease of one pool on its node: the rate that was lent, when it is let go, and what asks say of it. Only
//! [`super::Refill`] drives it; callers take from the [`Pacer`].

use crate::permits::{BucketRate, Pacer};
use lessor_protocol::moment::{nanos, span_of};
use lessor_protocol::{ClockBounds, Moment, PERMITS_MAX, Rate, RateClaim, RateLease};
use std::time::Duration;

/// Longest credit on the wire, where no number is larger.
const CREDIT_MAX: Duration = Duration::from_nanos(PERMITS_MAX);

/// The rate lease of a node.
#[derive(Clone, Debug)]
pub(super) struct RateHeld<P> {
    /// Set from the first answer that lends a rate, because few limits have a steady flow.
    flow: Option<Box<Flow<P>>>,
    /// Whether the limit has a steady flow, as the last answer said.
    pub(super) is_paced: bool,
}

/// A rate that is or was lent.
#[derive(Clone, Debug, Default)]
struct Flow<P> {
    pace: P,
    /// What the next ask claims.
    claim: RateClaim,
    /// Speed and size of the bucket while a rate is lent.
    rate: BucketRate,
    /// Set if other sessions wait: the rate is let go by this instant.
    turn_ends: Option<Moment>,
}

impl<P: Pacer> RateHeld<P> {
    pub(super) fn new() -> Self {
        RateHeld { flow: None, is_paced: false }
    }

    pub(super) fn pace(&self) -> Option<&P> {
        self.flow.as_ref().map(|flow| &flow.pace)
    }

    /// Returns what the next ask claims. It stays true until that ask is answered.
    pub(super) fn claim(&self) -> RateClaim {
        self.flow.as_ref().map_or(RateClaim::None, |flow| flow.claim)
    }

    pub(super) fn is_held(&self) -> bool {
        self.held().is_some()
    }

    fn held(&self) -> Option<&Flow<P>> {
        self.flow.as_deref().filter(|flow| matches!(flow.claim, RateClaim::Holds(_)))
    }

    /// Returns how long an empty bucket takes to fill up; zero while no rate is lent.
    pub(super) fn fills_in(&self) -> Duration {
        self.held().map_or(Duration::ZERO, |flow| Duration::from_nanos(flow.rate.depth))
    }

    /// Returns when the rate is to be let go because other sessions wait.
    pub(super) fn turn_ends(&self) -> Option<Moment> {
        self.held()?.turn_ends
    }

    /// Stops minting, and keeps the content of the bucket for the next ask.
    pub(super) fn let_go(&mut self, now: Moment) {
        if let Some(flow) = &mut self.flow {
            flow.let_go(now);
        }
    }

    /// Stops minting, and claims nothing: the allocator does not know the lease either.
    pub(super) fn forget(&mut self) {
        if let Some(flow) = &mut self.flow {
            flow.pace.stop(Moment::ORIGIN);
            (flow.claim, flow.turn_ends) = (RateClaim::None, None);
        }
    }

    /// Whether `rate` is possible.
    pub(super) fn is_sane(rate: &Rate) -> bool {
        match rate {
            Rate::Free | Rate::Nothing => true,
            Rate::Lent { lease, credit, .. } => {
                let fills = lease.interval.checked_mul(u32::try_from(lease.cap).unwrap_or(u32::MAX));
                (1..=PERMITS_MAX).contains(&lease.cap)
                    && !lease.interval.is_zero()
                    && fills.is_none_or(|fills| *credit <= fills)
            }
        }
    }

    /// Installs `rate`, the answer to an ask. A renewal keeps the content of the bucket. A new lease mints from now on:
    /// before that, another session may have minted in its place.
    pub(super) fn install(&mut self, rate: &Rate, clocks: ClockBounds, now: Moment, turn: Duration) {
        self.is_paced = !matches!(rate, Rate::Free);
        let Rate::Lent { lease, credit, turn: is_turn } = rate else {
            if let Some(flow) = &mut self.flow {
                flow.end(now);
            }
            return;
        };
        let flow = self.flow.get_or_insert_default();
        flow.turn_ends = is_turn.then(|| now + turn);
        let rate = bucket_rate(lease, clocks);
        let goes_on = matches!(flow.claim, RateClaim::Holds(old) if old.number == lease.number);
        if goes_on && rate == flow.rate && credit.is_zero() {
            return;
        }
        let kept = flow.pace.stop(now).unwrap_or(0);
        let put_in = nanos(scaled(nanos(*credit), rate.interval, nanos(lease.interval)));
        let saved = if goes_on {
            // The same number of permits, at the new time for each.
            nanos(scaled(kept, rate.interval, flow.rate.interval)).saturating_add(put_in)
        } else {
            put_in
        };
        (flow.rate, flow.claim) = (rate, RateClaim::Holds(*lease));
        flow.pace.go(rate, saved, now);
    }
}

impl<P: Pacer> Flow<P> {
    /// Stops minting, and keeps the content of the bucket for the next ask.
    fn let_go(&mut self, now: Moment) {
        let RateClaim::Holds(lease) = self.claim else { return };
        let saved = self.pace.stop(now).unwrap_or(0);
        let credit = scaled(saved, nanos(lease.interval), self.rate.interval).min(CREDIT_MAX);
        self.claim = RateClaim::LetGo { number: lease.number, credit };
        self.turn_ends = None;
    }

    /// Handles an answer that lends no rate: a held rate is let go, and one that was let go is done with.
    fn end(&mut self, now: Moment) {
        match self.claim {
            RateClaim::Holds(_) => self.let_go(now),
            RateClaim::LetGo { .. } | RateClaim::None => self.claim = RateClaim::None,
        }
    }
}

/// Converts `lease` for a clock that may run fast, so that it does not mint faster.
fn bucket_rate(lease: &RateLease, clocks: ClockBounds) -> BucketRate {
    let interval = nanos(clocks.stretched(lease.interval));
    BucketRate { interval, depth: interval.saturating_mul(lease.cap) }
}

/// Returns `span · num / den`, rounded down.
fn scaled(span: u64, num: u64, den: u64) -> Duration {
    let scaled = u128::from(span) * u128::from(num) / u128::from(den.max(1));
    span_of(scaled)
}
