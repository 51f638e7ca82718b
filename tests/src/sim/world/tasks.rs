//! The background task of each node, as `client/src/refiller.rs` runs it: due → write → send → believe, one exchange
//! in flight at a time, backing off when it fails.

use super::World;
use super::event::{Event, Message, Reply};
use crate::sim::MILLI;
use crate::sim::faults::Fault;
use crate::sim::network::Way;
use crate::sim::node::Exchange;
use crate::sim::oracle::{Verdict, Wrong};
use crate::sim::setup::Sabotage;
use lessor::refill::Belief;
use lessor_allocator::pool::AskError;
use lessor_protocol::{Answer, Ask, Grant, Moment};
use std::time::Duration;

/// These three as in the shipping task: pools that are due within this time are due; the longest sleep; the longest
/// that it waits for an answer.
const TOGETHER: Duration = Duration::from_millis(1);
const LOOK_AGAIN: Duration = Duration::from_secs(5);
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(1);

/// Timers fire this late at most: tokio's stand on a grid of milliseconds.
const TIMER_LATE: u64 = MILLI;

impl World {
    /// Tells the task of `node` that it is wanted.
    pub(super) fn nudge(&mut self, node: usize) {
        if !self.nodes[node].nudged {
            self.nodes[node].nudged = true;
            self.look(node);
        }
    }

    pub(super) fn wake(&mut self, node: usize, life: u64) {
        if self.nodes[node].life == life {
            self.nodes[node].alarm = u64::MAX;
            self.look(node);
        }
    }

    /// Asks if it is time, or sleeps until it is.
    pub(super) fn look(&mut self, node: usize) {
        if self.rival.is_some() {
            return self.look_as_rival(node);
        }
        let at = &mut self.nodes[node];
        if !at.up || at.exchange.is_some() {
            return;
        }
        let now = at.now(self.real);
        let mut next = at.quiet_until;
        if now >= at.quiet_until {
            next = at.refill.due(&at.slot, at.seen(), now, at.rtt);
            if now >= at.refill.not_before() {
                at.nudged = false;
            } else {
                next = next.min(at.refill.not_before().max(now + TOGETHER + Duration::from_nanos(1)));
            }
            if next <= now + TOGETHER {
                return self.ask(node);
            }
        }
        self.sleep(node, next.min(now + LOOK_AGAIN));
    }

    /// Wakes `node` at `next`, or a little later.
    pub(super) fn sleep(&mut self, node: usize, next: Moment) {
        let at = &mut self.nodes[node];
        let alarm = at.clock.when(next) + self.dice.u64(0..=TIMER_LATE);
        // A timer that fires too early only looks once more.
        if alarm < at.alarm {
            at.alarm = alarm;
            let life = at.life;
            self.push(alarm, Event::Wake { node, life });
        }
    }

    fn ask(&mut self, node: usize) {
        let at = &mut self.nodes[node];
        let now = at.now(self.real);
        at.nudged = true;
        let mut ask = at.refill.write(&at.slot, at.seen(), now);
        if self.setup.sabotage == Sabotage::UnderReport {
            ask.spent_total -= ask.spent_total / 50;
        }
        if self.crashes(node, Fault::CrashBeforeSend) {
            return;
        }
        self.send_new(node, now, ask);
        self.crashes(node, Fault::CrashAfterSend);
    }

    /// Begins an exchange with `ask`, at `now` of the node.
    pub(super) fn send_new(&mut self, node: usize, now: Moment, ask: Ask) {
        self.order += 1;
        let at = &mut self.nodes[node];
        at.seq += 1;
        at.exchange = Some(Exchange { id: self.order, first_sent: now, coming: 0 });
        let (session, seq, exchange, life) = (at.session, at.seq, self.order, at.life);
        let timeout = at.clock.when(now + EXCHANGE_TIMEOUT);
        self.log.note(
            self.real,
            "node # asks (# of its session): spent #, holds #, wants #",
            &[node as u64, seq, ask.spent_total, ask.held, ask.want],
        );
        self.meter.exchanged();
        self.push(timeout, Event::TimeOut { node, life, exchange });
        self.send_ask(Message { node, session, seq, exchange, ask, leaves: false });
    }

    pub(super) fn send_ask(&mut self, message: Message) {
        let Self { network, setup, struck, dice, .. } = self;
        for at in network.send(self.real, message.node, Way::There, &setup.faults, struck, dice) {
            self.push(at, Event::Ask(message));
        }
    }

    /// An answer reaches its node, which believes it only if it still waits for it.
    pub(super) fn hear(&mut self, reply: Reply) -> Verdict {
        let node = reply.node;
        let at = &mut self.nodes[node];
        let awaited = at.exchange.filter(|exchange| exchange.id == reply.exchange);
        let (true, Some(exchange)) = (at.up && at.session == reply.session, awaited) else {
            return Ok(());
        };
        if self.crashes(node, Fault::CrashBeforeInstall) {
            return Ok(());
        }
        let at = &mut self.nodes[node];
        at.exchange = None;
        let now = at.now(self.real);
        let Some(answer) = reply.answer else {
            self.failed(node);
            return Ok(());
        };
        at.backoff.succeeded();
        at.measured(now.since(exchange.first_sent));
        match answer {
            Ok(Answer::Grant(grant)) => self.install(node, &grant, exchange.first_sent)?,
            Ok(Answer::Refusal(refusal)) => {
                self.log.note(self.real, "node # is told to wait", &[node as u64]);
                let dice = self.dice.u64(..);
                at.refill.refused(now, refusal.retry_after.min(LOOK_AGAIN), dice);
            }
            Err(error) => self.disputed(node, error)?,
        }
        self.look(node);
        Ok(())
    }

    fn install(&mut self, node: usize, grant: &Grant, first_sent: Moment) -> Verdict {
        if self.rival.is_some() {
            return self.install_as_rival(node, grant, first_sent);
        }
        let at = &mut self.nodes[node];
        let now = at.now(self.real);
        let first_sent = if self.setup.sabotage == Sabotage::CountFromReceipt { now } else { first_sent };
        let terms = self.setup.plan.terms;
        let dice = self.dice.u64(..);
        let belief = at.refill.believe(&at.slot, grant, terms, first_sent, now, dice);
        if belief != Belief::Installed {
            return Err(Wrong {
                is_over: false,
                what: format!("node {node} was granted what cannot be: {grant:?}"),
            });
        }
        at.low_water = at.refill.low_water(at.rtt);
        at.nudged = at.refill.not_before() > now;
        let left = at.slot.deadline().since(now).as_nanos() as u64;
        self.log.note(
            self.real,
            "node # installs #, keeps #, for # ns",
            &[node as u64, grant.permits, grant.kept, left],
        );
        let in_hand = self.in_hand();
        self.oracle.exposed(self.now(), in_hand)?;
        self.serve_line(node)
    }

    fn disputed(&mut self, node: usize, error: AskError) -> Verdict {
        // Books that were lost, or sessions that were forgotten, may have been taken up by an old message.
        let lasting = self.centre.life == 0 && !self.centre.forgot && !self.setup.remembered().is_zero();
        let honest = self.setup.sabotage == Sabotage::None && lasting;
        let at = &mut self.nodes[node];
        let now = at.now(self.real);
        match error {
            AskError::LeaseUnknown { .. } => {
                self.log.note(self.real, "node # is not known: it starts from zero", &[node as u64]);
                at.refill.forget(&at.slot);
                at.nudged = false;
            }
            AskError::Totals { .. } | AskError::Stale { .. } if honest => {
                return Err(Wrong { is_over: false, what: format!("node {node} was not believed: {error}") });
            }
            AskError::Totals { .. } | AskError::Stale { .. } => {
                self.log.note(self.real, "node # is not believed: it begins a session", &[node as u64]);
                self.sessions += 1;
                at.session = self.sessions;
                at.seq = 0;
                at.refill.forget(&at.slot);
                at.nudged = false;
            }
            AskError::Full { .. } => at.refill.refused(now, LOOK_AGAIN, self.dice.u64(..)),
        }
        Ok(())
    }

    pub(super) fn time_out(&mut self, node: usize, life: u64, exchange: u64) {
        let at = &mut self.nodes[node];
        if at.life == life && at.exchange.is_some_and(|waiting| waiting.id == exchange) {
            at.exchange = None;
            self.failed(node);
        }
    }

    fn failed(&mut self, node: usize) {
        self.log.note(self.real, "node # got no answer", &[node as u64]);
        let at = &mut self.nodes[node];
        let wait = at.backoff.failed(self.dice.u64(..));
        at.quiet_until = at.now(self.real) + wait;
        self.look(node);
    }
}
