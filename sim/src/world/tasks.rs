//! The background task of each node: it drives the shipping refill and connection, due → write → send → on_answer, as
//! `client/src/refiller.rs` does.

use super::World;
use super::event::{Event, Message, Phase, Reply};
use crate::MILLI;
use crate::faults::Fault;
use crate::network::Way;
use crate::node::Exchange as Known;
use crate::oracle::{Verdict, Violation, must};
use crate::setup::Sabotage;
use lessor_holder::answer::{AnswerTiming, Outcome};
use lessor_holder::connection::Exchange;
use lessor_holder::round::Round;
use lessor_holder::timing::LOOK_AGAIN;
use lessor_ledger::rejection::Reason;
use lessor_protocol::{Answer, Ask, Moment};

/// Timers fire this late at most: tokio's stand on a grid of milliseconds.
pub(super) const TIMER_LATE: u64 = MILLI;

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
        if at.forgets(self.real) {
            at.forget(self.real);
            self.log.note(self.real, "node # forgets what it has nothing to tell of", &[node as u64]);
            self.oracles.of(self.setup.lender(node)).forgets(self.nodes[node].session());
        }
        let at = &mut self.nodes[node];
        let now = at.now(self.real);
        let mut next = at.connection.quiet_until();
        if now >= next {
            if now >= at.refill.not_before() {
                at.nudged = false;
            }
            let (seen, rtt) = (at.seen(), at.connection.rtt());
            let mut round = Round::new(now, Moment::ORIGIN, rtt);
            round.look((), &mut at.refill, &at.slot, seen, false);
            let (due, later) = round.finish(|()| Moment::NEVER);
            if !due.is_empty() {
                return self.ask(node);
            }
            next = later;
        }
        self.sleep(node, next.min(now + LOOK_AGAIN));
    }

    /// Wakes `node` at `next`, or a little later.
    pub(super) fn sleep(&mut self, node: usize, next: Moment) {
        let at = &mut self.nodes[node];
        let alarm = at.clock.when(next) + self.rng.u64(0..=TIMER_LATE);
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
        let mut ask = at.refill.write(&at.slot, at.seen(), now, at.connection.rtt());
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
        at.exchange = Some(Known { id: self.order, coming: 0 });
        let Exchange { session, seq, rtt, patience, .. } = at.connection.begin(now);
        let (exchange, life) = (self.order, at.life);
        let timeout = at.clock.when(now + patience);
        self.log.note(
            self.real,
            "node # asks (# of its session): spent #, holds #, wants #, runs #",
            &[node as u64, seq, ask.spent_total, ask.held, ask.want, ask.running.unwrap_or(0) + ask.busy],
        );
        self.meter.exchanged();
        self.push(timeout, Event::TimeOut { node, life, exchange });
        let observed = self.nodes[node].feedback.tell(now);
        self.send_ask(Message { node, session, seq, exchange, rtt, ask, observed, leaves: false });
    }

    pub(super) fn send_ask(&mut self, message: Message) {
        let Self { network, setup, struck, rng, .. } = self;
        for at in network.send(self.real, message.node, Way::There, &setup.faults, struck, rng) {
            self.push(at, Event::Ask(message));
        }
    }

    /// An answer reaches its node, which believes it only if it still waits for it.
    pub(super) fn hear(&mut self, reply: Reply) -> Verdict {
        let node = reply.node;
        if let Some(region) = self.region(node) {
            return self.region_hears(region, reply);
        }
        if let Some(index) = self.adversary(node) {
            return self.foe_hears(index, reply);
        }
        let at = &mut self.nodes[node];
        if !at.up || !at.connection.awaits(reply.session, reply.seq) {
            return Ok(());
        }
        if self.crashes(node, Fault::CrashBeforeInstall) {
            return Ok(());
        }
        let at = &mut self.nodes[node];
        at.exchange = None;
        let Some(answer) = reply.answer else {
            return self.failed(node);
        };
        let now = at.now(self.real);
        let Some((exchange, _)) = at.connection.on_answer(reply.session, reply.seq, now) else {
            return Ok(());
        };
        at.is_fallen = false;
        at.allowance.tell(reply.share, exchange.first_sent, self.setup.plan.clocks);
        self.nodes[node].connection.on_success();
        self.installs(node, answer, exchange.first_sent, reply.longest)?;
        self.look(node);
        Ok(())
    }

    /// The refill of `node` takes `answer` in, and its callers hear of what came.
    fn installs(
        &mut self,
        node: usize,
        answer: Result<Answer, Reason>,
        first_sent: Moment,
        longest: Option<u64>,
    ) -> Verdict {
        let at = &mut self.nodes[node];
        if let Ok(Answer::Grant(grant)) = &answer {
            at.longest = longest;
            if self.rival.is_some() {
                return self.install_as_rival(node, grant, first_sent);
            }
        }
        let (now, rng) = (at.now(self.real), self.rng.u64(..));
        let timing = AnswerTiming { first_sent, now, clocks: self.setup.plan.clocks };
        let word = answer.as_ref().map_err(|error| error.code());
        let outcome = at.refill.on_answer(&at.slot, word, timing, false, rng);
        at.low_water = at.refill.nudge_below(at.connection.rtt());
        at.nudged = at.refill.not_before() > now;
        match (outcome, answer) {
            (Outcome::Installed, Ok(Answer::Grant(grant))) => {
                (at.is_shut_out, at.is_stopped) = (false, false);
                let left = at.slot.deadline().since(now).as_nanos() as u64;
                self.log.note(
                    self.real,
                    "node # installs #, keeps #, for # ns",
                    &[node as u64, grant.permits, grant.kept, left],
                );
                let in_hand = self.in_hand();
                self.oracles.exposed(self.now(), &in_hand)?;
                self.serve_line(node)?;
            }
            (Outcome::Refused, Ok(Answer::Refusal(refusal))) => {
                self.log.note(self.real, "node # is told to wait", &[node as u64]);
                (at.is_shut_out, at.is_stopped) = (false, refusal.reason.stops());
            }
            (Outcome::Unrecognised, _) => {
                self.log.note(self.real, "node # is not known: it will start from zero", &[node as u64]);
            }
            (Outcome::Disputed, _) => {
                self.log.note(self.real, "node # is not believed: it begins a session", &[node as u64]);
                let session = self.next_session(node);
                let at = &mut self.nodes[node];
                at.begin_session(session);
                at.refill.begin_session(&at.slot, now, rng);
            }
            (Outcome::Unavailable, error) => {
                self.log.note(self.real, "node # is shut out, and with it all that wait", &[node as u64]);
                at.is_shut_out = true;
                for waiter in std::mem::take(&mut at.line) {
                    self.meter.short(self.real, node, waiter.permits, true, false);
                }
                let is_calm = self.phase >= Phase::Calm;
                must("V2", !is_calm, || format!("node {node} is shut out when it is calm: {error:?}"))?;
            }
            (_, answer) => {
                let what = format!("node {node} was answered what cannot be: {answer:?}");
                return Err(Violation { is_over: false, name: "K1", what });
            }
        }
        Ok(())
    }

    pub(super) fn time_out(&mut self, node: usize, life: u64, exchange: u64) -> Verdict {
        let at = &mut self.nodes[node];
        if at.life == life && at.exchange.is_some_and(|waiting| waiting.id == exchange) {
            at.exchange = None;
            self.failed(node)?;
        }
        Ok(())
    }

    fn failed(&mut self, node: usize) -> Verdict {
        self.log.note(self.real, "node # got no answer", &[node as u64]);
        let at = &mut self.nodes[node];
        let now = at.now(self.real);
        at.connection.on_failure(now, 0, self.rng.u64(..));
        at.refill.unanswered();
        let has_share = self.setup.plan.sharing.safe.is_some() && !at.is_shut_out && !at.is_stopped;
        at.is_fallen = has_share && now >= at.slot.deadline();
        if at.is_fallen {
            self.serve_line(node)?;
        }
        self.look(node);
        Ok(())
    }
}
