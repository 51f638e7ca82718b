//! Carries the messages of adversaries while there is trouble. They come after the nodes: the n-th adversary is node
//! `nodes + n` to links and messages.
//!
//! A thief is a peer with another identity that overhears all that a node says, repeats it, and says goodbye in the
//! node's name. The allocator must refuse both, or the books and what nodes hold differ from then on.

use super::World;
use super::allocator::{entry, last_of};
use super::event::{DeskAnswer, DeskAsk, Event, Message, Phase, Reply};
use super::flights::Manner;
use crate::oracle::{Verdict, must};
use lessor_ledger::registry::{Caller, Entry};
use lessor_ledger::share::Owner;
use lessor_protocol::Answer;
use lessor_protocol::wire::{GrantBody, SpentBody, code};

/// Old messages that an adversary keeps to send again.
const KEPT: usize = 16;

/// Exchanges of which the thief overhears one.
const OVERHEARS: u64 = 8;

/// The thief's identity, which no node has.
const THIEF: Owner = Owner(u64::MAX);

impl World {
    /// Returns which adversary `node` is, if it is one.
    pub(super) fn adversary(&self, node: usize) -> Option<usize> {
        node.checked_sub(self.nodes.len())
    }

    /// Returns the place of the `index`-th adversary behind all desks.
    pub(super) fn adversary_desk(&self, index: usize) -> usize {
        self.desks.len() + index
    }

    /// Lets an adversary ask.
    pub(super) fn scheme(&mut self, index: usize) {
        if self.phase != Phase::Trouble {
            return;
        }
        let gap = self.adversaries[index].0.gap();
        self.push(self.real + gap, Event::Scheme(index));
        let (adversary, old) = &mut self.adversaries[index];
        if adversary.waits(self.real) {
            return;
        }
        if !old.is_empty() && adversary.repeats() {
            let message = old[self.rng.usize(..old.len())].clone();
            return self.send_ask(message);
        }
        if adversary.moves_on() {
            self.adversary_begins(index);
        }
        self.order += 1;
        let desk = self.adversary_desk(index);
        let (adversary, old) = &mut self.adversaries[index];
        let ((seq, ask), rtt) = (adversary.ask(self.real), adversary.rtt());
        adversary.exchange = (self.order, adversary.clock.show(self.real));
        let (node, session, exchange) = (self.nodes.len() + index, adversary.session, self.order);
        let observed = self.outside.map(|_| adversary.observed());
        let asks = vec![DeskAsk { desk, ask, observed }];
        let message = Message { node, session, epoch: 0, seq, exchange, rtt, asks, leaves: false };
        if old.len() == KEPT {
            old.remove(0);
        }
        old.push(message.clone());
        self.log.note(
            self.real,
            "foe # asks (# of its session): spent #, holds #, wants #",
            &[index as u64, seq, ask.spent_total, ask.held, ask.want],
        );
        self.send_ask(message);
    }

    /// Delivers an answer to an adversary.
    pub(super) fn adversary_hears(&mut self, index: usize, reply: Reply) -> Verdict {
        let adversary = &mut self.adversaries[index].0;
        let (true, Some(answers)) = (adversary.exchange.0 == reply.exchange, reply.answers) else {
            return Ok(());
        };
        let DeskAnswer { desk, answer, longest, .. } = answers[0];
        // It waits for no other answer.
        adversary.exchange.0 = 0;
        if let Ok(Answer::Grant(grant)) = answer {
            let spends = adversary.believe(self.real, &grant, self.setup.plan.clocks);
            let session = adversary.session;
            if spends > 0 {
                self.log.note(self.real, "foe # spends #", &[index as u64, spends]);
                let lender = self.setup.lender(desk);
                self.oracles.admitted(lender, self.nows(lender), reply.node, session, spends, 0)?;
                self.takes_time(desk, spends, Manner::Plain, longest);
            }
        } else if adversary.gives_up(answer.is_err()) {
            self.adversary_begins(index);
        }
        Ok(())
    }

    fn adversary_begins(&mut self, index: usize) {
        self.sessions += 1;
        let (node, session) = (self.nodes.len() + index, self.sessions);
        let adversary = &mut self.adversaries[index].0;
        let before = std::mem::replace(&mut adversary.session, session);
        adversary.begin(session);
        let oracle = self.oracles.of(self.setup.lender(self.desks.len() + index));
        oracle.ends(before);
        oracle.begins_to_lie(node, session);
    }

    /// K2: lets the thief repeat `message`, which was just answered, as the next one of its session.
    pub(super) fn is_overheard(&mut self, message: &Message) -> Verdict {
        let owner = self.caller(message);
        let thief = Caller { owner: THIEF, seq: owner.seq + 1, ..owner };
        // A session is not known if it asked for no limit, or wanted nothing where it has no pool.
        if !message.seq.is_multiple_of(OVERHEARS) || !self.centre.registry.is_of_another(&thief) {
            return Ok(());
        }
        let now = self.now().allocator;
        let pool = |ask: &DeskAsk| self.limits.pool(self.setup.limit(ask.desk));
        let asks: Vec<Entry> = message.asks.iter().map(|ask| entry(pool(ask), ask)).collect();
        let spent: Vec<SpentBody> = message.asks.iter().map(|ask| last_of(&ask.ask, pool(ask))).collect();
        let answers = self.centre.registry.leases(now, &thief, &asks).grants;
        // An ask that holds and wants nothing may be answered without a session, and any sender learns that a limit is
        // gone.
        let is_refused = |(body, DeskAsk { ask, .. }): (&GrantBody, &DeskAsk)| {
            let is = |code: &str| body.error.as_ref().is_some_and(|error| error.code == code);
            is(code::SESSION_OF_ANOTHER) || is(code::LIMIT_UNKNOWN) || (ask.held == 0 && ask.want == 0)
        };
        must("K2", answers.iter().zip(&message.asks).all(is_refused), || {
            format!("a thief was answered {answers:?}")
        })?;
        let returned = self.centre.registry.leave(now, &thief, &spent).returned;
        must("K2", returned == 0, || format!("a thief gave back {returned} of another session"))
    }
}
