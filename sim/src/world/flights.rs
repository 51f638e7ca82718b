//! Calls that take time, where the limit caps calls in flight at some time: how long each takes, and what its end means
//! to the vendor and to the process that made it, which may be gone.

use super::World;
use super::event::Event;
use crate::oracle::Verdict;
use crate::setup::Calls;
use lessor_ledger::Rule;
use lessor_protocol::moment::nanos;
use std::time::Duration;

/// How a caller makes a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// The caller says when the call ends.
    Guarded,
    /// The caller was to say so, and gave up on it.
    Lapsing,
    /// The caller only spends.
    Plain,
    /// The caller reserves, and needs this many of the permits in the end.
    Reserving { needs: u64 },
}

impl World {
    /// Draws how the next call of `desk`, for `permits`, is made. A caller says when the call ends where calls in
    /// flight count.
    pub(super) fn manner(&mut self, desk: usize, permits: u64) -> Manner {
        if let Some(needs) = self.needs(permits) {
            return Manner::Reserving { needs };
        }
        if self.rival.is_some() || !self.desks[desk].refill.calls().count() {
            return Manner::Plain;
        }
        match self.setup.calls {
            Calls::Even | Calls::Overlong => Manner::Guarded,
            Calls::Silent => Manner::Plain,
            Calls::Mixed => match self.rng.u32(..12) {
                0 => Manner::Plain,
                1 => Manner::Lapsing,
                _ => Manner::Guarded,
            },
        }
    }

    /// Begins a call of `permits` at `desk` in that `manner`, if they are there. Returns the free permits left.
    pub(super) fn begin_call(&mut self, desk: usize, permits: u64, manner: Manner) -> Option<u64> {
        match manner {
            Manner::Plain => return self.spend(desk, permits),
            Manner::Reserving { needs } => return self.reserve(desk, permits, needs),
            Manner::Guarded | Manner::Lapsing => {}
        }
        let home = &self.nodes[self.setup.home(desk)];
        let at = &mut self.desks[desk];
        let now = home.now(self.real);
        let left = if permits.is_multiple_of(2) && !at.refill.is_paced() {
            // As the middleware for outgoing requests, which reserves first.
            let (number, left) = at.refill.reserve(&at.slot, permits, now).ok()?;
            assert_eq!(at.refill.enter_reserved(&at.slot, number, now), Some(permits), "it is just begun");
            left
        } else {
            at.enter(permits, now)?
        };
        if manner == Manner::Lapsing {
            at.refill.lapse(permits, now);
        }
        // The shipping handle wakes its task only when the refill is due, whatever is left.
        Some(if at.refill.due(&at.slot, at.seen(), now, home.connection.rtt()) <= now {
            left
        } else {
            u64::MAX
        })
    }

    /// Draws how long a call of `permits` takes that `desk` has begun: at most the longest time it was `told`, unless
    /// calls are overlong.
    pub(super) fn takes_time(&mut self, desk: usize, permits: u64, manner: Manner, told: Option<u64>) {
        // A call that no rule counts now must keep to the shortest limit of later rules.
        let shortest = self.setup.rule_sets().filter_map(longest).min().map(nanos);
        let Some(longest) = told.or(shortest) else { return };
        // Some take the longest time, most far less.
        let takes = match self.setup.calls {
            Calls::Mixed => match self.rng.u32(..6) {
                0 => longest,
                1 => self.rng.u64(1..=longest),
                _ => (self.rng.u64(1..=longest) / self.rng.u64(1..=200)).max(1).min(longest),
            },
            Calls::Silent => longest,
            Calls::Even => self.rng.u64(1..=longest),
            Calls::Overlong => (self.rng.u64(1..=10 * longest) / self.rng.u64(1..=20)).max(1),
        };
        // A call that never reports its end is in use for the longest time.
        self.meter.takes(permits, if manner == Manner::Guarded { takes } else { longest });
        self.push(self.real + takes, Event::Land { limit: self.setup.lender(desk), permits });
        if manner == Manner::Guarded {
            let life = self.life(desk);
            self.push(self.real + takes, Event::HandBack { desk, life, permits });
        }
    }

    /// Ends a call of `permits` that `desk` made. Its process, if it is still the same, hands them back.
    pub(super) fn hand_back(&mut self, desk: usize, life: u64, permits: u64) -> Verdict {
        let home = &self.nodes[self.setup.home(desk)];
        if home.life != life || !home.up {
            return Ok(());
        }
        let at = &mut self.desks[desk];
        let (now, busy, session) = (home.now(self.real), at.refill.calls().busy(), home.session());
        let reused = at.refill.hand_back(&at.slot, permits, now);
        // Permits that can be spent again were not used up.
        let unspent = busy - at.refill.calls().busy();
        let is_due = at.refill.due(&at.slot, at.seen(), now, home.connection.rtt()) <= now;
        self.oracles.handed_back(self.setup.lender(desk), session, unspent);
        self.log.note(self.real, "node # hands back #, # to be spent again", &[desk as u64, permits, reused]);
        if is_due {
            self.nudge(desk);
        }
        self.exposed()?;
        self.serve_line(desk)
    }
}

/// Returns the longest call that `rules` allow, if they cap calls in flight: the shortest time of any of them.
pub fn longest(rules: &[Rule]) -> Option<Duration> {
    rules.iter().filter_map(Rule::longest).min()
}
