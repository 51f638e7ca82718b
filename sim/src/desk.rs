//! One limit at one node: the shipping slot and refill, with callers in front. State that handles keep in atomics is
//! plain here.

use crate::MILLI;
use crate::node::Node;
use lessor::feedback::Feedback;
use lessor::pace::Refill;
use lessor::slot::{LATE_STEPS, Quick, Slot, Time};
use lessor_holder::answer::{AnswerTiming, Outcome};
use lessor_holder::refill::Seen;
use lessor_holder::safe_allowance::SafeAllowance;
use lessor_protocol::{Answer, Ask, Moment, Tick};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The step of a common coarse clock, in nanoseconds.
const TICK: u64 = 4 * MILLI;

/// A limit at a node.
#[derive(Debug)]
pub struct Desk {
    /// The permits the node may spend.
    pub slot: Slot,
    /// Nanoseconds for which the node's coarse clock stands still. At some nodes its steps come late, by as much as a
    /// slot tolerates.
    tick: u64,
    /// When and what the node asks.
    pub refill: Refill,
    /// What the node heard of the vendor.
    pub feedback: Feedback,
    /// Permits refused so far.
    pub refused: u64,
    /// Permits among `refused` that passed all the same in shadow mode.
    pub shadow_refused: u64,
    /// The largest call that a steady flow has kept waiting.
    pub largest: u64,
    /// When the first caller in line is called because the next permit of a steady flow is due, in real nanoseconds.
    pub due: u64,
    /// The safe allowance, which the node may spend while no allocator answers.
    pub allowance: SafeAllowance,
    /// The safe share that the node was told: permits, and until when on its own clock.
    pub share: Option<(u64, Moment)>,
    /// Whether the node goes on with `allowance`.
    pub uses_safe_share: bool,
    /// Whether an operator has paused the limit, or blocked this node.
    pub is_stopped: bool,
    /// Whether the allocator says that nothing can be had, so calls are refused rather than kept waiting.
    pub is_shut_out: bool,
    /// The longest that a call may take, in nanoseconds, if the node was told.
    pub longest: Option<u64>,
    /// Permits that ongoing calls have reserved and will not need, by the number of the reservation.
    pub unneeded: BTreeMap<u64, u64>,
    /// Callers that wait, in order.
    pub line: VecDeque<Waiter>,
    /// Whether the background task knows that it is wanted.
    pub nudged: bool,
    /// Free permits below which a spender nudges the task.
    pub low_water: u64,
    /// Permits that the allocator has granted in the exchange in flight.
    pub coming: u64,
    /// The generation of the arrival rates: arrivals drawn under an earlier one do not count.
    pub arrivals: u64,
}

/// Makes the slot of a session: some have one word, others two or four stripes.
fn slot(session: u64) -> Slot {
    let slot = Slot::new();
    // A stripe is worth having here however little it holds, because balances are small.
    slot.stripe([1, 2, 4][usize::try_from(session % 3).expect("less than three")], 1);
    slot
}

/// A caller that waits.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    /// Names the caller.
    pub ticket: u64,
    /// Real time at which the wait began.
    pub since: u64,
    /// Permits that the caller wants.
    pub permits: u64,
}

impl Desk {
    /// Makes the desk of a node that is `session` and whose clock shows `now`.
    pub fn new(now: Moment, session: u64) -> Self {
        let tick = TICK * (1 + session % u64::from(LATE_STEPS));
        Desk { slot: slot(session), tick, ..Desk::plain(now) }
    }

    /// Makes a desk with a slot of one word, at a node whose clock shows `now` and ticks in time.
    pub fn plain(now: Moment) -> Self {
        Desk {
            slot: Slot::new(),
            tick: TICK,
            refill: Refill::new(now, true),
            feedback: Feedback::default(),
            refused: 0,
            shadow_refused: 0,
            largest: 0,
            due: u64::MAX,
            allowance: SafeAllowance::default(),
            share: None,
            uses_safe_share: false,
            is_stopped: false,
            is_shut_out: false,
            longest: None,
            unneeded: BTreeMap::new(),
            line: VecDeque::new(),
            nudged: false,
            low_water: 0,
            coming: 0,
            arrivals: 0,
        }
    }

    /// Makes the desk for the next process of the node, which is `session`.
    pub fn restarted(&self, now: Moment, session: u64) -> Self {
        Desk { arrivals: self.arrivals, ..Desk::new(now, session) }
    }

    /// Whether `node` forgets the pool when there is nothing to tell of it, as a client does whose callers keep no
    /// handle of a key. Some sessions do.
    pub fn forgets(&self, node: &Node, real: u64) -> bool {
        let is_quiet = self.line.is_empty() && self.unneeded.is_empty() && !self.refill.is_paced();
        node.session() % 4 == 1
            && is_quiet
            && self.refill.is_known()
            && self.refill.is_forgettable(&self.slot, node.now(real))
            && self.allowance.is_forgettable(node.now(real))
    }

    /// Forgets the pool: the next call finds a new one.
    pub fn forget(&mut self, now: Moment) {
        self.slot.renew();
        self.refill = Refill::new(now, false);
        (self.allowance, self.share) = (SafeAllowance::default(), None);
        (self.refused, self.largest, self.low_water) = (0, 0, 0);
    }

    /// Returns what the handles have seen.
    pub fn seen(&self) -> Seen {
        let waiting = self.line.iter().map(|waiter| waiter.permits).sum();
        let first = self.line.front().map(|first| first.permits);
        let largest = match self.refill.is_paced() {
            true => self.largest,
            // Any lease brings one permit.
            false => first.filter(|&first| first > 1).unwrap_or(0),
        };
        Seen { refused: self.refused, waiting, shadow_refused: self.shadow_refused, largest }
    }

    /// Writes the ask at `now`, for a node with round-trip time `rtt`.
    pub fn write(&mut self, now: Moment, rtt: Duration) -> Ask {
        self.nudged = true;
        self.refill.write(&self.slot, self.seen(), now, rtt)
    }

    /// Takes the answer `word`, at a node with round-trip time `rtt`. Callers are not served yet.
    pub fn on_answer(
        &mut self,
        word: Result<&Answer, &str>,
        timing: AnswerTiming,
        rtt: Duration,
        rng: u64,
    ) -> Outcome {
        let outcome = self.refill.on_answer(&self.slot, word, timing, false, rng);
        self.low_water = self.refill.nudge_below(rtt);
        self.nudged = self.refill.not_before() > timing.now;
        outcome
    }

    /// Returns the permits that the node can still spend, with those that an ongoing call will give back unneeded.
    pub fn in_hand(&self, node: &Node, real: u64) -> u64 {
        let now = node.now(real);
        let is_live = node.up && now < self.slot.deadline();
        let unneeded =
            self.unneeded.iter().filter(|(number, _)| self.refill.is_open(&self.slot, **number, now));
        let permits = if is_live {
            self.slot.balance().total() + unneeded.map(|(_, permits)| permits).sum::<u64>()
        } else {
            0
        };
        let paced = || self.refill.pace().map_or(0, |pace| pace.available(now));
        if self.refill.is_paced() { permits.min(paced()) } else { permits }
    }

    /// Spends `permits` as a handle does, if they are there. Returns the free permits left.
    pub fn spend(&self, node: &Node, real: u64, permits: u64) -> Option<u64> {
        let now = node.now(real);
        if self.refill.is_paced() {
            return self.hold_at_pace(permits, now).then(|| self.slot.spend_held(permits));
        }
        // To the slot, each call seems to come from another thread.
        let near = usize::try_from(real / 1_000).expect("64 bits");
        let (tick, late_ns) = (Tick::of(now.as_nanos() / self.tick), TICK * u64::from(LATE_STEPS));
        // Every other call looks the pool up, as calls by key do.
        let shared = (near % 2 == 1).then_some(&node.watch);
        let is_spent = match self.slot.spend_quickly(|| near, shared, permits, tick, late_ns) {
            Quick::Spent(_) => true,
            Quick::Empty(_) => false,
            Quick::Unsure => {
                let time = Time { tick: Some(tick), late_ns, shared, exact: || now };
                self.slot.spend(near, permits, &time).is_ok()
            }
        };
        is_spent.then(|| self.slot.balance().free)
    }

    /// Begins a call of `permits` that will say when it ends, if they are there. Returns the free permits left.
    pub fn enter(&mut self, permits: u64, now: Moment) -> Option<u64> {
        if !self.refill.is_paced() {
            return self.refill.enter(&self.slot, permits, now).ok();
        }
        self.hold_at_pace(permits, now).then(|| self.refill.enter_held(&self.slot, permits, now))
    }

    /// Sets `permits` of a steady flow aside, if they are there and due.
    pub fn hold_at_pace(&self, permits: u64, now: Moment) -> bool {
        if self.slot.hold(permits, now).is_err() {
            return false;
        }
        let is_time = self.refill.pace().is_some_and(|pace| pace.take(permits, now).is_ok());
        if !is_time {
            self.slot.put_back(permits);
        }
        is_time
    }

    /// Returns the real time at which the next permit for the first in line is due, from a steady flow or the safe
    /// allowance. `None` if the caller waits for something else.
    pub fn next_due(&self, node: &Node, real: u64) -> Option<u64> {
        if let Some(first) = self.line.front().filter(|_| self.uses_safe_share) {
            let now = node.now(real);
            return self.allowance.wait(first.permits, now).map(|wait| node.clock.when(now + wait));
        }
        let (first, now) = (self.line.front()?, node.now(real));
        self.early_by(first.permits, now).map(|wait| node.clock.when(now + wait))
    }

    /// Returns the time until `permits` of a steady flow are due. `None` if a call for them waits for more than that,
    /// or the lease ends before.
    pub fn early_by(&self, permits: u64, now: Moment) -> Option<Duration> {
        if !self.refill.is_paced() {
            return None;
        }
        let wait = self.refill.pace()?.check(permits, now).err()?.wait?;
        let has_permits = permits <= self.slot.balance().free && now + wait < self.slot.deadline();
        has_permits.then_some(wait)
    }

    /// Whether the first in line waits although permits suffice for it.
    pub(crate) fn passes_over(&self, node: &Node, real: u64) -> bool {
        let now = node.now(real);
        let is_live = now < self.slot.deadline();
        let suffices = |waiter: &Waiter| waiter.permits <= self.slot.balance().free;
        let is_minted = |permits| self.refill.pace().is_some_and(|pace| pace.check(permits, now).is_ok());
        let is_due = |waiter: &Waiter| {
            // A caller that waits for the next permit of a steady flow is called when that is due.
            !self.refill.is_paced() || (self.due == u64::MAX && is_minted(waiter.permits))
        };
        node.up && is_live && self.line.front().is_some_and(|waiter| suffices(waiter) && is_due(waiter))
    }
}
