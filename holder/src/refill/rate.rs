//! The rate lease of one pool, as its node goes by it: what was lent, when it is let go, and what is said of it. Only
//! [`super::Refill`] drives it; what callers take from is the [`Pacer`].

use crate::permits::{Gait, Pacer};
use lessor_protocol::moment::nanos;
use lessor_protocol::{ClockBounds, Moment, PERMITS_MAX, Rate, RateClaim, RateLease};
use std::time::Duration;

/// The longest credit that is told: no number on the wire is larger.
const CREDIT_MAX: Duration = Duration::from_nanos(PERMITS_MAX);

/// What a node goes by.
#[derive(Clone, Debug)]
pub(super) struct RateHeld<P> {
    /// From the first answer on that lends a rate: few limits have a steady flow.
    flow: Option<Box<Flow<P>>>,
    /// Whether the limit has a steady flow, as the last answer said.
    pub(super) is_paced: bool,
}

/// A rate that is or was lent.
#[derive(Clone, Debug, Default)]
struct Flow<P> {
    pace: P,
    /// What the next ask says of it.
    claim: RateClaim,
    /// What the bucket goes by while a rate is lent.
    gait: Gait,
    /// Others wait: it is let go by this instant.
    turn_ends: Option<Moment>,
}

impl<P: Pacer> RateHeld<P> {
    pub(super) fn new() -> Self {
        RateHeld { flow: None, is_paced: false }
    }

    pub(super) fn pace(&self) -> Option<&P> {
        self.flow.as_ref().map(|flow| &flow.pace)
    }

    /// What the next ask says. It stays true until that is answered.
    pub(super) fn claim(&self) -> RateClaim {
        self.flow.as_ref().map_or(RateClaim::None, |flow| flow.claim)
    }

    pub(super) fn is_held(&self) -> bool {
        self.held().is_some()
    }

    fn held(&self) -> Option<&Flow<P>> {
        self.flow.as_deref().filter(|flow| matches!(flow.claim, RateClaim::Holds(_)))
    }

    /// How long an empty bucket takes to fill up; zero while no rate is lent.
    pub(super) fn fills_in(&self) -> Duration {
        self.held().map_or(Duration::ZERO, |flow| Duration::from_nanos(flow.gait.depth))
    }

    /// When it is to be let go because others wait.
    pub(super) fn turn_ends(&self) -> Option<Moment> {
        self.held()?.turn_ends
    }

    /// Mints no more, and remembers for the next ask what the bucket holds.
    pub(super) fn let_go(&mut self, now: Moment) {
        if let Some(flow) = &mut self.flow {
            flow.let_go(now);
        }
    }

    /// Mints no more, and says nothing of it: the allocator knows nothing of it either.
    pub(super) fn forget(&mut self) {
        if let Some(flow) = &mut self.flow {
            flow.pace.stop(Moment::ORIGIN);
            (flow.claim, flow.turn_ends) = (RateClaim::None, None);
        }
    }

    /// Whether `rate` can be an answer to what was claimed.
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

    /// Goes by `rate`, the answer to an ask. A renewal goes on with the bucket as it is. A new lease mints from now on: until it
    /// was lent, another session may have minted in its place.
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
        let gait = gait(lease, clocks);
        let goes_on = matches!(flow.claim, RateClaim::Holds(old) if old.number == lease.number);
        if goes_on && gait == flow.gait && credit.is_zero() {
            return;
        }
        let kept = flow.pace.stop(now).unwrap_or(0);
        let put_in = nanos(scaled(nanos(*credit), gait.interval, nanos(lease.interval)));
        let saved = if goes_on {
            // As many permits as before, at the time that each takes now.
            nanos(scaled(kept, gait.interval, flow.gait.interval)).saturating_add(put_in)
        } else {
            put_in
        };
        (flow.gait, flow.claim) = (gait, RateClaim::Holds(*lease));
        flow.pace.go(gait, saved, now);
    }
}

impl<P: Pacer> Flow<P> {
    /// Mints no more, and remembers for the next ask what the bucket holds.
    fn let_go(&mut self, now: Moment) {
        let RateClaim::Holds(lease) = self.claim else { return };
        let saved = self.pace.stop(now).unwrap_or(0);
        let credit = scaled(saved, nanos(lease.interval), self.gait.interval).min(CREDIT_MAX);
        self.claim = RateClaim::LetGo { number: lease.number, credit };
        self.turn_ends = None;
    }

    /// An answer lends no rate: one that is held is let go, and one that was let go is known to be.
    fn end(&mut self, now: Moment) {
        match self.claim {
            RateClaim::Holds(_) => self.let_go(now),
            RateClaim::LetGo { .. } | RateClaim::None => self.claim = RateClaim::None,
        }
    }
}

/// What `lease` comes to on a clock that may run fast: it must not mint faster for that.
fn gait(lease: &RateLease, clocks: ClockBounds) -> Gait {
    let interval = nanos(clocks.stretched(lease.interval));
    Gait { interval, depth: interval.saturating_mul(lease.cap) }
}

/// `span · num / den`, rounded down.
fn scaled(span: u64, num: u64, den: u64) -> Duration {
    let scaled = u128::from(span) * u128::from(num) / u128::from(den.max(1));
    Duration::from_nanos(u64::try_from(scaled).unwrap_or(u64::MAX))
}
