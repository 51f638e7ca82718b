//! A node that breaks the protocol: it hoards, lies, replays or floods. The world carries its messages, which stay
//! within what the wire format accepts. One lie is never told, because no books protect against it: the adversary
//! spends no permit that it reported as spent or does not hold. Only a contract with the operator of the node helps
//! there.

use crate::MILLI;
use crate::clock::HostClock;
use lessor::slot::Slot;
use lessor_protocol::moment::nanos;
use lessor_protocol::{
    Announced, Ask, ClockBounds, Grant, Left, Moment, Observed, PERMITS_MAX, Rate, RateClaim, RateLease,
};
use std::time::Duration;

lessor_protocol::words! {
    /// How an adversary breaks the protocol.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Lie {
        /// Takes all it can get, claims to need more, and never spends any of it.
        Hoard = "hoard",
        /// Spends every grant at once and claims to need far more.
        Overstate = "overstate",
        /// Spends every grant at once, wants much, and reports no demand.
        Understate = "understate",
        /// Claims to hold permits that it has spent.
        Claim = "claim",
        /// Makes up its totals, which fall and jump.
        Forge = "forge",
        /// Numbers its asks in jumps, up to the largest number, and sends old asks again.
        Jump = "jump",
        /// Spends nothing and reports everything as spent.
        Pretend = "pretend",
        /// Asks a thousand times a second.
        Flood = "flood",
        /// Asks again long before it was told to, and spends its grants.
        Hurry = "hurry",
        /// Begins a new session for each ask.
        Crowd = "crowd",
    }
}

impl Lie {
    /// Whether the adversary spends. If so, no claim of it may make that spending wrong.
    fn spends(self) -> bool {
        matches!(self, Lie::Overstate | Lie::Understate | Lie::Claim | Lie::Jump | Lie::Hurry)
    }

    /// Whether the adversary ignores when it was told to ask next.
    fn is_hasty(self) -> bool {
        matches!(self, Lie::Hoard | Lie::Flood | Lie::Hurry | Lie::Crowd)
    }

    /// Returns the mean time that the adversary adds between two asks, in nanoseconds.
    fn pace(self) -> u64 {
        match self {
            Lie::Flood | Lie::Hurry => MILLI,
            // The allocator remembers each session for a while: a faster pace would only make the run slow.
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

/// Longest wait for an answer: only the answer to the newest ask is of use.
const ANSWER_WITHIN: Duration = Duration::from_millis(100);

/// A node that breaks the protocol.
#[derive(Debug)]
pub struct Adversary {
    /// How the adversary breaks the protocol.
    pub lie: Lie,
    /// The clock of its host.
    pub clock: HostClock,
    /// Its current session.
    pub session: u64,
    /// The exchange whose answer it waits for, and when its ask was sent.
    pub exchange: (u64, Moment),
    /// The number of its last ask.
    seq: u64,
    /// The permits it may spend.
    slot: Slot,
    /// Permits granted in this session, permits spent in it, and the last ask.
    granted: u64,
    spent: u64,
    said: Ask,
    /// The wait before the next ask, as the last answer said.
    ask_after: Duration,
    /// Whether the limit has a steady flow. The adversary spends none of it: it keeps no bucket that says when it may.
    is_paced: bool,
    /// The rate that it was lent last.
    rate: RateClaim,
    rng: fastrand::Rng,
}

impl Adversary {
    /// Makes an adversary that begins with `session`.
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

    /// Begins another session, which holds nothing.
    pub fn begin(&mut self, session: u64) {
        (self.session, self.seq, self.granted, self.spent) = (session, 0, 0, 0);
        self.said = Ask::default();
        self.rate = RateClaim::None;
        // The slot is replaced, not emptied: the old one would keep the end of its last lease.
        self.slot = Slot::new();
    }

    /// Returns the permits that the adversary can still spend.
    pub fn in_hand(&self, real: u64) -> u64 {
        if self.is_paced { 0 } else { self.has(real) }
    }

    /// Returns the permits of a live lease.
    fn has(&self, real: u64) -> u64 {
        if self.clock.show(real) < self.slot.deadline() { self.slot.balance().total() } else { 0 }
    }

    /// Returns the time until the next ask, in nanoseconds.
    pub fn gap(&mut self) -> u64 {
        let told = if self.lie.is_hasty() { 0 } else { nanos(self.ask_after) };
        told + self.rng.u64(1..=2 * self.lie.pace())
    }

    /// Whether the adversary waits for the answer to its last ask before it sends another.
    pub fn waits(&self, real: u64) -> bool {
        let (exchange, sent) = self.exchange;
        self.lie != Lie::Flood && exchange != 0 && self.clock.show(real).since(sent) < ANSWER_WITHIN
    }

    /// Whether the adversary begins a new session before its next ask.
    pub(crate) fn moves_on(&mut self) -> bool {
        self.lie == Lie::Crowd || self.seq >= PERMITS_MAX || self.rng.u32(..200) == 0
    }

    /// Whether the adversary sends an old message again instead of a new one.
    pub fn repeats(&mut self) -> bool {
        self.lie == Lie::Jump && self.rng.u32(..3) == 0
    }

    /// Makes the next ask and returns it with its number.
    pub fn ask(&mut self, real: u64) -> (u64, Ask) {
        let jumps = self.lie == Lie::Jump && self.rng.bool();
        let step = if jumps { [1_000, 1 << 40, PERMITS_MAX][self.rng.usize(..3)] } else { 1 };
        self.seq = self.seq.saturating_add(step).min(PERMITS_MAX);
        let held = self.has(real);
        let rate = self.claim();
        let mut truth = Ask { spent_total: self.spent, held, want: self.large(), rate, ..Ask::default() };
        // Calls in flight are omitted or overstated. To understate them is as bad as to spend permits that are not
        // held.
        if self.seq.is_multiple_of(2) {
            (truth.running, truth.busy) = (Some(PERMITS_MAX), self.granted);
        }
        let ask = match self.lie {
            Lie::Hoard | Lie::Overstate | Lie::Flood | Lie::Hurry | Lie::Crowd => {
                Ask { waiting: self.large(), demand_milli: self.large(), ..truth }
            }
            Lie::Understate | Lie::Jump => truth,
            Lie::Claim => {
                // The total reported as spent must not fall, and must have been spent.
                let spent_total = self.rng.u64(self.said.spent_total..=self.spent);
                // Claims no more than that: permits that never existed would be given back with the next ask, and could
                // pass for permits that were spent. No pool sees through that lie.
                Ask { spent_total, held: held + self.spent - spent_total, ..truth }
            }
            Lie::Forge => {
                let any = [0, self.granted / 2, self.granted, self.large(), PERMITS_MAX];
                let (spent_total, held) = (any[self.rng.usize(..5)], any[self.rng.usize(..5)]);
                Ask { spent_total, held, ..truth }
            }
            Lie::Pretend => Ask { spent_total: self.granted, held: 0, ..truth },
        };
        // Permits that the ask does not claim are given back, and those of an ended lease are gone.
        self.slot.shed(ask.held.min(held));
        self.said = ask;
        (self.seq, ask)
    }

    /// Makes a claim about the rate: it is held, let go, or made up. It never claims more credit than could come back.
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

    /// Takes the answer to the newest ask. Returns how many permits are spent now.
    pub fn believe(&mut self, real: u64, grant: &Grant, clocks: ClockBounds) -> u64 {
        let deadline = clocks.holder_end(self.exchange.1, grant.term);
        self.granted += grant.permits;
        self.ask_after = grant.ask_after;
        self.slot.install(grant.permits, self.said.held.saturating_sub(grant.kept), deadline);
        if !self.lie.spends() && self.lie != Lie::Hoard {
            // Its claims about these permits may be anything, so it must not spend them.
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

    /// Whether the adversary begins another session after an answer, which may be an error.
    pub(crate) fn gives_up(&mut self, is_error: bool) -> bool {
        is_error && self.rng.bool()
    }

    /// Makes up a round-trip time.
    pub fn rtt(&mut self) -> Duration {
        Duration::from_millis(self.large())
    }

    /// Makes up a vendor's count.
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

    /// Draws zero, a few, many, or the most permits that the wire format accepts.
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

    /// Permits in hand never exceed the last claim of held permits, and are never reported as spent.
    #[test]
    fn a_foe_spends_nothing_that_it_said_is_gone() {
        for (seed, lie) in Lie::ALL.into_iter().enumerate() {
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
                // Every third answer comes after the lease that it grants has ended.
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
