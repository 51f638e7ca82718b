//! The background task of each node. It runs the shipping refills and connection as `client/src/refiller.rs` does: due
//! → write → send → on_answer.

use super::World;
use super::event::{DeskAnswer, DeskAsk, Event, Message, Phase, Reply};
use crate::MILLI;
use crate::faults::Fault;
use crate::network::Way;
use crate::node::{InFlight, Task, number};
use crate::oracle::{Verdict, Violation, must};
use crate::setup::Sabotage;
use lessor_holder::answer::{AnswerTiming, Outcome};
use lessor_holder::connection::Exchange;
use lessor_holder::timing::LOOK_AGAIN;
use lessor_protocol::{Answer, Moment};

/// The latest that timers fire, in nanoseconds: tokio's are on a grid of milliseconds.
pub(super) const TIMER_LATE: u64 = MILLI;

impl World {
    /// Tells the task of the node that `desk` wants something.
    pub(super) fn nudge(&mut self, desk: usize) {
        if !self.desks[desk].nudged {
            self.desks[desk].nudged = true;
            self.look(self.home(desk));
        }
    }

    pub(super) fn wake(&mut self, node: usize, life: u64) {
        if self.nodes[node].life == life {
            self.nodes[node].alarm = u64::MAX;
            self.look(node);
        }
    }

    /// Asks for what is due, or sleeps until something is.
    pub(super) fn look(&mut self, node: usize) {
        if self.rival.is_some() {
            return self.look_as_rival(node);
        }
        if !self.nodes[node].up || self.nodes[node].exchange.is_some() {
            return;
        }
        self.forget_the_idle(node);
        let (at, desks) = (&self.nodes[node], self.desks_of(node));
        let now = at.now(self.real);
        match at.next(self.real, desks.clone().zip(&mut self.desks[desks])) {
            Task::Ask(due) => self.ask(node, due),
            Task::Sleep(next) => self.sleep(node, next.min(now + LOOK_AGAIN)),
        }
    }

    /// Lets some nodes forget pools that they have nothing to tell of.
    fn forget_the_idle(&mut self, node: usize) {
        for desk in self.desks_of(node) {
            let at = &self.nodes[node];
            if self.desks[desk].forgets(at, self.real) {
                self.desks[desk].forget(at.now(self.real));
                self.log.note(self.real, "node # forgets what it has nothing to tell of", &[desk as u64]);
                let session = at.session();
                self.oracles.of(self.setup.lender(desk)).forgets(session);
            }
        }
    }

    /// Wakes `node` at `next`, or up to [`TIMER_LATE`] later.
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

    fn ask(&mut self, node: usize, due: Vec<usize>) {
        let at = &self.nodes[node];
        let (now, rtt) = (at.now(self.real), at.connection.rtt());
        let under_reports = self.setup.sabotage == Sabotage::UnderReport;
        let mut asks = Vec::with_capacity(due.len());
        for desk in due {
            let mut ask = self.desks[desk].write(now, rtt);
            if under_reports {
                ask.spent_total -= ask.spent_total / 50;
            }
            asks.push(DeskAsk { desk, ask, observed: None });
        }
        if self.crashes(node, Fault::CrashBeforeSend) {
            return;
        }
        self.send_new(node, now, asks);
        self.crashes(node, Fault::CrashAfterSend);
    }

    /// Begins an exchange with `asks` at `now` on the node's clock.
    pub(super) fn send_new(&mut self, node: usize, now: Moment, mut asks: Vec<DeskAsk>) {
        self.order += 1;
        let at = &mut self.nodes[node];
        let desks = asks.iter().map(|ask| ask.desk).collect();
        at.exchange = Some(InFlight { id: self.order, desks });
        let Exchange { session, epoch, seq, rtt, patience, .. } = at.connection.begin(now);
        let (exchange, life) = (self.order, at.life);
        let timeout = at.clock.when(now + patience);
        for DeskAsk { desk, ask, observed } in &mut asks {
            self.log.note(
                self.real,
                "node # asks (# of its session): spent #, holds #, wants #, runs #",
                &[
                    *desk as u64,
                    seq,
                    ask.spent_total,
                    ask.held,
                    ask.want,
                    ask.running.unwrap_or(0) + ask.busy,
                ],
            );
            *observed = self.desks[*desk].feedback.tell(now);
        }
        self.meter.exchanged();
        self.push(timeout, Event::TimeOut { node, life, exchange });
        self.send_ask(Message { node, session, epoch, seq, exchange, rtt, asks, leaves: false });
    }

    pub(super) fn send_ask(&mut self, message: Message) {
        let Self { network, setup, struck, rng, .. } = self;
        for at in network.send(self.real, message.node, Way::There, &setup.faults, struck, rng) {
            self.push(at, Event::Ask(message.clone()));
        }
    }

    /// Delivers an answer to a node, which believes it only if it still waits for it.
    pub(super) fn hear(&mut self, reply: Reply) -> Verdict {
        let node = reply.node;
        if let Some(region) = self.region(node) {
            return self.region_hears(region, reply);
        }
        if let Some(index) = self.adversary(node) {
            return self.adversary_hears(index, reply);
        }
        let at = &self.nodes[node];
        if !at.up || !at.connection.awaits(reply.session, reply.seq) {
            return Ok(());
        }
        if self.crashes(node, Fault::CrashBeforeInstall) {
            return Ok(());
        }
        let asked = self.arrived(node);
        let Some(answers) = reply.answers else {
            return self.failed(node, &asked);
        };
        let at = &mut self.nodes[node];
        let now = at.now(self.real);
        let Some((exchange, _)) = at.connection.on_answer(reply.session, reply.seq, now) else {
            return Ok(());
        };
        if self.meets_another(node, reply.epoch, &asked) {
            return must("P5", answers.is_empty(), || "an answer that is not used answers asks".to_owned());
        }
        for said in &answers {
            self.hears_of_share(said.desk, said.share, exchange.first_sent)?;
        }
        self.nodes[node].connection.on_success();
        let mut renews = None;
        for said in answers {
            renews = self.installs(said, exchange.first_sent)?.or(renews);
        }
        if let Some(rng) = renews {
            self.begins_session(node, rng);
        }
        self.nodes[node].exchange = None;
        self.look(node);
        Ok(())
    }

    /// Records that nothing is on its way to `node` any more. Its task looks at nothing else until the exchange is
    /// over. Returns the desks of the exchange.
    fn arrived(&mut self, node: usize) -> Vec<usize> {
        let asked = self.nodes[node].exchange.as_ref().map_or(vec![], |exchange| exchange.desks.clone());
        for &desk in &asked {
            self.desks[desk].coming = 0;
        }
        asked
    }

    /// Begins another session of `node` if another life of the allocator than before answers in this one. The answer to
    /// the desks that it `asked` for is not used. Returns whether that is so.
    fn meets_another(&mut self, node: usize, epoch: u64, asked: &[usize]) -> bool {
        let at = &mut self.nodes[node];
        let (now, before, next) = (at.now(self.real), at.session(), self.sessions + 1);
        if !at.connection.meets_another(epoch, now, || number(next)) {
            return false;
        }
        self.log.note(self.real, "node # meets another allocator: it begins a session", &[node as u64]);
        (self.sessions, at.exchange) = (next, None);
        for &desk in asked {
            self.desks[desk].refill.unanswered();
        }
        for desk in self.desks_of(node) {
            self.oracles.of(self.setup.lender(desk)).goes_on(before, next);
            let at = &mut self.desks[desk];
            at.refill.move_on(&at.slot, now);
        }
        self.look(node);
        true
    }

    /// Begins a new session of `node`, which holds nothing, with `rng` for its waits.
    fn begins_session(&mut self, node: usize, rng: u64) {
        let session = self.next_session(node);
        self.nodes[node].begin_session(session);
        let now = self.nodes[node].now(self.real);
        for desk in self.desks_of(node) {
            let at = &mut self.desks[desk];
            at.refill.begin_session(&at.slot, now, rng);
        }
    }

    /// Gives an answer to the refill of a desk, and what came to its callers. Returns a random number for a new session
    /// if the old one is not believed.
    fn installs(&mut self, said: DeskAnswer, first_sent: Moment) -> Result<Option<u64>, Violation> {
        let DeskAnswer { desk, answer, longest, .. } = said;
        let node = self.home(desk);
        if let Ok(Answer::Grant(grant)) = &answer {
            self.desks[desk].longest = longest;
            if self.rival.is_some() {
                self.install_as_rival(desk, grant, first_sent)?;
                return Ok(None);
            }
        }
        let (now, rtt) = (self.nodes[node].now(self.real), self.nodes[node].connection.rtt());
        let rng = self.rng.u64(..);
        let timing = AnswerTiming { first_sent, now, clocks: self.setup.plan.clocks };
        let word = answer.as_ref().map_err(|error| error.code());
        let at = &mut self.desks[desk];
        let outcome = at.on_answer(word, timing, rtt, rng);
        match (outcome, answer) {
            (Outcome::Installed, Ok(Answer::Grant(grant))) => {
                (at.is_shut_out, at.is_stopped) = (false, false);
                let left = at.slot.deadline().since(now).as_nanos() as u64;
                self.log.note(
                    self.real,
                    "node # installs #, keeps #, for # ns",
                    &[desk as u64, grant.permits, grant.kept, left],
                );
                self.exposed()?;
                self.serve_line(desk)?;
            }
            (Outcome::Refused, Ok(Answer::Refusal(refusal))) => {
                self.log.note(self.real, "node # is told to wait", &[desk as u64]);
                (at.is_shut_out, at.is_stopped) = (false, refusal.reason.stops());
            }
            (Outcome::Unrecognised, _) => {
                self.log.note(self.real, "node # is not known: it will start from zero", &[desk as u64]);
            }
            (Outcome::Disputed, _) => {
                self.log.note(self.real, "node # is not believed: it begins a session", &[desk as u64]);
                return Ok(Some(rng));
            }
            (Outcome::Unavailable, error) => {
                self.log.note(self.real, "node # is shut out, and with it all that wait", &[desk as u64]);
                at.is_shut_out = true;
                for waiter in std::mem::take(&mut at.line) {
                    self.meter.short(self.real, desk, waiter.permits, true, false);
                }
                let is_calm = self.phase >= Phase::Calm;
                must("V2", !is_calm, || {
                    format!("node {node} is shut out although no fault is active: {error:?}")
                })?;
            }
            (_, answer) => {
                let what = format!("node {node} got an impossible answer: {answer:?}");
                return Err(Violation { is_over: false, name: "K1", what });
            }
        }
        Ok(None)
    }

    pub(super) fn time_out(&mut self, node: usize, life: u64, exchange: u64) -> Verdict {
        let at = &self.nodes[node];
        if at.life == life && at.awaits(exchange) {
            let asked = self.arrived(node);
            self.failed(node, &asked)?;
        }
        Ok(())
    }

    /// Records that `node` gets no answer for the desks that it `asked` for.
    fn failed(&mut self, node: usize, asked: &[usize]) -> Verdict {
        self.log.note(self.real, "node # got no answer", &[node as u64]);
        let at = &mut self.nodes[node];
        let now = at.now(self.real);
        at.connection.on_failure(now, 0, self.rng.u64(..));
        for &desk in asked {
            self.desks[desk].refill.unanswered();
        }
        for desk in self.desks_of(node) {
            let at = &mut self.desks[desk];
            let has_share = self.setup.safe_lasts().is_some() && !at.is_shut_out && !at.is_stopped;
            at.uses_safe_share = has_share && now >= at.slot.deadline();
            if at.uses_safe_share {
                self.serve_line(desk)?;
            }
        }
        self.nodes[node].exchange = None;
        self.look(node);
        Ok(())
    }
}
