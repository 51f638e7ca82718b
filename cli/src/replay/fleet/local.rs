//! One pool of one node: the desk that the simulator drives, and the answers to callers of a replay. It knows no
//! allocator and no other node.

use crate::replay::answer::Answer;
use lessor_holder::answer::{AnswerTiming, Outcome};
use lessor_holder::timing::LOOK_AGAIN;
use lessor_protocol::moment::nanos;
use lessor_protocol::wire::GrantBody;
use lessor_protocol::{Answer as Lent, Moment};
use lessor_sim::desk::{Desk, Waiter};
use lessor_sim::node::Node;
use std::collections::VecDeque;
use std::time::Duration;

/// One pool of one node.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) desk: Desk,
    /// Whether the limit is in shadow mode, as far as the node was told.
    is_shadow: bool,
    /// Permits in use, where calls in flight are counted, and since when, oldest first.
    calls_in_flight: VecDeque<(Moment, u64)>,
    /// When there may be a permit again.
    chance: Moment,
    rtt: Duration,
    /// The most that one call can ever take.
    ceiling: u64,
}

/// How the wait of a caller ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// It got its permits.
    Admitted,
    /// It got none: in shadow mode no caller waits.
    Passed,
}

impl Local {
    /// Creates a pool without permits that is about to ask for a first lease.
    pub(super) fn new(now: Moment, rtt: Duration, ceiling: u64) -> Self {
        let desk = Desk::plain(now);
        Local { desk, is_shadow: false, calls_in_flight: VecDeque::new(), chance: now, rtt, ceiling }
    }

    /// Spends `permits` at `node` if they are there and no caller waits for them.
    pub(super) fn take(&mut self, node: &Node, permits: u64, now: Moment) -> bool {
        permits == 0 || (self.desk.line.is_empty() && self.spend(node, permits, now))
    }

    /// Spends as a handle does; the call is in flight if the limit counts calls in flight.
    fn spend(&mut self, node: &Node, permits: u64, now: Moment) -> bool {
        let Local { desk, calls_in_flight, rtt, .. } = self;
        if desk.refill.is_paced() {
            desk.largest = desk.largest.max(permits);
        }
        let counts = desk.refill.calls().count();
        let left = if counts { desk.enter(permits, now) } else { desk.spend(node, now.as_nanos(), permits) };
        if counts && left.is_some() {
            calls_in_flight.push_back((now, permits));
            desk.nudged |= desk.refill.due(&desk.slot, desk.seen(), now, *rtt) <= now;
        }
        desk.nudged |= left.is_some_and(|left| left < desk.low_water);
        left.is_some()
    }

    /// Returns since when the oldest call in flight has been.
    pub(super) fn oldest(&self) -> Option<Moment> {
        self.calls_in_flight.front().map(|&(since, _)| since)
    }

    /// Hands back up to `permits` of the oldest call in flight. Returns how many.
    pub(super) fn land(&mut self, permits: u64, now: Moment) -> u64 {
        let Some((_, oldest)) = self.calls_in_flight.front_mut() else { return 0 };
        let landed = permits.min(*oldest);
        *oldest -= landed;
        if *oldest == 0 {
            self.calls_in_flight.pop_front();
        }
        self.desk.refill.hand_back(&self.desk.slot, landed, now);
        landed
    }

    /// Lets a call pass in shadow mode that would be refused or wait, and counts it. Returns whether it did.
    pub(super) fn let_pass(&mut self, permits: u64) -> bool {
        if self.is_shadow {
            self.desk.refused += permits;
            self.desk.shadow_refused += permits;
            self.desk.nudged = true;
        }
        self.is_shadow
    }

    /// Notes that a call for `permits` has to wait until `node` holds them. Returns its answer, unless it should wait
    /// in line with this `patience`.
    pub(super) fn refuse(
        &mut self,
        permits: u64,
        patience: Option<Duration>,
        now: Moment,
        waits: bool,
    ) -> Option<Answer> {
        if permits > self.ceiling {
            return Some(Answer::too_large(permits, self.ceiling, self.remaining(now)));
        }
        let wait = self.wait(permits, now);
        self.desk.nudged = true;
        if patience.is_none_or(|patience| wait <= patience) {
            return None;
        }
        self.desk.refused += permits;
        let wait_ns = waits.then_some(nanos(wait));
        let no = Answer { ok: false, ..Answer::yes(self.remaining(now)) };
        Some(Answer { retry_after_ns: Some(nanos(wait)), wait_ns, ..no })
    }

    /// Returns the answer to a caller that has waited in vain.
    pub(super) fn too_late(&mut self, permits: u64, now: Moment) -> Answer {
        self.desk.refused += permits;
        let wait = Some(nanos(self.wait(permits, now)));
        Answer { ok: false, retry_after_ns: wait, wait_ns: wait, ..Answer::yes(self.remaining(now)) }
    }

    /// Returns the answer to a caller that only looks.
    pub(super) fn look(&self, permits: u64, now: Moment) -> Answer {
        let remaining = self.remaining(now);
        if permits <= remaining {
            return Answer::yes(remaining);
        }
        if self.is_shadow {
            return Answer::passed(remaining, false);
        }
        if permits > self.ceiling {
            return Answer::too_large(permits, self.ceiling, remaining);
        }
        Answer { ok: false, retry_after_ns: Some(nanos(self.wait(permits, now))), ..Answer::yes(remaining) }
    }

    /// Returns how long the permits take to come, as far as this node knows.
    fn wait(&self, permits: u64, now: Moment) -> Duration {
        let early = self.desk.early_by(permits, now);
        early.unwrap_or_else(|| self.chance.since(now).max(self.rtt))
    }

    /// Returns the permits that a call could take at this node.
    pub(super) fn remaining(&self, now: Moment) -> u64 {
        let Desk { slot, refill, line, .. } = &self.desk;
        let is_live = now < slot.deadline() && line.is_empty();
        let free = if is_live { slot.balance().free } else { 0 };
        let paced = || refill.pace().map_or(0, |pace| pace.available(now));
        if refill.is_paced() { free.min(paced()) } else { free }
    }

    /// Takes in an answer.
    pub(super) fn on_answer(&mut self, body: &GrantBody, timing: AnswerTiming, random: u64) -> Outcome {
        let answer = body.answer();
        let word = answer.as_ref().map_err(|error| error.code.as_str());
        let outcome = self.desk.on_answer(word, timing, self.rtt, random);
        self.chance = match &answer {
            Ok(Lent::Grant(grant)) => {
                self.ceiling = grant.ceiling;
                timing.now + grant.retry_after.unwrap_or_default().max(grant.ask_after)
            }
            Ok(Lent::Refusal(refusal)) => timing.now + refusal.retry_after,
            Err(_) => timing.now + LOOK_AGAIN,
        };
        if outcome == Outcome::Installed {
            self.is_shadow = body.shadow;
        }
        outcome
    }

    /// Records an event of the limit.
    pub(super) fn on_event(&mut self, now: Moment, random: u64) {
        self.desk.refill.on_event(now, !self.desk.line.is_empty(), random);
    }

    /// Serves the first caller in line if that is possible now, or lets it pass in shadow mode.
    pub(super) fn serve_first(&mut self, node: &Node, now: Moment) -> Option<(Waiter, Served)> {
        let permits = self.desk.line.front()?.permits;
        let served = if self.spend(node, permits, now) {
            Served::Admitted
        } else if self.let_pass(permits) {
            Served::Passed
        } else {
            return None;
        };
        self.desk.line.pop_front().map(|waiter| (waiter, served))
    }
}
