//! Pacing of grants. Below its low-water mark a windowed pool *eases off*: it lends what is left at a rate that lasts,
//! so that traffic slows down rather than stopping dead. If more is wanted than a sliding window has, for longer than
//! the window, the pool lends evenly at any level, so that a burst does not come back and go out as a burst again.
//! Pools call this; it never lends more than there is.

use crate::packed::Carrier;
use crate::rule::{At, Pace, Since};
use lessor_protocol::moment::{nanos, span_of};
use lessor_protocol::{Moment, PERMITS_MAX};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Part of what a limit allows, in percent, below which a pool eases off. A higher mark would slow down traffic after a
/// short burst alone; a lower one leaves little to pace.
pub const LOW_WATER_PERCENT: u64 = 10;

/// Parts of a permit in which credit is counted.
const NANO: u128 = 1_000_000_000;

/// What may be lent at the planned pace: credit that grows with time and shrinks with grants, and permits that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pacer {
    /// No pace: all that is left may be lent.
    Free,
    /// Lending at a pace: below low water, or evenly.
    Paced {
        /// Billionths of a permit that may be lent now.
        credit: u128,
        /// Permits lent by credit that came back unspent: they may be lent again.
        back: u64,
        /// When `credit` was counted.
        at: Moment,
    },
}

impl Pacer {
    /// Carries every field.
    pub(crate) fn carry(&mut self, carrier: &mut Carrier<'_>) {
        let mut eases = match *self {
            Pacer::Free => None,
            Pacer::Paced { credit, back, at } => Some((credit, back, at)),
        };
        carrier.option(&mut eases, Default::default, |carrier, (credit, back, at)| {
            carrier.wide(credit);
            carrier.number(back);
            carrier.moment(at);
        });
        *self = eases.map_or(Pacer::Free, |(credit, back, at)| Pacer::Paced { credit, back, at });
    }

    /// Returns the permits that may be lent now, out of `left`. Credit is kept for at most `term`, or it would become
    /// the very burst that pacing avoids; but always for one permit, or a slow pace would never lend. Permits that came
    /// back are added: a session that calls seldom gives back most of its permits, and no credit grew in their place.
    pub fn lendable(&mut self, now: Moment, left: u64, pace: Pace, term: Duration) -> u64 {
        let per_term = credit_of_term(pace, term);
        let (credit, back) = match *self {
            Pacer::Free => (per_term, 0),
            Pacer::Paced { credit, back, at } => {
                ((credit + accrued(pace, now.since(at))).min(per_term), back.min(left))
            }
        };
        *self = Pacer::Paced { credit, back, at: now };
        u64::try_from(credit / NANO).unwrap_or(u64::MAX).saturating_add(back).min(left)
    }

    /// Takes lent `permits` off credit, and off permits that came back.
    pub fn lent(&mut self, permits: u64) {
        if let Pacer::Paced { credit, back, .. } = self {
            let by_credit = u64::try_from(*credit / NANO).unwrap_or(u64::MAX).min(permits);
            let again = (permits - by_credit).min(*back);
            *credit = credit.saturating_sub(u128::from(permits - again) * NANO);
            *back -= again;
        }
    }

    /// Notes that `permits` came back unspent.
    pub fn returned(&mut self, permits: u64) {
        if let Pacer::Paced { back, .. } = self {
            *back = back.saturating_add(permits);
        }
    }

    /// Returns how long until the next permit may be lent at `pace`; zero if one may be lent now.
    pub fn wait(&self, pace: Pace) -> Duration {
        let Pacer::Paced { credit, back: 0, .. } = *self else {
            return Duration::ZERO;
        };
        let missing = NANO.saturating_sub(credit);
        if pace.permits == 0 {
            return Duration::from_nanos(pace.over);
        }
        span_of((missing * u128::from(pace.over)).div_ceil(u128::from(pace.permits) * NANO))
    }
}

/// For how long more has been wanted than a limit sustains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Excess {
    seen: Option<Seen>,
    /// Even pace, and when it was planned.
    planned: Option<(Pace, Moment)>,
}

/// Excess demand that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    since: Moment,
    /// When excess was last seen.
    last: Moment,
    /// Whether little was left at some time since `since`. Demand that sessions only claim slows down no others.
    was_low: bool,
}

/// [`Excess`] as it is written down: since when more is wanted, when that was last seen, and the even pace with the
/// moment of its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedExcess {
    since: At,
    last: At,
    was_low: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    plan: Option<(u64, u64, At)>,
}

impl Excess {
    /// No more is wanted than a limit sustains.
    pub(crate) const NONE: Excess = Excess { seen: None, planned: None };

    /// Carries every field.
    pub(crate) fn carry(&mut self, carrier: &mut Carrier<'_>) {
        let blank = Seen { since: Moment::ORIGIN, last: Moment::ORIGIN, was_low: false };
        carrier.option(
            &mut self.seen,
            || blank,
            |carrier, seen| {
                carrier.moment(&mut seen.since);
                carrier.moment(&mut seen.last);
                carrier.flag(&mut seen.was_low);
            },
        );
        let blank = (Pace { permits: 0, over: 0 }, Moment::ORIGIN);
        carrier.option(
            &mut self.planned,
            || blank,
            |carrier, (pace, at)| {
                carrier.number(&mut pace.permits);
                carrier.number(&mut pace.over);
                carrier.moment(at);
            },
        );
    }

    /// Notes at an ask whether more is wanted than comes back. Excess goes on through pauses of up to `pause`.
    pub fn see(&mut self, now: Moment, is_excess: bool, pause: Duration) {
        let goes_on = self.seen.filter(|seen| now.since(seen.last) <= pause);
        self.seen = match goes_on {
            Some(seen) => Some(Seen { last: if is_excess { now } else { seen.last }, ..seen }),
            None => is_excess.then_some(Seen { since: now, last: now, was_low: false }),
        };
    }

    /// Notes that little is left.
    pub fn found_low(&mut self) {
        if let Some(seen) = &mut self.seen {
            seen.was_low = true;
        }
    }

    /// Returns the excess as it is written down; `None` if no more is wanted.
    pub fn save(&self) -> Option<SavedExcess> {
        let Seen { since, last, was_low } = self.seen?;
        let plan = self.planned.map(|(pace, at)| (pace.permits, pace.over, at.into()));
        Some(SavedExcess { since: since.into(), last: last.into(), was_low, plan })
    }

    /// Restores `saved` excess. A plan that no window can have had is dropped.
    pub fn restore(saved: Option<SavedExcess>, since: Since) -> Self {
        let moment = |at: At| since.moment(at).min(since.now);
        let seen = |saved: SavedExcess| Seen {
            since: moment(saved.since),
            last: moment(saved.last),
            was_low: saved.was_low,
        };
        let plan = saved.and_then(|saved| saved.plan);
        let plan = plan.filter(|(permits, over, _)| *permits <= PERMITS_MAX && *over > 0);
        let planned = plan.map(|(permits, over, at)| (Pace { permits, over }, moment(at)));
        Excess { seen: saved.map(seen), planned }
    }

    /// Whether more has been wanted for as long as `window`, and little was left meanwhile.
    pub fn is_steady(&self, now: Moment, window: Duration) -> bool {
        self.seen.is_some_and(|seen| seen.was_low && now.since(seen.since) >= window)
    }

    /// Returns the even pace: what `plan` returns, unless one was planned less than `every` ago.
    pub fn pace(&mut self, now: Moment, every: Duration, plan: impl FnOnce() -> Pace) -> Pace {
        let planned = self.planned.filter(|(_, at)| now.since(*at) < every);
        let (pace, at) = planned.unwrap_or_else(|| (plan(), now));
        self.planned = Some((pace, at));
        pace
    }
}

/// Returns the most permits that are ever saved up, and so lent at once, at `pace`.
pub fn credit_max(pace: Pace, term: Duration) -> u64 {
    u64::try_from(credit_of_term(pace, term) / NANO).unwrap_or(u64::MAX)
}

fn credit_of_term(pace: Pace, term: Duration) -> u128 {
    accrued(pace, term).max(NANO)
}

/// Returns the billionths of a permit that `pace` yields in `span`. For a very large limit and a span of days, the result
/// may be too low: a pool never saves up more than a term yields.
fn accrued(pace: Pace, span: Duration) -> u128 {
    (u128::from(pace.permits) * NANO).saturating_mul(nanos(span).into()) / u128::from(pace.over)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lessor_protocol::moment::millis;

    /// The bug: the product of a very large limit and some days did not fit, and a sum that wraps ends the request.
    #[test]
    fn a_pool_of_a_very_large_limit_may_rest_for_weeks() {
        let pace = Pace { permits: 1 << 50, over: 30_000_000_000 };
        let weeks = Duration::from_secs(4 * 7 * 86_400);
        assert!(accrued(pace, weeks) > accrued(pace, Duration::from_secs(3_600)));
    }

    #[test]
    fn more_is_wanted_for_as_long_as_no_pause_is_too_long() {
        let (window, pause) = (Duration::from_secs(10), Duration::from_secs(2));
        let mut excess = Excess::default();
        excess.see(millis(1_000), false, pause);
        excess.see(millis(2_000), true, pause);
        assert!(!excess.is_steady(millis(11_999), window));
        excess.see(millis(5_000), false, pause);
        excess.see(millis(6_000), false, pause);
        assert!(!excess.is_steady(millis(12_000), window), "it is not so any more");
        excess.see(millis(7_000), true, pause);
        for second in 8..=17 {
            excess.see(millis(second * 1_000), second % 2 == 0, pause);
        }
        assert!(!excess.is_steady(millis(17_000), window), "all the time there was enough");
        excess.found_low();
        assert!(excess.is_steady(millis(17_000), window), "a pause of two seconds is none");
    }

    #[test]
    fn a_plan_is_kept_for_as_long_as_it_is_good() {
        let (slow, fast) = (Pace { permits: 1, over: 10 }, Pace { permits: 3, over: 10 });
        let mut excess = Excess::default();
        assert_eq!(excess.pace(millis(0), TERM, || slow), slow);
        assert_eq!(excess.pace(millis(99), TERM, || fast), slow);
        assert_eq!(excess.pace(millis(100), TERM, || fast), fast);
    }

    #[test]
    fn what_comes_back_unspent_may_be_lent_again() {
        let pace = Pace { permits: 100, over: 1_000_000_000 };
        let mut pacer = Pacer::Free;
        pacer.lendable(millis(0), 100, pace, TERM);
        pacer.lent(10);
        pacer.returned(4);
        assert_eq!(pacer.lendable(millis(0), 94, pace, TERM), 4);
        assert_eq!(pacer.lendable(millis(20), 94, pace, TERM), 6, "credit grows beside it");
        pacer.lent(3);
        assert_eq!(pacer.lendable(millis(20), 91, pace, TERM), 3);
        assert_eq!(pacer.wait(pace), Duration::ZERO);
        pacer.lent(3);
        assert_eq!(pacer.lendable(millis(20), 88, pace, TERM), 0);
    }

    const TERM: Duration = Duration::from_millis(100);

    #[test]
    fn what_is_left_is_lent_at_the_rate_that_lasts() {
        // 100 permits for a second: ten in the first term, then one each 10 ms.
        let pace = Pace { permits: 100, over: 1_000_000_000 };
        let mut pacer = Pacer::Free;
        assert_eq!(pacer.lendable(millis(0), 100, pace, TERM), 10);
        pacer.lent(10);
        assert_eq!(pacer.lendable(millis(9), 90, pace, TERM), 0);
        assert_eq!(pacer.wait(pace), Duration::from_millis(1));
        assert_eq!(pacer.lendable(millis(10), 90, pace, TERM), 1);
    }

    #[test]
    fn unused_credit_does_not_pile_up_beyond_a_term() {
        let pace = Pace { permits: 100, over: 1_000_000_000 };
        let mut pacer = Pacer::Free;
        pacer.lendable(millis(0), 100, pace, TERM);
        assert_eq!(pacer.lendable(millis(5_000), 100, pace, TERM), 10);
    }

    #[test]
    fn a_pace_slower_than_one_a_term_still_lends_one_at_a_time() {
        let pace = Pace { permits: 1, over: 10_000_000_000 };
        let mut pacer = Pacer::Free;
        assert_eq!(pacer.lendable(millis(0), 1, pace, TERM), 1);
        pacer.lent(1);
        assert_eq!(pacer.lendable(millis(9_999), 1, pace, TERM), 0);
        assert_eq!(pacer.lendable(millis(10_000), 1, pace, TERM), 1);
    }
}
