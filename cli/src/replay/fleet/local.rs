//! One pool of one node: the shipping slot and refill, with callers in front. The fleet drives it as the background
//! task of the client does; it knows no allocator and no other node.

use crate::replay::answer::Answer;
use crate::replay::contract::PoolId;
use crate::replay::request::Request;
use lessor::pace::Refill;
use lessor::slot::Slot;
use lessor_holder::answer::{AnswerTiming, Outcome};
use lessor_holder::refill::Seen;
use lessor_holder::round::Round;
use lessor_holder::timing::LOOK_AGAIN;
use lessor_protocol::moment::nanos;
use lessor_protocol::wire::ErrorBody;
use lessor_protocol::{Answer as Lent, Ask, Moment};
use std::collections::VecDeque;
use std::time::Duration;

/// What a node holds of one pool.
#[derive(Debug)]
pub(super) struct Local {
    slot: Slot,
    refill: Refill,
    /// Permits refused so far, and of these those that passed all the same.
    refused: u64,
    shadow_refused: u64,
    /// Whether the limit is in shadow mode, as far as we were told.
    pub(super) is_shadow: bool,
    /// Permits in use, where calls in flight are counted, and since when, oldest first.
    flying: VecDeque<(Moment, u64)>,
    /// The largest call of a steady flow.
    largest: u64,
    /// First come, first served.
    pub(super) line: VecDeque<Waiter>,
    /// Whether a caller has said that it is time to ask.
    pub(super) is_nudged: bool,
    /// Free permits below which a spender says so.
    low_water: u64,
    /// When there may be a permit again.
    chance: Moment,
    rtt: Duration,
    /// The most one call can ever take.
    ceiling: u64,
}

/// A caller that waits.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) ticket: u64,
    pub(super) since: Moment,
    pub(super) permits: u64,
    pub(super) request: Request,
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
    /// Nothing, and about to ask for a first lease.
    pub(super) fn new(now: Moment, rtt: Duration, ceiling: u64) -> Self {
        Local {
            slot: Slot::new(),
            refill: Refill::new(now, true),
            refused: 0,
            shadow_refused: 0,
            is_shadow: false,
            flying: VecDeque::new(),
            largest: 0,
            line: VecDeque::new(),
            is_nudged: false,
            low_water: 0,
            chance: now,
            rtt,
            ceiling,
        }
    }

    /// Spends `permits` if they are there and no caller waits for them.
    pub(super) fn take(&mut self, permits: u64, now: Moment) -> bool {
        permits == 0 || (self.line.is_empty() && self.spend(permits, now))
    }

    fn spend(&mut self, permits: u64, now: Moment) -> bool {
        let left = self.left_after(permits, now);
        self.is_nudged |= left.is_some_and(|left| left < self.low_water);
        left.is_some()
    }

    /// Spends as a handle does, on a call in flight where calls in flight are counted. Returns what is left then.
    fn left_after(&mut self, permits: u64, now: Moment) -> Option<u64> {
        let left = self.held_after(permits, now)?;
        if !self.refill.calls().count() {
            return Some(self.slot.spend_held(permits));
        }
        self.refill.enter_held(&self.slot, permits, now);
        self.flying.push_back((now, permits));
        self.is_nudged |= self.due(now, self.rtt) <= now;
        Some(left)
    }

    /// Sets aside what is about to be spent: of a steady flow, only if the permits are there and it is time. What is
    /// free then.
    fn held_after(&mut self, permits: u64, now: Moment) -> Option<u64> {
        if !self.refill.is_paced() {
            return self.slot.hold(permits, now).ok();
        }
        self.largest = self.largest.max(permits);
        let left = self.slot.hold(permits, now).ok()?;
        if self.refill.pace().take(permits, now).is_err() {
            self.slot.put_back(permits);
            return None;
        }
        Some(left)
    }

    /// Since when the oldest call that is in flight has been.
    pub(super) fn oldest(&self) -> Option<Moment> {
        self.flying.front().map(|&(since, _)| since)
    }

    /// Up to `permits` of the oldest call in flight are handed back. Returns how many.
    pub(super) fn land(&mut self, permits: u64, now: Moment) -> u64 {
        let Some((_, oldest)) = self.flying.front_mut() else { return 0 };
        let landed = permits.min(*oldest);
        *oldest -= landed;
        if *oldest == 0 {
            self.flying.pop_front();
        }
        self.refill.hand_back(&self.slot, landed, now);
        landed
    }

    /// Whether a call that would be refused or wait passes, which is counted.
    pub(super) fn let_pass(&mut self, permits: u64) -> bool {
        if self.is_shadow {
            self.refused += permits;
            self.shadow_refused += permits;
            self.is_nudged = true;
        }
        self.is_shadow
    }

    /// When the next permit of a steady flow is due for the first in line, if that is all it waits for.
    pub(super) fn next_permit(&self, now: Moment) -> Option<Moment> {
        let first = self.line.front()?;
        self.early_by(first.permits, now).map(|wait| now + wait)
    }

    fn early_by(&self, permits: u64, now: Moment) -> Option<Duration> {
        if !self.refill.is_paced() || self.slot.balance().free < permits || now >= self.slot.deadline() {
            return None;
        }
        self.refill.pace().check(permits, now).err()?.wait
    }

    /// What is said to a call for `permits` that were not there, unless it should wait in line.
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
        self.is_nudged = true;
        if patience.is_none_or(|patience| wait <= patience) {
            return None;
        }
        self.refused += permits;
        let wait_ns = waits.then_some(nanos(wait));
        let no = Answer { ok: false, ..Answer::yes(self.remaining(now)) };
        Some(Answer { retry_after_ns: Some(nanos(wait)), wait_ns, ..no })
    }

    /// Returns the answer to a caller that has waited in vain.
    pub(super) fn too_late(&mut self, permits: u64, now: Moment) -> Answer {
        self.refused += permits;
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

    /// How long it takes, as far as this node knows.
    fn wait(&self, permits: u64, now: Moment) -> Duration {
        self.early_by(permits, now).unwrap_or_else(|| self.chance.since(now).max(self.rtt))
    }

    /// What a call could take at this node.
    pub(super) fn remaining(&self, now: Moment) -> u64 {
        let is_live = now < self.slot.deadline() && self.line.is_empty();
        let free = if is_live { self.slot.balance().free } else { 0 };
        if self.refill.is_paced() { free.min(self.refill.pace().available(now)) } else { free }
    }

    fn seen(&self) -> Seen {
        let waiting = self.line.iter().map(|waiter| waiter.permits).sum();
        let Local { refused, shadow_refused, largest, .. } = *self;
        Seen { refused, waiting, shadow_refused, largest }
    }

    /// Has the `round` look at this pool, which is called `id`.
    pub(super) fn join(&mut self, round: &mut Round<PoolId>, id: &PoolId) {
        let seen = self.seen();
        round.look(id.clone(), &mut self.refill, &self.slot, seen, false);
    }

    /// When to ask next.
    fn due(&self, now: Moment, rtt: Duration) -> Moment {
        self.refill.due(&self.slot, self.seen(), now, rtt)
    }

    /// Writes the ask.
    pub(super) fn write(&mut self, now: Moment, rtt: Duration) -> Ask {
        self.is_nudged = false;
        self.refill.write(&self.slot, self.seen(), now, rtt)
    }

    /// Takes an answer in.
    pub(super) fn on_answer(
        &mut self,
        answer: Result<Lent, &ErrorBody>,
        timing: AnswerTiming,
        random: u64,
    ) -> Outcome {
        let word = answer.as_ref().map_err(|error| error.code.as_str());
        let outcome = self.refill.on_answer(&self.slot, word, timing, false, random);
        self.low_water = self.refill.nudge_below(self.rtt);
        self.chance = match &answer {
            Ok(Lent::Grant(grant)) => {
                self.ceiling = grant.ceiling;
                timing.now + grant.retry_after.unwrap_or_default().max(grant.ask_after)
            }
            Ok(Lent::Refusal(refusal)) => timing.now + refusal.retry_after,
            Err(_) => timing.now + LOOK_AGAIN,
        };
        outcome
    }

    /// Something was heard of the limit.
    pub(super) fn on_event(&mut self, now: Moment, random: u64) {
        self.refill.on_event(now, !self.line.is_empty(), random);
    }

    /// Whether the first in line can be served now, which it has been then; or passes in shadow mode.
    pub(super) fn serve_first(&mut self, now: Moment) -> Option<(Waiter, Served)> {
        let permits = self.line.front()?.permits;
        let served = if self.left_after(permits, now).is_some() {
            Served::Admitted
        } else if self.let_pass(permits) {
            Served::Passed
        } else {
            return None;
        };
        self.line.pop_front().map(|waiter| (waiter, served))
    }
}
