//! Calls on several limits, of which another one is short. They put back what they set aside of this one. They do so at
//! once, or, where their thread is stopped, after the lease has ended and the next one has begun.

use super::World;
use super::event::{Event, Phase};
use crate::oracle::Verdict;
use crate::{MILLI, SECOND};

/// The longest that a thread is stopped, in nanoseconds: twice the longest lease.
const STOPPED_MAX: u64 = 4 * SECOND;

impl World {
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
