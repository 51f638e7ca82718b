//! What a limit shows of itself: sums over its pools, kept up to date a pool at a time, so that looking at them
//! costs the same for one key and for a million. Counts never fall, also when pools are dropped.

use super::forecasts::{ForecastSum, Forecasts};
use crate::pool::{Books, Forecast, ObservationEffect, PoolView};
use crate::sizing::Scarcity;
use lessor_protocol::{Answer, Ask, Moment, PERMITS_MAX, RefusalReason};
use std::time::Duration;

/// One limit, summed over its pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// The most one call can ever take from one pool.
    pub ceiling: u64,
    /// Pools there are now.
    pub pools: u64,
    /// Names that have a pool now; none if the limit has just its own.
    pub names: u64,
    /// How long until the first pool lends.
    pub quarantine: Duration,
    /// Whether it is paused.
    pub paused: bool,
    /// For how long still, if that is known.
    pub pause_lasts: Option<Duration>,
    /// Nodes that are blocked.
    pub blocked: u64,
    /// Permits that it was ever topped up with.
    pub topped_up: u64,
    /// How its pools stand, and when the first will be empty.
    pub forecast: ForecastSum,
    /// Sums over all pools, dropped ones included.
    pub sums: Sums,
}

impl Figures {
    /// How many pools stand how, each with its stable word.
    pub fn by_standing(&self) -> [(&'static str, u64); 3] {
        let ForecastSum { drain, trickle, .. } = self.forecast;
        Scarcity::ALL.map(|standing| {
            let pools = match standing {
                Scarcity::Abundant => self.pools.saturating_sub(drain + trickle),
                Scarcity::Draining => drain,
                Scarcity::Scarce => trickle,
            };
            (standing.word(), pools)
        })
    }
}

impl Figures {
    /// This limit and `other` as if they were one.
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
            blocked: self.blocked + other.blocked,
            topped_up: self.topped_up.saturating_add(other.topped_up),
            ..self
        }
    }
}

/// What a pool adds to the sums. It is kept beside each pool, so it is no more than they take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(super) available: u64,
    pub(super) books: Books,
    sessions: u64,
    forecast: Forecast,
    /// `None` if it is all zero.
    rare: Option<Box<RareCounts>>,
}

/// What few pools add.
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

    /// That of a pool that looks like `view`.
    pub(super) fn of(view: &PoolView) -> Self {
        let mut counted = Counted::default();
        counted.become_as(view);
        counted
    }

    /// The pool looks like `view` now. A box that is there stays for as long as it is needed: every exchange comes here.
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

/// What a limit knows of all its pools together.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) sums: Sums,
    forecasts: Forecasts,
}

impl Tally {
    /// The pool that was counted as `counted` looks like `view` now.
    pub(super) fn count(&mut self, counted: &mut Counted, view: PoolView) {
        self.forecasts.count(counted.forecast, view.forecast);
        self.sums.count(counted, view);
    }

    /// The pool that was counted as `counted` is gone. What it ever did stays counted.
    pub(super) fn drop(&mut self, counted: Counted) {
        self.forecasts.count(counted.forecast, Forecast::default());
        self.sums.drop(counted);
    }

    /// How they stand.
    pub(super) fn forecast(&self, now: Moment) -> ForecastSum {
        self.forecasts.forecast(now)
    }
}

/// Sums over the pools of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Permits that can be lent. Wide: a hundred thousand pools may each have 2^53.
    pub available: u128,
    /// Permits that are lent, and neither settled nor returned.
    pub outstanding: u64,
    /// Permits whose calls are in flight, said or presumed; only of limits that cap that.
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
    /// Of those, permits that a late report then moved to `spent` or `returned`.
    pub reported_late: u64,
    /// Permits that nodes ever let pass in shadow mode, where they would have refused.
    pub shadow_refused: u64,
    /// Permits that are not lent because of what the vendor says.
    pub withheld: u64,
    /// Pools that lend nothing because their vendor asked to be left alone.
    pub vendor_pauses: u64,
    /// How often the vendor counted otherwise.
    pub disagreed: Disagreed,
    /// What asks were answered.
    pub answered: Answered,
}

/// How often the vendor counted otherwise than these books, as nodes said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disagreed {
    /// It refused a call that there was a permit for.
    pub refused: u64,
    /// It had less left.
    pub had_less: u64,
    /// It announced less than a rule allows.
    pub lower: u64,
    /// It announced more than a rule allows. Nothing follows from that.
    pub higher: u64,
}

impl Disagreed {
    /// Something was heard.
    pub(super) fn count(&mut self, effect: ObservationEffect) {
        // A total that a node makes up may be anything.
        self.refused = self.refused.saturating_add(effect.refused).min(PERMITS_MAX);
        self.had_less += u64::from(effect.had_less);
        self.lower += u64::from(effect.lower);
        self.higher += u64::from(effect.higher);
    }

    /// Each with its stable word.
    pub fn by_kind(&self) -> [(&'static str, u64); 4] {
        [
            ("refused", self.refused),
            ("had_less", self.had_less),
            ("lower_limit", self.lower),
            ("higher_limit", self.higher),
        ]
    }
}

/// How many asks got which answer. Each is in one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// Some permits, perhaps fewer than wanted.
    pub granted: u64,
    /// None, though some were wanted.
    pub empty: u64,
    /// Nothing was wanted: a report.
    pub settled: u64,
    /// Refused in quarantine.
    pub quarantine: u64,
    /// Refused because the allocator is stopping.
    pub stopping: u64,
    /// Refused because the limit is paused.
    pub paused: u64,
    /// Refused because the node is blocked.
    pub blocked: u64,
}

impl Sums {
    /// The pool that was counted as `counted` looks like `view` now.
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
        // What a node makes up may be anything, in each of many pools.
        let refused = is.shadow_refused - was.shadow_refused;
        self.shadow_refused = self.shadow_refused.saturating_add(refused).min(PERMITS_MAX);
        self.reported_late += old.burned.saturating_sub(new.burned);
        self.withheld = self.withheld - was.withheld + is.withheld;
        self.vendor_pauses = self.vendor_pauses - was.vendor_pauses + is.vendor_pauses;
        counted.become_as(&view);
    }

    /// The pool that was counted as `counted` is gone. What it ever did stays counted.
    fn drop(&mut self, counted: Counted) {
        let was = counted.rare();
        self.available -= u128::from(counted.available);
        self.outstanding -= counted.books.outstanding;
        self.in_flight -= was.in_flight;
        self.sessions -= counted.sessions;
        self.withheld -= was.withheld;
        self.vendor_pauses -= was.vendor_pauses;
    }

    /// Those of another limit come to it.
    fn add(&mut self, other: &Sums) {
        self.available = self.available.saturating_add(other.available);
        for (sum, more) in self.counts().into_iter().zip({ *other }.counts()) {
            *sum = sum.saturating_add(*more);
        }
    }

    /// All counts but what is available.
    fn counts(&mut self) -> [&mut u64; 22] {
        let (Disagreed { refused, had_less, lower, higher }, answered) =
            (&mut self.disagreed, &mut self.answered);
        let Answered { granted, empty, settled, quarantine, stopping, paused, blocked } = answered;
        [
            &mut self.outstanding,
            &mut self.in_flight,
            &mut self.sessions,
            &mut self.granted,
            &mut self.spent,
            &mut self.returned,
            &mut self.burned,
            &mut self.reported_late,
            &mut self.shadow_refused,
            &mut self.withheld,
            &mut self.vendor_pauses,
            refused,
            had_less,
            lower,
            higher,
            granted,
            empty,
            settled,
            quarantine,
            stopping,
            paused,
            blocked,
        ]
    }

    /// Whether every permit that was ever granted is accounted for.
    pub fn balance(&self) -> bool {
        self.granted + self.reported_late == self.spent + self.returned + self.burned + self.outstanding
    }
}

impl Answered {
    pub(super) fn count(&mut self, ask: &Ask, answer: &Answer) {
        let counter = match answer {
            Answer::Grant(grant) if grant.permits > 0 => &mut self.granted,
            Answer::Grant(_) if ask.want > 0 => &mut self.empty,
            Answer::Grant(_) => &mut self.settled,
            Answer::Refusal(refusal) => match refusal.reason {
                RefusalReason::Quarantine => &mut self.quarantine,
                RefusalReason::Paused => &mut self.paused,
                RefusalReason::Blocked => &mut self.blocked,
                // No pool gives a reason that it does not know.
                RefusalReason::Stopping | RefusalReason::Other => &mut self.stopping,
            },
        };
        *counter += 1;
    }

    /// Each with its stable word.
    pub fn by_outcome(&self) -> [(&'static str, u64); 7] {
        [
            ("granted", self.granted),
            ("empty", self.empty),
            ("settled", self.settled),
            ("quarantine", self.quarantine),
            ("stopping", self.stopping),
            ("paused", self.paused),
            ("blocked", self.blocked),
        ]
    }
}
