//! The clock of one region is wrong: it stands still for a moment, or is slewed. That region has no nodes. The others must be served
//! as if it were not there, and the time of the store must go on.

use super::*;
use crate::clock::HostClock;

/// What is wrong with the clock of a region, and since when.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Lag {
    #[default]
    None,
    Stalled {
        from: u64,
    },
    Slewed {
        from: u64,
        host: HostClock,
    },
}

/// What is wrong with the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It stands still for 200 ms, as that of a machine which is moved.
    Stalled,
    /// A daemon slews the disciplined clock by so many parts per million from then on. The allocator goes by what the shipping code
    /// makes of that.
    Slewed(i64),
}

/// How long a clock stands still.
const STALL: u64 = 200 * MILLI;

impl Region {
    /// What its clock shows.
    pub(super) fn clock(&self, real: u64) -> Moment {
        match self.lag {
            Lag::Stalled { from } if real >= from => shown(from.max(real.saturating_sub(STALL)), self.ppm),
            Lag::Slewed { from, host } if real >= from => host.show(real),
            Lag::None | Lag::Stalled { .. } | Lag::Slewed { .. } => shown(real, self.ppm),
        }
    }

    /// When its clock shows `moment`, if it lags no more than it does at `real`.
    pub(super) fn when(&self, moment: Moment, real: u64) -> u64 {
        match self.lag {
            Lag::Slewed { from, host } if real >= from => host.when(moment),
            Lag::Stalled { from } if real >= from => {
                when(moment, self.ppm).saturating_add(STALL.min(real - from))
            }
            Lag::None | Lag::Stalled { .. } | Lag::Slewed { .. } => when(moment, self.ppm),
        }
    }
}

impl World {
    /// Three regions on a store, of which the first has no nodes, and a clock with that `fault`.
    pub(super) fn lagging(mut self, fault: Fault) -> World {
        while self.regions.len() < 3 {
            let fresh = self.new_region(0);
            self.regions.push(fresh);
        }
        self.nodes.truncate(2);
        while self.nodes.len() < 2 {
            let node = self.new_node(0, 1);
            self.nodes.push(node);
        }
        for (place, node) in self.nodes.iter_mut().enumerate() {
            node.region = place + 1;
        }
        self = self.stored();
        let from = self.real + self.rng.u64(2 * SECOND..4 * SECOND);
        self.regions[0].lag = match fault {
            Fault::Stalled => Lag::Stalled { from },
            Fault::Slewed(ppm) => {
                let mut host = HostClock::new(0, self.regions[0].ppm).steered(self.plan.clocks);
                host.slew(from, ppm);
                Lag::Slewed { from, host }
            }
        };
        self.trouble = Trouble { loss: 0.0, repeat: 0.0, late: 0.0, every: u64::MAX, centre_dies: false };
        self.rate = self.calm_rate();
        self
    }

    /// Until the end: whether the time of the store went on, and who was refused.
    pub(super) fn run_lagging(self) -> Result<Figures, String> {
        let figures = self.run_to_the_end(TROUBLE, |world| {
            let store = world.store.as_ref().ok_or("there is a store")?;
            if store.has_eras {
                return Err("one clock was wrong, and the time of the store began anew for all".to_owned());
            }
            let (region, real) = (&world.regions[0], world.real);
            let is_back = region.clock(real).since(region.link.member.signed()) < Duration::from_secs(1);
            if !is_back {
                return Err("an allocator whose clock was wrong does not sign".to_owned());
            }
            Ok(())
        })?;
        // Some wait for what comes from the store.
        match figures.calls > 0 && figures.refused * 50 <= figures.calls {
            true => Ok(figures),
            false => Err(format!("{} of {} calls were refused", figures.refused, figures.calls)),
        }
    }
}
