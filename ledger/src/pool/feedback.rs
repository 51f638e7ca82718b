//! How a pool uses its vendor's own count, as nodes observe it: it pauses, or lends less, for a while. Pools call this
//! with each observation and before they lend. It never makes them lend more, so no promise depends on it.
//!
//! Each observation is believed for a bounded time, and its effect ends by itself. A pause is followed by as much time
//! without one, whatever nodes report. A part of the limit is always left.

use super::family::Place;
use super::rare::{Rare, Usual};
use super::{Above, Pool, SessionId};
use crate::Rule;
use crate::packed::Carrier;
use crate::rule::{At, Since};
use crate::share::{Believe, Trust};
use lessor_protocol::moment::nanos;
use lessor_protocol::{Announced, Left, Moment, Observed, Refusal, RefusalReason};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Pause after a refusal that states no wait: vendors count in whole seconds.
const DEFAULT_WAIT: Duration = Duration::from_secs(1);

/// Difference between the vendor's count and ours that is no disagreement, in percent of the limit: calls may be on their way.
const SLACK_PERCENT: u64 = 1;

/// Shortest time between two notices that nodes hold more than the vendor has left: each node that gets one asks.
const TELL_EVERY: Duration = Duration::from_millis(200);

/// Effect of an observation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObservationEffect {
    /// Calls that the vendor refused, and that were not reported before.
    pub refused: u64,
    /// Whether the vendor had less left than these books say.
    pub had_less: bool,
    /// Whether the vendor announced less than a rule allows.
    pub lower: bool,
    /// Whether the vendor announced more than a rule allows.
    pub higher: bool,
    /// Whether a pause begins now, in which nodes must not spend.
    pub pauses: bool,
    /// Whether nodes are to be told now that they hold more than the vendor has left.
    pub is_over: bool,
}

/// Permits that are not lent until a moment, after which they come back within [`Trust::ease`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Trim {
    permits: u64,
    until: Moment,
}

impl Trim {
    fn at(self, now: Moment, ease: Duration) -> u64 {
        if self.permits == 0 || now < self.until {
            return self.permits;
        }
        let (over, ease) = (nanos(now.since(self.until)), nanos(ease));
        let left = u128::from(self.permits) * u128::from(ease.saturating_sub(over));
        u64::try_from(left.div_ceil(u128::from(ease.max(1)))).unwrap_or(u64::MAX)
    }
}

/// What a pool knows of its vendor.
#[derive(Clone, Debug, Default)]
pub(super) struct Feedback {
    heard: Rare<Heard>,
    /// Permits lent since the pool began to ease in; zero if no node has observed anything.
    lent_since_ease: u64,
}

/// What nodes have observed of the vendor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Heard {
    /// Nothing is lent before this.
    paused_until: Moment,
    /// Total of the pauses up to `paused_until`, less the time without a pause between them.
    paused_for: Duration,
    /// When the pool begins to ease in.
    eases_from: Moment,
    /// Permits that the vendor has less than these books.
    missing: Trim,
    /// Permits that the vendor announces less than a rule allows.
    lowered: Trim,
    /// When nodes were last told that they hold too much.
    notified_at: Moment,
}

impl Usual for Heard {
    const USUAL: &'static Self = &Heard {
        paused_until: Moment::ORIGIN,
        paused_for: Duration::ZERO,
        eases_from: Moment::ORIGIN,
        missing: Trim { permits: 0, until: Moment::ORIGIN },
        lowered: Trim { permits: 0, until: Moment::ORIGIN },
        notified_at: Moment::ORIGIN,
    };
}

impl Heard {
    fn carry(&mut self, carrier: &mut Carrier<'_>) {
        carrier.moment(&mut self.paused_until);
        carrier.span(&mut self.paused_for);
        carrier.moment(&mut self.eases_from);
        for trim in [&mut self.missing, &mut self.lowered] {
            carrier.number(&mut trim.permits);
            carrier.moment(&mut trim.until);
        }
        carrier.moment(&mut self.notified_at);
    }
}

/// A [`Feedback`] as it is written down: until when it pauses and for how long in all, since when it eases in and what
/// was lent since, and each trim with its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SavedFeedback {
    paused: (At, Duration),
    eases: (At, u64),
    missing: (u64, At),
    lowered: (u64, At),
}

impl Feedback {
    /// Carries every field.
    pub(super) fn carry(&mut self, carrier: &mut Carrier<'_>) {
        carrier.rare(&mut self.heard, Heard::carry);
        carrier.number(&mut self.lent_since_ease);
    }

    /// Returns the feedback as it is written down.
    pub(super) fn save(&self) -> SavedFeedback {
        SavedFeedback {
            paused: (self.heard.paused_until.into(), self.heard.paused_for),
            eases: (self.heard.eases_from.into(), self.lent_since_ease),
            missing: (self.heard.missing.permits, self.heard.missing.until.into()),
            lowered: (self.heard.lowered.permits, self.heard.lowered.until.into()),
        }
    }

    /// Restores `saved` feedback.
    pub(super) fn restore(&mut self, saved: &SavedFeedback, since: Since) {
        let trim = |(permits, until)| Trim { permits, until: since.moment(until) };
        let heard = Heard {
            paused_until: since.moment(saved.paused.0),
            paused_for: saved.paused.1,
            eases_from: since.moment(saved.eases.0),
            missing: trim(saved.missing),
            lowered: trim(saved.lowered),
            ..*self.heard
        };
        self.lent_since_ease = saved.eases.1;
        if heard != *self.heard {
            self.heard = heard.into();
        }
    }

    /// Pauses lending for `wait`, as far as pauses of `longest` in all allow. Returns whether a pause begins.
    fn pause(&mut self, now: Moment, wait: Duration, longest: Duration) -> bool {
        let was_paused = now < self.heard.paused_until;
        let rested = now.since(self.heard.paused_until);
        let paused_for = self.heard.paused_for.saturating_sub(rested);
        let from = self.heard.paused_until.max(now);
        let wanted = (now + wait).since(from);
        let longer = wanted.min(longest.saturating_sub(paused_for));
        if longer.is_zero() {
            if !was_paused {
                // The limit has been closed for as long as it may be. Lending eases in instead, without one permit at once.
                (self.heard.eases_from, self.lent_since_ease) = (now, 1);
            }
            return false;
        }
        self.heard.paused_for = paused_for + longer;
        self.heard.paused_until = from + longer;
        (self.heard.eases_from, self.lent_since_ease) = (self.heard.paused_until, 0);
        !was_paused
    }

    /// Returns the most permits of `ceiling` that may be lent now while the pool eases in. The rate grows evenly, and
    /// one permit may go at once.
    fn most(&self, now: Moment, ceiling: impl FnOnce() -> u64, ease: Duration) -> u64 {
        // Most pools have heard nothing, and every ask comes here several times.
        if self.heard.is_usual() {
            return u64::MAX;
        }
        if now < self.heard.paused_until {
            return 0;
        }
        let over = now.since(self.heard.eases_from);
        if over >= ease || self.heard.eases_from == Moment::ORIGIN {
            return u64::MAX;
        }
        // In thousandths: a square of nanoseconds times a limit would overflow.
        let part = u128::from(nanos(over)) * 1_000 / u128::from(nanos(ease));
        let allowed = u128::from(ceiling()) * part * part / 1_000_000;
        u64::try_from(allowed).unwrap_or(u64::MAX).saturating_add(1).saturating_sub(self.lent_since_ease)
    }

    fn withheld(&self, now: Moment, ease: Duration) -> u64 {
        if self.heard.is_usual() {
            return 0;
        }
        // Both trims reflect a lowered contract, which must not be taken off twice.
        self.heard.missing.at(now, ease).max(self.heard.lowered.at(now, ease))
    }

    /// Notes that `permits` were lent.
    pub(super) fn lent(&mut self, permits: u64) {
        if !self.heard.is_usual() {
            self.lent_since_ease = self.lent_since_ease.saturating_add(permits);
        }
    }

    /// Whether the feedback has no effect any more.
    fn is_over(&self, now: Moment, trust: Trust) -> bool {
        let ends = self.heard.paused_until + self.heard.paused_for.max(trust.ease);
        now >= ends.max(self.heard.eases_from + trust.ease) && self.withheld(now, trust.ease) == 0
    }
}

impl Pool {
    /// Applies what the vendor told the session `id`. An observation that was reported before, or of an unknown
    /// session, changes nothing.
    pub fn observe(&mut self, now: Moment, id: SessionId, observed: &Observed) -> ObservationEffect {
        self.advance(now);
        let now = self.now;
        let place = Place::own(id);
        if self.sessions.get(place).is_none_or(|session| observed.number <= session.said.observed) {
            return ObservationEffect::default();
        }
        let refused = self.sessions.update(place, |session| {
            let refused = match session.said.observed {
                // A session that was forgotten reports its whole total again.
                0 => observed.refused_total.min(u64::from(observed.wait.is_some())),
                _ => observed.refused_total.saturating_sub(session.said.refused),
            };
            session.said.observed = observed.number;
            session.said.refused = session.said.refused.max(observed.refused_total);
            refused
        });
        let trust = self.plan.sharing.vendor;
        let mut effect = ObservationEffect { refused, ..ObservationEffect::default() };
        if let Some(wait) = observed.wait.filter(|_| refused > 0 && trust.believe >= Believe::Pause) {
            let wait = if wait.is_zero() { DEFAULT_WAIT } else { wait };
            effect.pauses = self.feedback.pause(now, wait, trust.longest);
        }
        let was_over = self.is_over();
        effect.had_less = observed.left.is_some_and(|left| self.count_of_vendor(left, trust));
        (effect.lower, effect.higher) = self.contract_of_vendor(&observed.announced, trust);
        if self.is_over() && !was_over && now.since(self.feedback.heard.notified_at) >= TELL_EVERY {
            (effect.is_over, self.feedback.heard.notified_at) = (true, now);
        }
        effect
    }

    /// Compares what the vendor has `left` with what these books say could still be spent: permits left here, and permits
    /// that nodes are likely to hold unspent. The newest count replaces the one before. Returns whether the vendor has less.
    fn count_of_vendor(&mut self, left: Left, trust: Trust) -> bool {
        if self.ledgers.are_reusable() || self.flow.is_some() {
            // A cap counts calls in flight only, and a steady flow never has any left.
            return false;
        }
        let ours = self.ledgers.available().saturating_add(self.unspent());
        let slack = self.ceiling() * SLACK_PERCENT / 100;
        let missing = ours.saturating_sub(left.permits);
        let is_less = missing > slack.max(1);
        if trust.believe == Believe::Trim {
            let lasts = left.lasts.unwrap_or(trust.longest).min(trust.longest);
            let until = self.now + lasts;
            self.feedback.heard.missing = match is_less {
                true => Trim { permits: missing, until },
                false => Trim::default(),
            };
        }
        is_less
    }

    /// Compares the contract that the vendor announces with the rules. Returns whether it is lower, and whether it is higher.
    fn contract_of_vendor(&mut self, announced: &[Option<Announced>], trust: Trust) -> (bool, bool) {
        let (mut lower, mut higher) = (false, false);
        let mut lowered = Trim::default();
        let is_only = self.plan.rules.len() == 1;
        for rule in &self.plan.rules {
            let Some((limit, per)) = window(rule) else { continue };
            let is_of_rule = |it: &&Announced| it.per.map_or(is_only, |said| said == per);
            for said in announced.iter().flatten().filter(is_of_rule) {
                lower |= said.limit < limit;
                higher |= said.limit > limit;
                let permits = limit.saturating_sub(said.limit);
                if permits > lowered.permits {
                    lowered = Trim { permits, until: self.now + said.per.unwrap_or(per).min(trust.longest) };
                }
            }
        }
        // A contract that is no longer announced ends by itself: another node may see another one.
        if lower && trust.believe == Believe::Trim {
            self.feedback.heard.lowered = lowered;
        }
        (lower, higher)
    }

    /// Returns the permits that are not lent because of what the vendor says. A part of the limit is always left.
    pub(super) fn withheld(&self) -> u64 {
        let trust = self.plan.sharing.vendor;
        let withheld = self.feedback.withheld(self.now, trust.ease);
        if withheld == 0 {
            return 0;
        }
        let ceiling = self.ceiling();
        let keep = (u128::from(ceiling) * u128::from(trust.keep_percent)).div_ceil(100);
        withheld.min(ceiling.saturating_sub(u64::try_from(keep).unwrap_or(u64::MAX)))
    }

    /// Returns the most permits that may be lent now while the pool eases in after a pause.
    pub(super) fn ease_in_max(&self) -> u64 {
        self.feedback.most(self.now, || self.ceiling(), self.plan.sharing.vendor.ease)
    }

    /// Whether nodes hold more than the vendor has left.
    pub(super) fn is_over(&self) -> bool {
        let withheld = self.withheld();
        withheld > 0 && withheld > self.ledgers.available()
    }

    /// Returns until when the pool withholds as much as now.
    pub(super) fn withheld_until(&self) -> Moment {
        self.feedback.heard.missing.until.max(self.feedback.heard.lowered.until)
    }

    /// Returns how long nothing is lent because the vendor asked for it.
    pub(super) fn vendor_pause(&self) -> Duration {
        self.feedback.heard.paused_until.since(self.now)
    }

    /// Returns the refusal while the vendor of this pool, or of one `above`, asks to be left alone.
    pub(super) fn refused_by_vendor(&self, above: &[Above<'_>]) -> Option<Refusal> {
        let above = above.iter().map(|above| above.pool.vendor_pause());
        let wait = above.fold(self.vendor_pause(), Duration::max);
        (!wait.is_zero()).then_some(Refusal { reason: RefusalReason::Paused, retry_after: wait })
    }

    /// Whether nothing that the vendor said matters any more.
    pub(super) fn vendor_is_content(&self) -> bool {
        self.feedback.is_over(self.now, self.plan.sharing.vendor)
    }
}

/// Returns the limit and window of `rule`, if permits kept back from it are missing in every window.
fn window(rule: &Rule) -> Option<(u64, Duration)> {
    match rule {
        Rule::SlidingWindow(rule) | Rule::SlidingLog(rule) => Some((rule.limit(), rule.per())),
        Rule::FixedWindow(rule) => Some((rule.limit(), rule.per())),
        // Permits kept back from a bucket would lower its level, not its rate.
        Rule::TokenBucket(_) | Rule::LeakyBucket(_) | Rule::Concurrency(_) => None,
    }
}

#[cfg(test)]
mod tests;
