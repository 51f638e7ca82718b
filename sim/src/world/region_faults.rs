//! Faults of regions: their processes die, or are stopped in good order; their links are cut, and a clock is wrong.

use super::World;
use super::event::Event;
use super::regions::{Region, SESSIONS};
use super::trouble::STANDS_STILL;
use crate::MILLI;
use crate::oracle::Verdict;
use crate::topology::Lag;
use lessor_protocol::Moment;

/// How long a stalled clock stands still, in nanoseconds.
const STALL: u64 = 200 * MILLI;

impl World {
    /// Returns the first session of the next process of `region`. The process may begin others later.
    fn next_region_session(&mut self, region: usize) -> u64 {
        self.region_lives += 1;
        let (before, session) = (self.regions[region].connection.session(), self.region_lives * SESSIONS);
        self.oracles.root().ends(before);
        self.oracles.root().begins(region, session);
        session
    }

    /// Ends the process of a region, after a goodbye if it `is_stopped`. It is back at `until`, without its books.
    pub(super) fn region_dies(&mut self, region: usize, is_stopped: bool, until: u64) {
        if !self.regions[region].up {
            return;
        }
        if is_stopped {
            self.region_leaves(region);
        }
        self.oracles.of(region).shut(Moment::ORIGIN);
        let session = self.next_region_session(region);
        let (life, fresh) = (self.regions[region].life + 1, self.fresh_region(region, session));
        self.regions[region] = fresh;
        (self.regions[region].up, self.regions[region].life) = (false, life);
        let (stocks, now) = (self.stocks(), self.now());
        self.oracles.region_lost(region, now, &stocks);
        self.push(until, Event::RegionStarts { region, life });
    }

    /// Makes a host whose process is about to start as `session`.
    fn fresh_region(&self, region: usize, session: u64) -> Region {
        let Region { clock, ref file, .. } = self.regions[region];
        Region::new(&self.setup, &self.limits, file.clone(), clock, self.real, session)
    }

    fn region_leaves(&mut self, region: usize) {
        let at = &mut self.regions[region];
        let now = at.clock.show(self.real);
        at.registry.stop();
        let due = at.registry.asks_above(now, self.limits.upstream(), at.connection.rtt());
        if due.asks.is_empty() || due.session != at.connection.session() {
            return;
        }
        at.connection.begin(now);
        at.due = due;
        match self.shared.is_some() {
            true => self.leave_roots(region),
            false => self.send_above(region, 0),
        }
    }

    pub(super) fn region_starts(&mut self, region: usize, life: u64) -> Verdict {
        let at = &self.regions[region];
        if at.life != life || at.up {
            return Ok(());
        }
        // Nothing is left of the earlier process: the pool begins now.
        let session = at.connection.session();
        self.regions[region] = self.fresh_region(region, session);
        self.regions[region].life = life;
        self.log.note(self.real, "region # starts as session #", &[region as u64, session]);
        self.begin_region(region)
    }

    fn begin_region(&mut self, region: usize) -> Verdict {
        let life = self.regions[region].life;
        if self.shared.is_some() {
            self.push(self.real, Event::Signs { region, life });
        }
        self.look_above(region)
    }

    /// Cuts the link between some region and its upstream.
    pub(super) fn cut_region(&mut self, until: u64) {
        if let Some(region) = self.some_region() {
            self.network.cut(self.region_place(region), true, true, until);
        }
    }

    /// Ends the process of some region, after a goodbye if it `is_stopped`.
    pub(super) fn lose_region(&mut self, is_stopped: bool, until: u64) {
        if let Some(region) = self.some_region() {
            self.region_dies(region, is_stopped, until);
        }
    }

    /// Pauses the process of some region.
    pub(super) fn pause_region(&mut self, until: u64) {
        if let Some(region) = self.some_region() {
            let at = &mut self.regions[region];
            at.paused_until = at.paused_until.max(until);
        }
    }

    fn some_region(&mut self) -> Option<usize> {
        let regions = self.regions.len();
        (regions > 0).then(|| self.rng.usize(..regions))
    }

    /// Ends all faults of regions.
    pub(super) fn mend_regions(&mut self) -> Verdict {
        self.regions.iter_mut().for_each(|at| at.paused_until = at.paused_until.min(self.real));
        (0..self.regions.len()).try_for_each(|region| self.region_starts(region, self.regions[region].life))
    }

    /// Makes the clock of the first allocator wrong from now on.
    pub(super) fn lags(&mut self) {
        let Some(lag) = self.setup.topology.shared().and_then(|shared| shared.lag) else { return };
        let clock = &mut self.regions[0].clock;
        match lag {
            Lag::Stalled => {
                let ppm = clock.ppm();
                clock.set_rate(self.real, STANDS_STILL);
                self.push(self.real + STALL, Event::RegionThaws { ppm });
            }
            Lag::Slewed(ppm) => clock.slew(self.real, ppm),
        }
    }

    /// Lets the clock of the first allocator go on.
    pub(super) fn region_thaws(&mut self, ppm: i64) {
        self.regions[0].clock.set_rate(self.real, ppm);
    }
}
