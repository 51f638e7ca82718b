//! What one session may have in flight, as far as its pool knows: what it last reported, and what lingers of leases that
//! ended without a report. Lessees keep one of these; it knows neither rules nor other sessions.

use super::lessee::Settlement;
use lessor_protocol::mutant::{self, Mutant};
use lessor_protocol::{Ask, Moment};

/// Permits of one session that count as in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flights {
    /// Spent, and in flight by its last report: for as long as it goes on to say so, and then as part of the lease that
    /// it was made under.
    running: u64,
    /// Presumed in flight until `lands`: of leases that ended without a word, or spent without a word of what has ended.
    lingering: u64,
    lands: Moment,
    /// Whether some of those that linger were spent by a session that did not say what is in flight.
    unsaid: bool,
    /// Of all that it spent, on calls whose end nobody will say.
    unguarded: u64,
    /// Held and in use by its last report. These are charged as held.
    pub(super) busy: u64,
}

impl Flights {
    /// Permits that are charged beside those that are outstanding.
    pub(super) fn charged(&self) -> u64 {
        self.running + self.lingering
    }

    /// Permits in flight, for people.
    pub(super) fn in_flight(&self) -> u64 {
        self.charged() + self.busy
    }

    /// Whether a lease is what they are charged under.
    pub(super) fn are_live(&self) -> bool {
        self.running > 0
    }

    /// When those that linger land, if there are any.
    pub(super) fn lands(&self) -> Option<Moment> {
        (self.lingering > 0).then_some(self.lands)
    }

    /// The lease ended without a report, and with it the right to spend `burned` permits: all of that, and what was
    /// running, may be in flight until `lands`.
    pub(super) fn end(&mut self, burned: u64, lands: Moment) {
        let linger = if mutant::is(Mutant::LandedAtEnd) { 0 } else { burned + self.running };
        if linger > 0 {
            // Those that lingered before may stay a little longer: until the next report at most.
            (self.lingering, self.lands) = (self.lingering + linger, self.lands.max(lands));
        }
        (self.running, self.busy) = (0, 0);
    }

    /// The session begins anew, and will not say what is in flight of what it had: that lands by `lands` at the latest.
    pub(super) fn begin_anew(&mut self, lands: Moment) {
        if self.running > 0 {
            (self.lingering, self.lands) = (self.lingering + self.running, self.lands.max(lands));
        }
        (self.running, self.unguarded, self.unsaid) = (0, 0, self.lingering > 0);
    }

    /// Those that linger have ended.
    pub(super) fn land(&mut self) {
        self.lingering = 0;
    }

    /// `ask` was settled as `settlement`. Of the permits that were charged to the session, no more than `room` can be in
    /// flight. What is spent and not said to have ended, ends by `lands`.
    ///
    /// What was held when the ask was written and is not kept may have been spent before its lease ended, so it goes on
    /// to linger. Nothing else of what lingered can: whatever the session spent, it says whether that is running.
    pub(super) fn report(&mut self, ask: &Ask, settlement: &Settlement, room: u64, lands: Moment) {
        let unkept = if mutant::is(Mutant::UnkeptIsFree) { 0 } else { ask.held - settlement.kept };
        self.busy = ask.busy.min(settlement.kept);
        match ask.running {
            Some(running) => {
                // What it could not say then is not in what it says now.
                let lingers = if self.unsaid { self.lingering } else { self.lingering.min(unkept) };
                let unguarded = ask.unguarded.saturating_sub(self.unguarded);
                self.unguarded = self.unguarded.max(ask.unguarded);
                if unguarded > 0 {
                    (self.unsaid, self.lands) = (true, self.lands.max(lands));
                }
                self.lingering = lingers.saturating_add(unguarded).min(room);
                self.unsaid &= self.lingering > 0;
                let running = if mutant::is(Mutant::RunningIgnored) { 0 } else { running };
                self.running = running.min(room - self.lingering);
            }
            None => {
                let spent = settlement.spent + settlement.spent_late;
                if spent + self.running > 0 {
                    let linger = self.lingering + self.running + spent;
                    (self.lingering, self.lands) = (linger.min(room), self.lands.max(lands));
                    (self.running, self.unsaid) = (0, true);
                }
            }
        }
    }
}
