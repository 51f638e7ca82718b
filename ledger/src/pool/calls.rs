//! What one session may have in flight, as far as its pool knows: what it last reported, and orphaned calls of leases that
//! ended without a report. Sessions keep one of these; it knows neither rules nor other sessions.

use super::orphaned_calls::OrphanedCalls;
use super::rare::Usual;
use super::session::Settlement;
use crate::packed::Carrier;
use crate::rule::{At, Since};
use lessor_protocol::{Ask, Moment, PERMITS_MAX};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Permits of one session that count as in flight.
#[derive(Clone, Debug, Default)]
pub(super) struct SessionCalls {
    /// Spent or in use without a lease, and in flight by its last report: for as long as it goes on to say so, and then as part of the lease that
    /// it was made under.
    running: u64,
    /// Of leases that ended without a word, or spent without a word of what has ended.
    orphaned: OrphanedCalls,
    /// Whether some orphaned calls were begun by a session that did not say what is in flight.
    unsaid: bool,
    /// Of all that it spent, on calls whose end it will never report.
    unguarded: u64,
    /// Held and in use by its last report. These are charged as held.
    pub(super) busy: u64,
}

/// What is written of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SavedCalls {
    running: u64,
    #[serde(rename = "lingering")]
    orphaned: Vec<(u64, At, At)>,
    unsaid: bool,
    unguarded: u64,
    busy: u64,
}

impl Usual for SessionCalls {
    const USUAL: &'static Self =
        &SessionCalls { running: 0, orphaned: OrphanedCalls::NONE, unsaid: false, unguarded: 0, busy: 0 };
}

impl SessionCalls {
    /// Carries them.
    pub(super) fn carry(&mut self, carrier: &mut Carrier<'_>) {
        carrier.number(&mut self.running);
        self.orphaned.carry(carrier);
        carrier.flag(&mut self.unsaid);
        carrier.number(&mut self.unguarded);
        carrier.number(&mut self.busy);
    }

    /// What is written of them; `None` if there is nothing to keep.
    pub(super) fn save(&self) -> Option<SavedCalls> {
        let saved = SavedCalls {
            running: self.running,
            orphaned: self.orphaned.save(),
            unsaid: self.unsaid,
            unguarded: self.unguarded,
            busy: self.busy,
        };
        let is_nothing = self.in_flight() == 0 && self.unguarded == 0;
        (!is_nothing).then_some(saved)
    }

    /// Reads what was written; `None` if nothing can have been so.
    pub(super) fn restore(saved: &SavedCalls, since: Since) -> Option<Self> {
        let SavedCalls { running, unsaid, unguarded, busy, .. } = *saved;
        let orphaned = OrphanedCalls::restore(&saved.orphaned, since)?;
        let is_sane =
            [running, unguarded, busy, orphaned.permits()].iter().all(|total| *total <= PERMITS_MAX);
        is_sane.then_some(SessionCalls { running, orphaned, unsaid, unguarded, busy })
    }

    /// The calls of a session that will never report: `running` as long as its lease lasts, and some that are orphaned.
    pub(super) fn silent(running: u64, orphaned: OrphanedCalls) -> Self {
        SessionCalls { running, orphaned, ..SessionCalls::default() }
    }

    /// Of leases that ended.
    pub(super) fn orphaned(&self) -> &OrphanedCalls {
        &self.orphaned
    }

    /// Permits that are charged beside those that are outstanding.
    pub(super) fn charged(&self) -> u64 {
        self.running + self.orphaned.permits()
    }

    /// Permits in flight, for people.
    pub(super) fn in_flight(&self) -> u64 {
        self.charged() + self.busy
    }

    /// Whether a lease is what they are charged under.
    pub(super) fn are_live(&self) -> bool {
        self.running > 0
    }

    /// Whether they say no more than those of a session that never said anything.
    pub(super) fn are_blank(&self) -> bool {
        self.charged() == 0 && self.unguarded == 0 && self.busy == 0
    }

    /// When the first orphaned calls expire, if there are any.
    pub(super) fn next_expiry(&self) -> Option<Moment> {
        self.orphaned.next_expiry()
    }

    /// The lease ended at `end` without a report, and with it the right to spend `burned` permits: all of that, and what
    /// was running, may be in flight for the `longest` time that a call takes.
    pub(super) fn end(&mut self, burned: u64, end: Moment, longest: Duration) {
        self.orphaned.add(burned + self.running, end, longest);
        (self.running, self.busy) = (0, 0);
    }

    /// The session begins anew at `now`, and will not say what is in flight of what it had.
    pub(super) fn orphan_running(&mut self, now: Moment, longest: Duration) {
        self.orphaned.add(self.running, now, longest);
        (self.running, self.unguarded, self.unsaid) = (0, 0, self.orphaned.permits() > 0);
    }

    /// Nothing counts them any more.
    pub(super) fn forget(&mut self) {
        *self = SessionCalls::default();
    }

    /// Forgets orphaned calls that expire by `now`.
    pub(super) fn expire(&mut self, now: Moment) {
        self.orphaned.expire(now);
    }

    /// `ask` was settled as `settlement` at `now`. Of the permits that were charged to the session, no more than `room` can
    /// be in flight. What is spent and not said to have ended, ends within `longest`.
    ///
    /// What was in use when the ask was written and is not kept runs for as long as its session says so. What was in hand then
    /// may have been spent before its lease ended, so it stays orphaned. Nothing else that was orphaned can: whatever the
    /// session spent, it says whether that is running.
    pub(super) fn report(
        &mut self,
        ask: &Ask,
        settlement: &Settlement,
        room: u64,
        now: Moment,
        longest: Duration,
    ) {
        let unkept = ask.held - settlement.kept;
        self.busy = ask.busy.min(settlement.kept);
        let lapsed = (ask.busy - self.busy).min(unkept);
        match ask.running {
            Some(running) => {
                // What it could not say then is not in what it says now.
                if !self.unsaid {
                    self.orphaned.cut_to(unkept - lapsed);
                }
                let unguarded = ask.unguarded.saturating_sub(self.unguarded);
                self.unguarded = self.unguarded.max(ask.unguarded);
                self.unsaid |= unguarded > 0;
                self.orphaned.add(unguarded.min(room), now, longest);
                self.orphaned.cut_to(room);
                self.unsaid &= self.orphaned.permits() > 0;
                self.running = running.saturating_add(lapsed).min(room - self.orphaned.permits());
            }
            None => {
                let spent = settlement.spent + settlement.spent_late;
                if spent + self.running > 0 {
                    self.orphaned.add(self.running + spent, now, longest);
                    self.orphaned.cut_to(room);
                    (self.running, self.unsaid) = (0, true);
                }
            }
        }
    }
}
