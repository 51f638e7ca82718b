//! A node that does not play by the rules: it hoards, lies, replays or floods. The world carries its messages; what it
//! says is within what the wire lets through. The one lie that breaks the quota it never tells: it spends no permit
//! that it reported as spent, or does not hold. Against that lie no book helps, only the contract with the operator of
//! the node.

use crate::MILLI;
use crate::clock::HostClock;
use lessor::slot::Slot;
use lessor_protocol::moment::nanos;
use lessor_protocol::{
    Announced, Ask, ClockBounds, Grant, Left, Moment, Observed, PERMITS_MAX, Rate, RateClaim, RateLease,
};
use std::time::Duration;

/// What it does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// It takes all it can get, says that it needs more, holds it and never spends any.
    Hoard,
    /// It spends what it gets at once, and says that it needs far more.
    Overstate,
    /// It spends what it gets at once, wants much, and says that it has no demand.
    Understate,
    /// It says that it still holds what it has spent, and sometimes more than it ever had.
    Claim,
    /// It makes up its totals: they fall, and jump.
    Forge,
    /// Its numbers jump, up to the last one there is, and it sends old asks again.
    Jump,
    /// It spends nothing and says that it has spent everything.
    Pretend,
    /// It asks a thousand times a second.
    Flood,
    /// It asks again long before it was told to, and spends what it gets.
    Hurry,
    /// It begins a new session for each ask.
    Crowd,
}

/// Each lie and its name in setups.
pub const LIES: [(&str, Lie); 10] = [
    ("hoard", Lie::Hoard),
    ("overstate", Lie::Overstate),
    ("understate", Lie::Understate),
    ("claim", Lie::Claim),
    ("forge", Lie::Forge),
    ("jump", Lie::Jump),
    ("pretend", Lie::Pretend),
    ("flood", Lie::Flood),
    ("hurry", Lie::Hurry),
    ("crowd", Lie::Crowd),
];

impl Lie {
    /// Its name in setups.
    pub fn name(self) -> &'static str {
        LIES.iter().find(|(_, lie)| *lie == self).expect("all are listed").0
    }

    /// Whether it spends: then it must not say things that would make spending wrong.
    fn spends(self) -> bool {
        matches!(self, Lie::Overstate | Lie::Understate | Lie::Claim | Lie::Jump | Lie::Hurry)
    }

    /// Whether it asks when it likes, rather than when it was told to.
    fn is_hasty(self) -> bool {
        matches!(self, Lie::Hoard | Lie::Flood | Lie::Hurry | Lie::Crowd)
    }

    /// Returns the time between two asks that the allocator did not set, on average, in nanoseconds.
    fn pace(self) -> u64 {
        match self {
            Lie::Flood | Lie::Hurry => MILLI,
            // Its sessions are all remembered for a while: faster would only make the run slow.
            Lie::Crowd => 40 * MILLI,
            Lie::Hoard
            | Lie::Overstate
            | Lie::Understate
            | Lie::Claim
            | Lie::Forge
            | Lie::Jump
            | Lie::Pretend => 10 * MILLI,
        }
    }
}

/// Longest that it waits for an answer. Only to the newest ask is one any use.
const ANSWER_WITHIN: Duration = Duration::from_millis(100);

/// A node that does not play by the rules.
#[derive(Debug)]
pub struct Adversary {
    /// What it does wrong.
    pub lie: Lie,
    /// Its clock.
    pub clock: HostClock,
    /// Which session it is.
    pub session: u64,
    /// Names the exchange whose answer it waits for, and when that was sent.
    pub exchange: (u64, Moment),
    /// The number of its last ask.
    seq: u64,
    /// What it may spend.
    slot: Slot,
    /// Of this session: granted, spent, said to be spent, said to be held.
    granted: u64,
    spent: u64,
    said: Ask,
    /// What the last answer told.
    ask_after: Duration,
    /// Whether the limit has a steady flow. Then it spends nothing: no bucket of its own says when it may.
    is_paced: bool,
    /// The rate that it was lent last.
    rate: RateClaim,
    rng: fastrand::Rng,
}

impl Adversary {
    /// One that begins as `session`.
    pub fn new(lie: Lie, clock: HostClock, session: u64, rng: fastrand::Rng) -> Self {
        Adversary {
            lie,
            clock,
            session,
            exchange: (0, Moment::ORIGIN),
            seq: 0,
            slot: Slot::new(),
            granted: 0,
            spent: 0,
            said: Ask::default(),
            ask_after: Duration::ZERO,
            is_paced: false,
            rate: RateClaim::None,
            rng,
        }
    }

    /// Begins another session, which owns nothing.
    pub fn begin(&mut self, session: u64) {
        (self.session, self.seq, self.granted, self.spent) = (session, 0, 0, 0);
        self.said = Ask::default();
        self.rate = RateClaim::None;
        // Not emptied but new: the old one would go by the end of what it was lent before.
        self.slot = Slot::new();
    }

    /// Permits that it can still spend.
    pub fn in_hand(&self, real: u64) -> u64 {
        if self.is_paced { 0 } else { self.has(real) }
    }

    /// Permits that it has of a live lease.
    fn has(&self, real: u64) -> u64 {
        if self.clock.show(real) < self.slot.deadline() { self.slot.balance().total() } else { 0 }
    }

    /// How long until its next ask.
    pub fn gap(&mut self) -> u64 {
        let told = if self.lie.is_hasty() { 0 } else { nanos(self.ask_after) };
        told + self.rng.u64(1..=2 * self.lie.pace())
    }

    /// Whether it would rather have the answer to its last ask first.
    pub fn waits(&self, real: u64) -> bool {
        let (exchange, sent) = self.exchange;
        self.lie != Lie::Flood && exchange != 0 && self.clock.show(real).since(sent) < ANSWER_WITHIN
    }

    /// Whether it wants a new session before its next ask.
    pub fn moves_on(&mut self) -> bool {
        self.lie == Lie::Crowd || self.seq >= PERMITS_MAX || self.rng.u32(..200) == 0
    }

    /// Whether it sends an old message again instead of a new one.
    pub fn repeats(&mut self) -> bool {
        self.lie == Lie::Jump && self.rng.u32(..3) == 0
    }

    /// Its next ask, with its number.
    pub fn ask(&mut self, real: u64) -> (u64, Ask) {
        let jumps = self.lie == Lie::Jump && self.rng.bool();
        let step = if jumps { [1_000, 1 << 40, PERMITS_MAX][self.rng.usize(..3)] } else { 1 };
        self.seq = self.seq.saturating_add(step).min(PERMITS_MAX);
        let held = self.has(real);
        let rate = self.claim();
        let mut truth = Ask { spent_total: self.spent, held, want: self.large(), rate, ..Ask::default() };
        // It says nothing of what it has in flight, or too much. Too little is as bad as to spend what it does not hold.
        if self.seq.is_multiple_of(2) {
            (truth.running, truth.busy) = (Some(PERMITS_MAX), self.granted);
        }
        let ask = match self.lie {
            Lie::Hoard | Lie::Overstate | Lie::Flood | Lie::Hurry | Lie::Crowd => {
                Ask { waiting: self.large(), demand_milli: self.large(), ..truth }
            }
            Lie::Understate | Lie::Jump => truth,
            Lie::Claim => {
                // What it says to be spent must not fall, and must have been.
                let spent_total = self.rng.u64(self.said.spent_total..=self.spent);
                // Not more than that: what never was would be given back with the next ask, and could be taken for
                // what was spent. To give that back is the one lie that no pool sees through.
                Ask { spent_total, held: held + self.spent - spent_total, ..truth }
            }
            Lie::Forge => {
                let any = [0, self.granted / 2, self.granted, self.large(), PERMITS_MAX];
                let (spent_total, held) = (any[self.rng.usize(..5)], any[self.rng.usize(..5)]);
                Ask { spent_total, held, ..truth }
            }
            Lie::Pretend => Ask { spent_total: self.granted, held: 0, ..truth },
        };
        // Whatever it does not claim it has given back, and what had ended is no more.
        self.slot.shed(ask.held.min(held));
        self.said = ask;
        (self.seq, ask)
    }

    /// What it says of its rate: that it goes on, that it is none, or anything; never that more came back than could.
    fn claim(&mut self) -> RateClaim {
        match (self.lie, self.rate) {
            (Lie::Hoard | Lie::Flood | Lie::Hurry, rate) => rate,
            (_, RateClaim::Holds(lease)) if self.rng.bool() => {
                RateClaim::LetGo { number: lease.number, credit: Duration::ZERO }
            }
            (Lie::Forge | Lie::Jump, RateClaim::Holds(lease)) => {
                RateClaim::Holds(RateLease { cap: self.large(), ..lease })
            }
            _ => RateClaim::None,
        }
    }

    /// The answer to its newest ask. Returns how many permits it spends now, if any.
    pub fn believe(&mut self, real: u64, grant: &Grant, clocks: ClockBounds) -> u64 {
        let deadline = clocks.holder_end(self.exchange.1, grant.term);
        self.granted += grant.permits;
        self.ask_after = grant.ask_after;
        self.slot.install(grant.permits, self.said.held.saturating_sub(grant.kept), deadline);
        if !self.lie.spends() && self.lie != Lie::Hoard {
            // It may say anything of it, and so can spend none.
            self.slot.shed(0);
        }
        self.is_paced = grant.rate != Rate::Free;
        if let Rate::Lent { lease, .. } = grant.rate {
            self.rate = RateClaim::Holds(lease);
        }
        let spends = if self.lie.spends() && !self.is_paced { self.in_hand(real) } else { 0 };
        if spends > 0 {
            self.slot.take(spends, self.clock.show(real)).expect("it is in hand");
            self.spent += spends;
        }
        spends
    }

    /// Whether it begins another session after an answer that `is_error`.
    pub fn gives_up(&mut self, is_error: bool) -> bool {
        is_error && self.rng.bool()
    }

    /// How far away it says that it is.
    pub fn rtt(&mut self) -> Duration {
        Duration::from_millis(self.large())
    }

    /// What it says of the vendor: anything.
    pub fn observed(&mut self) -> Observed {
        let span = |number| Duration::from_millis(number);
        let announced = Announced { limit: self.large(), per: None };
        Observed {
            number: self.seq,
            refused_total: self.large(),
            wait: Some(span(self.large())),
            left: Some(Left { permits: self.large(), lasts: Some(span(self.large())) }),
            announced: [Some(announced), None, None, None],
        }
    }

    /// Zero, a few, many, or the most that the wire lets through.
    fn large(&mut self) -> u64 {
        match self.rng.u32(..4) {
            0 => self.rng.u64(..10),
            1 => self.rng.u64(..10_000),
            2 => self.rng.u64(..=PERMITS_MAX),
            _ => PERMITS_MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SECOND;

    /// What it can still spend is never more than what it last claimed to hold, and is never said to be spent.
    #[test]
    fn a_foe_spends_nothing_that_it_said_is_gone() {
        for (seed, (_, lie)) in LIES.into_iter().enumerate() {
            let rng = fastrand::Rng::with_seed(seed as u64);
            let mut adversary = Adversary::new(lie, HostClock::new(SECOND, 0), 1, rng);
            for step in 0..200 {
                let real = step * 200 * MILLI;
                let (seq, ask) = adversary.ask(real);
                assert!(ask.spent_total <= PERMITS_MAX && ask.held <= PERMITS_MAX && seq <= PERMITS_MAX);
                assert!(adversary.in_hand(real) <= ask.held, "{lie:?}: {ask:?}");
                assert!(!lie.spends() || ask.spent_total <= adversary.spent, "{lie:?}: {ask:?}");
                assert!(
                    !lie.spends() || ask.spent_total + ask.held >= adversary.spent + adversary.in_hand(real),
                    "{lie:?}: {ask:?}"
                );
                let grant = Grant {
                    kept: ask.held.min(adversary.granted),
                    permits: 7,
                    term: Duration::from_millis(100),
                    horizon: Duration::from_millis(100),
                    ceiling: 100,
                    ask_after: Duration::ZERO,
                    retry_after: None,
                    rate: Rate::Free,
                    in_flight: None,
                };
                // Every third answer comes when what it grants has ended.
                let before = adversary.in_hand(real) + adversary.spent;
                adversary.exchange = (step, adversary.clock.show(real));
                let real = real + if step % 3 == 0 { 150 * MILLI } else { 0 };
                adversary.believe(real, &grant, ClockBounds::default());
                assert!(
                    adversary.in_hand(real) + adversary.spent <= before + 7,
                    "{lie:?}: what had ended is back"
                );
            }
        }
    }
}
