//! What the oracle remembers of one session: what it was lent, spent and said, and which answers it may get.

use super::{Instant, Oracle, Verdict, Violation, must};
use lessor_ledger::rejection::Reason;
use lessor_protocol::lease::whole_millis;
use lessor_protocol::moment::nanos;
use lessor_protocol::{Ask, Grant, Moment};
use std::time::Duration;

/// A session, as an observer that forgets nothing knows it.
#[derive(Clone, Debug, Default)]
pub(super) struct Session {
    pub(super) node: usize,
    /// Whether the session counts from zero again and its books have not heard of that.
    pub(super) has_forgotten: bool,
    /// Whether the session may claim at any time to have forgotten, true or not.
    pub(super) lies: bool,
    /// Whether its process is gone, or began another session.
    pub(super) is_over: bool,
    /// The books that last answered the session, and their answer: to which ask, with what, and when.
    life: u64,
    seq: u64,
    grant: Option<Grant>,
    answered: Moment,
    /// Permits that those books were told are spent.
    pub(super) reported: u64,
    /// Whether the session said or wanted anything in an ask that those books answered.
    has_said: bool,
    /// The newest of its asks that any books ever answered.
    newest: u64,
    /// Whether those books know the session from an old copy of an ask, so that the truth may seem a lie to them.
    is_mistaken: bool,
    /// Permits that the session was ever lent, and that it admitted.
    pub(super) lent: u64,
    pub(super) spent: u64,
    /// The number of its last report about the vendor, and the refusals in it.
    pub(super) heard: u64,
    pub(super) refused_total: u64,
    /// The highest number of its reports about the vendor, and the most refusals in any.
    pub(super) told: u64,
    pub(super) refusals_told: u64,
    /// Permits reserved beyond what its calls cost that did not come back.
    pub(super) unneeded: u64,
    /// When the allocator takes back all that the session holds, on the allocator's clock.
    pub(super) end: Moment,
}

/// What an answer is judged by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measure {
    /// Counts the books, from 1; each loss begins new ones.
    pub(super) life: u64,
    /// The least time for which a silent session is remembered.
    pub(super) remembered: Duration,
    pub(super) drift_ppm: u128,
    /// Whether the books answer a session that has said nothing without remembering it.
    pub(super) in_passing: bool,
}

impl Oracle {
    /// Sets that the books make a pool at its first ask. A session that wants nothing may be answered before that, and
    /// is not remembered.
    pub(crate) fn in_passing(mut self) -> Self {
        self.measure.in_passing = true;
        self
    }
}

impl Session {
    pub(super) fn new(node: usize) -> Self {
        Session { node, ..Session::default() }
    }

    /// Returns a session that spends what this one was lent, and of which no books know.
    pub(super) fn moves_on(&self) -> Self {
        let Session { node, lent, spent, unneeded, end, lies, .. } = *self;
        Session { lent, spent, unneeded, end, lies, ..Session::new(node) }
    }

    /// Lets a session that may be forgotten repeat all that it heard of the vendor. What still holds of it is new to
    /// the books.
    pub(super) fn may_say_again(&mut self, now: Instant, by: Measure) {
        if self.may_be_forgotten(now, by) {
            (self.heard, self.refused_total) = (0, 0);
        }
    }

    /// Whether the books know the session.
    pub(super) fn is_known(&self, now: Instant, by: Measure) -> bool {
        !self.may_be_forgotten(now, by)
    }

    /// Whether the books know the session for sure: they remembered it when they answered.
    pub(super) fn is_remembered(&self, now: Instant, by: Measure) -> bool {
        self.is_known(now, by) && (self.has_said || !by.in_passing)
    }

    /// Whether the books may not know the session: they are not the ones that answered it, or it was silent for long.
    fn may_be_forgotten(&self, now: Instant, by: Measure) -> bool {
        self.life != by.life || now.allocator.since(self.answered) >= by.remembered
    }

    /// S7, S8: permits are spent by the session's own living process, before their end, and no more of them than were
    /// lent.
    pub(super) fn spends(&mut self, now: Instant, node: usize, permits: u64) -> Verdict {
        self.spent += permits;
        must("S8", self.node == node && !self.is_over, || {
            format!("node {node} spent in a session of node {}; session over: {}", self.node, self.is_over)
        })?;
        must("S8", self.spent <= self.lent, || {
            format!("a session of node {node} spent {} and was lent {}", self.spent, self.lent)
        })?;
        must("S7", now.allocator < self.end, || {
            format!("node {node} spent at {:?}, its lease ended at {:?}", now.allocator, self.end)
        })
    }

    /// P1: whether `grant` is the earlier answer to `seq`, with the rest of its term.
    pub(super) fn is_replay(&self, now: Instant, seq: u64, grant: &Grant, by: Measure) -> bool {
        let Some(before) = self.grant.filter(|_| seq == self.seq && self.life == by.life) else {
            return false;
        };
        let left = before.term.saturating_sub(now.allocator.since(self.answered));
        *grant == Grant { term: whole_millis(left), ..before }
    }

    /// P1, P2, K2: the session was lent something anew for `ask`. Returns the permits that the books now count as
    /// spent.
    pub(super) fn is_lent(
        &mut self,
        now: Instant,
        seq: u64,
        ask: &Ask,
        is_awaited: bool,
        grant: &Grant,
        by: Measure,
    ) -> Result<u64, Violation> {
        // Only an unknown session may begin anew, or one that has forgotten; an old copy of its first ask may do so in
        // its name. After one old copy was believed, a later one may be, of an ask sent after the session had
        // forgotten.
        if self.life != by.life || seq <= self.seq || ask.spent_total < self.reported {
            let comes_back = (self.has_forgotten || self.lies) && seq > self.newest;
            let is_later_copy = self.is_mistaken && self.life == by.life && seq > self.seq;
            let may = self.may_be_forgotten(now, by)
                || comes_back
                || is_later_copy
                || (by.in_passing && !self.has_said);
            must("P1", may && ask.spent_total == 0 && ask.held == 0, || {
                format!("{grant:?} for ask {seq}, {ask:?}, after {self:?}")
            })?;
            self.reported = 0;
            self.has_forgotten &= !comes_back;
        }
        // After an old copy was believed, the next may be, until the ask is heard whose answer the session awaits.
        self.is_mistaken = seq <= self.newest || (self.is_mistaken && !is_awaited);
        self.newest = self.newest.max(seq);
        self.has_said = !ask.is_empty() || (self.has_said && self.life == by.life);
        let spent = ask.spent_total - self.reported;
        (self.life, self.seq, self.grant, self.answered) = (by.life, seq, Some(*grant), now.allocator);
        self.reported = ask.spent_total;
        self.lent += grant.permits;
        if !grant.term.is_zero() {
            let term = u128::from(nanos(grant.term)) * (1_000_000 + by.drift_ppm);
            let term = term.div_ceil(1_000_000 - by.drift_ppm) + 1_000_000;
            self.end = self.end.max(Moment::from_nanos(now.allocator.as_nanos() + term as u64));
        }
        Ok(spent)
    }

    /// Records that `ask` was refused. Books that lend nothing just now may know the session from then on.
    pub(super) fn is_refused(&mut self, seq: u64, ask: &Ask) {
        self.is_mistaken |= seq <= self.newest && (ask.spent_total, ask.held) == (0, 0);
    }

    /// Records a goodbye that the books counted.
    pub(super) fn left(&mut self, seq: u64, spent_total: u64) {
        (self.seq, self.reported, self.grant) = (seq, spent_total, None);
        self.newest = self.newest.max(seq);
    }

    /// K2: an honest session is believed, unless the books forgot it or heard an old ask of it late.
    pub(super) fn is_disputed(&self, now: Instant, error: Reason, by: Measure) -> Verdict {
        let excused = match error {
            Reason::LeaseUnknown => self.may_be_forgotten(now, by),
            // Permits lent for an old ask are out, although the session has forgotten.
            Reason::TotalsWrong => self.is_mistaken || (self.has_forgotten && now.allocator < self.end),
            // Room for sessions is limited. Whether one gets room in the end is not judged here.
            Reason::LesseesFull => true,
            // The world knows whether an operator removed it.
            Reason::LimitUnknown => true,
            // An honest session waits for the answer to its newest ask only, and asks for limits that exist.
            Reason::StaleSequence
            | Reason::Invalid
            | Reason::KeyMismatch
            | Reason::KeysFull
            | Reason::NamesFull
            | Reason::SessionOfAnother
            | Reason::Forbidden
            | Reason::Duplicate => false,
        };
        must("K2", excused, || format!("an honest session was not believed: {error:?}; {self:?}"))
    }
}
