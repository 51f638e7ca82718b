//! Calls that reserve more than they may cost. Each makes its call at once, as it should, and settles when it is over.
//! That may be in time, long after its lease has ended, or when another process runs.
//!
//! Calls on several limits, of which another one is short. They put back what they set aside of this one. They do so at
//! once, or, where their thread is stopped, after the lease has ended and the next one has begun.

use super::World;
use super::event::{Event, Phase};
use crate::oracle::Verdict;
use crate::{MILLI, SECOND};
use lessor_ledger::Rule;

/// The largest reservation of a call, as a multiple of its cost.
const MORE: u64 = 4;

/// The longest call, in nanoseconds: twice the longest lease, so that many outlast their lease where messages get lost.
const CALL_MAX: u64 = 4 * SECOND;

/// The longest that a thread is stopped, in nanoseconds: twice the longest lease.
const STOPPED_MAX: u64 = 4 * SECOND;

impl World {
    /// Whether calls reserve. They do not in calm, where other calls may wait only so long and a reservation has no
    /// bound.
    fn reserves(&self) -> bool {
        self.setup.reserves > 0 && self.rival.is_none() && self.phase == Phase::Trouble
    }

    /// Returns `permits`, or more where calls reserve, up to the most that a pool can lend.
    pub(super) fn or_more(&mut self, permits: u64) -> u64 {
        if !self.reserves() {
            return permits;
        }
        let ceiling = self.centre.rules.iter().map(Rule::ceiling).min().unwrap_or(0);
        let most = ceiling.saturating_sub(self.setup.reserve_most()).min(self.setup.plan.sharing.lease_max);
        let more = permits * self.rng.u64(1..=MORE);
        more.min(most).max(permits)
    }

    /// Draws how many of `permits` a reserving call costs; `None` if it does not reserve.
    pub(super) fn needs(&mut self, permits: u64) -> Option<u64> {
        if !self.reserves() || self.rng.u64(..100) >= self.setup.reserves {
            return None;
        }
        // Some are dropped, which settles them in full; others are never made, and refunded.
        Some(match self.rng.u32(..5) {
            0 => permits,
            1 => 0,
            _ => self.rng.u64(0..=permits),
        })
    }

    /// Reserves `permits` at `desk` if they are there. Returns the free permits left.
    pub(super) fn reserve(&mut self, desk: usize, permits: u64, needs: u64) -> Option<u64> {
        let home = &self.nodes[self.setup.home(desk)];
        let at = &mut self.desks[desk];
        let now = home.now(self.real);
        let (number, left) = if at.refill.is_paced() {
            at.hold_at_pace(permits, now).then(|| at.refill.reserve_held(&at.slot, permits, now))?
        } else {
            at.refill.reserve(&at.slot, permits, now).ok()?
        };
        at.unneeded.insert(number, permits - needs);
        let (life, session) = (home.life, home.session());
        self.oracles.of(self.setup.lender(desk)).reserved(session, permits - needs);
        let takes = (self.rng.u64(MILLI..=CALL_MAX) / self.rng.u64(1..=20)).max(1);
        self.log.note(self.real, "node # reserves # (number #)", &[desk as u64, permits, number]);
        self.push(self.real + takes, Event::Settle { desk, life, number, rest: permits - needs });
        Some(left)
    }

    /// Settles a call of `desk` that had reserved and did not need `rest`.
    pub(super) fn settle(&mut self, desk: usize, life: u64, number: u64, rest: u64) -> Verdict {
        let home = &self.nodes[self.setup.home(desk)];
        if home.life != life || !home.up {
            return Ok(());
        }
        let at = &mut self.desks[desk];
        let (now, session) = (home.now(self.real), home.session());
        at.unneeded.remove(&number);
        let back = at.refill.give_back(&at.slot, number, rest, now);
        at.refill.settle(number);
        self.oracles.of(self.setup.lender(desk)).came_back(session, back)?;
        self.log.note(self.real, "node # settles number #, # come back", &[desk as u64, number, back]);
        self.exposed()?;
        self.serve_line(desk)
    }

    /// Whether a caller that comes now needs another limit too, and finds that one short.
    pub(super) fn is_in_vain(&mut self) -> bool {
        let some_are = self.setup.in_vain > 0 && self.rival.is_none() && self.phase == Phase::Trouble;
        some_are && self.rng.u64(..100) < self.setup.in_vain
    }

    /// Sets `permits` aside at `desk` if they are there.
    pub(super) fn set_aside(&mut self, desk: usize, permits: u64) {
        let (home, at) = (&self.nodes[self.home(desk)], &self.desks[desk]);
        if !at.line.is_empty() || at.slot.hold(permits, home.now(self.real)).is_err() {
            return;
        }
        let life = home.life;
        let stopped = self.rng.u64(0..=STOPPED_MAX) / self.rng.u64(1..=6);
        self.log.note(self.real, "node # sets # aside", &[desk as u64, permits]);
        self.push(self.real + stopped.max(MILLI), Event::PutBack { desk, life, permits });
    }

    /// Puts back the permits set aside, or turns them into a reservation that is refunded once the other limit is found
    /// short.
    pub(super) fn put_back(&mut self, desk: usize, life: u64, permits: u64) -> Verdict {
        let home = &self.nodes[self.setup.home(desk)];
        if home.life != life || !home.up {
            return Ok(());
        }
        let at = &mut self.desks[desk];
        self.log.note(self.real, "node # puts # back", &[desk as u64, permits]);
        if self.rng.bool() {
            at.slot.put_back(permits);
        } else {
            let (now, session) = (home.now(self.real), home.session());
            let (number, _) = at.refill.reserve_held(&at.slot, permits, now);
            at.unneeded.insert(number, permits);
            self.oracles.of(self.setup.lender(desk)).reserved(session, permits);
            let later = self.real + self.rng.u64(MILLI..=SECOND);
            self.push(later, Event::Settle { desk, life, number, rest: permits });
        }
        self.exposed()?;
        self.serve_line(desk)
    }
}
