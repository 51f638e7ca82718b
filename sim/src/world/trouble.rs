//! What each fault does to the world, and how all faults end.

use super::World;
use super::event::{DeskAsk, Event, Message, Phase};
use crate::faults::Fault;
use crate::oracle::Verdict;
use crate::setup::Calls;
use crate::{MILLI, SECOND};
use lessor_holder::connection::Exchange;
use lessor_protocol::Ask;

/// The rate of a frozen clock, in parts per million from a good one.
pub(super) const STANDS_STILL: i64 = -1_000_000;

/// Nanoseconds that a node needs to report that its calls go on, after it stood still.
const SAYS_SO: u64 = 50 * MILLI;

/// How fast a daemon slews a clock, in parts per million: ten times as fast as chrony does by default.
const SLEW_PPM: i64 = 833_333;

impl World {
    /// Draws when `fault` strikes next.
    pub(super) fn strike_again(&mut self, fault: Fault) {
        if let Some(&(every, _)) = self.setup.faults.every.get(&fault) {
            let wait = (-(1.0 - self.rng.f64()).ln() * every as f64) as u64;
            self.push(self.real + wait, Event::Strike(fault));
        }
    }

    pub(super) fn strike(&mut self, fault: Fault) {
        if self.phase != Phase::Trouble {
            return;
        }
        self.strike_again(fault);
        *self.struck.entry(fault).or_default() += 1;
        let longest = self.setup.faults.every[&fault].1;
        let (node, until) = (self.rng.usize(..self.nodes.len()), self.real + self.rng.u64(0..=longest));
        self.note_fault(fault, node, until);
        match fault {
            Fault::Cut => self.network.cut(node, true, true, until),
            Fault::CutThere => self.network.cut(node, true, false, until),
            Fault::CutBack => self.network.cut(node, false, true, until),
            Fault::NodeCrash => self.crash(node, until),
            Fault::NodeLeave => self.leave_in_order(node, until),
            Fault::NodePause => {
                let at = &mut self.nodes[node];
                // A node whose calls are overlong has to report them in between.
                let is_too_soon = self.real < at.paused_until + SAYS_SO;
                if self.setup.calls != Calls::Overlong || !is_too_soon {
                    at.paused_until = at.paused_until.max(until);
                }
            }
            Fault::Freeze => self.freeze(node, until),
            Fault::ClockJump => self.nodes[node].clock.jump(self.real, until - self.real),
            Fault::ClockRate => self.change_rate(),
            Fault::ClockSlew => self.slew(until),
            Fault::AllocatorRestart => self.lose_allocator(until),
            // Never longer than sessions are remembered; seeds with few sessions show what would happen then.
            Fault::AllocatorPause if self.centre.paused_until <= self.real => {
                self.centre.paused_until = until.min(self.real + 3 * SECOND);
            }
            Fault::AllocatorPause => {}
            Fault::RegionCut => self.cut_region(until),
            Fault::RegionCrash => self.lose_region(false, until),
            Fault::RegionLeave => self.lose_region(true, until),
            Fault::RegionPause => self.pause_region(until),
            Fault::StoreTrouble => self.strike_store(),
            Fault::Loss
            | Fault::Duplicate
            | Fault::LongDelay
            | Fault::CrashBeforeSend
            | Fault::CrashAfterSend
            | Fault::CrashBeforeInstall => {}
        }
    }

    fn note_fault(&mut self, fault: Fault, node: usize, until: u64) {
        let words = match fault {
            Fault::Cut => "! the link of node # is cut for # ns",
            Fault::CutThere => "! the link from node # is cut for # ns",
            Fault::CutBack => "! the link to node # is cut for # ns",
            Fault::NodePause => "! node # is paused for # ns",
            Fault::Freeze => "! node # and its clock stand still for # ns",
            Fault::ClockJump => "! the clock of node # jumps ahead by # ns",
            Fault::ClockRate => "! a clock changes its rate",
            Fault::ClockSlew => "! a clock is slewed (#) for # ns",
            Fault::AllocatorPause => "! the allocator is paused (#) for # ns",
            Fault::AllocatorRestart => "! the allocator dies (#) for # ns",
            Fault::RegionCut => "! the link of a region (#) is cut for # ns",
            Fault::RegionPause => "! a region (#) is paused for # ns",
            Fault::StoreTrouble => "! the store is in trouble (#) for # ns",
            Fault::RegionCrash | Fault::RegionLeave => "! a region (#) dies for # ns",
            Fault::NodeLeave => "! node # is stopped in good order for # ns",
            Fault::NodeCrash | Fault::CrashBeforeSend | Fault::CrashAfterSend | Fault::CrashBeforeInstall => {
                "! node # dies for # ns"
            }
            Fault::Loss | Fault::Duplicate | Fault::LongDelay => "! a message (#) is hit",
        };
        self.log.note(self.real, words, &[node as u64, until - self.real]);
    }

    /// Whether `node` crashes at this `point`. It is back within a second.
    pub(super) fn crashes(&mut self, node: usize, point: Fault) -> bool {
        let dies = self.phase == Phase::Trouble && self.setup.faults.strikes(point, &mut self.rng);
        if dies {
            *self.struck.entry(point).or_default() += 1;
            let until = self.real + self.rng.u64(0..=1_000_000_000);
            self.note_fault(point, node, until);
            self.crash(node, until);
        }
        dies
    }

    fn crash(&mut self, node: usize, until: u64) {
        let session = self.next_session(node);
        self.restart(node, session);
        let life = self.nodes[node].life;
        self.push(until, Event::Start { node, life });
    }

    /// Ends the process of `node`. The next one is `session`, and does not run yet.
    fn restart(&mut self, node: usize, session: u64) {
        self.nodes[node] = self.nodes[node].restarted(session);
        let now = self.nodes[node].now(self.real);
        for desk in self.desks_of(node) {
            self.desks[desk] = self.desks[desk].restarted(now, session);
        }
    }

    /// Ends the session of `node` and returns the next one.
    pub(super) fn next_session(&mut self, node: usize) -> u64 {
        self.sessions += 1;
        for desk in self.desks_of(node) {
            let oracle = self.oracles.of(self.setup.lender(desk));
            oracle.ends(self.nodes[node].session());
            oracle.begins(node, self.sessions);
        }
        self.sessions
    }

    pub(super) fn start(&mut self, node: usize, life: u64) {
        if self.nodes[node].life == life && !self.nodes[node].up {
            let session = self.nodes[node].session();
            self.restart(node, session);
            (self.nodes[node].life, self.nodes[node].up) = (life, true);
            self.log.note(self.real, "node # starts as session #", &[node as u64, session]);
            self.look(node);
        }
    }

    fn leave_in_order(&mut self, node: usize, until: u64) {
        if self.nodes[node].up && self.nodes[node].paused_until <= self.real {
            let asks = self.desks_of(node).map(|desk| {
                let at = &mut self.desks[desk];
                let spent_total = at.refill.close(&at.slot);
                let (running, held) = (at.refill.left_running(), at.refill.gives_back(spent_total));
                let ask = Ask { spent_total, running, held, ..Ask::default() };
                DeskAsk { desk, ask, observed: None }
            });
            let asks = asks.collect();
            let at = &mut self.nodes[node];
            let Exchange { session, seq, rtt, .. } = at.connection.begin(at.clock.show(self.real));
            self.send_ask(Message { node, session, epoch: 0, seq, exchange: 0, rtt, asks, leaves: true });
        }
        self.crash(node, until);
    }

    fn freeze(&mut self, node: usize, until: u64) {
        let at = &mut self.nodes[node];
        // A process that crashed may be back while its clock still stands.
        if at.paused_until <= self.real && at.clock.ppm() > STANDS_STILL {
            let ppm = at.clock.ppm();
            at.clock.set_rate(self.real, STANDS_STILL);
            at.paused_until = until;
            self.push(until, Event::Thaw { node, ppm });
        }
    }

    fn change_rate(&mut self) {
        let drift = i64::from(self.setup.plan.clocks.drift_ppm());
        let ppm = [-drift, drift, self.rng.i64(-drift..=drift)][self.rng.usize(..3)];
        match self.rng.usize(0..=self.nodes.len()) {
            // Hardware has one half of the drift, steering the other.
            0 if self.setup.slews() => self.centre.clock.set_rate(self.real, ppm / 2),
            0 => self.centre.clock.set_rate(self.real, ppm),
            node => self.nodes[node - 1].clock.set_rate(self.real, ppm),
        }
    }

    /// Lets a daemon slew the clock of the allocator or of a node.
    fn slew(&mut self, until: u64) {
        let host = self.rng.usize(0..=self.nodes.len());
        let ppm = if self.rng.bool() { SLEW_PPM } else { -SLEW_PPM };
        match host {
            0 => self.centre.clock.slew(self.real, ppm),
            node => self.nodes[node - 1].clock.slew(self.real, ppm),
        }
        self.push(until, Event::Unslew { host });
    }

    /// Ends the slew of the clock of `host`.
    pub(super) fn unslew(&mut self, host: usize) {
        match host {
            0 => self.centre.clock.unslew(self.real),
            node => self.nodes[node - 1].clock.unslew(self.real),
        }
    }

    /// Ends all faults. Late messages are still on their way.
    pub(super) fn mend_all(&mut self) -> Verdict {
        self.network.mend();
        self.setup.faults.chance.clear();
        self.outside = None;
        self.reopen(self.centre.life);
        self.centre.paused_until = self.centre.paused_until.min(self.real);
        self.lift_here()?;
        for node in 0..self.nodes.len() {
            self.nodes[node].paused_until = self.nodes[node].paused_until.min(self.real);
            for desk in self.desks_of(node) {
                self.desks[desk].line.clear();
            }
            self.start(node, self.nodes[node].life);
        }
        self.mend_regions()
    }
}
