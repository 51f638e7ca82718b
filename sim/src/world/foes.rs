//! Carries the messages of those that do not play by the rules, while there is trouble. They stand behind the nodes:
//! the n-th of them is node `nodes + n` to links and messages.

use super::World;
use super::event::{Event, Message, Phase, Reply};
use super::flights::Manner;
use crate::oracle::Verdict;
use lessor_protocol::Answer;

/// Old messages that one of them keeps to send again.
const KEPT: usize = 16;

impl World {
    /// Whether `node` is one of them, and which.
    pub(super) fn foe(&self, node: usize) -> Option<usize> {
        node.checked_sub(self.nodes.len())
    }

    /// One of them asks for something.
    pub(super) fn scheme(&mut self, index: usize) {
        if self.phase != Phase::Trouble {
            return;
        }
        let gap = self.foes[index].0.gap();
        self.push(self.real + gap, Event::Scheme(index));
        let (foe, old) = &mut self.foes[index];
        if foe.waits(self.real) {
            return;
        }
        if !old.is_empty() && foe.repeats() {
            let message = old[self.dice.usize(..old.len())];
            return self.send_ask(message);
        }
        if foe.moves_on() {
            self.foe_begins(index);
        }
        self.order += 1;
        let (foe, old) = &mut self.foes[index];
        let ((seq, ask), rtt) = (foe.ask(self.real), foe.rtt());
        foe.exchange = (self.order, foe.clock.show(self.real));
        let (node, session, exchange) = (self.nodes.len() + index, foe.session, self.order);
        let observed = self.outside.map(|_| foe.observed());
        let message = Message { node, session, seq, exchange, rtt, ask, observed, leaves: false };
        if old.len() == KEPT {
            old.remove(0);
        }
        old.push(message);
        self.log.note(
            self.real,
            "foe # asks (# of its session): spent #, holds #, wants #",
            &[index as u64, seq, ask.spent_total, ask.held, ask.want],
        );
        self.send_ask(message);
    }

    /// An answer reaches one of them.
    pub(super) fn foe_hears(&mut self, index: usize, reply: Reply) -> Verdict {
        let foe = &mut self.foes[index].0;
        let (true, Some(answer)) = (foe.exchange.0 == reply.exchange, reply.answer) else {
            return Ok(());
        };
        // It waits for no other.
        foe.exchange.0 = 0;
        if let Ok(Answer::Grant(grant)) = answer {
            let spends = foe.believe(self.real, &grant, self.setup.plan.terms);
            let session = foe.session;
            if spends > 0 {
                self.log.note(self.real, "foe # spends #", &[index as u64, spends]);
                let limit = self.setup.limit(reply.node);
                self.judges.admitted(limit, self.now(), reply.node, session, spends, 0)?;
                self.takes_time(reply.node, spends, Manner::Plain, reply.longest);
            }
        } else if foe.gives_up(answer.is_err()) {
            self.foe_begins(index);
        }
        Ok(())
    }

    fn foe_begins(&mut self, index: usize) {
        self.sessions += 1;
        let (node, session) = (self.nodes.len() + index, self.sessions);
        let foe = &mut self.foes[index].0;
        let before = std::mem::replace(&mut foe.session, session);
        foe.begin(session);
        let oracle = self.judges.of(self.setup.limit(node));
        oracle.ends(before);
        oracle.begins_to_lie(node, session);
    }
}
