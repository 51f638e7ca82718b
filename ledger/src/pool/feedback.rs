//! What a pool makes of its vendor's own count, as nodes hear it: it pauses, or lends less, for a while. Pools call it with
//! each observation and before they lend. It never lends more: no promise depends on it.
//!
//! Each word is believed for a bounded time, and what follows from it ends by itself. A pause is followed by as much time without
//! one, whichever node says what. A part of the limit is always left.

use super::rare::{Rare, Usual};
use super::{Above, Place, Pool, SessionId};
use crate::Rule;
use crate::packed::Carrier;
use crate::rule::{At, Since};
use crate::share::{Believe, Trust};
use lessor_protocol::moment::nanos;
use lessor_protocol::{Announced, Left, Moment, Observed, Refusal, RefusalReason};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long to pause where a vendor refuses and does not say for how long: vendors count in whole seconds.
const DEFAULT_WAIT: Duration = Duration::from_secs(1);

/// The vendor's count and ours differ by what was on its way, in percent of the limit: less is no disagreement.
const SLACK_PERCENT: u64 = 1;

/// Nodes are told at most this often that they hold what the vendor has not: each node that hears of it asks.
const TELL_EVERY: Duration = Duration::from_millis(200);

/// What came of an observation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObservationEffect {
    /// Calls that the vendor refused, and that were not reported before.
    pub refused: u64,
    /// Whether it had less left than these books say.
    pub had_less: bool,
    /// Whether it announced less than a rule allows.
    pub lower: bool,
    /// Whether it announced more than a rule allows.
    pub higher: bool,
    /// Whether nodes are not to spend any more, from now on.
    pub pauses: bool,
    /// Whether nodes hold what the vendor has not, since now.
    pub is_over: bool,
}

/// What is not lent, until when: then it comes back within [`Trust::ease`].
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
    /// What was lent since it eases in.
    eased: u64,
}

/// What it heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Heard {
    /// Nothing is lent before this.
    paused_until: Moment,
    /// How long of the time before that it was paused, less what was made good since.
    paused_for: Duration,
    /// Since when it eases in.
    eases_from: Moment,
    /// What the vendor has less than these books.
    missing: Trim,
    /// By how much the vendor announces less than a rule allows.
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

/// What is written down of it: until when it was paused and for how long in all, since when it eases in and what was lent
/// since, and each trim with its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SavedFeedback {
    paused: (At, Duration),
    eases: (At, u64),
    missing: (u64, At),
    lowered: (u64, At),
}

impl Feedback {
    /// Carries what it is.
    pub(super) fn carry(&mut self, carrier: &mut Carrier<'_>) {
        carrier.rare(&mut self.heard, Heard::carry);
        carrier.number(&mut self.eased);
    }

    /// What is written down of it.
    pub(super) fn save(&self) -> SavedFeedback {
        SavedFeedback {
            paused: (self.heard.paused_until.into(), self.heard.paused_for),
            eases: (self.heard.eases_from.into(), self.eased),
            missing: (self.heard.missing.permits, self.heard.missing.until.into()),
            lowered: (self.heard.lowered.permits, self.heard.lowered.until.into()),
        }
    }

    /// Goes on with what was `saved`.
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
        self.eased = saved.eases.1;
        if heard != *self.heard {
            self.heard = heard.into();
        }
    }

    /// Lends nothing for `wait`, as far as there may be pauses. Whether it lent before.
    fn pause(&mut self, now: Moment, wait: Duration, longest: Duration) -> bool {
        let was_paused = now < self.heard.paused_until;
        let rested = now.since(self.heard.paused_until);
        let paused_for = self.heard.paused_for.saturating_sub(rested);
        let from = self.heard.paused_until.max(now);
        let wanted = (now + wait).since(from);
        let longer = wanted.min(longest.saturating_sub(paused_for));
        if longer.is_zero() {
            if !was_paused {
                // It has been closed for as long as it may be: slowly, then, and without the first permit at once.
                (self.heard.eases_from, self.eased) = (now, 1);
            }
            return false;
        }
        self.heard.paused_for = paused_for + longer;
        self.heard.paused_until = from + longer;
        (self.heard.eases_from, self.eased) = (self.heard.paused_until, 0);
        !was_paused
    }

    /// The most that may be lent now of `ceiling`, while it eases in: the rate grows evenly, and one permit goes at once.
    fn most(&self, now: Moment, ceiling: impl FnOnce() -> u64, ease: Duration) -> u64 {
        if now < self.heard.paused_until {
            return 0;
        }
        let over = now.since(self.heard.eases_from);
        if over >= ease || self.heard.eases_from == Moment::ORIGIN {
            return u64::MAX;
        }
        // In thousandths first: a square of nanoseconds times a limit is more than fits.
        let part = u128::from(nanos(over)) * 1_000 / u128::from(nanos(ease));
        let allowed = u128::from(ceiling()) * part * part / 1_000_000;
        u64::try_from(allowed).unwrap_or(u64::MAX).saturating_add(1).saturating_sub(self.eased)
    }

    fn withheld(&self, now: Moment, ease: Duration) -> u64 {
        // Both say the same of a contract that was lowered: it is not taken off twice.
        self.heard.missing.at(now, ease).max(self.heard.lowered.at(now, ease))
    }

    /// Permits were lent.
    pub(super) fn lent(&mut self, permits: u64) {
        self.eased = self.eased.saturating_add(permits);
    }

    /// Whether nothing follows from it any more.
    fn is_over(&self, now: Moment, trust: Trust) -> bool {
        let ends = self.heard.paused_until + self.heard.paused_for.max(trust.ease);
        now >= ends.max(self.heard.eases_from + trust.ease) && self.withheld(now, trust.ease) == 0
    }
}

impl Pool {
    /// Takes in what the vendor told the session `id`. What it said before, or is not known here, changes nothing.
    pub fn observe(&mut self, now: Moment, id: SessionId, observed: &Observed) -> ObservationEffect {
        self.advance(now);
        let now = self.now;
        let place = Place::own(id);
        if self.sessions.get(place).is_none_or(|session| observed.number <= session.said.observed) {
            return ObservationEffect::default();
        }
        let refused = self.sessions.update(place, |session| {
            let refused = match session.said.observed {
                // A session that was forgotten says its whole total again.
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

    /// Compares what the vendor has `left` with what these books say could still be spent: what is left here, and what
    /// nodes are likely to hold unspent. The newest word counts.
    fn count_of_vendor(&mut self, left: Left, trust: Trust) -> bool {
        if self.ledgers.are_reusable() || self.flow.is_some() {
            // Such a limit counts no calls, or has none left at any time.
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

    /// Compares what the vendor says that the contract is with the rules: whether it is lower, and higher.
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
        // What is not said any more ends by itself: another node may see another contract.
        if lower && trust.believe == Believe::Trim {
            self.feedback.heard.lowered = lowered;
        }
        (lower, higher)
    }

    /// Permits that are not lent because of what the vendor says. A part of the limit is always left.
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

    /// The most that may be lent now, as long as it eases in after a pause.
    pub(super) fn eased(&self) -> u64 {
        self.feedback.most(self.now, || self.ceiling(), self.plan.sharing.vendor.ease)
    }

    /// Whether nodes hold more than the vendor has left.
    pub(super) fn is_over(&self) -> bool {
        self.withheld() > self.ledgers.available()
    }

    /// Until when it withholds what it does now.
    pub(super) fn withheld_until(&self) -> Moment {
        self.feedback.heard.missing.until.max(self.feedback.heard.lowered.until)
    }

    /// How long nothing is lent because the vendor asked for it.
    pub(super) fn vendor_pause(&self) -> Duration {
        self.feedback.heard.paused_until.since(self.now)
    }

    /// What is answered while the vendor of this pool, or of one `above`, asks to be left alone.
    pub(super) fn refused_by_vendor(&self, above: &[Above<'_>]) -> Option<Refusal> {
        let above = above.iter().map(|above| above.pool.vendor_pause());
        let wait = above.fold(self.vendor_pause(), Duration::max);
        (!wait.is_zero()).then_some(Refusal { reason: RefusalReason::Paused, retry_after: wait })
    }

    /// Whether nothing of what the vendor said matters any more.
    pub(super) fn vendor_is_content(&self) -> bool {
        self.feedback.is_over(self.now, self.plan.sharing.vendor)
    }
}

/// The limit and the length of `rule`, if what is kept back of it is missing in every window.
fn window(rule: &Rule) -> Option<(u64, Duration)> {
    match rule {
        Rule::SlidingWindow(rule) => Some((rule.limit(), rule.per())),
        Rule::SlidingLog(rule) => Some((rule.limit(), rule.per())),
        Rule::FixedWindow(rule) => Some((rule.limit(), rule.per())),
        // Of a bucket only the level would be lower, and not the rate.
        Rule::TokenBucket(_) | Rule::LeakyBucket(_) | Rule::Concurrency(_) => None,
    }
}

#[cfg(test)]
mod tests;
