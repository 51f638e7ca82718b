//! Regions: allocators that lease from the one above them, or from roots in a shared store, and lend on. Each runs the
//! shipping registry as the upstream loop of the allocator does: due → send → on_answer.

use super::World;
use super::allocator::{answer_of, entry, last_of};
use super::configured::Configured;
use super::decisions::Decisions;
use super::event::{DeskAnswer, DeskAsk, Event, Message, Reply};
use super::roots::StoreLink;
use crate::clock::HostClock;
use crate::limits::{File, Limits};
use crate::oracle::{Asked, Instant, Stock, Verdict, must};
use crate::setup::Setup;
use crate::topology::Shared;
use crate::{MILLI, SECOND};
use lessor_holder::connection::{Connection, Exchange};
use lessor_holder::timing::EXCHANGE_TIMEOUT;
use lessor_ledger::pool::Past;
use lessor_ledger::registry::{DueAbove, Entry, Granted, Registry};
use lessor_ledger::rejection::Reason;
use lessor_ledger::roots;
use lessor_protocol::lease::millis_up;
use lessor_protocol::moment::nanos;
use lessor_protocol::recovery::{Recovery, recovery};
use lessor_protocol::wire::{ErrorBody, GrantBody, SafeShareBody, SpentBody};
use lessor_protocol::{Answer, Moment, RefusalReason};
use std::time::Duration;

/// The most sessions of a process.
pub(super) const SESSIONS: u64 = 1 << 30;

/// The host of a region, or of one of the allocators that share a store.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) clock: HostClock,
    pub(super) up: bool,
    pub(super) life: u64,
    /// Real time until which its process does nothing.
    pub(super) paused_until: u64,
    /// The configuration file.
    pub(super) file: File,
    pub(super) configured: Configured,
    pub(super) registry: Registry,
    pub(super) connection: Connection,
    /// The link to a store, if the region leases from roots there.
    pub(super) link: StoreLink,
    /// The decisions of operators that the region knows.
    pub(super) decisions: Decisions,
    /// How long nodes may hold the last grant of each leased limit; without bound while nothing was lent.
    horizons: Vec<Duration>,
    /// The exchange under way, and its asks.
    exchange: Option<u64>,
    pub(super) due: DueAbove,
    /// When the task wakes by itself, in real time.
    alarm: u64,
}

impl Region {
    /// Makes a host whose process is about to start as `session`.
    pub(super) fn new(
        setup: &Setup,
        limits: &Limits,
        file: File,
        clock: HostClock,
        real: u64,
        session: u64,
    ) -> Self {
        let (now, clocks) = (clock.show(real), setup.plan.clocks);
        let leased = limits.leased(&file);
        let source = setup.topology.shared().map(Shared::time_source).unwrap_or_default();
        Region {
            clock,
            up: true,
            life: 0,
            paused_until: 0,
            configured: Configured::new(&file, &leased),
            file,
            registry: Registry::new(&leased, clocks, Past::Lost(now), now, session),
            connection: Connection::new(1, EXCHANGE_TIMEOUT, 0, session - 1),
            link: StoreLink::new(clocks, source),
            decisions: Decisions::default(),
            horizons: vec![Duration::MAX; limits.count()],
            exchange: None,
            due: DueAbove::default(),
            alarm: u64::MAX,
        }
    }

    /// Returns the pool of the region, where its nodes can spend `in_hand`.
    pub(super) fn stock(&mut self, limits: &Limits, real: u64, in_hand: u64) -> Stock {
        let at = self.clock.show(real);
        let views = (0..limits.count()).filter_map(|place| {
            let (name, id) = limits.pool(place);
            Some(self.registry.limit_or_retired(name)?.view_or_new(at, id))
        });
        // A limit that was removed is forgotten after a while.
        Stock { view: views.reduce(Stock::least).unwrap_or_default(), in_hand, at }
    }

    /// Returns how long its nodes may hold what the region lends.
    pub(super) fn horizon(&self) -> Duration {
        self.horizons.iter().min().copied().unwrap_or(Duration::MAX)
    }

    /// Returns the number of the open exchange; zero if there is none.
    pub(super) fn asks(&self) -> u64 {
        self.connection.open().map_or(0, |exchange| exchange.seq)
    }
}

impl World {
    /// Returns the place of the first region among senders of messages.
    fn first_region(&self) -> usize {
        self.nodes.len() + self.adversaries.len()
    }

    /// Returns the place of `region` among senders of messages.
    pub(super) fn region_place(&self, region: usize) -> usize {
        self.first_region() + region
    }

    /// Returns the place of `region` behind all desks.
    fn region_desk(&self, region: usize) -> usize {
        self.desks.len() + self.adversaries.len() + region
    }

    /// Returns the region that sends messages from `place`, if one does.
    pub(super) fn region(&self, place: usize) -> Option<usize> {
        place.checked_sub(self.first_region()).filter(|region| *region < self.regions.len())
    }

    /// Whether `message` is from a node that asks its region.
    pub(super) fn reaches_region(&self, message: &Message) -> bool {
        self.setup.lends_on() && self.region(message.node).is_none()
    }

    /// Starts all regions.
    pub(super) fn begin_regions(&mut self) {
        for region in 0..self.regions.len() {
            let session = self.regions[region].connection.session();
            self.oracles.root().begins(region, session);
            let alarm = self.rng.u64(0..5_000_000);
            self.push(alarm, Event::RegionWakes { region, life: 0 });
            if self.shared.is_some() {
                self.push(0, Event::Signs { region, life: 0 });
            }
        }
        if self.setup.topology.shared().is_some_and(|shared| shared.lag.is_some()) {
            let from = self.rng.u64(2 * SECOND..4 * SECOND);
            self.push(from, Event::Lags);
        }
    }

    /// Returns how long a call of `desk` may take, as its node knows after this `answer`. If rules change, that is what
    /// it was told.
    fn told_longest(&self, desk: usize, answer: &Result<Answer, Reason>) -> Option<u64> {
        if self.setup.rule_sets().count() == 1 {
            return self.setup.plan.longest().map(nanos);
        }
        match answer.as_ref().ok().and_then(|answer| answer.grant()) {
            Some(grant) => grant.in_flight.map(|in_flight| nanos(in_flight.longest)),
            None => self.desks[desk].longest,
        }
    }

    /// Asks the upstream if it is time, or sleeps until it is.
    pub(super) fn look_above(&mut self, region: usize) -> Verdict {
        let at = &self.regions[region];
        if !at.up || at.exchange.is_some() {
            return Ok(());
        }
        let is_too_early = self.is_too_early(region);
        let at = &mut self.regions[region];
        let (now, quiet_until) = (at.clock.show(self.real), at.connection.quiet_until());
        let next = if is_too_early {
            Moment::NEVER
        } else if now < quiet_until {
            quiet_until
        } else {
            let due = at.registry.asks_above(now, self.limits.upstream(), at.connection.rtt());
            if !due.asks.is_empty() {
                return self.ask_above(region, due);
            }
            due.next.unwrap_or(Moment::NEVER)
        };
        let alarm = at.clock.when(next).min(self.real + SECOND) + self.rng.u64(0..=MILLI);
        if alarm < at.alarm {
            at.alarm = alarm;
            let life = at.life;
            self.push(alarm, Event::RegionWakes { region, life });
        }
        Ok(())
    }

    pub(super) fn region_wakes(&mut self, region: usize, life: u64) -> Verdict {
        if self.regions[region].life != life {
            return Ok(());
        }
        self.regions[region].alarm = u64::MAX;
        self.look_above(region)
    }

    fn ask_above(&mut self, region: usize, due: DueAbove) -> Verdict {
        self.order += 1;
        let (exchange, ask) = (self.order, due.asks[0].ask());
        let at = &mut self.regions[region];
        let before = at.connection.session();
        if before != due.session {
            at.connection.begin_session(due.session - 1);
            self.oracles.root().ends(before);
            self.oracles.root().begins(region, due.session);
        }
        let at = &mut self.regions[region];
        let now = at.clock.show(self.real);
        (at.exchange, at.due) = (Some(exchange), due);
        let Exchange { seq, patience, .. } = at.connection.begin(now);
        let (life, timeout) = (at.life, at.clock.when(now + patience));
        self.log.note(
            self.real,
            "region # asks (# of its session): spent #, holds #, wants #",
            &[region as u64, seq, ask.spent_total, ask.held, ask.want],
        );
        self.push(timeout, Event::RegionTimesOut { region, life, exchange });
        if self.shared.is_some() {
            return self.ask_roots(region);
        }
        self.send_above(region, exchange);
        Ok(())
    }

    /// Sends the due asks of a region to the allocator above it.
    pub(super) fn send_above(&mut self, region: usize, exchange: u64) {
        let (node, at) = (self.region_place(region), &self.regions[region]);
        let Some(&Exchange { session, epoch, seq, .. }) = at.connection.open() else { return };
        let (rtt, ask) = (at.due.distance, at.due.asks[0].ask());
        let asks = vec![DeskAsk { desk: self.region_desk(region), ask, observed: None }];
        self.send_ask(Message { node, session, epoch, seq, exchange, rtt, asks, leaves: false });
    }

    /// Delivers the message of a node to its region.
    pub(super) fn reach_region(&mut self, message: Message) -> Verdict {
        let region = self.setup.lender(message.asks[0].desk);
        if !self.regions[region].up {
            self.send_back(message.no_reply());
            return Ok(());
        }
        if message.leaves {
            return self.leave_region(region, message);
        }
        let (caller, at) = (self.caller(&message), &mut self.regions[region]);
        let now = at.clock.show(self.real);
        let asks: Vec<Entry> = message.asks.iter().map(|ask| entry(self.limits.pool(0), ask)).collect();
        let before = at.stock(&self.limits, self.real, 0).view;
        let bodies = at.registry.leases(now, &caller, &asks).grants;
        let (stocks, mut answers) = (self.stocks(), vec![]);
        if !bodies.is_empty() {
            self.region_hears_of_vendor(&message, before, stocks.own[region])?;
        }
        for (ask, body) in message.asks.iter().zip(bodies) {
            let answer = answer_of(&body);
            match answer {
                Err(Reason::LimitUnknown) => self.is_removed_at(region, &message)?,
                Ok(_) | Err(_) => self.log_answer(&message, ask, &answer),
            }
            self.oracle_on_answer(&message, ask, &answer, &stocks)?;
            let share = body.safe.map(SafeShareBody::share);
            let longest = self.told_longest(ask.desk, &answer);
            answers.push(DeskAnswer { desk: ask.desk, answer, share, longest });
        }
        self.look_above(region)?;
        self.send_back(message.reply(self.regions[region].registry.epoch(), answers));
        Ok(())
    }

    fn leave_region(&mut self, region: usize, message: Message) -> Verdict {
        let (caller, at) = (self.caller(&message), &mut self.regions[region]);
        let now = at.clock.show(self.real);
        let spent: Vec<SpentBody> =
            message.asks.iter().map(|ask| last_of(&ask.ask, self.limits.pool(0))).collect();
        let left = at.registry.leave(now, &caller, &spent);
        self.log.note(self.real, "node # leaves and gives back #", &[message.node as u64, left.returned]);
        let stocks = self.stocks();
        for ask in &message.asks {
            let asked = self.asked(&message, ask);
            self.oracles.left(region, self.now(), &asked, &stocks)?;
        }
        self.look_above(region)
    }

    /// Lets regions forget what they can.
    pub(super) fn regions_sweep(&mut self) {
        for region in 0..self.regions.len() {
            let (name, id) = self.limits.pool(0);
            let at = &mut self.regions[region];
            if at.paused_until > self.real {
                continue;
            }
            let now = at.clock.show(self.real);
            let is_there =
                |registry: &mut Registry| registry.limit_or_retired(name).is_some_and(|limit| limit.has(id));
            let before = is_there(&mut at.registry);
            at.registry.sweep(now, usize::MAX);
            if at.up && before && !is_there(&mut at.registry) {
                self.log.note(self.real, "a pool of region # is forgotten", &[region as u64]);
                let (now, stocks) = (self.now(), self.stocks());
                let stock = stocks.own[region];
                // The region has reported all its spends to the allocator above. If asked again, it counts from zero.
                self.oracles.root().forgets(self.regions[region].connection.session());
                self.oracles.of(region).books_lost(Instant { allocator: stock.at, ..now }, stock.view);
            }
        }
    }

    /// Delivers the message of a region to the allocator above it.
    pub(super) fn reach_from_region(&mut self, region: usize, message: Message) -> Verdict {
        if !self.centre.up {
            self.send_back(message.no_reply());
            return Ok(());
        }
        let bodies = self.exchange(&message);
        let (stocks, asked, mut said) = (self.stocks(), self.asked_above(region, &message), vec![]);
        for (ask, body) in message.asks.iter().zip(&bodies) {
            let answer = answer_of(body);
            self.log_answer(&message, ask, &answer);
            self.oracles.root_answered(self.now(), &asked, &answer, &stocks)?;
            said.push(DeskAnswer { desk: ask.desk, answer, share: None, longest: None });
        }
        self.answer(message.reply(self.centre.registry.epoch(), said));
        Ok(())
    }

    fn asked_above(&self, region: usize, message: &Message) -> Asked {
        let &Message { session, seq, exchange, ref asks, .. } = message;
        let ask = asks[0].ask;
        let at = &self.regions[region];
        let is_awaited = at.exchange == Some(exchange) && at.connection.session() == session;
        Asked { session, seq, ask, is_honest: true, is_awaited, lends_on: true, horizon: Duration::MAX }
    }

    /// Delivers an answer of the allocator above to a region, which believes it only if it still waits for it.
    pub(super) fn region_hears(&mut self, region: usize, reply: Reply) -> Verdict {
        let at = &mut self.regions[region];
        if !at.up || !at.connection.awaits(reply.session, reply.seq) {
            return Ok(());
        }
        match reply.answers {
            Some(answers) => {
                let root = |said: &DeskAnswer| said.answer.map(roots::Reply::of);
                self.region_takes(region, reply.epoch, answers.iter().map(root).collect())
            }
            None => self.region_fails(region),
        }
    }

    /// Takes the answers to the asks of a region, one for each limit that it leases, in the order of its asks. They are of
    /// the allocator's life `epoch`, and of none if they are of roots.
    pub(super) fn region_takes(
        &mut self,
        region: usize,
        epoch: u64,
        answers: Vec<Result<roots::Reply, Reason>>,
    ) -> Verdict {
        let is_lost = self.shared.as_ref().is_none_or(|store| store.has_lost);
        // Where the time began anew while all allocators were idle, a lease that has ended counts from then on. Its
        // allocator has forgotten it and claims nothing.
        let is_redated = self.shared.as_ref().is_some_and(|store| store.has_eras);
        let at = &mut self.regions[region];
        let now = at.clock.show(self.real);
        let (session, seq) = (at.connection.session(), at.asks());
        let Some((exchange, _)) = at.connection.on_answer(session, seq, now) else { return Ok(()) };
        if at.connection.meets_another(epoch, now, || session) {
            must("P5", answers.is_empty(), || "an answer that is not used answers asks".to_owned())?;
            at.registry.begin_session_with(now, self.limits.upstream());
            let next = at.connection.session();
            self.oracles.root().ends(session);
            self.oracles.root().begins(region, next);
            return self.region_fails(region);
        }
        at.exchange = None;
        at.connection.on_success();
        let due = std::mem::take(&mut at.due);
        let (mut grants, mut lent_to_groups, mut unfit) = (vec![], vec![], 0);
        for (ask, answer) in due.asks.iter().zip(answers) {
            let place = self.limits.place(&ask.limit);
            grants.push(match answer {
                Ok(roots::Reply { answer, safe, groups }) => {
                    lent_to_groups.push(groups);
                    if self.shared.is_none() {
                        let is_paused =
                            matches!(answer, Answer::Refusal(it) if it.reason == RefusalReason::Paused);
                        self.oracles.of(region).is_paused_above(is_paused);
                    }
                    if let Answer::Grant(grant) = answer {
                        if !grant.term.is_zero() {
                            // Rounded as on the wire.
                            at.horizons[place] = Duration::from_millis(millis_up(grant.horizon));
                        }
                        self.log.note(
                            self.real,
                            "region # is lent # of limit #, keeps #",
                            &[region as u64, grant.permits, place as u64, grant.kept],
                        );
                    }
                    let body = GrantBody::of(&ask.limit, ask.key.as_deref(), answer);
                    GrantBody { safe: safe.map(SafeShareBody::of), ..body }
                }
                Err(error) => {
                    lent_to_groups.push(vec![]);
                    let is_excused = is_lost || (is_redated && (ask.spent_total, ask.held) == (0, 0));
                    must("K2", is_excused || error != Reason::TotalsWrong, || {
                        format!("an honest region was not believed: {error:?}")
                    })?;
                    unfit += usize::from(recovery(error.code()) != Recovery::Unrecognised);
                    let (code, detail) = (error.code().to_owned(), String::new());
                    let body = ErrorBody { code, field: None, detail };
                    GrantBody::wrong(&ask.limit, ask.key.as_deref(), body)
                }
            });
        }
        let (upstream, sent) = (self.limits.upstream(), exchange.first_sent);
        let granted = Granted { bodies: &grants, groups: &lent_to_groups };
        let outcome = at.registry.on_grant_above(now, upstream, session, sent, &due.askers, granted);
        must("K1", outcome.unfit <= unfit, || format!("region {region} got impossible grants: {grants:?}"))?;
        self.look_above(region)
    }

    pub(super) fn region_times_out(&mut self, region: usize, life: u64, exchange: u64) -> Verdict {
        let at = &self.regions[region];
        match at.life == life && at.exchange == Some(exchange) {
            true => self.region_fails(region),
            false => Ok(()),
        }
    }

    /// Records that no answer will come.
    pub(super) fn region_fails(&mut self, region: usize) -> Verdict {
        if self.shared.is_some() {
            self.forget_store(region);
        }
        let at = &mut self.regions[region];
        at.exchange = None;
        let now = at.clock.show(self.real);
        at.registry.on_failure_above(&std::mem::take(&mut at.due).askers);
        at.connection.on_failure(now, 0, self.rng.u64(..));
        self.log.note(self.real, "region # got no answer", &[region as u64]);
        self.look_above(region)
    }
}
