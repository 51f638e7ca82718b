//! The allocator's host: the shipping registry of limits, one exchange at a time, and the death of its process.

use super::World;
use super::event::{DeskAnswer, DeskAsk, Event, Message, Reply};
use super::flights::longest;
use super::store::Store;
use crate::SECOND;
use crate::clock::HostClock;
use crate::network::Way;
use crate::oracle::{Asked, Verdict, must};
use crate::oracles::Stocks;
use lessor_ledger::Rule;
use lessor_ledger::pool::{Past, PoolView};
use lessor_ledger::registry::limit::PoolId;
use lessor_ledger::registry::{Caller, Entry, Exchanged, Registry};
use lessor_ledger::rejection::Reason;
use lessor_protocol::lease::millis_up;
use lessor_protocol::moment::nanos;
use lessor_protocol::wire::{AskBody, GrantBody, ObservedBody, SafeShareBody, SpentBody};
use lessor_protocol::{Answer, Ask, Moment, NodeName};
use std::time::Duration;

/// The number of sessions and pools that a sweep looks at: all of a run.
const ALL: usize = usize::MAX;

/// The allocator's host.
#[derive(Debug)]
pub(super) struct Centre {
    pub(super) clock: HostClock,
    pub(super) registry: Registry,
    /// The rules that operators put last.
    pub(super) rules: Vec<Rule>,
    /// Whether operators removed the limit, so that asks learn that there is none.
    pub(super) is_removed: bool,
    /// Until when operators paused the limit.
    pub(super) paused: Option<Moment>,
    pub(super) up: bool,
    pub(super) life: u64,
    pub(super) paused_until: u64,
    /// When the process died, on the host's clock.
    pub(super) died: Moment,
    /// How often the machine has been started.
    pub(super) boot: u64,
    /// What the allocator has written down.
    pub(super) store: Store,
}

impl World {
    /// Delivers a message.
    pub(super) fn reach(&mut self, message: Message) -> Verdict {
        if let Some(region) = self.region(message.node) {
            return self.reach_from_region(region, message);
        }
        if self.setup.lends_on() {
            return self.reach_region(message);
        }
        let now = self.now().allocator;
        if let Some(boundary) = &mut self.meter.boundary {
            boundary.asked(now);
        }
        if !self.centre.up {
            self.send_back(message.no_reply());
            return Ok(());
        }
        if self.rival.is_some() {
            let answer = Ok(self.lend_as_rival(&message));
            let longest = longest(&self.centre.rules).map(nanos);
            let said = DeskAnswer { desk: message.asks[0].desk, answer, share: None, longest };
            self.send_back(message.reply(0, vec![said]));
            return Ok(());
        }
        if message.leaves {
            return self.leave(message);
        }
        let before: Vec<Option<PoolView>> = message
            .asks
            .iter()
            .map(|ask| ask.observed.map(|_| self.view(self.setup.limit(ask.desk), now)))
            .collect();
        let bodies = self.exchange(&message);
        self.is_overheard(&message)?;
        let longest = longest(&self.centre.rules).map(nanos);
        let (stocks, mut answers) = (self.stocks_after(&message), vec![]);
        for ((ask, before), body) in message.asks.iter().zip(before).zip(bodies) {
            let answer = answer_of(&body);
            self.is_answered(&message, ask, before, &answer, &stocks)?;
            let share = body.safe.map(SafeShareBody::share);
            answers.push(DeskAnswer { desk: ask.desk, answer, share, longest });
        }
        self.answer(message.reply(self.centre.registry.epoch(), answers));
        Ok(())
    }

    /// Reports the `answer` to one ask to the oracles. If the ask reports on the vendor, its pool looked like `before`.
    fn is_answered(
        &mut self,
        message: &Message,
        ask: &DeskAsk,
        before: Option<PoolView>,
        answer: &Result<Answer, Reason>,
        stocks: &Stocks,
    ) -> Verdict {
        let limit = self.setup.limit(ask.desk);
        if *answer == Err(Reason::LimitUnknown) {
            self.log.note(self.real, "there is no limit any more for node #", &[ask.desk as u64]);
            let is_removed = self.centre.is_removed;
            must("K7", is_removed, || format!("no limit for {message:?}, and no operator removed it"))?;
            return self.oracle_on_answer(message, ask, answer, stocks);
        }
        if let Some((before, observed)) = before.zip(ask.observed) {
            let observed = ObservedBody::of(&observed).observed();
            let now = self.now();
            let (after, trust) = (self.view(limit, now.allocator), self.setup.plan.sharing.vendor);
            let views = [before, after];
            self.oracles.of(limit).hears(now, message.session, &observed, &trust, views)?;
        }
        self.log_answer(message, ask, answer);
        self.oracle_on_answer(message, ask, answer, stocks)
    }

    /// Lets the allocator answer `message`, in the terms of the wire.
    pub(super) fn exchange(&mut self, message: &Message) -> Vec<GrantBody> {
        let (caller, before) = (self.caller(message), self.made());
        let now = self.centre.clock.show(self.real);
        let pool = |ask: &DeskAsk| self.limits.pool(self.setup.limit(ask.desk));
        let asks: Vec<Entry> = message.asks.iter().map(|ask| entry(pool(ask), ask)).collect();
        let Exchanged { grants, waits_for, .. } = self.centre.registry.leases(now, &caller, &asks);
        self.centre.store.waits_for = waits_for;
        let after = self.made();
        let made: Vec<bool> = before.iter().zip(&after).map(|(before, after)| !before && *after).collect();
        self.are_made(&made);
        grants
    }

    /// Returns the sender of `message`, as the wire describes it.
    pub(super) fn caller(&self, message: &Message) -> Caller {
        let &Message { node, session, epoch, seq, rtt, .. } = message;
        let name = match self.region(node) {
            Some(region) => NodeName::try_new(&format!("region-{region}")).expect("letters and digits"),
            None => self.setup.name(node),
        };
        Caller {
            node: name,
            session,
            epoch,
            seq,
            rtt: Duration::from_millis(millis_up(rtt)),
            owner: self.setup.owner(node),
        }
    }

    /// Sends an answer.
    pub(super) fn send_back(&mut self, reply: Reply) {
        let Self { network, setup, struck, rng, .. } = self;
        for at in network.send(self.real, reply.node, Way::Back, &setup.faults, struck, rng) {
            self.push(at, Event::Answer(reply.clone()));
        }
    }

    pub(super) fn log_answer(&mut self, message: &Message, ask: &DeskAsk, answer: &Result<Answer, Reason>) {
        let (node, session) = (ask.desk as u64, message.session);
        match answer {
            Ok(Answer::Grant(grant)) => self.log.note(
                self.real,
                "the pool grants node # (session #, ask #) # new, # kept",
                &[node, session, message.seq, grant.permits, grant.kept],
            ),
            Ok(Answer::Refusal(_)) => self.log.note(self.real, "the pool refuses node #", &[node]),
            Err(_) => {
                let numbers = [node, session, message.seq, ask.ask.spent_total, ask.ask.held];
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
        ask: &DeskAsk,
        answer: &Result<Answer, Reason>,
        stocks: &Stocks,
    ) -> Verdict {
        let (now, asked) = (self.now(), self.asked(message, ask));
        let lender = self.setup.lender(ask.desk);
        let lent = self.oracles.answered(lender, now, &asked, answer, stocks)?;
        if self.regions.is_empty() && self.rival.is_none() {
            self.books_above_hold()?;
        }
        let stock = stocks.own[lender];
        let granted = answer.as_ref().ok().and_then(|answer| answer.grant());
        self.remember(lent, |world| &mut world.grants);
        if let Some(grant) = granted
            && asked.is_honest
        {
            self.sent(message, ask.desk, grant.permits);
            let is_empty = grant.permits == 0 && ask.ask.want > 0 && stock.view.available == 0;
            if is_empty && !self.meter.has_been_empty() {
                let in_hand = self.in_hand()[lender];
                self.found_empty(lender, in_hand);
            }
        }
        Ok(())
    }

    pub(super) fn asked(&self, message: &Message, ask: &DeskAsk) -> Asked {
        let &Message { node, session, seq, exchange, .. } = message;
        let writer = self.nodes.get(node);
        // A session may begin anew while an ask of the earlier one is on its way.
        let is_awaited = writer.is_some_and(|node| node.session() == session && node.awaits(exchange));
        let lender = self.regions.get(self.setup.lender(ask.desk));
        let horizon = lender.map_or(Duration::MAX, |region| region.horizon());
        let is_honest = writer.is_some();
        Asked { session, seq, ask: ask.ask, is_honest, is_awaited, lends_on: false, horizon }
    }

    /// Records that `permits` are on their way to `desk`, which asked in `message`.
    pub(super) fn sent(&mut self, message: &Message, desk: usize, permits: u64) {
        if self.nodes[message.node].awaits(message.exchange) {
            self.desks[desk].coming = permits;
        }
        if let Some(curve) = &mut self.curve {
            curve.granted(desk, permits);
        }
    }

    /// Records that a node or a caller got nothing because nothing is left, while nodes have `in_hand`.
    pub(super) fn found_empty(&mut self, limit: usize, in_hand: u64) {
        let coming: u64 = self.desks.iter().map(|desk| desk.coming).sum();
        let left = self.oracles.room(limit, self.now());
        let ceiling = self.limits.ceiling(&self.centre.rules);
        self.meter.empty(self.real, ceiling, left, in_hand + coming);
    }

    fn leave(&mut self, message: Message) -> Verdict {
        let (now, caller) = (self.now(), self.caller(&message));
        let pool = |ask: &DeskAsk| self.limits.pool(self.setup.limit(ask.desk));
        let spent: Vec<SpentBody> = message.asks.iter().map(|ask| last_of(&ask.ask, pool(ask))).collect();
        let left = self.centre.registry.leave(now.allocator, &caller, &spent);
        self.log.note(self.real, "node # leaves and gives back #", &[message.node as u64, left.returned]);
        let stocks = self.stocks();
        message.asks.iter().try_for_each(|ask| {
            let (lender, asked) = (self.setup.lender(ask.desk), self.asked(&message, ask));
            self.oracles.left(lender, now, &asked, &stocks)
        })
    }

    /// Sweeps: forgets what can be forgotten.
    pub(super) fn sweep(&mut self) -> Verdict {
        self.push(self.real + SECOND, Event::Sweep);
        let now = self.centre.clock.show(self.real);
        self.regions_sweep();
        if self.shared.is_some() {
            let (now, stocks) = (self.now(), self.stocks());
            return self.oracles.books(now, &stocks);
        }
        if self.rival.is_none() && self.centre.up {
            let before = self.made();
            self.centre.registry.sweep(now, ALL);
            let after = self.made();
            let lost: Vec<bool> =
                before.iter().zip(&after).map(|(before, after)| *before && !after).collect();
            if lost.contains(&true) {
                self.log.note(self.real, "a pool is forgotten", &[]);
                self.are_lost(&lost);
                self.forgotten.iter_mut().zip(lost).for_each(|(forgotten, lost)| *forgotten |= lost);
            }
            self.write_down();
            let (now, stocks) = (self.now(), self.stocks());
            self.oracles.books(now, &stocks)?;
        }
        self.quarantine_is_over_in_time()
    }

    /// Ends the process, whose books are lost unless the store has them.
    pub(super) fn lose_allocator(&mut self, back_at: u64) {
        self.centre.up = false;
        self.centre.life += 1;
        self.centre.died = self.centre.clock.show(self.real);
        self.lose_store();
        self.push(back_at, Event::Reopen { life: self.centre.life });
    }

    /// Starts the process, with the books of its store if it goes on by them.
    pub(super) fn reopen(&mut self, life: u64) {
        if self.centre.up || self.centre.life != life {
            return;
        }
        // Decisions over the API are gone with the process, unless they were written down.
        (self.centre.is_removed, self.centre.paused) = (false, None);
        self.oracles.shut(Moment::ORIGIN);
        self.centre.up = true;
        if !self.goes_on() {
            self.begins_anew();
        }
        self.begin_writing();
    }

    /// Begins without books. The process knows when the earlier one died, or only that it has.
    fn begins_anew(&mut self) {
        self.log.note(self.real, "the allocator is back without its books", &[]);
        let now = self.centre.clock.show(self.real);
        let past = Past::Lost(if self.rng.bool() { now } else { self.centre.died });
        let (limits, clocks) = (self.limits.configs(&self.centre.rules), self.setup.plan.clocks);
        self.centre.registry = Registry::new(&limits, clocks, past, now, self.centre.life);
        self.are_lost(&self.all());
        self.books_begin(&self.all(), Moment::ORIGIN);
    }
}

/// Returns the ask for a pool in the terms of the wire.
pub(super) fn entry((limit, id): (&str, &PoolId), ask: &DeskAsk) -> Entry {
    let key = id.key.as_ref().map(|key| key.as_str());
    let observed = ask.observed.as_ref().map(ObservedBody::of);
    Entry::Ask(AskBody { observed, ..AskBody::of(limit, key, ask.ask) })
}

/// Returns the last report of a session on a pool, from `ask`.
pub(super) fn last_of(ask: &Ask, (limit, id): (&str, &PoolId)) -> SpentBody {
    let Ask { spent_total, running, held, shadow_refused, .. } = *ask;
    let key = id.key.as_ref().map(|key| key.to_string());
    SpentBody { limit: limit.to_owned(), key, spent_total, running, held: Some(held), shadow_refused }
}

/// Returns the answer that `body` is to the node that reads it.
pub(super) fn answer_of(body: &GrantBody) -> Result<Answer, Reason> {
    body.answer().map_err(|error| Reason::named(&error.code).expect("the allocator knows its words"))
}
