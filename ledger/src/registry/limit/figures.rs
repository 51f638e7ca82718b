//! The figures that a limit shows: sums over its pools, kept up to date a pool at a time, so that a look costs the same
//! for one key and for a million. Counts never fall, even when pools are dropped.

use super::forecasts::{ForecastSum, Forecasts};
use crate::pool::{Books, Forecast, ObservationEffect, PoolView};
use crate::sizing::Scarcity;
use lessor_protocol::{Answer, Ask, Moment, PERMITS_MAX, RefusalReason};
use std::time::Duration;

/// The figures of one limit, summed over its pools. The default is a limit without pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// The most one call can ever take from one pool.
    pub ceiling: u64,
    /// Pools that exist now.
    pub pools: u64,
    /// Names that have a pool now; 0 if the limit is no pattern.
    pub names: u64,
    /// Time until the first pool lends.
    pub quarantine: Duration,
    /// Whether the limit is paused.
    pub paused: bool,
    /// Time until the pause ends, if it ends by itself.
    pub pause_lasts: Option<Duration>,
    /// Time until the pause of the vendor ends. Zero with keys or names: each pool has its own.
    pub vendor_pause: Duration,
    /// Number of blocked nodes.
    pub blocked: u64,
    /// Permits that the limit was ever topped up with.
    pub topped_up: u64,
    /// How scarce permits are in its pools, and when the first pool will be empty.
    pub forecast: ForecastSum,
    /// Sums over all pools, dropped ones included.
    pub sums: Sums,
}

impl Figures {
    /// Returns the number of pools in each state, with the stable word of the state.
    pub fn by_standing(&self) -> [(&'static str, u64); 3] {
        let ForecastSum { drain, trickle, .. } = self.forecast;
        Scarcity::ALL.map(|standing| {
            let pools = match standing {
                Scarcity::Abundant => self.pools.saturating_sub(drain + trickle),
                Scarcity::Draining => drain,
                Scarcity::Scarce => trickle,
            };
            (standing.name(), pools)
        })
    }
}

impl Figures {
    /// Adds up this limit and `other` as if they were one.
    #[must_use]
    pub fn and(mut self, other: &Figures) -> Figures {
        let (these, those) = (&mut self.forecast, &other.forecast);
        these.drain += those.drain;
        these.trickle += those.trickle;
        these.time_to_empty = these.time_to_empty.into_iter().chain(those.time_to_empty).min();
        self.sums.add(&other.sums);
        Figures {
            ceiling: self.ceiling.max(other.ceiling),
            pools: self.pools + other.pools,
            names: self.names + other.names,
            quarantine: self.quarantine.max(other.quarantine),
            paused: self.paused || other.paused,
            pause_lasts: self.pause_lasts.max(other.pause_lasts),
            vendor_pause: self.vendor_pause.max(other.vendor_pause),
            blocked: self.blocked + other.blocked,
            topped_up: self.topped_up.saturating_add(other.topped_up),
            ..self
        }
    }
}

/// A pool's part of the sums. One is kept beside each pool, so it holds only what the sums need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(super) available: u64,
    pub(super) books: Books,
    sessions: u64,
    forecast: Forecast,
    /// Rare counts; `None` if all are zero.
    rare: Option<Box<RareCounts>>,
}

/// Counts that are zero in most pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RareCounts {
    in_flight: u64,
    shadow_refused: u64,
    withheld: u64,
    vendor_pauses: u64,
}

impl Counted {
    fn rare(&self) -> RareCounts {
        self.rare.as_deref().copied().unwrap_or_default()
    }

    /// Returns the part of a pool that looks like `view`.
    pub(super) fn of(view: &PoolView) -> Self {
        let mut counted = Counted::default();
        counted.become_as(view);
        counted
    }

    /// Updates the part to `view`. A box is reused as long as it is needed, because every exchange comes here.
    fn become_as(&mut self, view: &PoolView) {
        (self.available, self.books) = (view.available, view.books);
        (self.sessions, self.forecast) = (view.sessions, view.forecast);
        let rare = RareCounts::of(view);
        match &mut self.rare {
            kept if rare == RareCounts::default() => *kept = None,
            Some(kept) => **kept = rare,
            None => self.rare = Some(Box::new(rare)),
        }
    }
}

impl RareCounts {
    fn of(view: &PoolView) -> Self {
        RareCounts {
            in_flight: view.in_flight,
            shadow_refused: view.shadow_refused,
            withheld: view.withheld,
            vendor_pauses: u64::from(!view.vendor_pause.is_zero()),
        }
    }
}

/// The running sums and forecasts of all pools of a limit.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) sums: Sums,
    forecasts: Forecasts,
}

impl Tally {
    /// Counts a pool as it looks in `view`. It was `counted` before.
    pub(super) fn count(&mut self, counted: &mut Counted, view: PoolView) {
        self.forecasts.count(counted.forecast, view.forecast);
        self.sums.count(counted, view);
    }

    /// Takes out a pool that is gone, and was `counted`. What it ever did stays counted.
    pub(super) fn drop(&mut self, counted: Counted) {
        self.forecasts.count(counted.forecast, Forecast::default());
        self.sums.drop(counted);
    }

    /// Sums up the forecasts of all pools at `now`.
    pub(super) fn forecast(&self, now: Moment) -> ForecastSum {
        self.forecasts.forecast(now)
    }
}

/// Sums over the pools of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Permits that can be lent. The type is wide because a hundred thousand pools may each have 2^53.
    pub available: u128,
    /// Permits lent, and not yet settled or returned.
    pub outstanding: u64,
    /// Permits whose calls are in flight, reported or presumed; only for limits that cap these.
    pub in_flight: u64,
    /// Sessions that pools remember; one that uses two keys counts twice.
    pub sessions: u64,
    /// Permits ever lent.
    pub granted: u64,
    /// Permits ever reported spent.
    pub spent: u64,
    /// Permits that ever came back unspent.
    pub returned: u64,
    /// Permits ever presumed spent, because their lease ended without a report.
    pub burned: u64,
    /// Burned permits that a late report then moved to `spent` or `returned`.
    pub reported_late: u64,
    /// Permits that nodes ever let pass in shadow mode and would otherwise have refused.
    pub shadow_refused: u64,
    /// Permits that are not lent because of the vendor's own count.
    pub withheld: u128,
    /// Pools that lend nothing because their vendor asked for a pause.
    pub vendor_pauses: u64,
    /// Disagreements with the vendor's own count.
    pub disagreed: Disagreed,
    /// Asks, by their answer.
    pub answered: Answered,
}

/// How often the vendor's count differed from these books, as nodes reported, in the order of `KINDS`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disagreed([u64; 4]);

impl Disagreed {
    /// Stable words: calls that the vendor refused though there was a permit; times when it had less left than these
    /// books; times when it announced a lower limit than a rule, and a higher one. Nothing follows from the last.
    const KINDS: [&str; 4] = ["refused", "had_less", "lower_limit", "higher_limit"];

    /// Counts the effect of one observation.
    pub(super) fn count(&mut self, effect: ObservationEffect) {
        let [refused, had_less, lower, higher] = &mut self.0;
        // A node may report any total.
        *refused = refused.saturating_add(effect.refused).min(PERMITS_MAX);
        *had_less += u64::from(effect.had_less);
        *lower += u64::from(effect.lower);
        *higher += u64::from(effect.higher);
    }

    /// Returns each count with its stable word.
    pub fn by_kind(&self) -> [(&'static str, u64); 4] {
        std::array::from_fn(|kind| (Self::KINDS[kind], self.0[kind]))
    }
}

/// Asks, by their answer, in the order of `OUTCOMES`. Each ask is in one of the counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered([u64; 7]);

impl Sums {
    /// Counts a pool as it looks in `view`, and updates `counted` to that.
    fn count(&mut self, counted: &mut Counted, view: PoolView) {
        let (old, new) = (counted.books, view.books);
        let (was, is) = (counted.rare(), RareCounts::of(&view));
        self.available = self.available - u128::from(counted.available) + u128::from(view.available);
        self.outstanding = self.outstanding - old.outstanding + new.outstanding;
        self.in_flight = self.in_flight - was.in_flight + is.in_flight;
        self.sessions = self.sessions - counted.sessions + view.sessions;
        self.granted += new.granted - old.granted;
        self.spent += new.spent - old.spent;
        self.returned += new.returned - old.returned;
        self.burned += new.burned.saturating_sub(old.burned);
        // A node may report any number, in each of many pools.
        let refused = is.shadow_refused - was.shadow_refused;
        self.shadow_refused = self.shadow_refused.saturating_add(refused).min(PERMITS_MAX);
        self.reported_late += old.burned.saturating_sub(new.burned);
        self.withheld = self.withheld - u128::from(was.withheld) + u128::from(is.withheld);
        self.vendor_pauses = self.vendor_pauses - was.vendor_pauses + is.vendor_pauses;
        counted.become_as(&view);
    }

    /// Takes out a pool that is gone. What it ever did stays counted.
    fn drop(&mut self, counted: Counted) {
        let was = counted.rare();
        self.available -= u128::from(counted.available);
        self.outstanding -= counted.books.outstanding;
        self.in_flight -= was.in_flight;
        self.sessions -= counted.sessions;
        self.withheld -= u128::from(was.withheld);
        self.vendor_pauses -= was.vendor_pauses;
    }

    /// Adds the sums of another limit.
    fn add(&mut self, other: &Sums) {
        self.available = self.available.saturating_add(other.available);
        self.withheld = self.withheld.saturating_add(other.withheld);
        for (sum, more) in self.counts().zip({ *other }.counts()) {
            *sum = sum.saturating_add(*more);
        }
    }

    /// Returns all counts except `available` and `withheld`.
    fn counts(&mut self) -> impl Iterator<Item = &mut u64> {
        let counts = [
            &mut self.outstanding,
            &mut self.in_flight,
            &mut self.sessions,
            &mut self.granted,
            &mut self.spent,
            &mut self.returned,
            &mut self.burned,
            &mut self.reported_late,
            &mut self.shadow_refused,
            &mut self.vendor_pauses,
        ];
        counts.into_iter().chain(&mut self.disagreed.0).chain(&mut self.answered.0)
    }

    /// Whether every permit that was ever granted is accounted for.
    pub fn balance(&self) -> bool {
        self.granted + self.reported_late == self.spent + self.returned + self.burned + self.outstanding
    }
}

impl Answered {
    /// Stable words: asks that were lent permits, perhaps fewer than wanted; asks that wanted permits and were lent
    /// none; asks that wanted nothing, which are reports; asks refused in quarantine, because the allocator is stopping,
    /// because the limit is paused, and because the node is blocked.
    const OUTCOMES: [&str; 7] =
        ["granted", "empty", "settled", "quarantine", "stopping", "paused", "blocked"];

    pub(super) fn count(&mut self, ask: &Ask, answer: &Answer) {
        let [granted, empty, settled, quarantine, stopping, paused, blocked] = &mut self.0;
        let counter = match answer {
            Answer::Grant(grant) if grant.permits > 0 => granted,
            Answer::Grant(_) if ask.want > 0 => empty,
            Answer::Grant(_) => settled,
            Answer::Refusal(refusal) => match refusal.reason {
                RefusalReason::Quarantine => quarantine,
                RefusalReason::Paused => paused,
                RefusalReason::Blocked => blocked,
                // Pools refuse for the reasons above only.
                RefusalReason::Stopping | RefusalReason::Other => stopping,
            },
        };
        *counter += 1;
    }

    /// Returns each count with its stable word.
    pub fn by_outcome(&self) -> [(&'static str, u64); 7] {
        std::array::from_fn(|outcome| (Self::OUTCOMES[outcome], self.0[outcome]))
    }
}
