//! Calls that one session may have in flight, as far as its pool knows: those it last reported, and orphaned calls of
//! leases that ended without a report. Each session keeps one [`SessionCalls`]; it knows neither rules nor other sessions.

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
    /// Permits in flight by the last report, spent or in use without a lease. They count while the session keeps
    /// reporting them, and are orphaned if its lease ends without a report.
    running: u64,
    /// Permits of leases that ended without a report, or spent by a session that does not report which calls have ended.
    orphaned: OrphanedCalls,
    /// Whether some orphaned calls are missing from what the session reports as in flight.
    unsaid: bool,
    /// Total of permits spent on calls whose end the session will never report.
    unguarded: u64,
    /// Permits held and in use by the last report. They are charged as held.
    pub(super) busy: u64,
}

/// [`SessionCalls`] as they are written down.
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
    /// Carries every field.
    pub(super) fn carry(&mut self, carrier: &mut Carrier<'_>) {
        carrier.number(&mut self.running);
        self.orphaned.carry(carrier);
        carrier.flag(&mut self.unsaid);
        carrier.number(&mut self.unguarded);
        carrier.number(&mut self.busy);
    }

    /// Returns the calls as they are written down; `None` if there is nothing to keep.
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

    /// Restores `saved` calls; `None` if they are impossible.
    pub(super) fn restore(saved: &SavedCalls, since: Since) -> Option<Self> {
        let SavedCalls { running, unsaid, unguarded, busy, .. } = *saved;
        let orphaned = OrphanedCalls::restore(&saved.orphaned, since)?;
        let is_sane =
            [running, unguarded, busy, orphaned.permits()].iter().all(|total| *total <= PERMITS_MAX);
        is_sane.then_some(SessionCalls { running, orphaned, unsaid, unguarded, busy })
    }

    /// Returns the calls of a session that never reports: `running` ones until its lease ends, and `orphaned` ones.
    pub(super) fn silent(running: u64, orphaned: OrphanedCalls) -> Self {
        SessionCalls { running, orphaned, ..SessionCalls::default() }
    }

    /// Returns the orphaned calls.
    pub(super) fn orphaned(&self) -> &OrphanedCalls {
        &self.orphaned
    }

    /// Returns the permits charged beside the outstanding ones.
    pub(super) fn charged(&self) -> u64 {
        self.running + self.orphaned.permits()
    }

    /// Returns the permits in flight, for display.
    pub(super) fn in_flight(&self) -> u64 {
        self.charged() + self.busy
    }

    /// Whether some calls are charged under a lease.
    pub(super) fn are_live(&self) -> bool {
        self.running > 0
    }

    /// Whether the calls cannot be told from those of a session that never reported any.
    pub(super) fn are_blank(&self) -> bool {
        self.charged() == 0 && self.unguarded == 0 && self.busy == 0
    }

    /// Returns when the first orphaned calls expire, if there are any.
    pub(super) fn next_expiry(&self) -> Option<Moment> {
        self.orphaned.next_expiry()
    }

    /// Orphans the running calls and the `burned` permits of a lease that ended at `end` without a report. All of them
    /// may be in flight for the `longest` time that a call takes.
    pub(super) fn end(&mut self, burned: u64, end: Moment, longest: Duration) {
        self.orphaned.add(burned + self.running, end, longest);
        (self.running, self.busy) = (0, 0);
    }

    /// Orphans the running calls of a session that starts over at `now` and no longer reports them.
    pub(super) fn orphan_running(&mut self, now: Moment, longest: Duration) {
        self.orphaned.add(self.running, now, longest);
        (self.running, self.unguarded, self.unsaid) = (0, 0, self.orphaned.permits() > 0);
    }

    /// Drops all calls, because no rule counts them any more.
    pub(super) fn forget(&mut self) {
        *self = SessionCalls::default();
    }

    /// Forgets orphaned calls that expire by `now`.
    pub(super) fn expire(&mut self, now: Moment) {
        self.orphaned.expire(now);
    }

    /// Applies the report of `ask`, which was settled as `settlement` at `now`. Of the permits that were charged to the
    /// session, at most `room` can be in flight. Permits that are spent and not reported as ended expire within `longest`.
    ///
    /// Permits that were in use when the ask was written and are not kept run for as long as the session says so.
    /// Permits that were in hand then may have been spent before their lease ended, so as many stay orphaned. No other
    /// orphaned permits stay: the session reports whether what it spent is still running.
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
                // This report leaves out calls that the session could not report then, so it does not bound them.
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
