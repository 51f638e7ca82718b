//! The allocator's host: the shipping pool, one exchange at a time, and what becomes of it when its process dies.

use super::World;
use super::event::{Event, Message, Reply, Unanswered};
use super::store::Store;
use crate::SECOND;
use crate::clock::HostClock;
use crate::family::Family;
use crate::network::Way;
use crate::node::Node;
use crate::oracle::{Asked, Verdict};
use crate::oracles::IsNew;
use lessor_ledger::overrides::Suspension;
use lessor_ledger::pool::{AskError, Goodbye, Holder, Past, Plan, SessionId};
use lessor_protocol::moment::nanos;
use lessor_protocol::{Answer, Ask, Moment};
use std::sync::Arc;
use std::time::Duration;

/// The allocator's host.
#[derive(Debug)]
pub(super) struct Centre {
    pub(super) clock: HostClock,
    pub(super) plan: Arc<Plan>,
    pub(super) pool: Family,
    pub(super) gate: Suspension,
    /// Whether the limit went, and asks are told that there is none.
    pub(super) is_removed: bool,
    pub(super) up: bool,
    pub(super) life: u64,
    pub(super) paused_until: u64,
    /// What pools made now must wait for.
    pub(super) past: Past,
    /// When the process died, on its clock.
    pub(super) died: Moment,
    /// How often its machine has been started.
    pub(super) boot: u64,
    /// What is written down of it.
    pub(super) store: Store,
}

impl World {
    /// A message arrives.
    pub(super) fn reach(&mut self, message: Message) -> Verdict {
        let Message { node, session, seq, exchange, rtt, ask, leaves, .. } = message;
        if let Some(region) = self.region(node) {
            return self.reach_from_region(region, message);
        }
        if self.setup.lends_on() {
            return self.reach_region(message);
        }
        let now = self.now().allocator;
        if let Some(boundary) = &mut self.meter.boundary {
            boundary.asked(now);
        }
        let mut share = None;
        let answer = if !self.centre.up {
            None
        } else if self.rival.is_some() {
            Some(Ok(self.lend_as_rival(&message)))
        } else if leaves {
            return self.leave(message);
        } else if self.centre.is_removed {
            self.log.note(self.real, "there is no limit any more for node #", &[node as u64]);
            Some(Err(Unanswered::LimitUnknown))
        } else {
            let holder = Holder { id: SessionId(session), share: self.setup.share(node), rtt };
            let limit = self.setup.limit(node);
            self.pool_hears(&message)?;
            let answer = match self.refusal(node) {
                Some(refusal) => self.centre.pool.settle_only(limit, now, holder, seq, ask, refusal),
                None => self.centre.pool.renew(limit, now, holder, seq, ask),
            };
            self.log_answer(&message, &answer);
            self.oracle_on_answer(&message, &answer)?;
            if matches!(answer, Ok(Answer::Grant(_))) {
                share = self.centre.pool.safe_share(limit, now, SessionId(session));
            }
            Some(answer.map_err(Unanswered::AskRejection))
        };
        let longest = self.centre.plan.longest().map(nanos);
        let reply = Reply { node, session, seq, exchange, answer, share, longest };
        if self.must_be_written(node) {
            self.answer_later(reply)
        } else {
            self.send_back(reply)
        }
        Ok(())
    }

    /// An answer leaves.
    pub(super) fn send_back(&mut self, reply: Reply) {
        let Self { network, setup, struck, rng, .. } = self;
        for at in network.send(self.real, reply.node, Way::Back, &setup.faults, struck, rng) {
            self.push(at, Event::Answer(reply));
        }
    }

    pub(super) fn log_answer(&mut self, message: &Message, answer: &Result<Answer, AskError>) {
        let (node, session) = (message.node as u64, message.session);
        match answer {
            Ok(Answer::Grant(grant)) => self.log.note(
                self.real,
                "the pool grants node # (session #, ask #) # new, # kept",
                &[node, session, message.seq, grant.permits, grant.kept],
            ),
            Ok(Answer::Refusal(_)) => self.log.note(self.real, "the pool refuses node #", &[node]),
            Err(_) => {
                let numbers = [node, session, message.seq, message.ask.spent_total, message.ask.held];
                self.log.note(
                    self.real,
                    "the pool disputes node # (session #, ask #): spent #, holds #",
                    &numbers,
                );
            }
        }
    }

    pub(super) fn oracle_on_answer(
        &mut self,
        message: &Message,
        answer: &Result<Answer, AskError>,
    ) -> Verdict {
        let (now, stocks, asked) = (self.now(), self.stocks(), self.asked(message));
        let lender = self.setup.lender(message.node);
        let lent = self.oracles.answered(lender, now, &asked, answer, &stocks)?;
        let stock = stocks.own[lender];
        let granted = answer.as_ref().ok().and_then(|answer| answer.grant());
        self.remember(lent, |world| &mut world.grants);
        if let Some(grant) = granted
            && asked.is_honest
        {
            self.sent(message, grant.permits);
            if grant.permits == 0 && message.ask.want > 0 && stock.view.available == 0 {
                self.found_empty(lender, stock.in_hand);
            }
        }
        Ok(())
    }

    pub(super) fn asked(&self, message: &Message) -> Asked {
        let Message { node, session, seq, exchange, ask, .. } = *message;
        let is_awaited = |node: &Node| node.exchange.is_some_and(|waiting| waiting.id == exchange);
        let writer = self.nodes.get(node);
        // A session may begin anew while an ask of the old one is on its way.
        let is_awaited = writer.is_some_and(|node| node.session() == session && is_awaited(node));
        let lender = self.regions.get(self.setup.lender(node));
        let horizon = lender.map_or(Duration::MAX, |region| region.horizon());
        Asked { session, seq, ask, is_honest: writer.is_some(), is_awaited, lends_on: false, horizon }
    }

    /// `permits` are on their way to the node that wrote `message`.
    pub(super) fn sent(&mut self, message: &Message, permits: u64) {
        let at = &mut self.nodes[message.node];
        if let Some(exchange) = &mut at.exchange
            && exchange.id == message.exchange
        {
            exchange.coming = permits;
        }
        if let Some(curve) = &mut self.curve {
            curve.granted(message.node, permits);
        }
    }

    /// A node or a caller got nothing because nothing is left; nodes have `in_hand`.
    pub(super) fn found_empty(&mut self, limit: usize, in_hand: u64) {
        let coming: u64 = self.nodes.iter().map(|node| node.coming()).sum();
        let left = self.oracles.room(limit, self.now());
        self.meter.empty(self.real, self.centre.pool.ceiling(), left, in_hand + coming);
    }

    fn leave(&mut self, message: Message) -> Verdict {
        // What one that went has out ends by itself, where others are above it.
        if self.centre.is_removed && self.setup.above > 0 {
            return Ok(());
        }
        let now = self.now();
        let id = SessionId(message.session);
        let limit = self.setup.limit(message.node);
        let Ask { spent_total, running, held, .. } = message.ask;
        let goodbye = Goodbye { spent_total, running, held: Some(held) };
        let left = self.centre.pool.leave(limit, now.allocator, id, message.seq, goodbye);
        self.log.note(self.real, "node # leaves and gives back #", &[message.node as u64, left.unwrap_or(0)]);
        let (stocks, asked) = (self.stocks(), self.asked(&message));
        self.oracles.left(limit, now, &asked, &stocks)
    }

    /// Forgets what can be forgotten.
    pub(super) fn sweep(&mut self) -> Verdict {
        self.push(self.real + SECOND, Event::Sweep);
        let now = self.centre.clock.show(self.real);
        if self.shared.is_some() {
            let (now, stocks) = (self.now(), self.stocks());
            return self.oracles.books(now, &stocks);
        }
        if self.rival.is_none() && self.centre.up {
            let (lowest, above) = self.centre.pool.forget(now);
            if lowest.contains(&true) {
                self.log.note(self.real, "a pool is forgotten and made anew", &[]);
            }
            self.books_are_new(&self.is_new(&lowest, &above));
            self.write_down();
            let (now, stocks) = (self.now(), self.stocks());
            self.oracles.books(now, &stocks)?;
        }
        self.quarantine_is_over_in_time()
    }

    /// Books that begin, which go by the plan `since` a moment.
    pub(super) fn new_pool(&mut self, since: Moment) {
        self.new_pools(since);
        self.books_are_new(&self.all_new());
    }

    /// The same, without telling the judges.
    pub(super) fn new_pools(&mut self, since: Moment) {
        let now = self.centre.clock.show(self.real);
        let (limits, above) = (self.setup.limits(), self.setup.above);
        self.centre.pool = Family::new(&self.centre.plan, limits, above, self.centre.past, since, now);
    }

    /// All books are new.
    pub(super) fn all_new(&self) -> IsNew {
        self.is_new(&vec![true; self.setup.limits()], &vec![true; self.setup.above])
    }

    /// Of which rules the books are new, where those of the `lowest` pools are, and those `above` them.
    fn is_new(&self, lowest: &[bool], above: &[bool]) -> IsNew {
        let own = self.centre.plan.rules.len() - above.len();
        if self.setup.lends_on() {
            // All rules are those of the allocator above regions.
            let is_new = [&vec![lowest[0]; own], above].concat();
            return IsNew { own: vec![vec![]; self.setup.lenders()], above: Some(is_new) };
        }
        let own = lowest.iter().map(|&is_new| vec![is_new; own]);
        match self.setup.limits() {
            1 => IsNew { own: own.map(|own| [&own, above].concat()).collect(), above: None },
            _ => IsNew { own: own.collect(), above: Some(above.to_vec()) },
        }
    }

    fn books_are_new(&mut self, is_new: &IsNew) {
        self.books_are_others(is_new);
        self.books_are_to_begin(is_new, Moment::ORIGIN);
    }

    /// Books have begun, or were read again.
    pub(super) fn books_are_others(&mut self, is_new: &IsNew) {
        let (now, stocks) = (self.now(), self.stocks());
        for (limit, is_new) in is_new.own.iter().enumerate() {
            if is_new.first() == Some(&true) {
                self.oracles.of(limit).books_lost(now, stocks.own[limit].view);
            }
        }
        if self.setup.lends_on()
            && let (Some(is_new), Some(stock)) = (&is_new.above, stocks.above)
            && is_new[0]
        {
            self.oracles.root().books_lost(now, stock.view);
        }
    }

    /// The books of those rules that `is_new` says it of begin when what earlier ones lent is over; of rules that hold `since`
    /// a moment, not before that.
    pub(super) fn books_are_to_begin(&mut self, is_new: &IsNew, since: Moment) {
        let now = self.now();
        let after = |lost| lost + self.setup.plan.clocks.quarantine();
        let begins = match self.centre.past {
            Past::None => now.allocator,
            Past::Lost(lost) | Past::Other { until: lost, .. } => after(lost),
        };
        self.oracles.books_begin(now, begins.max(since), is_new);
    }

    /// Its process dies, and its books with it.
    pub(super) fn lose_allocator(&mut self, back_at: u64) {
        self.centre.up = false;
        self.centre.life += 1;
        self.centre.died = self.centre.clock.show(self.real);
        self.lose_store();
        self.push(back_at, Event::Reopen { life: self.centre.life });
    }

    /// Its process starts without books. Sometimes it knows when it died.
    pub(super) fn reopen(&mut self, life: u64) {
        if self.centre.up || self.centre.life != life {
            return;
        }
        let now = self.centre.clock.show(self.real);
        // What was decided over the API is gone with the process, unless it is written down.
        (self.centre.gate, self.centre.is_removed) = (Suspension::default(), false);
        self.oracles.shut(Moment::ORIGIN);
        self.centre.up = true;
        if self.goes_on() {
            return;
        }
        self.log.note(self.real, "the allocator is back without its books", &[]);
        self.centre.past = Past::Lost(if self.rng.bool() { now } else { self.centre.died });
        self.new_pool(Moment::ORIGIN);
    }
}
